"""Tests with a real model on two ranks that a rank that gets less CPU time than the other one is named, and only this one. The tests wait for reports and
measure no times. test_straggler.py tests that equally slow ranks are not named: with real work, a busy machine can give one of them half the CPU time."""
import contextlib
import json
import os
import signal
import threading
import time

import pytest
from cluster import ROOT, SLOW, get, wait_for
from completions import body_of, run
from real_model import PROMPTS, answer, cpu_cluster

TINY = ROOT / "build/goldens/gemma3_tiny_gguf_q4_0/model.gguf"
pytestmark = [pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens"),
              pytest.mark.timeout(1000 * SLOW)]
# BODIES have long prompts and few tokens. Most of a step is then a rank's own work, so a stopped process is usually stopped within that work.
BODIES = [body_of((f"({i}) " + " ".join(PROMPTS[8:16]))[:840], max_tokens=24) for i in range(8)]
STOPPED_S, RUNNING_S = 0.06, 0.012


@contextlib.contextmanager
def slowed(pids):
    """Stops and continues the processes, all together, again and again until the end."""
    over = threading.Event()

    def duty():
        while not over.wait(RUNNING_S):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=duty)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def streams(c):
    """Keeps streams running. Their answers must equal the answers from before the slowdown."""
    want, over, wrong = [answer(got) for got in run(c, BODIES)], threading.Event(), []

    def go():
        while not over.is_set() and not wrong:
            try:
                wrong.extend(b["prompt"] for b, got, w in zip(BODIES, run(c, BODIES), want) if answer(got) != w)
            except BaseException as e:  # noqa: BLE001: of a thread, shown below
                wrong.append(repr(e))

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not wrong, wrong


def workers(c):
    return {w["rank"]: w for w in c.status()["workers"]}


def events(c):
    return json.loads(get(c.admin + "/api/events?since=1")[1])["events"]


def told(c, name):
    return [e["fields"]["instance"] for e in events(c) if e["event"] == name]


@pytest.fixture(scope="module")
def c():
    with cpu_cluster("--max-model-len", "1024", "--no-enable-prefix-caching", tp=2, model=str(TINY)) as made:
        yield made


@pytest.mark.parametrize("rank", [0, 1])
def test_the_slowed_one_is_named(c, rank):
    wait_for("both ranks", lambda: set(workers(c)) == {0, 1})
    victim = workers(c)[rank]
    with streams(c):
        with slowed([c.pid(f"worker-{victim['ordinal']}")]):
            wait_for("it is told", lambda: workers(c)[rank]["straggler"], 300)
            now = workers(c)
            print(f"own steps: slowed {now[rank]['own_step_s']}, other {now[1 - rank]['own_step_s']}")
            assert not now[1 - rank]["straggler"] and now[rank]["instance"] == victim["instance"]
            assert told(c, "straggler")[-1] == victim["instance"]
        wait_for("it is over", lambda: not workers(c)[rank]["straggler"], 300)
        assert told(c, "straggler_over")[-1] == victim["instance"]
    assert not [e for e in events(c) if e["event"] in ("worker_lost", "group_dissolved")]
