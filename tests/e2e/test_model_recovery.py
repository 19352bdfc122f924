"""Tests ranks and heads that die or hang during the streams of a real model. Each stream ends with exactly the tokens of the same
request alone, greedy and sampled. Under sanitizers, or without the demo model, a tiny model runs the same tests in a tenth of the
time."""
import json
import os
import signal
import threading
import time

import pytest
from cluster import ROOT, SHORT, SLOW, get, wait_for
from completions import body_of, run, run_under_strike
from real_model import DRAWN, GREEDY, LONG, MODEL, Alone, answer, cpu_cluster

TINY = ROOT / "build/goldens/gemma3_tiny_gguf_q4_0/model.gguf"
SMALL = SHORT or not MODEL.exists()
USED = TINY if SMALL else MODEL
pytestmark = pytest.mark.skipif(not USED.exists(),
                                reason=f"no {USED}: scripts/make-goldens")

N_EACH, N_TOKENS = (2, 300 if SHORT else 900) if SMALL else (3, 96)
BODIES = [{**b, "max_tokens": N_TOKENS} for b in GREEDY[:N_EACH] + DRAWN[:N_EACH]]
BODIES += [] if SMALL else [body_of(LONG, max_tokens=32)]


def start(*args, **kwargs):
    return cpu_cluster("--max-model-len", "1024", *args, model=str(USED), **kwargs)


@pytest.fixture(scope="module")
def cluster():
    with start(tp=2) as c:
        yield c


@pytest.fixture(scope="module")
def alone(cluster):
    return Alone(cluster)


def healthy(c, n_workers):
    code, body = get(c.admin + "/api/status")
    status = json.loads(body) if code == 200 else {"healthy": False}
    return status["healthy"] and len([w for w in status["workers"] if w["state"] in ("ready", "free")]) == n_workers


def name_of_rank(c, rank):
    """Returns the worker of a rank. Every formation assigns ranks anew, but a worker's ordinal stays."""
    return next(f"worker-{w['ordinal']}" for w in c.status()["workers"] if w["group"] is not None and w["rank"] == rank)


def losses(c, since):
    """Returns the times of worker_lost events in seconds since 1970. The list is empty when the head is absent."""
    code, body = get(c.admin + "/api/events?since=0")
    found = json.loads(body)["events"] if code == 200 else []
    return [e["time"] for e in found if e["event"] == "worker_lost" and e["time"] >= since - 0.01]


def struck(c, strike, when=lambda _: True):
    """Sends BODIES and strikes when all of them except LONG generate tokens, because they may end before LONG's prompt is computed.
    With a tiny model two running requests are enough."""
    n = 2 if SMALL else 2 * N_EACH
    return run_under_strike(c, BODIES, lambda status: status["requests"]["running"] >= n and when(status), lambda _: strike())


def check(results, want):
    for body, of_body, expected in zip(BODIES, results, want):
        for got in of_body:
            assert answer(got) == expected, body["prompt"][:60]


def kill(c, *names):
    """Kills the processes of these names. Returns their pids, which must differ afterwards."""
    before = {n: c.pid(n) for n in names}
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    return before


@pytest.mark.parametrize("ranks,also", [((1,), ()), ((0,), ()), ((0, 1), ()), ((), ("head",)), ((1,), ("head",))],
                         ids=["rank1", "rank0", "both_ranks", "head", "head_and_rank1"])
def test_killed(cluster, alone, ranks, also):
    want = [alone[b] for b in BODIES]
    wait_for("healthy", lambda: healthy(cluster, 2))
    when, before = [], {}

    def strike():
        victims = [name_of_rank(cluster, r) for r in ranks] + list(also)
        when.append(time.time())
        before.update(kill(cluster, *victims))

    results = struck(cluster, strike)
    for name, pid in before.items():
        wait_for(f"{name} is back", lambda: cluster.pids().get(name, pid) != pid)
    wait_for("healthy again", lambda: healthy(cluster, 2), 30)
    check(results, want)
    if ranks and not also:
        # A killed process may be back before the head has detected the loss. A healthy cluster thus does not prove that the events are there.
        wait_for("the losses", lambda: len(losses(cluster, when[0])) >= len(ranks))
        seen = losses(cluster, when[0])
        assert len(seen) == len(ranks) and max(seen) - when[0] < 2.0 + (1.0 if SLOW > 1 else 0.2)
    cluster.wait_idle()


def test_a_hanging_rank(cluster, alone):
    """A stopped rank keeps its sockets and sends nothing. Its replica waits until the head declares it lost."""
    want = [alone[b] for b in BODIES]
    wait_for("healthy", lambda: healthy(cluster, 2))
    threads = []

    def strike():
        name, begin = name_of_rank(cluster, 1), time.time()
        pid = cluster.pid(name)
        os.kill(pid, signal.SIGSTOP)

        def end_it():  # no other process ends the stopped process, because `cox up` restarts only processes that have ended
            try:
                wait_for("the hang is known", lambda: losses(cluster, begin))
            finally:
                os.kill(pid, signal.SIGKILL)

        threads.append(threading.Thread(target=end_it))
        threads[0].start()

    results = struck(cluster, strike)
    threads[0].join()
    check(results, want)
    wait_for("healthy again", lambda: healthy(cluster, 2), 30)


@pytest.mark.parametrize("sig,rank", [(signal.SIGSTOP, 0), (signal.SIGSTOP, 1), (signal.SIGKILL, 0)],
                         ids=["stop_rank0", "stop_rank1", "kill_rank0"])
def test_a_spare_takes_the_place(alone, sig, rank):
    """A third worker holds one shard and may have to load another shard. The hanging worker is not restarted, so the streams can end
    only on the spare."""
    want = [alone[b] for b in BODIES]
    with start(tp=2, workers=3) as c:
        wait_for("two ranks and a spare", lambda: healthy(c, 3))
        spare = next(w["instance"] for w in c.status()["workers"] if w["state"] == "free")
        pids = []

        def strike():
            pids.append(c.pid(name_of_rank(c, rank)))
            os.kill(pids[0], sig)

        try:
            results = struck(c, strike)
            if sig == signal.SIGSTOP:  # a killed worker may be back before its loss is known
                # The last token may have been computed before the strike; the head misses the rank soon all the same.
                wait_for("the spare has the place", lambda: any(spare in g["workers"] for g in c.status()["groups"]), 30)
        finally:
            if sig == signal.SIGSTOP and pids:
                os.kill(pids[0], signal.SIGKILL)
        check(results, want)
        wait_for("two ranks and a spare again", lambda: healthy(c, 3), 30)


def test_two_replicas():
    """With two replicas of one rank, one worker is killed while its streams run."""
    with start() as quiet:
        want = [answer(run(quiet, [b])[0]) for b in BODIES]
    with start("--dp", "2", workers=2) as pair:
        wait_for("both groups are ready", lambda: len(
            [g for g in pair.status()["groups"] if g["state"] == "ready"]) == 2)
        before = {}
        results = struck(pair, lambda: before.update(kill(pair, "worker-0")),
                         lambda status: [g["running"] > 0 for g in status["groups"]] == [True] * 2)  # both replicas must run requests when one of them dies
        wait_for("worker-0 is back", lambda: pair.pids().get("worker-0", before["worker-0"]) != before["worker-0"])
    check(results, want)
