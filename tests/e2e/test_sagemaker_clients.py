"""Tests boto3 and the sagemaker package as notebooks use them, with /endpoints/NAME (docs/reference/sagemaker.md)."""
import json
import os
import signal
import subprocess

import httpx
import null_oracle as oracle
import pytest
from cluster import ROOT, SLOW, Cluster

PYTHON = ROOT / ".venv-clients/bin/python"
PROMPT = "The meaning of life is"
SAID = oracle.text(PROMPT, 40, temperature=0)
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-clients: scripts/setup --clients makes it")


def command(url, key, scenario):
    return [str(PYTHON), str(ROOT / "tests/e2e/sagemaker_client.py"), url, key, scenario]


def play(url, scenario, key=""):
    done = subprocess.run(command(url, key, scenario), capture_output=True, text=True, timeout=100 * SLOW,
                          env={**os.environ, "AWS_EC2_METADATA_DISABLED": "true"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def url():
    with Cluster("--sagemaker") as c:
        yield c.url


def test_invoke_endpoint(url):
    got = play(url, "predict")
    assert got["body"] == {"generated_text": SAID} and got["type"] == "application/json"
    assert got["variant"] == "AllTraffic"
    assert got["headers"]["x-request-id"] == got["headers"]["x-amzn-requestid"] == "my-id-1"


def test_response_stream_through_the_line_iterator(url):
    got = play(url, "stream")
    assert got["type"] == "application/jsonlines" and len(got["lines"]) == 40
    assert "".join(line["token"]["text"] for line in got["lines"]) == got["lines"][-1]["generated_text"] == SAID


def test_a_whole_answer_is_a_stream_too(url):
    """A complete answer has no line end, unlike rolling answers, so the reader of lines does not work with it."""
    done = subprocess.run(command(url, "", "whole_as_stream"), capture_output=True, text=True, timeout=100 * SLOW)
    assert "the last line has no end" in done.stderr


def test_chat(url):
    lines = play(url, "chat")["lines"]
    text = "".join(line["choices"][0]["delta"].get("content", "") for line in lines)
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}
    whole = httpx.post(url + "/invocations", json=body).json()
    assert text == whole["choices"][0]["message"]["content"] and len(text) == 8


def test_errors(url):
    got = play(url, "errors")
    for name, status in {"inputs": 424, "inputs_streamed": 424, "handler": 400}.items():
        e = got[name]
        assert (e["class"], e["code"], e["status"], e["original"]) == ("ModelError", "ModelError", 424, status), name
        assert json.loads(e["message"])["code"] == status
    for name in ("component", "target", "variant"):
        assert (got[name]["class"], got[name]["status"]) == ("ValidationError", 400)
    assert got["known"] is None


def test_predictor(url):
    got = play(url, "predictor")
    assert got["body"] == {"generated_text": SAID} and got["texts"] == SAID


def test_a_signature_is_no_key():
    with Cluster(env={"COX_API_KEY": "k1"}) as c:
        assert play(c.url, "predict", key="k1")["body"] == {"generated_text": SAID}
        for e in play(c.url, "no_key", key="k1"):
            assert (e["code"], e["status"]) == ("AccessDeniedException", 401)


def test_a_silent_model_ends_the_stream_with_its_error():
    with Cluster("--chunk-timeout", 1, "--null-step-us", 20000) as c:
        client = subprocess.Popen(command(c.url, "", "broken"), stdout=subprocess.PIPE, text=True)
        assert client.stdout.readline() == "begun\n"
        stopped = [pid for name, pid in c.pids().items() if name.startswith("worker")]
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            got = json.loads(client.communicate(timeout=60 * SLOW)[0].splitlines()[-1])
        finally:
            client.kill()
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
    assert got["code"] == "ModelStreamError" and got["lines"] > 0
    assert "timed out" in got["text"]
