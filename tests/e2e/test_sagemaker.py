"""What DJL Serving's clients on SageMaker rely on. docs/sagemaker.md numbers the statements; a test has
the number of its statement in its name."""
import json
import signal

import httpx
import null_oracle as oracle
import pytest
from cluster import Cluster

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
    """As the reader of seed 002 does it: what does not end in a line end is never seen."""
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
    """The reader stops after the first line: the cluster has not made the rest by then."""
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


# ---- the process, as a container's command ----


class Container(Cluster):
    """`cox serve` with settings in the environment. The other ports are ours, so that tests do not meet."""

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


def test_7_body_of_ping(endpoint):
    got = endpoint.get("/ping")
    assert got.status_code == 200 and got.json() == {"null": {"status": "Healthy"}}


def test_10_chat_is_invocations(endpoint):
    a, b = (lines(invoke(endpoint, {**CHAT, "stream": True}, path=p)) for p in ("/invocations", "/v1/chat/completions"))
    assert [x["choices"] for x in a] == [x["choices"] for x in b]
    invoke(endpoint, {**CHAT, "temperature": 3}, status=424, path="/v1/chat/completions")


def test_14_23_the_file_wins():
    c = Container(OPTION_ROLLING_BATCH="vllm")
    (c.store / "serving.properties").write_text("engine=Python\noption.rolling_batch=auto\n")
    with c, httpx.Client(base_url=c.url, timeout=60) as client:
        assert '"logprob"' in generate(client, stream=True).text, "async"


@pytest.mark.parametrize("variables, why", [({"OPTION_DTYPE": "fp17"}, "dtype=fp17"),
                                            ({"HF_MODEL_ID": ""}, "no config.json"),
                                            ({"HF_MODEL_ID": "org/nowhere"}, "org/nowhere")])
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
