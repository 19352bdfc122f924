"""Tests sleep and waking: POST /sleep, POST /wake_up, GET /is_sleeping, `cox sleep` and `cox wake`. Requests that arrive while a model
falls asleep or sleeps are answered completely, and the answers are the same as before. A worker that is killed in its sleep, and a
head that is started again, end in a serving cluster. At level 2 the workers give back most of their memory."""
import json
import os
import signal
import threading
import urllib.error
import urllib.request

import httpx
import null_oracle as oracle
import pytest
from cluster import ROOT, SLOW, Cluster, get, run_cox, wait_for
from completions import body_of, ids, run
from footprint import size_of
from real_model import DEMO, needs_demo

TINY = ROOT / "build/goldens/llama_tiny"
N_TOKENS, LONG = 40, 400  # 0.2 s and 2 s: the test looks at requests of LONG tokens while they run


def post(c, path, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(c.admin + path, method="POST", headers=headers), timeout=90 * SLOW) as r:
            return r.status, json.loads(r.read())
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def sleeping(c):
    return json.loads(get(c.admin + "/is_sleeping")[1])


def events(c, name):
    return [e["fields"] for e in json.loads(get(c.admin + "/api/events?since=0")[1])["events"] if e["event"] == name]


def cox(c, *words):
    return run_cox(*words, "--address", c.admin.removeprefix("http://"), timeout=60)


class Asked(threading.Thread):
    """Sends a request to the null model beside the test."""

    def __init__(self, c, prompt, n_tokens=N_TOKENS):
        super().__init__(daemon=True)
        self.c, self.prompt, self.n_tokens, self.reply = c, prompt, n_tokens, None
        self.start()

    def run(self):
        body = {"model": "null", "prompt": self.prompt, "max_tokens": self.n_tokens, "temperature": 0, "ignore_eos": True}
        self.reply = httpx.post(self.c.url + "/v1/completions", json=body, timeout=60 * SLOW)

    def check(self):
        self.join(90 * SLOW)
        assert self.reply.status_code == 200, self.reply.text
        assert self.reply.json()["choices"][0]["text"] == oracle.text(self.prompt, self.n_tokens, temperature=0)


@pytest.fixture(scope="module")
def null():
    with Cluster("--null-step-us", 5000, workers=3, tp=2) as c:  # worker 2 is a spare
        yield c


@pytest.mark.parametrize("level", [1, 2])
def test_requests_before_meanwhile_and_after(null, level):
    failed = null.status()["requests"]["failed"]
    running = [Asked(null, f"running {level} {i}", LONG) for i in range(4)]
    wait_for("they run", lambda: null.running() == 4)
    order = threading.Thread(target=post, args=(null, f"/sleep?level={level}"))
    order.start()
    wait_for("it falls asleep", lambda: sleeping(null)["state"] == "falling asleep")
    late = [Asked(null, f"late {level} {i}") for i in range(4)]
    order.join(60 * SLOW)
    for asked in running + late:  # the late ones wake it again
        asked.check()
    slept = sleeping(null)["slept"]
    assert post(null, f"/sleep?level={level}")[1]["is_sleeping"]
    status = null.status()
    assert (status["sleep"]["state"], status["sleep"]["level"]) == ("asleep", level)
    assert status["healthy"] and {w["state"] for w in status["workers"]} == {"asleep"} and not status["recent_failures"]
    assert get(null.url + "/health")[0] == get(null.admin + "/readyz")[0] == 200
    shown = cox(null, "status")
    assert shown.returncode == 0 and f"asleep, level {level}" in shown.stdout, shown.stdout
    Asked(null, f"after {level}").check()
    assert null.status()["requests"]["failed"] == failed and sleeping(null)["slept"] == slept + 1
    wait_for("the spare is awake", lambda: {w["state"] for w in null.status()["workers"]} == {"ready", "free"})


def test_orders(null):
    done = cox(null, "sleep", "--sleep-level", 2)
    assert done.returncode == 0 and "sleeps at level 2" in done.stdout, done.stdout + done.stderr
    assert post(null, "/sleep?level=1")[1]["level"] == 2  # no change
    done = cox(null, "wake")
    assert done.returncode == 0 and "serves" in done.stdout, done.stdout + done.stderr
    assert sleeping(null) | {"last_wake_s": 0, "slept": 0, "called_off": 0} == {
        "is_sleeping": False, "state": "awake", "healthy": True, "level": 0, "last_wake_s": 0, "slept": 0, "called_off": 0}
    assert post(null, "/wake_up?tags=weights")[0] == 200
    assert [post(null, f"/sleep?{q}")[0] for q in ("level=3", "level=", "mode=keep")] == [400, 200, 400]
    assert post(null, "/wake_up", Origin="http://elsewhere")[0] == 403
    assert post(null, "/wake_up")[0] == 200
    asked = Asked(null, "it is ended", LONG)
    wait_for("it runs", lambda: null.running() == 1)
    assert post(null, "/sleep?mode=abort")[1]["is_sleeping"]
    asked.join(30 * SLOW)
    assert asked.reply.status_code == 503 and "put to sleep" in asked.reply.json()["error"]["message"]
    assert post(null, "/wake_up")[0] == 200


def test_a_waking_that_takes_too_long():
    with Cluster(workers=1, tp=1, env={"COX_NULL_LOAD_MS": "3000", "COX_SCALE_START_S": "1"}) as c:
        assert post(c, "/sleep?level=2")[0] == 200
        done = cox(c, "wake")
        assert done.returncode == 1 and "no replica serves yet" in done.stderr, done.stdout + done.stderr
        done = cox(c, "sleep")  # the worker still loads
        assert done.returncode == 0 and sleeping(c)["is_sleeping"], done.stdout + done.stderr
        wait_for("the worker sleeps", lambda: [w["state"] for w in c.status()["workers"]] == ["asleep"])


def test_faults_in_its_sleep(null):
    assert post(null, "/sleep?level=2")[0] == 200
    os.kill(null.pid("worker-0"), signal.SIGKILL)
    wait_for("another one sleeps in its place", lambda: [w["state"] for w in null.status()["workers"]] == ["asleep"] * 3)
    Asked(null, "after the kill").check()
    assert post(null, "/sleep?level=2")[0] == 200
    os.kill(null.pid("head"), signal.SIGKILL)
    wait_for("the next head lets them sleep", lambda: get(null.admin + "/is_sleeping")[0] == 200 and sleeping(null)["is_sleeping"])
    assert events(null, "asleep")[-1]["inherited"] == "yes"
    Asked(null, "after the head").check()


@pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens")
@pytest.mark.parametrize("tp", [1, 2])
def test_a_model_answers_as_before(tp):
    bodies = [body_of(p["ids"], max_tokens=16) for p in json.loads((TINY / "expected.json").read_text())["prompts"][:3]]
    bodies += [{**b, "temperature": 1, "seed": 7} for b in bodies]
    with Cluster("--device", "cpu", "--served-model-name", "m", model=str(TINY), workers=tp, tp=tp) as c:
        before = [ids(got) for got in run(c, bodies)]
        for level in (1, 2, 2, 1):
            assert post(c, f"/sleep?level={level}")[1]["is_sleeping"]
            assert [ids(got) for got in run(c, bodies)] == before
        assert not c.status()["recent_failures"] and len(events(c, "awake")) == 4


@pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens")
def test_adapters_and_a_draft_model_sleep_too():
    body = body_of(json.loads((TINY / "expected.json").read_text())["prompts"][0]["ids"], max_tokens=12)
    bodies = [body, {**body, "model": "every"}]
    with Cluster("--device", "cpu", "--served-model-name", "m", "--enable-lora", "--max-loras", 2, "--lora-root", TINY / "loras", "--lora-modules", "every=every",
                 "--spec-model", TINY, model=str(TINY), workers=1, tp=1) as c:
        wait_for("the adapter is ready", lambda: len(json.loads(get(c.url + "/v1/models")[1])["data"]) == 2)
        before = [ids(got) for got in run(c, bodies)]
        for level in (1, 2):
            assert post(c, f"/sleep?level={level}")[0] == 200
            assert [ids(got) for got in run(c, bodies)] == before
        assert post(c, "/sleep?level=2")[0] == 200
        done = cox(c, "lora", "load", "some=some")  # the order wakes the model
        assert done.returncode == 0, done.stdout + done.stderr
        assert [ids(got) for got in run(c, bodies)] == before


@needs_demo
def test_most_of_the_memory_returns():
    with Cluster("--device", "cpu", "--served-model-name", "m", "--max-model-len", 2048, model=str(DEMO), workers=1, tp=1) as c:
        body = body_of("Once upon a time", max_tokens=8)
        before = ids(run(c, [body])[0])
        awake = size_of(c.pid("worker-0")).rss
        assert post(c, "/sleep?level=2")[0] == 200
        assert size_of(c.pid("worker-0")).rss < awake / 3
        assert ids(run(c, [body])[0]) == before
