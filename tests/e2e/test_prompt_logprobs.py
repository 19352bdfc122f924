"""Tests log-probabilities of prompts in a whole cluster. Every row follows the null worker's rule, in chunks and across a kill of a
worker or the head. With real models each row equals bit by bit the row from generating the same token."""
import json
import os
import signal
import threading
import time

import httpx
import null_oracle as oracle
import pytest
from cluster import ROOT, SLOW, Cluster, wait_for
from completions import complete

OWN_GOLDENS = ROOT / "build/goldens"
PROMPT = "The quick brown fox jumps over the lazy dog. " * 3


def must_be(rows, want):
    """Compares vLLM's prompt_logprobs with the oracle's rows."""
    assert len(rows) == len(want) and rows[0] is None
    for row, (token, value, rank, best) in zip(rows[1:], want[1:]):
        shown = dict(best)
        shown[token] = value
        assert {int(i): e["logprob"] for i, e in row.items()} == shown
        assert row[str(token)]["rank"] == rank and list(row)[0] == str(token)
        assert [e["rank"] for i, e in row.items() if int(i) != token] == [-8 * v for i, v in best.items() if i != token]


@pytest.fixture(scope="module")
def null():
    with Cluster("--max-num-batched-tokens", 64, "--max-num-seqs", 8, "--max-model-len", 4096) as c:
        yield c


@pytest.mark.parametrize("k", [0, 1, 5, 20])
def test_prompt_logprobs(null, k):
    got = complete(null, model="null", prompt=PROMPT, max_tokens=3, temperature=0, n=2, prompt_logprobs=k)
    for choice in got["choices"]:
        assert choice["text"] == oracle.text(PROMPT, 3, temperature=0)
        must_be(choice["prompt_logprobs"], oracle.scores(PROMPT, k))
    decoded = [next(iter(r.values()))["decoded_token"] for r in got["choices"][0]["prompt_logprobs"][1:]]
    assert "".join(decoded) == PROMPT[1:]


def test_nothing_comes_from_the_cache(null):
    """The same prompt is sent twice. Its rows are never taken from the prefix cache, but other requests may use its blocks."""
    prompt = "cached: " + PROMPT
    for _ in range(2):
        got = complete(null, model="null", prompt=prompt, max_tokens=1, temperature=0, prompt_logprobs=1)
        must_be(got["choices"][0]["prompt_logprobs"], oracle.scores(prompt, 1))
        assert got["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    got = complete(null, model="null", prompt=prompt, max_tokens=1, temperature=0)
    assert got["usage"]["prompt_tokens_details"]["cached_tokens"] > 100


def test_chat(null):
    body = {"model": "null", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "prompt_logprobs": 2,
            "return_token_ids": True}
    got = httpx.post(null.url + "/v1/chat/completions", json=body).json()
    must_be(got["prompt_logprobs"], oracle.scores(got["prompt_token_ids"], 2))
    refused = httpx.post(null.url + "/v1/chat/completions", json={**body, "stream": True})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "prompt_logprobs"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("max_tokens", [0, 1, 4])
def test_echo(null, max_tokens, stream):
    """OpenAI's echo works as lm-evaluation-harness requests log-likelihoods: ids as input and a list of prompts at once."""
    prompts = [list(PROMPT.encode()), list(b"another one")]
    body = {"model": "null", "prompt": prompts, "echo": True, "logprobs": 2, "max_tokens": max_tokens, "temperature": 0}
    choices = [{"text": "", "logprobs": {k: [] for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}}
               for _ in prompts]
    if stream:
        with httpx.stream("POST", null.url + "/v1/completions", json={**body, "stream": True}) as r:
            for line in r.iter_lines():
                for c in json.loads(line[6:])["choices"] if line.startswith("data: {") else []:
                    choices[c["index"]]["text"] += c["text"]
                    for k, v in (c["logprobs"] or {}).items():
                        choices[c["index"]]["logprobs"][k] += v
    else:
        got = complete(null, **body)
        choices = got["choices"]
        assert got["usage"]["completion_tokens"] == max_tokens * len(prompts)
        assert all(c["finish_reason"] == "length" for c in choices)
    for prompt, c in zip(prompts, choices):
        text = bytes(prompt).decode() + oracle.text(prompt, max_tokens, temperature=0)
        lp = c["logprobs"]
        assert c["text"] == text and lp["tokens"] == list(text) and lp["text_offset"] == list(range(len(text)))
        assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
        want = oracle.scores(prompt, 2)[1:]
        assert lp["token_logprobs"][1:len(prompt)] == [w[1] for w in want]
        assert all(v is not None and v < 0 for v in lp["token_logprobs"][len(prompt):])
        for top, (token, value, _, best) in zip(lp["top_logprobs"][1:], want):
            assert top[chr(token)] == value and set(best.values()) <= set(top.values())


def test_max_tokens_0_needs_echo(null):
    r = httpx.post(null.url + "/v1/completions", json={"model": "null", "prompt": "a", "max_tokens": 0})
    assert r.status_code == 400 and r.json()["error"]["param"] == "max_tokens"


@pytest.mark.parametrize("victim", ["worker", "head"])
def test_a_kill_in_the_middle(victim):
    """Chunks of 64 tokens take some 15 ms each. After the kill the known rows stay and the rest is computed again, each row once."""
    prompt = ("abcdefghijklmnopqrstuvwxyz0123456789 " * 100)[:3500]
    with Cluster("--max-num-batched-tokens", 64, "--max-num-seqs", 8, "--max-model-len", 4096, "--null-token-us", 250) as c:
        result = []
        t = threading.Thread(target=lambda: result.append(
            complete(c, model="null", prompt=prompt, max_tokens=2, temperature=0, prompt_logprobs=3)))
        t.start()
        wait_for("it runs", lambda: c.running() == 1)
        time.sleep(0.3)
        assert not result
        os.kill(next(pid for name, pid in c.pids().items() if name.startswith(victim)), signal.SIGKILL)
        t.join(60 * SLOW)
        assert result, "no answer"
        choice = result[0]["choices"][0]
        must_be(choice["prompt_logprobs"], oracle.scores(prompt, 3))
        assert choice["text"] == oracle.text(prompt, 2, temperature=0)


MODELS = [("llama_tiny", 1, 1), ("llama_tiny", 2, 1), ("gemma3_caps", 2, 1), ("gemma3_tiny", 1, 3),
          ("llama_tiny_gguf_q8_0", 2, 2)]


@pytest.mark.skipif(not OWN_GOLDENS.exists(), reason=f"no tiny checkpoints in {OWN_GOLDENS}: scripts/make-goldens")
@pytest.mark.parametrize("name,tp,pp", MODELS, ids=[f"{n}-tp{t}-pp{p}" for n, t, p in MODELS])
def test_models(name, tp, pp):
    """A generated text is used as a prompt. Each token has the row from its generation, for any chunks."""
    folder = OWN_GOLDENS / name
    gguf = folder / "model.gguf"
    answers = []
    for chunk in (16, 512):
        with Cluster("--device", "cpu", "--kv-cache-dtype", "float32", "--dtype", "float32", "--served-model-name", "m", "--pp", pp,
                     "--max-num-batched-tokens", max(48, chunk), "--max-num-seqs", 16, "--step-target-ms", 0,
                     "--long-prefill-token-threshold", chunk, workers=tp * pp, tp=tp,
                     model=str(gguf if gguf.exists() else folder)) as c:
            made = complete(c, model="m", prompt=list(range(5, 45)), max_tokens=60, temperature=0.8, seed=3, logprobs=4,
                            return_token_ids=True, return_tokens_as_token_ids=True, ignore_eos=True)["choices"][0]
            prompt = list(range(5, 45)) + made["token_ids"]
            scored = complete(c, model="m", prompt=prompt, max_tokens=0, echo=True, logprobs=4, prompt_logprobs=4,
                              return_tokens_as_token_ids=True)["choices"][0]
            for key in ("token_logprobs", "top_logprobs", "tokens"):
                assert scored["logprobs"][key][40:] == made["logprobs"][key], key
            for row, token in zip(scored["prompt_logprobs"][40:], made["token_ids"]):
                assert list(row)[0] == str(token) and row[str(token)]["rank"] >= 1
            answers.append(scored)
    assert answers[0] == answers[1]


def test_more_than_the_usual_twenty():
    with Cluster("--max-logprobs", 64) as c:
        body = {"prompt": "one two", "max_tokens": 2, "logprobs": 64, "prompt_logprobs": 64}
        r = httpx.post(c.url + "/v1/completions", json=body, timeout=60)
        assert r.status_code == 200, r.text
        choice = r.json()["choices"][0]
        assert all(len(row) >= 64 for row in choice["prompt_logprobs"][1:])
        assert len(choice["logprobs"]["token_logprobs"]) == 2
        for name, value in (("logprobs", 65), ("prompt_logprobs", 65), ("logprobs", -1), ("prompt_logprobs", -1)):
            r = httpx.post(c.url + "/v1/completions", json={**body, name: value}, timeout=60)
            assert r.status_code == 400 and r.json()["error"]["param"] == name, r.text
