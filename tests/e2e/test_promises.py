"""Tests the promised time of a first token: the header x-slo-ttft-ms and a key's slo_ttft_ms. A null worker needs 10 ms for a step, so a
promise of 1 ms cannot be kept and one of a minute can."""
import json
import re

import httpx
import pytest
from cluster import SLOW, Cluster, end_all, get, wait_for
from many_models import WEB, Gateway, Head
from test_bad_frames import Processes

BODY = {"model": "null", "prompt": "a promise", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
TURN = {"model": "null", "messages": [{"role": "user", "content": "a promise"}], "max_tokens": 4}
ROUTES = {"/v1/completions": BODY, "/v1/chat/completions": TURN, "/v1/messages": TURN,
          "/v1/responses": {"model": "null", "input": "a promise", "max_output_tokens": 16}}
PREDICTED = "x-slo-predicted-ttft-ms"


def post(at, path="/v1/completions", slo=None, key="key-plain", **more):
    headers = {"Authorization": f"Bearer {key}"} | ({} if slo is None else {"x-slo-ttft-ms": str(slo)})
    return httpx.post(at.url + path, json=ROUTES[path] | more, headers=headers, timeout=60 * SLOW)


def counts(c):
    admin = f"http://127.0.0.1:{c.admin}" if isinstance(c, Head) else c.admin
    found = re.findall(r"^coxswain_promises_(\w+)_total\{.*\} (\d+)", get(admin + "/metrics")[1], re.M)
    return {name: int(n) for name, n in found}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    keys = tmp_path_factory.mktemp("promises") / "keys"
    keys.write_text("key-plain plain\nkey-tight tight slo_ttft_ms=1\n")
    with Cluster("--api-key-file", keys, "--null-step-us", 10000, workers=1, tp=1) as c:
        first = post(c, slo=1)  # the head has measured nothing yet, so it refuses nothing
        assert first.status_code == 200 and PREDICTED not in first.headers, first.text
        for _ in range(4):
            assert post(c).status_code == 200
        yield c


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_promise_that_can_be_kept(cluster, path, stream):
    before = counts(cluster)
    r = post(cluster, path, 60000, stream=stream)
    assert r.status_code == 200, r.text
    assert 10 <= int(r.headers[PREDICTED]) <= 60000
    after = counts(cluster)
    assert {n: after[n] - before[n] for n in after} == {"accepted": 1, "unknown": 0, "refused": 0, "kept": 1, "missed": 0}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_promise_that_cannot_be_kept(cluster, path, stream):
    before = counts(cluster)["refused"]
    r = post(cluster, path, 1, stream=stream)
    assert r.status_code == 429, r.text
    error, predicted = r.json()["error"], r.headers[PREDICTED]
    assert int(predicted) >= 10 and int(r.headers["retry-after"]) >= 1
    assert error["message"].startswith(f"The first token is predicted after {predicted} ms, but x-slo-ttft-ms allows 1 ms.")
    assert error["type"] == ("rate_limit_error" if path == "/v1/messages" else "RateLimitError")
    assert counts(cluster)["refused"] == before + 1


@pytest.mark.parametrize("path", ["/invocations", "/predictions/null", "/endpoints/e/invocations", "/endpoints/e/invocations-response-stream"])
@pytest.mark.parametrize("stream", [False, True])
def test_promises_on_sagemaker(cluster, path, stream):
    def ask(slo):
        body = {"inputs": "a promise", "parameters": {"max_new_tokens": 4}, "stream": stream}
        return httpx.post(cluster.url + path, json=body, headers={"x-api-key": "key-plain", "x-slo-ttft-ms": str(slo)}, timeout=60 * SLOW)
    kept, refused = ask(60000), ask(1)
    assert kept.status_code == 200 and 10 <= int(kept.headers[PREDICTED]) <= 60000, kept.text
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1, refused.text
    assert f"The first token is predicted after {refused.headers[PREDICTED]} ms" in refused.text and "ThrottlingException" in refused.text


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "1e3", "3600001", "99999999999999999999", "1 2"])
def test_bad_values(cluster, value):
    for path in ROUTES:
        r = post(cluster, path, value)
        assert r.status_code == 400 and PREDICTED not in r.headers
        assert f"'{value}', but it must be a number of milliseconds from 1 to 3600000" in r.json()["error"]["message"]


def test_the_default_of_a_key(cluster):
    refused = post(cluster, key="key-tight")
    assert refused.status_code == 429
    message = refused.json()["error"]["message"]
    assert ", but slo_ttft_ms of this API key allows 1 ms. Try again later, or allow more time with the header x-slo-ttft-ms." in message
    r = post(cluster, key="key-tight", slo=60000)  # the header replaces the default
    assert r.status_code == 200 and PREDICTED in r.headers
    assert PREDICTED not in post(cluster).headers


def test_all_choices_have_the_promise(cluster):
    r = post(cluster, slo=60000, n=3)
    assert r.status_code == 200 and len(r.json()["choices"]) == 3 and PREDICTED in r.headers
    assert post(cluster, slo=1, n=3).status_code == 429
    wait_for("the other choices have left", lambda: cluster_is_idle(cluster))


def cluster_is_idle(c):
    groups = httpx.get(c.admin + "/api/status").json()["groups"]
    return all(g["running"] == 0 for g in groups)


def test_a_refused_promise_goes_to_the_fallback(tmp_path):
    """The gateway gives short and long bodies, which the threads of a pool prepare, to the second model."""
    slow, fast = Head(tmp_path, step_us=100000), Head(tmp_path)
    g = Gateway(tmp_path, [slow.entry("slow", fallback="fast"), fast.entry("fast")])
    try:
        g.wait_states(slow="serving", fast="serving")
        for _ in range(3):
            assert g.ask("slow").json()["model"] == "slow"
        body = json.dumps({"model": "slow", "prompt": [5, 6, 7], "max_tokens": 4})
        for padding in (0, 30000, 300000):
            r = WEB.post(g.url + "/v1/completions", content=body + " " * padding, headers={"x-slo-ttft-ms": "60"})
            assert (r.status_code, r.json()["model"], r.headers["x-coxswain-fallback-of"]) == (200, "fast", "slow"), r.text
        assert counts(slow)["refused"] == 3
        kept = WEB.post(g.url + "/v1/completions", content=body, headers={"x-slo-ttft-ms": "60000"})
        assert kept.json()["model"] == "slow" and PREDICTED in kept.headers
    finally:
        end_all([g.process])
        slow.end()
        fast.end()


def test_an_older_peer_makes_no_promise(tmp_path):
    """The relay removes the fields of later versions. An answer without the header says that nothing was promised."""
    with Processes(tmp_path) as c:
        c.start_head(tp=1)
        c.start_worker("worker-0", c.head_port, tp=1)
        c.start_gateway(c.start_relay(1, 1000, "older"))
        wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)
        for _ in range(6):
            r = post(c, slo=1)
            assert r.status_code == 200 and PREDICTED not in r.headers, r.text
        assert sum(counts(c).values()) == 0
