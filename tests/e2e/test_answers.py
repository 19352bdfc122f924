"""Tests flags that change answers. The null worker's text has no markers, so deepseek_r1 parses all of it as reasoning."""
import subprocess

import httpx
import null_oracle as oracle
import pytest
from cluster import BIN, Cluster, wait_for

ASKED = {"model": "null", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "temperature": 0}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--reasoning-parser", "deepseek_r1", "--tool-call-parser", "hermes", "--enable-auto-tool-choice",
                 "--unknown-fields", "warn", "--trust-request-chat-template") as c:
        yield c


@pytest.fixture(scope="module")
def http(cluster):
    with httpx.Client(base_url=cluster.url, timeout=30) as c:
        yield c


def test_reasoning(http):
    asked = {**ASKED, "chat_template": "{{ messages[0].content }}"}
    want = oracle.text("hi", 9, temperature=0)
    message = http.post("/v1/chat/completions", json=asked).json()["choices"][0]["message"]
    assert message["content"] is None
    assert message["reasoning"] == message["reasoning_content"] == want
    with http.stream("POST", "/v1/chat/completions", json={**asked, "stream": True}) as r:
        lines = [line[6:] for line in r.iter_lines() if line.startswith("data: {")]
    deltas = [httpx.Response(200, content=line).json()["choices"][0]["delta"] for line in lines]
    assert "".join(d.get("reasoning", "") for d in deltas) == want
    assert "".join(d.get("content", "") for d in deltas) == ""
    kept = http.post("/v1/chat/completions", json={**asked, "include_reasoning": False}).json()
    assert kept["choices"][0]["message"]["reasoning"] is None


def test_tools_reach_the_template(http):
    asked = {**ASKED, "tools": [TOOL], "chat_template": "{{ tools[0].function.name }}"}
    for choice in {}, {"tool_choice": "auto"}, {"tool_choice": "none"}:
        got = http.post("/v1/chat/completions", json={**asked, **choice}).json()
        assert got["usage"]["prompt_tokens"] == 1, got
    for choice in "perhaps", {"type": "function", "function": {"name": "nobody"}}:
        r = http.post("/v1/chat/completions", json={**asked, "tool_choice": choice})
        assert r.status_code == 400 and r.json()["error"]["param"] == "tool_choice"


def test_many_ids_in_one_answer(http):
    """Like the read of a long prompt, the write of a large answer is outside the loop. Small answers are written at once and have
    the same content."""
    for text in "äb" * 3, "äb" * 6000:
        got = http.post("/tokenize", json={"prompt": text, "return_token_strs": True}).json()
        assert got["count"] == len(got["tokens"]) == len(got["token_strs"]) >= 3 * len(text) // 2, got["count"]
        assert http.post("/detokenize", json={"tokens": got["tokens"]}).json() == {"prompt": text}


def test_unknown_fields_are_warned_of(cluster, http):
    assert http.post("/v1/chat/completions", json={**ASKED, "never_heard_of": 1}).status_code == 200
    wait_for("it is told of", lambda: "field_ignored" in cluster.log() and "never_heard_of" in cluster.log())  # `cox up` prints the gateway's line


@pytest.mark.parametrize("flags, says", [
    (["--reasoning-parser", "nobody"], "qwen3, "),
    (["--tool-call-parser", "nobody"], "hermes, "),
    (["--enable-auto-tool-choice"], "--tool-call-parser"),
])
def test_parsers_that_are_none(flags, says):
    r = subprocess.run([BIN / "cox-gateway", "--model", "null", "--insecure", *flags], capture_output=True, text=True, timeout=20)
    assert r.returncode == 2 and says in r.stderr, r.stderr
