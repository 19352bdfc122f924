"""Tests that a request fails when it ends every worker that runs it, and that the cluster continues."""
import threading

import httpx
import null_oracle as oracle
import pytest
from cluster import SLOW, Cluster, get, wait_for
from sse import collect

POISON = ord("~")


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--null-step-us", "10000", workers=2, tp=1, env={"COX_NULL_DIE_AT_ID": str(POISON)}) as c:
        wait_for("both groups are ready", lambda: ready(c) == 2)
        yield c


def ready(cluster):
    return sum(g["state"] == "ready" for g in cluster.status()["groups"])


def body(prompt, n):
    return {"model": "null", "prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True}


def test_it_fails_after_three_groups_and_nobody_else_does(cluster):
    wrong = []

    def stream(i):
        with httpx.Client(base_url=cluster.url, timeout=120 * SLOW) as client:
            got = collect(client, "/v1/completions", body(f"innocent {i}", 500))
            if got.texts[0] != oracle.text(f"innocent {i}", 500, temperature=0):
                wrong.append(i)

    threads = [threading.Thread(target=stream, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    wait_for("they run", lambda: cluster.status()["requests"]["running"] == 8)
    r = httpx.post(cluster.url + "/v1/completions", json=body("poison ~", 5), timeout=120 * SLOW)
    for t in threads:
        t.join()
    assert not wrong
    assert r.status_code == 500, r.text
    assert r.headers["x-should-retry"] == "false"  # otherwise clients would retry and end six more workers
    error = r.json()["error"]
    assert error["type"] == "InternalServerError" and "3 replicas were lost" in error["message"], error
    events = get(cluster.admin + "/api/events?since=1")[1]
    assert events.count('"request_given_up"') == 1
    assert cluster.status()["requests"]["failed"] == 1
    assert len([f for f in cluster.status()["recent_failures"] if f["what"] == "worker_lost"]) == 3
    wait_for("both groups are back", lambda: ready(cluster) == 2)


def test_a_stream_has_the_error_as_its_last_event(cluster):
    with httpx.stream("POST", cluster.url + "/v1/completions", json={**body("~", 5), "stream": True},
                      timeout=120 * SLOW) as r:
        assert "replicas were lost" in r.read().decode()
