"""Tests statements about DJL Serving that clients on SageMaker rely on. docs/develop/gateway.md numbers them, and a test has the
statement's number in its name."""
import asyncio
import json
import os
import signal

import httpx
import null_oracle as oracle
import pytest
from cluster import ROOT, SLOW, Cluster, get, wait_for

PROMPT = "The meaning of life is"
CHAT = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8, "temperature": 0}


def invoke(http, body, status=200, path="/invocations"):
    r = http.post(path, content=body if isinstance(body, str) else json.dumps(body),
                  headers={"Content-Type": "application/json"})
    assert r.status_code == status, r.text
    return r


def generate(http, stream=False, path="/invocations", **parameters):
    return invoke(http, {"inputs": PROMPT, "parameters": parameters, "stream": stream}, path=path)


def lines(answer):
    """Splits an answer into lines like the line reader of SageMaker's notebooks (line_iterator.py), which never returns text without
    a line end."""
    assert answer.text.endswith("\n")
    return [json.loads(line) for line in answer.text.split("\n") if line]


@pytest.fixture(scope="module")
def asynchronous():
    with Cluster("--invocations", "async") as c, httpx.Client(base_url=c.url, timeout=60) as client:
        yield client


def test_9_predictions_is_invocations(http):
    assert generate(http).json() == generate(http, path="/predictions/model").json()


def test_30_object_with_only_the_text(http):
    got = generate(http, do_sample=True, max_new_tokens=256)
    assert list(got.json()) == ["generated_text"]
    assert got.headers["content-type"].startswith("application/json")


def test_31_thirty_tokens(http):
    assert generate(http, details=True).json()["details"]["generated_tokens"] <= 30
    assert generate(http).json()["generated_text"] == oracle.text(PROMPT, 30, temperature=0)


def test_32_deterministic_unless_asked(http):
    assert generate(http).text == generate(http).text


def test_33_do_sample_false_beats_temperature(http):
    assert generate(http, do_sample=False, temperature=2).text == generate(http).text


def test_34_seed(http):
    a, b, c = (generate(http, do_sample=True, seed=s, max_new_tokens=40).text for s in (7, "7", 8))
    assert a == b != c


@pytest.mark.parametrize("form", ["rolling", "async"])
def test_35_stop_sequences(http, asynchronous, form):
    client = asynchronous if form == "async" else http
    whole = generate(client, temperature=0).json()["generated_text"]
    stop = whole[10:13]
    got = generate(client, temperature=0, stop_sequences=[stop]).json()["generated_text"]
    assert got == whole[:whole.index(stop)]


def test_36_full_text(http):
    assert (generate(http, return_full_text=True).json()["generated_text"]
            == PROMPT + generate(http).json()["generated_text"])


def test_37_unknown_is_dropped(http):
    got = generate(http, watermark=True, typical_p=0.9, never_heard_of={"a": 1}, num_beams=1)
    assert got.text == generate(http).text


def test_38_details(http):
    got = generate(http, details=True).json()
    d = got["details"]
    assert d["finish_reason"] == "length" and d["inputs"] == PROMPT
    assert d["generated_tokens"] == len(d["tokens"]) == 30
    assert "".join(t["text"] for t in d["tokens"]) == got["generated_text"]


def test_40_best_of_sequences(http):
    d = generate(http, n=2, do_sample=True, seed=1).json()["details"]
    assert len(d["best_of_sequences"]) == 1
    assert set(d["best_of_sequences"][0]) == {"finish_reason", "generated_tokens", "tokens", "generated_text"}


def test_41_finish_reason(http):
    assert generate(http, details=True, max_new_tokens=3).json()["details"]["finish_reason"] == "length"


@pytest.mark.parametrize("body", [{"inputs": [PROMPT]}, {"inputs": 5}, {"inputs": ""}, {}])
def test_42_wrong_inputs(http, body):
    got = invoke(http, body, status=424).json()
    assert got["code"] == 424 and got["error"].startswith("Input Parsing failed")


@pytest.mark.parametrize("body", ["{", "", "[]", "\x00", '{"inputs": "a"'])
def test_43_malformed(http, body):
    assert invoke(http, body, status=424).json()["code"] == 424
    generate(http, max_new_tokens=1)


def test_44_schemas_alternate(http):
    for _ in range(2):
        assert "generated_text" in generate(http, max_new_tokens=1).json()
        assert "choices" in invoke(http, CHAT).json()


def test_46_to_50_stream(http):
    got = generate(http, stream=True)
    assert got.headers["content-type"] == "application/jsonlines"
    assert got.headers["transfer-encoding"] == "chunked"
    all_lines = lines(got)
    assert len(all_lines) == 30
    for line in all_lines:
        assert set(line["token"]) == {"id", "text", "log_prob"}
    assert [set(line) for line in all_lines[:-1]] == [{"token"}] * 29
    last = all_lines[-1]["generated_text"]
    assert "".join(line["token"]["text"] for line in all_lines) == last == generate(http).json()["generated_text"]


def test_50_async_says_logprob(asynchronous):
    all_lines = lines(generate(asynchronous, stream=True, temperature=0, details=True, seed=3))
    assert all(set(x) == {"index", "token", "generated_text", "details"} for x in all_lines)
    assert all(set(x["token"]) == {"id", "text", "logprob"} for x in all_lines)
    assert all(x["details"] is None for x in all_lines[:-1])
    assert all_lines[-1]["details"] == {"finish_reason": "length", "seed": 3, "generated_tokens": 30,
                                        "input_length": len(PROMPT)}
    whole = generate(asynchronous, temperature=0)
    assert whole.text.endswith("}\n") and whole.json()["generated_text"] == all_lines[-1]["generated_text"]


def test_50_async_takes_a_prompt(asynchronous):
    body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0}
    assert invoke(asynchronous, body).json()["choices"][0]["text"] == oracle.text(PROMPT, 4, temperature=0)
    all_lines = lines(invoke(asynchronous, {**body, "stream": True}))
    assert "".join(x["choices"][0]["text"] for x in all_lines) == oracle.text(PROMPT, 4, temperature=0)
    assert invoke(asynchronous, {}, status=424).json()["error"].startswith("Input parsing failed: invalid payload")


def test_51_first_line_before_the_end(http):
    """The reader stops after the first line, before the cluster has generated the rest."""
    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": 2000}, "stream": True}
    with http.stream("POST", "/invocations", json=body) as r:
        first = next(r.iter_lines())
    assert set(json.loads(first)) == {"token"}


def test_52_sse(http):
    got = generate(http, output_formatter="sse", max_new_tokens=3)
    assert got.headers["content-type"].startswith("text/event-stream")
    events = got.text.split("\n\n")
    assert events.pop() == "" and len(events) == 3
    assert all(e.startswith("data: {") for e in events)


def test_54_parse_error_in_a_stream(http):
    invoke(http, {"inputs": 1, "stream": True}, status=424)


def test_56_chat(http):
    got = invoke(http, CHAT).json()
    assert {"id", "object", "created", "choices", "usage"} <= set(got)
    all_lines = lines(invoke(http, {**CHAT, "stream": True}))
    assert all_lines[0]["choices"][0]["delta"]["role"] == "assistant"
    text = "".join(x["choices"][0]["delta"].get("content", "") for x in all_lines)
    assert text == got["choices"][0]["message"]["content"]


@pytest.mark.parametrize("temperature", [-0.1, 3])
def test_57_temperature_of_chat(http, temperature):
    invoke(http, {**CHAT, "temperature": temperature}, status=424)


def test_60_unknown_adapter(http):
    invoke(http, {"inputs": PROMPT, "adapters": "nobody"}, status=424)


@pytest.mark.parametrize("name, value", [("X-Amzn-SageMaker-Adapter-Identifier", "nobody"),
                                         ("X-Amzn-SageMaker-Custom-Attributes",
                                          "a=1;X-Amzn-SageMaker-Adapter-Identifier=nobody;b"),
                                         ("X-Amzn-SageMaker-Adapter-Identifier", "n" * 300)])
def test_60_header_beats_the_body(http, name, value):
    got = http.post("/invocations", json={"inputs": PROMPT, "adapters": ""}, headers={name: value})
    assert got.status_code == 424 and ("nobody" in got.text or len(value) > 255)
    assert http.post("/invocations?adapter=nobody", json={"inputs": PROMPT}).status_code == 424
    assert http.post("/invocations", json={"inputs": PROMPT, "adapters": "nobody"},
                     headers={"X-Amzn-SageMaker-Adapter-Identifier": "null"}).status_code == 200


def test_59_attributes_are_properties(http):
    def ask(attributes, path="/invocations"):
        return http.post(path, json={"inputs": PROMPT}, headers={"X-Amzn-SageMaker-Custom-Attributes": attributes})

    for path in ("/invocations", "/predictions/model"):
        refused = ask("a=b;handler=os.system", path)
        assert refused.status_code == 400 and refused.json()["type"] == "BadRequestException"
    assert ask("a=b;nothing;x-handler=1").status_code == 200
    assert ask("model_name=null").status_code == 200
    another = ask("model_name=other")
    assert another.status_code == 404 and another.json()["message"] == "Model not found: other"
    assert http.post("/invocations?model_name=other", json={"inputs": PROMPT}).status_code == 404
    for path, status in (("null", 200), ("model/1", 200), ("other", 404), ("null2", 404)):
        assert http.post(f"/predictions/{path}", json={"inputs": PROMPT}).status_code == status, path


# ---- with a model that has EOS and adapters ----

TINY = ROOT / "build/goldens/llama_tiny"
needs_tiny = pytest.mark.skipif(not (TINY / "loras").exists(), reason=f"no {TINY}/loras: scripts/make-goldens")


@pytest.fixture(scope="module", params=["rolling", "async"])
def tiny(request):
    with Cluster("--device", "cpu", "--served-model-name", "m", "--enable-lora", "--lora-root", TINY / "loras",
                 "--lora-modules", "every=every", "--invocations", request.param, model=str(TINY),
                 workers=1, tp=1) as c, httpx.Client(base_url=c.url, timeout=60) as client:
        client.form = request.param
        yield client


@needs_tiny
def test_41_eos(tiny):
    """EOS is a token too, so it is counted, and it has no text."""
    to_the_end = {"do_sample": False, "details": True, "min_tokens": 3, "logit_bias": {"97": 50, "257": 100}, "max_new_tokens": 9}
    d = generate(tiny, **to_the_end).json()["details"]
    assert d["finish_reason"] == ("eos_token" if tiny.form == "rolling" else "stop")
    assert d["generated_tokens"] == len(d["tokens"]) == 4
    assert (d["tokens"][-1]["id"], d["tokens"][-1]["text"]) == (257, "")
    all_lines = lines(generate(tiny, stream=True, **to_the_end))
    assert [x["token"]["id"] for x in all_lines] == [t["id"] for t in d["tokens"]]
    assert all_lines[-1]["details"]["finish_reason"] == d["finish_reason"]


@needs_tiny
def test_60_header_selects_the_adapter(tiny):
    def text(headers=None, **body):
        got = tiny.post("/invocations", headers=headers, json={
            "inputs": PROMPT, "parameters": {"do_sample": False}, **body})
        assert got.status_code == 200, got.text
        return got.json()["generated_text"]

    header = {"X-Amzn-SageMaker-Adapter-Identifier": "every"}
    adapted = text(adapters="every")
    assert text(header) == text(header, adapters="nobody") == adapted != text()
    assert text({"X-Amzn-SageMaker-Custom-Attributes": "X-Amzn-SageMaker-Adapter-Identifier=every"}) == adapted


# ---- static batches and TGI's form ----


@pytest.fixture(scope="module")
def static():
    with Cluster("--invocations", "static") as c, httpx.Client(base_url=c.url, timeout=60) as client:
        yield client


def test_45_a_list_of_three(static):
    prompts = ["a", "bc", "d" * 40]
    got = invoke(static, {"inputs": prompts, "parameters": {"max_new_tokens": 9}}).json()
    assert got == [{"generated_text": p + oracle.text(p, 9, temperature=0, i_prompt=i)} for i, p in enumerate(prompts)]


def test_45_lines_of_outputs(static):
    got = lines(generate(static, stream=True, max_new_tokens=9))
    assert [list(x) for x in got] == [["outputs"]] * 9
    assert "".join(x["outputs"][0] for x in got) == oracle.text(PROMPT, 9, temperature=0)


def test_53_tgi():
    with Cluster("--invocations", "tgi") as c, httpx.Client(base_url=c.url, timeout=60) as client:
        [got] = generate(client).json()
        assert got["generated_text"] == oracle.text(PROMPT, 30, temperature=0)
        assert all(set(t) == {"id", "text", "logprob", "special"} for t in got["details"]["tokens"])
        streamed = generate(client, stream=True)
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert streamed.text.startswith('data: {"token":{') and streamed.text.endswith("}\n\n")


# ---- the process, as a container's command ----


class Container(Cluster):
    """Runs `cox serve` with settings from the environment. The other ports are free ones, so that parallel tests do not clash."""

    def __init__(self, model="null", **variables):
        super().__init__()
        self.store = self.tmp / "store"
        self.store.mkdir()
        self.command = [self.command[0], "serve",
                        *self.command[self.command.index("--head-port"):]]
        self.env.update({"SERVING_MODEL_STORE": str(self.store), "HF_MODEL_ID": model, **variables})
        self.env["SAGEMAKER_BIND_TO_PORT"] = str(self.ports[0])


SEED_000 = {
    "OPTION_ROLLING_BATCH": "vllm", "OPTION_TENSOR_PARALLEL_DEGREE": "max", "OPTION_MAX_ROLLING_BATCH_SIZE": "2",
    "OPTION_DTYPE": "fp16", "OPTION_TRUST_REMOTE_CODE": "true", "OPTION_MAX_MODEL_LEN": "8192",
    "VLLM_ATTENTION_BACKEND": "XFORMERS", "OPTION_GPU_MEMORY_UTILIZATION": "0.9", "VLLM_MAX_NUM_SEQS": "16",
}


@pytest.fixture(scope="module")
def container():
    with Container(**SEED_000, HF_TOKEN="hf_secret") as c:
        wait_for("the log says that it serves", lambda: "BOTH API bind to" in c.log())  # requests may be served before this line is written
        yield c


@pytest.fixture(scope="module")
def endpoint(container):
    with httpx.Client(base_url=container.url, timeout=60) as client:
        yield client


def test_1_3_24_serve_with_the_settings_of_seed_000(endpoint):
    assert "log_prob" in generate(endpoint, stream=True).text, "rolling"
    assert generate(endpoint).json()["generated_text"] == oracle.text(PROMPT, 30, temperature=0)


def test_2_listens_everywhere(container):
    assert httpx.get(f"http://127.0.0.2:{container.ports[0]}/ping").status_code == 200


def test_62_settings_in_the_log(container):
    log = container.log()
    assert f"Inference address: http://0.0.0.0:{container.ports[0]}" in log and "OPTION_DTYPE: fp16" in log
    assert "HF_TOKEN: ***" in log and "hf_secret" not in log
    at = 0
    for line in ("[INFO ] ModelServer -", "Default job_queue_size: 1000", "Default max_batch_delay: 100",
                 "Maximum Request Size: 67108864", "LmiUtils - Detected mpi_mode: null, rolling_batch: vllm",
                 "ModelInfo - M-0001: Apply per model settings:", "option.dtype: fp16", "-null-stdout: INFO Initializing an LLM engine (v",
                 "with config: model='null', speculative_config=None, tokenizer='null', trust_remote_code=False, dtype=float16, max_seq_len=",
                 "tensor_parallel_size=", "kv_cache_dtype=auto, device_config=", "max_num_seqs=", "Model [null] initialized.",
                 "Starting worker thread WT-0001 for model null (M-0001, READY) on device",
                 f"BOTH API bind to: http://0.0.0.0:{container.ports[0]}"):
        at = log.index(line, at)


def test_62_the_line_of_throughput(full):
    """The throughput is logged every five seconds in which a request ran."""
    generate_for = {"inputs": PROMPT, "parameters": {"max_new_tokens": 160}}
    assert httpx.post(full.url + "/invocations", json=generate_for, timeout=60 * SLOW).status_code == 200
    wait_for("the line", lambda: "Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage:" in full.log(), 30)


def test_7_body_of_ping(endpoint):
    got = endpoint.get("/ping")
    assert got.status_code == 200 and got.json() == {"null": {"status": "Healthy"}}


def test_10_chat_is_invocations(endpoint):
    said = []
    for path in ("/invocations", "/v1/chat/completions"):
        choices = [x["choices"][0] for x in lines(invoke(endpoint, {**CHAT, "stream": True}, path=path)) if x["choices"]]
        # The number of tokens in an event depends on the client's speed.
        said.append(("".join(c["delta"].get("content") or "" for c in choices), choices[-1]["finish_reason"], {*choices[0]}))
    assert said[0] == said[1] and said[0][0]
    invoke(endpoint, {**CHAT, "temperature": 3}, status=424, path="/v1/chat/completions")


def test_14_23_the_file_wins():
    c = Container(OPTION_ROLLING_BATCH="vllm")
    (c.store / "serving.properties").write_text("engine=Python\noption.rolling_batch=auto\n")
    with c, httpx.Client(base_url=c.url, timeout=60) as client:
        assert '"logprob"' in generate(client, stream=True).text, "async"


@pytest.mark.parametrize("variables, why", [({"OPTION_DTYPE": "fp17"}, "dtype=fp17"),
                                            ({"HF_MODEL_ID": ""}, "no config.json"),
                                            ({"HF_MODEL_ID": "org/nowhere", "HF_HUB_OFFLINE": "1"}, "model hf:org/nowhere@main is not in the cache")])
def test_8_21_what_cannot_be_loaded_ends(variables, why):
    c = Container()
    c.env.update(variables)
    c.start(wait=False)
    try:
        assert c.process.wait(60) != 0
        assert why in c.log()
    finally:
        c.kill()


def test_4_sigterm_ends_it():
    c = Container().start()
    code, seconds = c.stop(signal.SIGTERM, seconds=30)
    assert code == 0 and seconds < 30


# ---- health and limits ----


def test_5_no_200_before_it_can_generate():
    c = Container(OPTION_ROLLING_BATCH="vllm").start(wait=False)
    seen = []
    try:
        def serves():
            seen.append(get(c.url + "/ping")[0])
            return seen[-1] == 200

        wait_for("/ping is 200", serves)
        assert httpx.post(c.url + "/invocations", json={"inputs": PROMPT}).status_code == 200
        assert set(seen[:-1]) <= {0, 503} and len(seen) > 1
    finally:
        c.stop()


@pytest.fixture(scope="module")
def full():
    """Yields a container that runs one sequence at a time, slowly, with one place in the queue."""
    with Container(OPTION_ROLLING_BATCH="vllm", OPTION_MAX_ROLLING_BATCH_SIZE="1", SERVING_JOB_QUEUE_SIZE="1",
                   SERVING_THROTTLE_ERROR_HTTP_CODE="429", SERVING_MAX_REQUEST_SIZE="2000",
                   COX_NULL_STEP_US="50000") as c:
        yield c


async def crowd(c, n):
    """Sends n requests at once, of which one runs and at most one waits. Returns the refused requests, and /ping while one runs."""
    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": 100}}
    async with httpx.AsyncClient(base_url=c.url, timeout=60 * SLOW) as client:
        asked = [asyncio.create_task(client.post("/invocations", json=body)) for _ in range(n)]
        refused = []
        while len(refused) < n - 2:
            await asyncio.sleep(0.01)
            refused = [t.result() for t in asked if t.done()]
        ping = await client.get("/ping", timeout=2 * SLOW)
        running = c.status()["requests"]["running"]
        for t in asked:
            t.cancel()
    return refused, ping, running


def test_6_25_26_27_full(full):
    refused, ping, running = asyncio.run(crowd(full, 5))
    assert {r.status_code for r in refused} == {429}, "SERVING_THROTTLE_ERROR_HTTP_CODE"
    assert all(r.json()["type"] == "WlmCapacityException" and r.json()["code"] == 429 for r in refused)
    assert ping.status_code == 200 and running <= 1


def test_26_full_is_503():
    with Container(OPTION_ROLLING_BATCH="vllm", OPTION_MAX_ROLLING_BATCH_SIZE="1", SERVING_JOB_QUEUE_SIZE="1",
                   COX_NULL_STEP_US="50000") as c:
        refused, _, _ = asyncio.run(crowd(c, 4))
    assert {r.status_code for r in refused} == {503}
    assert all(r.json()["type"] == "WlmCapacityException" for r in refused)


def test_28_body_too_large(full):
    assert httpx.post(full.url + "/invocations", json={"inputs": "a" * 3000}).status_code == 413


def test_12_unknown_paths_and_methods(full):
    for method, path, status in (("GET", "/nowhere", 404), ("POST", "/predictions/", 404), ("GET", "/invocations", 405)):
        got = httpx.request(method, full.url + path)
        assert got.status_code == status and set(got.json()) == {"code", "type", "message"}, got.text
        assert got.json()["code"] == status


def test_58_request_ids(full):
    def ids(**headers):
        got = httpx.get(full.url + "/ping", headers={k.replace("_", "-"): v for k, v in headers.items()})
        return got.headers["x-request-id"]

    assert ids(X_Amzn_SageMaker_Inference_Id="mine-1") == "mine-1"
    assert ids(X_Amzn_SageMaker_Inference_Id="mine-1", X_Request_Id="other") == "mine-1"
    assert ids(X_Request_Id="other") == "other"
    a, b = ids(), ids(X_Amzn_SageMaker_Inference_Id="no good")
    assert a != b and len(a) == len(b) == 32


def test_8_29_what_dies_later():
    """When the workers stop, /ping is no longer 200, and waiting clients are disconnected."""
    with Container(OPTION_ROLLING_BATCH="vllm", SERVING_CHUNKED_READ_TIMEOUT="1", COX_NULL_STEP_US="20000") as c:
        assert get(c.url + "/ping")[0] == 200
        stopped = [pid for name, pid in c.pids().items() if name.startswith("worker")]
        try:
            with httpx.stream("POST", c.url + "/invocations", timeout=60 * SLOW, json={
                    "inputs": PROMPT, "parameters": {"max_new_tokens": 1000}, "stream": True}) as r:
                lines_of = r.iter_lines()
                next(lines_of)
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                with pytest.raises(httpx.RemoteProtocolError):
                    list(lines_of)
            with pytest.raises(httpx.RemoteProtocolError):
                httpx.post(c.url + "/invocations", json={"inputs": PROMPT}, timeout=60 * SLOW)
            wait_for("/ping is 500", lambda: get(c.url + "/ping")[0] == 500, 30)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        wait_for("/ping is 200 again", lambda: get(c.url + "/ping")[0] == 200, 30)


def test_15_startup_timeout():
    """The workers are not ready in time, because no other process connects to this head's port."""
    c = Container(OPTION_ROLLING_BATCH="vllm", OPTION_MODEL_LOADING_TIMEOUT="300", SAGEMAKER_STARTUP_TIMEOUT="1")
    (c.store / "serving.properties").write_text("option.model_loading_timeout=200\n")
    c.command += ["--workers", "1", "--tp", "2"]
    c.start(wait=False)
    try:
        assert c.process.wait(60 * SLOW) != 0
        assert "within 1 s (--startup-timeout)" in c.log()
    finally:
        c.kill()
