"""Tests scaling to no workers and back with `--scale-min 0`, and a stand-in for the autoscaler that follows `GET /scale`. Requests
that arrive without workers wait and are answered completely. Requests that wait too long get a Retry-After."""
import json
import re
import threading

import httpx
import null_oracle as oracle
import pytest
from autoscaler import Autoscaler
from cluster import BIN, SLOW, free_ports, get, run_cox, wait_for
from test_bad_frames import Processes

TP, MAX_WAITING, N_TOKENS = 2, 4, 40
IDLE_S, START_S = 2, 40 * SLOW


class Resting(Processes):
    """Yields a head that may have no workers, and two gateways, one of them with a short queue time-out. No worker has ever been
    requested."""

    def __init__(self, folder):
        super().__init__(folder)
        self.n_started = 0
        self.start("head", BIN / "cox-head", "--port", self.head_port, "--admin-port", self.admin_port, "--keys-dir", self.keys,
                   "--tp", TP, "--scale-min", 0, "--scale-max", 2 * TP, "--scale-idle-s", IDLE_S, "--scale-calm-s", 1,
                   "--scale-start-s", START_S, "--max-waiting", MAX_WAITING)
        self.hasty_url = f"http://127.0.0.1:{free_ports(1)[0]}"
        for name, url, seconds in (("gateway", self.url, 60 * SLOW), ("hasty", self.hasty_url, 1)):
            self.start(name, BIN / "cox-gateway", "--model", "null", "--head", f"127.0.0.1:{self.head_port}", "--port",
                       url.rsplit(":", 1)[1], "--keys-dir", self.keys, "--queue-timeout", seconds)
        self.scaler = Autoscaler(self.admin + "/scale", self.worker, TP, 2 * TP)
        self.scaler.start()

    def worker(self, i):
        self.n_started += 1
        name = f"worker-{i}-{self.n_started}"
        self.start_worker(name, self.head_port, "--ordinal", i, tp=TP)
        return self.started[name]

    def scale(self):
        return json.loads(get(self.admin + "/scale")[1])

    def metric(self, name):
        found = re.search(rf"^{name} (\S+)$", get(self.admin + "/metrics")[1], re.M)
        return float(found[1]) if found else None

    def n_events(self, name):
        found = json.loads(get(self.admin + "/api/events?since=0")[1])["events"]
        return sum(e["event"] == name for e in found)

    def rests(self):
        status = self.status()
        return status["resting"] and not status["workers"] and self.scale()["desired_workers"] == 0

    def end(self):
        self.scaler.end()
        super().end()


@pytest.fixture(scope="module")
def c(tmp_path_factory):
    with Resting(tmp_path_factory.mktemp("resting")) as c:
        yield c


@pytest.fixture(autouse=True)
def rest(c):
    """Each test begins without workers."""
    c.scaler.paused.clear()
    wait_for("the gateways take requests", lambda: all(get(url + "/health")[0] == 200 for url in (c.url, c.hasty_url)), 60)
    wait_for("nobody is there", c.rests, 60)


def ask(url, prompt, **more):
    body = {"model": "null", "prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True, **more}
    return httpx.post(url + "/v1/completions", json=body, timeout=90 * SLOW)


class Asked(threading.Thread):
    """Sends a request beside the test."""

    def __init__(self, url, prompt):
        super().__init__(daemon=True)
        self.url, self.prompt, self.reply = url, prompt, None
        self.start()

    def run(self):
        self.reply = ask(self.url, self.prompt)

    def check(self):
        self.join(100 * SLOW)
        assert self.reply.status_code == 200, self.reply.text
        assert self.reply.json()["choices"][0]["text"] == oracle.text(self.prompt, N_TOKENS, temperature=0)


def test_nobody_is_there_and_all_is_well(c):
    said = c.scale()
    assert (said["min_workers"], said["idle_s"], said["cold_start_s"]) == (0, IDLE_S, None), said
    assert c.metric("coxswain_head_desired_workers") == 0 and c.n_started == 0
    assert not any("no replica" in w for w in c.status()["warnings"])
    assert get(c.url + "/readyz")[0] == get(c.admin + "/readyz")[0] == 200
    done = run_cox("status", "--address", c.admin.removeprefix("http://"))
    assert done.returncode == 0 and "resting" in done.stdout, done.stdout


def test_who_comes_is_held_or_told_when_to_come_back(c):
    c.scaler.paused.set()  # with the autoscaler paused, no worker is started
    for stream in (False, True):
        late = ask(c.hasty_url, "nobody comes", stream=stream)
        assert late.status_code == 503 and "being started" in late.json()["error"]["message"], late.text
        assert 5 < int(late.headers["retry-after"]) <= START_S
    held = [Asked(c.url, f"held {i}") for i in range(MAX_WAITING)]
    wait_for("they wait", lambda: c.status()["requests"]["waiting"] == MAX_WAITING)
    full = ask(c.url, "one too many")
    assert full.status_code == 429 and 1 < int(full.headers["retry-after"]) <= START_S, full.text
    assert c.scale()["desired_workers"] == TP and get(c.url + "/health")[0] == 200
    c.scaler.paused.clear()
    for h in held:
        h.check()
    assert c.n_started == TP
    wait_for("the start is measured", lambda: c.metric("coxswain_head_cold_start_seconds"))
    assert c.scale()["cold_start_s"] > 0
    assert c.n_events("scaled_from_zero") >= c.n_events("cold_start") == 1  # a slow machine may scale to zero between two requests


def test_to_none_again_and_asked_while_the_last_ones_leave(c):
    """Requests arrive while the last workers drain after SIGTERM. They or their successors answer, and no request is lost."""
    before = c.status()["requests"]["failed"], c.n_events("scaled_to_zero"), c.n_started
    Asked(c.url, "so that somebody is there").check()
    wait_for("they are told to go", lambda: c.scaler.log[-1][1] == 0, 60)
    for i in range(3):
        Asked(c.url, f"asked as they go {i}").check()
    wait_for("nobody is there again", c.rests, 60)
    assert c.status()["requests"]["failed"] == before[0] and c.n_events("scaled_to_zero") >= before[1] + 2
    assert c.n_started >= before[2] + 2 * TP
    failures = c.status()["recent_failures"]
    assert all("goodbye" in f["reason"] for f in failures), failures
