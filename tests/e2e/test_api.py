"""Tests the HTTP API against the null worker's oracle: a client sees exactly the expected answer."""
import gzip
import json
import time
import zlib

import httpx
import null_oracle as oracle
import pytest
from sse import collect

PROMPT = "The quick brown fox"


def complete(http, status=200, path="/v1/completions", **body):
    r = http.post(path, json={"model": "null", "prompt": PROMPT, **body})
    assert r.status_code == status, r.text
    return r.json()


def test_health_models_version(http):
    assert http.get("/health").status_code == 200
    assert http.get("/ping").status_code == 200
    models = http.get("/v1/models").json()
    assert models["object"] == "list" and [m["id"] for m in models["data"]] == ["null"]
    assert models["data"][0]["object"] == "model" and models["data"][0]["root"] == "null" and models["data"][0]["permission"][0]["allow_sampling"]
    assert http.get("/version").json()["version"]


def test_completion(http):
    got = complete(http, max_tokens=24, temperature=0)
    assert got["object"] == "text_completion" and got["model"] == "null"
    assert got["id"].startswith("cmpl-") and abs(got["created"] - time.time()) < 60
    choice = got["choices"][0]
    assert choice["text"] == oracle.text(PROMPT, 24, temperature=0)
    assert choice["finish_reason"] == "length" and choice["index"] == 0
    assert got["usage"]["prompt_tokens"] == len(PROMPT)
    assert got["usage"]["completion_tokens"] == 24
    assert got["usage"]["total_tokens"] == len(PROMPT) + 24


@pytest.mark.parametrize("coding,pack", [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate, gzip", lambda b: gzip.compress(zlib.compress(b)))])
def test_compressed_bodies(http, coding, pack):
    body = json.dumps({"prompt": PROMPT, "max_tokens": 4, "temperature": 0}).encode()

    def post(packed, coding=coding):
        return http.post("/v1/completions", content=packed, headers={"Content-Encoding": coding, "Content-Type": "application/json"})

    assert post(pack(body)).json()["choices"][0]["text"] == oracle.text(PROMPT, 4, temperature=0)
    broken = post(pack(body)[:-3])
    assert broken.status_code == 400 and "Content-Encoding" in broken.json()["error"]["message"]
    bomb = post(pack(b" " * (17 << 20)))
    assert bomb.status_code == 413 and "decoded" in bomb.json()["error"]["message"]
    unknown = post(pack(body), "br")
    assert unknown.status_code == 415 and unknown.headers["accept-encoding"] == "gzip, deflate, zstd"
    assert "Content-Encoding" in unknown.json()["error"]["message"]


def test_tokenize_and_back(http):
    """/tokenize and /detokenize take vLLM's bodies. The ids of a chat equal those of the chat endpoint."""
    got = http.post("/tokenize", json={"model": "null", "prompt": "héy", "return_token_strs": True}).json()
    assert got["tokens"] == list("héy".encode()) and got["count"] == 4
    assert got["max_model_len"] == http.get("/v1/models").json()["data"][0]["max_model_len"]
    assert http.post("/detokenize", json={"tokens": got["tokens"]}).json() == {"prompt": "héy"}
    messages = [{"role": "user", "content": "Hi"}]
    ids = http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    seen = complete(http, path="/v1/chat/completions", messages=messages, max_tokens=1, return_token_ids=True, prompt=None)
    assert ids == seen["prompt_token_ids"]


def test_completion_defaults_to_16_tokens(http):
    assert complete(http, temperature=0)["choices"][0]["text"] == oracle.text(PROMPT, 16, temperature=0)


@pytest.mark.parametrize("temperature", [0, 1])
def test_stream_equals_whole(http, temperature):
    n = 400  # a step takes 1 ms: on a busy machine the gateway may stall for tens of steps and receive their tokens together
    body = {"model": "null", "prompt": PROMPT, "max_tokens": n, "temperature": temperature, "seed": 7,
            "stream_options": {"include_usage": True}}
    got = collect(http, "/v1/completions", body)
    assert got.texts == {0: oracle.text(PROMPT, n, seed=7, temperature=temperature)}
    assert got.finish == {0: "length"}
    assert got.usage["completion_tokens"] == n and got.usage["prompt_tokens"] == len(PROMPT)
    assert got.n_chunks > n / 4, "tokens came in a lump, not one by one"


def test_no_usage_unless_asked(http):
    assert collect(http, "/v1/completions", {"model": "null", "prompt": "a", "max_tokens": 3}).usage is None


def test_seed_is_reproducible(http):
    a, b = (complete(http, max_tokens=30, temperature=1, seed=123)["choices"][0]["text"] for _ in range(2))
    assert a == b == oracle.text(PROMPT, 30, seed=123)
    c = complete(http, max_tokens=30, temperature=1, seed=124)["choices"][0]["text"]
    assert c == oracle.text(PROMPT, 30, seed=124) != a


def test_no_seed_differs(http):
    texts = {complete(http, max_tokens=30, temperature=1)["choices"][0]["text"] for _ in range(3)}
    assert len(texts) == 3


def test_n_choices(http):
    got = complete(http, max_tokens=20, temperature=1, seed=5, n=4)
    by_index = {c["index"]: c["text"] for c in got["choices"]}
    assert by_index == {i: oracle.text(PROMPT, 20, seed=5, i_choice=i) for i in range(4)}
    assert len(set(by_index.values())) == 4
    assert got["usage"]["completion_tokens"] == 80 and got["usage"]["prompt_tokens"] == len(PROMPT)
    stream = collect(http, "/v1/completions", {"model": "null", "prompt": PROMPT, "max_tokens": 20, "temperature": 1,
                                               "seed": 5, "n": 4})
    assert stream.texts == by_index and set(stream.finish.values()) == {"length"}


def test_several_prompts(http):
    got = complete(http, prompt=["one", "two"], max_tokens=8, temperature=1, seed=9, n=2)
    want = [oracle.text(p, 8, seed=9, i_prompt=i, i_choice=c) for i, p in enumerate(["one", "two"]) for c in range(2)]
    assert [c["text"] for c in sorted(got["choices"], key=lambda c: c["index"])] == want


def test_token_id_prompts_equal_text(http):
    ids = list(PROMPT.encode())
    want = oracle.text(PROMPT, 20, temperature=0)
    for prompt in (ids, [ids]):
        got = complete(http, prompt=prompt, max_tokens=20, temperature=0)
        assert got["choices"][0]["text"] == want and got["usage"]["prompt_tokens"] == len(ids)


def test_return_token_ids(http):
    got = complete(http, max_tokens=12, temperature=0, return_token_ids=True)
    choice = got["choices"][0]
    assert choice["token_ids"] == oracle.token_ids(PROMPT.encode(), 12, temperature=0)
    assert choice["prompt_token_ids"] == list(PROMPT.encode())


def test_chat(http):
    body = {"model": "null", "messages": [{"role": "system", "content": "Be brief."},
                                          {"role": "user", "content": "Hello"}],
            "max_tokens": 18, "temperature": 1, "seed": 3, "return_token_ids": True}
    r = http.post("/v1/chat/completions", json=body)
    assert r.status_code == 200, r.text
    got = r.json()
    assert got["object"] == "chat.completion" and got["id"].startswith("chatcmpl-")
    prompt = got["prompt_token_ids"]
    assert b"Hello" in bytes(prompt) and b"Be brief." in bytes(prompt)
    want = oracle.text(prompt, 18, seed=3)
    message = got["choices"][0]["message"]
    assert message["role"] == "assistant" and message["content"] == want
    assert got["usage"] == {**got["usage"], "prompt_tokens": len(prompt), "completion_tokens": 18}
    stream = collect(http, "/v1/chat/completions", body)
    assert stream.texts == {0: want} and stream.finish == {0: "length"}
    parts = {**body, "messages": [{"role": "system", "content": "Be brief."},
                                  {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}
    assert http.post("/v1/chat/completions", json=parts).json()["choices"][0]["message"]["content"] == want


def stop_cases():
    answer = oracle.text(PROMPT, 64, seed=11)
    return [[answer[9:12]], [answer[30]], [answer[20:26], answer[22:24]], [answer[5:9], answer[6:9]],
            ["NEVER"], [answer[-3:]], ["x" * 50, answer[40:47]], answer[13:15]]


@pytest.mark.parametrize("stop", stop_cases(), ids=repr)
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(http, cluster, stop, stream):
    stops = [stop] if isinstance(stop, str) else stop
    text, n, matched = oracle.cut(oracle.text(PROMPT, 64, seed=11), stops)
    body = {"model": "null", "prompt": PROMPT, "max_tokens": 64, "temperature": 1, "seed": 11, "stop": stop}
    if stream:
        got = collect(http, "/v1/completions", {**body, "stream_options": {"include_usage": True}})
        result = got.texts[0], got.finish[0], got.usage["completion_tokens"], got.stop_reason[0]
    else:
        whole = complete(http, **body)
        choice = whole["choices"][0]
        result = (choice["text"], choice["finish_reason"], whole["usage"]["completion_tokens"],
                  choice.get("stop_reason"))
    assert result == (text, "stop" if matched else "length", n, matched)
    cluster.wait_idle()


def test_stop_string_may_be_shown(http):
    answer = oracle.text(PROMPT, 64, seed=11)
    got = complete(http, max_tokens=64, temperature=1, seed=11, stop=answer[10:14], include_stop_str_in_output=True)
    assert got["choices"][0]["text"] == answer[:answer.find(answer[10:14]) + 4]


def test_stop_token_ids(http):
    ids = oracle.token_ids(PROMPT.encode(), 64, temperature=0)
    n = ids.index(ids[20])
    got = complete(http, max_tokens=64, temperature=0, stop_token_ids=[ids[20]])
    choice = got["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["stop_reason"] == ids[20]
    assert got["usage"]["completion_tokens"] == n + 1
    assert choice["text"] in (bytes(ids[:n]).decode(), bytes(ids[:n + 1]).decode())


def test_echo(http):
    got = complete(http, max_tokens=5, temperature=0, echo=True)
    assert got["choices"][0]["text"] == PROMPT + oracle.text(PROMPT, 5, temperature=0)


def test_logprobs(http):
    got = complete(http, max_tokens=4, temperature=0, logprobs=2)
    lp = got["choices"][0]["logprobs"]
    want = oracle.text(PROMPT, 4, temperature=0)
    assert lp["tokens"] == list(want) and len(lp["token_logprobs"]) == 4
    assert all(v <= 0 for v in lp["token_logprobs"])
    assert all(len(t) >= 2 for t in lp["top_logprobs"])
    lp = complete(http, max_tokens=4, temperature=0, logprobs=0)["choices"][0]["logprobs"]
    assert lp["top_logprobs"] == [{t: v} for t, v in zip(lp["tokens"], lp["token_logprobs"])]  # OpenAI and vLLM also list the sampled token
    assert lp["text_offset"] == [0, 1, 2, 3]
    r = http.post("/v1/chat/completions", json={"model": "null", "messages": [{"role": "user", "content": "x"}],
                                                "max_tokens": 3, "logprobs": True, "top_logprobs": 2}).json()
    content = r["choices"][0]["logprobs"]["content"]
    assert len(content) == 3 and all(len(c["top_logprobs"]) == 2 and c["bytes"] for c in content)


BAD = [  # each case: changes to {"model", "prompt"}, expected status, expected param
    ({"model": "nobody"}, 404, "model"),
    ({"max_tokens": -1}, 400, "max_tokens"),
    ({"max_tokens": "many"}, 400, "max_tokens"),
    ({"max_tokens": 1.5}, 400, "max_tokens"),
    ({"temperature": -0.1}, 400, "temperature"),
    ({"temperature": "hot"}, 400, "temperature"),
    ({"top_p": 0}, 400, "top_p"),
    ({"top_p": 1.1}, 400, "top_p"),
    ({"top_k": -5}, 400, "top_k"),
    ({"min_p": 2}, 400, "min_p"),
    ({"n": 0}, 400, "n"),
    ({"n": 100000}, 400, "n"),
    ({"stop": ["a"] * 17}, 400, "stop"),
    ({"stop": [""]}, 400, "stop"),
    ({"stop": 5}, 400, "stop"),
    ({"logprobs": 21}, 400, "logprobs"),
    ({"stream": "yes"}, 400, "stream"),
    ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
    ({"seed": "x"}, 400, "seed"),
    ({"suffix": "x"}, 400, "suffix"),
    ({"presence_penalty": 3}, 400, "presence_penalty"),
    ({"repetition_penalty": 0}, 400, "repetition_penalty"),
    ({"logit_bias": {"x": 1}}, 400, "logit_bias"),
    ({"prompt": None}, 400, "prompt"),
    ({"prompt": []}, 400, "prompt"),
    ({"prompt": [259]}, 400, "prompt"),
    ({"prompt": [-1]}, 400, "prompt"),
    ({"prompt": ["a", 1]}, 400, "prompt"),
    ({"prompt": {"a": 1}}, 400, "prompt"),
]


@pytest.mark.parametrize("body,status,param", BAD, ids=lambda v: json.dumps(v)[:40])
def test_bad_bodies(http, body, status, param):
    got = complete(http, status=status, **body)
    error = got["error"]
    assert error["param"] == param and error["message"] and error["type"] and error["code"], got


def test_context_length(http):
    got = complete(http, status=400, prompt="a" * 40000, max_tokens=10)
    assert "maximum context length" in got["error"]["message"]


def test_the_default_of_max_tokens_bends_to_the_context(http):
    r = http.post("/v1/completions", json={"prompt": "x" * (32768 - 4)})
    assert r.status_code == 200, r.text
    assert r.json()["usage"]["completion_tokens"] == 4


def test_images_are_refused(http):
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    r = http.post("/v1/chat/completions", json={"model": "null", "messages": [{"role": "user", "content": parts}]})
    assert r.status_code == 400 and "image_url" in r.json()["error"]["message"]


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b'{"model": "null", "prompt": "\xff\xfe"}',
                                 b'{"prompt": "a", "prompt": "b"}', b'{"max_tokens": NaN, "prompt": "a"}',
                                 b"[" * 100000, b'{"a":' * 50000, b"\x00" * 100], ids=lambda b: repr(b[:24]))
def test_bad_json(http, raw):
    r = http.post("/v1/completions", content=raw, headers={"content-type": "application/json"})
    assert r.status_code == 400 and r.json()["error"]["message"]


def test_big_bodies(http, cluster):
    r = http.post("/v1/completions", content=b'{"model": "null", "prompt": "' + b"a" * 10_000_000 + b'"}')
    assert r.status_code in (400, 413), r.text
    r = http.post("/v1/completions", content=b" " * 20_000_000)
    assert r.status_code == 413
    assert complete(http, max_tokens=2, temperature=0)["choices"][0]["text"] == oracle.text(PROMPT, 2, temperature=0)


def test_unknown_routes_and_methods(http):
    assert http.get("/nothing").status_code == 404
    assert http.get("/v1/completions").status_code == 405
    assert http.delete("/v1/models").status_code == 405


def test_unknown_fields_are_refused_and_harmless_ones_are_not(http):
    got = complete(http, max_tokens=3, temperature=0, user="me", metadata={"a": 1}, store=False)
    assert got["choices"][0]["text"] == oracle.text(PROMPT, 3, temperature=0)
    assert complete(http, 400, some_new_field=[1])["error"]["param"] == "some_new_field"


FOREIGN = ["evil.example", "127.evil.example:8265", "127.0.0.1.evil.example", "localhost.evil.example", "[::1].evil.example",
           "[::1]evil.example:80", "localhost:80.evil.example", "0.0.0.0:8265", "127.0.0.1@evil.example"]


@pytest.mark.parametrize("name", FOREIGN)
def test_admin_api_without_a_key_answers_loopback_names_only(cluster, name):
    """A request with another site's Host is refused. In DNS rebinding, a web page's name resolves to 127.0.0.1, and the page sends
    that name as Host."""
    with httpx.Client(base_url=cluster.admin, headers={"Host": name}) as web:
        for path in ("/", "/api/status", "/api/events", "/metrics"):
            answer = web.get(path)
            assert answer.status_code == 403 and "admin-key-file" in answer.text, (path, answer.text)
        assert web.post("/api/drain", json={"worker": "all", "on": True}).status_code == 403
        assert web.get("/livez").status_code == 200
    assert not cluster.status()["draining"]


@pytest.mark.parametrize("name", ["127.0.0.1:1", "LOCALHOST", "[::1]:8265", "127.9.9.9"])
def test_admin_api_takes_every_loopback_name(cluster, name):
    with httpx.Client(base_url=cluster.admin, headers={"Host": name}) as local:
        assert local.get("/api/status").status_code == 200
        assert local.get("/metrics").status_code == 200
