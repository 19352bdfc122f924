"""Tests KV blocks that move together with requests (test_moves.py). The workers' counts show where tokens were computed. Other cases
are ranks that hang or die during a transfer, and a real model's blocks. Every stream is the same as without a move. The null
worker refuses a prefix with blocks that were neither computed nor transferred (docs/develop/null-worker.md), so a correct stream
proves the blocks' contents."""
import os
import re
import signal
import threading

import null_oracle as oracle
import pytest
from cluster import SHORT, SLOW, Cluster, get, run_cox, wait_for
from completions import body_of, run
from real_model import MODEL, SENTENCES, Alone, answer, cpu_cluster

N_PROMPT, N_TOKENS = 3000, 400


def metric(port, name, labels=""):
    text = get(f"http://127.0.0.1:{port}/metrics")[1]
    found = re.search(rf"^coxswain_worker_{name}(?:{{{re.escape(labels)}}})? (\S+)$", text, re.M)
    return float(found[1]) if found else 0


class Worker:
    def __init__(self, c, ordinal):
        self.c, self.ordinal, self.port = c, ordinal, c.worker_http_port + ordinal

    def metric(self, name, labels=""):
        return metric(self.port, name, labels)

    @property
    def n_run(self):
        return self.metric("tokens_run_total")

    @property
    def n_sampled(self):
        return self.metric("tokens_drawn_total")

    @property
    def n_sent(self):
        return self.metric("kv_transfers_total", 'direction="sent",outcome="ok"')

    @property
    def n_received(self):
        return self.metric("kv_transfers_total", 'direction="received",outcome="ok"')

    def drain(self, on=True):
        instance = next(w["instance"] for w in self.c.status()["workers"] if w["ordinal"] == self.ordinal)
        done = run_cox("drain", instance, "--address", self.c.admin.removeprefix("http://"), *([] if on else ["--undo"]))
        assert done.returncode == 0, done.stderr


def busy_worker(workers):
    """Returns the worker that sampled the most tokens since the counts were read."""
    return max(workers, key=lambda w: w.n_sampled - w.before)


def look(workers):
    for w in workers:
        w.before = w.n_sampled


def long_prompt(i):
    return (f"prompt {i}. " + "".join(SENTENCES[(i + k) % 3] for k in range(60)))[:N_PROMPT]


def check_null(bodies, results):
    for body, got in zip(bodies, results):
        want = oracle.text(body["prompt"], body["max_tokens"], temperature=0)
        assert got.texts[0] == want and got.finish[0] == "length", body["prompt"][:20]


def ready(c, n):
    wait_for(f"{n} groups are ready", lambda: [g["state"] for g in c.status()["groups"]].count("ready") == n, 30)


def null_cluster(*args, step_us=2000, tp=1, **kwargs):
    return Cluster("--null-step-us", step_us, "--null-token-us", 100, "--max-model-len", 8192, *args, tp=tp, **kwargs)


DRAINED_US = 6000  # step time in us: a stream that is moved lasts for seconds, because `cox drain` may take a second on a busy machine


def null_body(i, n=N_TOKENS):
    return {"prompt": long_prompt(i), "max_tokens": n, "temperature": 0, "ignore_eos": True}


@pytest.mark.parametrize("tp", [1, 2])
def test_a_drained_group_s_requests_go_on_elsewhere(tp):
    with null_cluster(step_us=DRAINED_US, workers=2 * tp, tp=tp) as c:
        workers = [Worker(c, i) for i in range(2 * tp)]
        ready(c, 2)
        look(workers)
        drained = []

        def on_event(got):
            if not drained and got.n_chunks > 10:
                w = busy_worker(workers)
                drained.append(w)
                w.drain()

        bodies = [null_body(0)]
        check_null(bodies, run(c, bodies, on_event))
        old = drained[0]
        others = [w for w in workers if w.ordinal // tp != old.ordinal // tp]
        assert sum(w.n_received for w in others) == tp and old.n_sent == 1
        for w in others:  # the other ranks did not compute the prompt again
            assert 0 < w.n_run < N_PROMPT / 2, w.n_run
        assert sum(w.n_sampled for w in others) > N_TOKENS / 4
        moved = c.status()["transfers"]
        assert moved["done"] == 1 and moved["failed"] == 0 and moved["requests_recomputed"] == 0, moved
        assert all(w.metric("gaps_total") == 0 for w in workers)


def under_load(c, bodies, strikes, seconds=0.8):
    """Sends all bodies at once and strikes repeatedly while streams are open."""
    results, ended = [], threading.Event()

    def strike():
        for s in strikes:
            if ended.wait(seconds * SLOW):
                return
            s()

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        results = run(c, bodies)
    finally:
        ended.set()
        thread.join()
    return results


def test_prefill_and_decode_groups():
    with null_cluster("--prefill-workers", 1, "--decode-workers", 1, workers=2) as c:
        prefill, decode = Worker(c, 0), Worker(c, 1)
        ready(c, 2)
        bodies = [null_body(i, 400) for i in range(6)]
        check_null(bodies, run(c, bodies))
        moved = c.status()["transfers"]
        print(moved, prefill.n_run, prefill.n_sampled, decode.n_run, decode.n_sampled)
        assert moved["done"] == prefill.n_sent == decode.n_received == 6, moved
        assert prefill.n_run >= 6 * N_PROMPT
        assert decode.n_sampled > 0.7 * 6 * 400  # the prefill replica samples some tokens while blocks are being transferred
        assert decode.n_run - decode.n_sampled < N_PROMPT / 2  # the decode replica computed no prompt
        assert prefill.metric("gaps_total") == decode.metric("gaps_total") == 0


def test_ranks_die_while_blocks_are_on_their_way():
    with null_cluster("--prefill-workers", 1, "--decode-workers", 1, workers=2) as c:
        ready(c, 2)
        bodies = [null_body(i, 150) for i in range(10)]
        strikes = [lambda v=v: os.kill(c.pid(f"worker-{v}"), signal.SIGKILL) for v in (1, 0)]
        check_null(bodies, under_load(c, bodies, strikes, 0.7))
        assert c.status()["requests"]["failed"] == 0
        ready(c, 2)
        before = c.status()["transfers"]["done"]
        more = [null_body(100 + i, 100) for i in range(3)]
        check_null(more, run(c, more))
        assert c.status()["transfers"]["done"] > before


def test_a_rank_that_hangs_while_blocks_are_on_their_way():
    """A rank is stopped in the middle of a transfer. The other side gives up or the epoch of the rank ends, and then all streams
    continue."""
    with null_cluster("--prefill-workers", 1, "--decode-workers", 1, workers=2) as c:
        ready(c, 2)
        pid = c.pid("worker-1")
        bodies = [null_body(i, 150) for i in range(8)]
        strikes = [lambda: os.kill(pid, signal.SIGSTOP), lambda: None, lambda: None, lambda: os.kill(pid, signal.SIGCONT)]
        check_null(bodies, under_load(c, bodies, strikes, 0.9))
        assert c.status()["requests"]["failed"] == 0


def test_without_a_way_for_blocks():
    """With --kv-port -1, requests still move, and their tokens are computed again."""
    with null_cluster("--kv-port", -1, step_us=DRAINED_US, workers=2) as c:
        workers = [Worker(c, i) for i in range(2)]
        ready(c, 2)
        look(workers)
        drained = []

        def on_event(got):
            if not drained and got.n_chunks > 10:
                drained.append(busy_worker(workers))
                drained[0].drain()

        bodies = [null_body(0, 400)]
        check_null(bodies, run(c, bodies, on_event))
        moved = c.status()["transfers"]
        assert moved["done"] == 0 and moved["requests_recomputed"] == 1, moved


# ---- a real model: the answer depends on the KV cache ----

LONG = [f"({i}) " + "".join(f"{k}. " + SENTENCES[(i + k) % 3] for k in range(32)) + "In the end" for i in range(3)]
REAL = [body_of(LONG[0], max_tokens=64), body_of(LONG[1], max_tokens=64, temperature=1, seed=7),
        body_of(LONG[2], max_tokens=64)]
real_only = pytest.mark.skipif(SHORT or not MODEL.exists(), reason=f"no demo model at {MODEL}, or sanitized: minutes")


@pytest.fixture(scope="module")
def alone():
    with cpu_cluster() as c:
        known = Alone(c)
        yield [known[b] for b in REAL]


@real_only
@pytest.mark.parametrize("kv", ["auto", "int8"])
def test_a_real_model_s_blocks(alone, kv):
    """Other KV dtypes change the answers, so the test compares them with a separate cluster of the same dtype."""
    bodies = REAL[:1]
    want = alone[:1]
    if kv != "auto":
        with cpu_cluster("--kv-cache-dtype", kv) as c:
            known = Alone(c)
            want = [known[b] for b in bodies]
    with cpu_cluster("--kv-cache-dtype", kv, workers=2) as c:
        workers = [Worker(c, i) for i in range(2)]
        ready(c, 2)
        look(workers)
        drained = []

        def on_event(got):
            if not drained and got.n_chunks > 5:
                drained.append(busy_worker(workers))
                drained[0].drain()

        results = run(c, bodies, on_event)
        assert [answer(got) for got in results] == want
        other = next(w for w in workers if w is not drained[0])
        moved = c.status()["transfers"]
        print(moved, other.n_run)
        assert moved["done"] == 1 and other.n_received == 1, moved
        assert 0 < other.n_run < 300  # the prompt has 900 tokens, so most of it was not computed again


@real_only
def test_roles_of_a_real_model(alone):
    with cpu_cluster("--prefill-workers", 1, "--decode-workers", 1, workers=2) as c:
        prefill, decode = Worker(c, 0), Worker(c, 1)
        ready(c, 2)
        results = run(c, REAL)
        assert [answer(got) for got in results] == alone
        moved = c.status()["transfers"]
        print(moved, prefill.n_run, prefill.n_sampled, decode.n_run, decode.n_sampled)
        assert moved["done"] == prefill.n_sent == decode.n_received == 3, moved
        assert decode.n_run - decode.n_sampled < 300
        assert decode.n_sampled > prefill.n_sampled


@real_only
def test_ranks_of_a_real_model_die():
    """Each rank dies once, as soon as blocks have arrived."""
    bodies = [[body_of(LONG[v][:1000], max_tokens=32)] for v in (0, 1)]
    with cpu_cluster() as c:
        known = Alone(c)
        want = [[known[b] for b in one] for one in bodies]
    with cpu_cluster("--prefill-workers", 1, "--decode-workers", 1, workers=2) as c:
        for victim in (0, 1):
            ready(c, 2)
            n_before, struck = c.status()["transfers"]["done"], []

            def on_event(got, victim=victim, n_before=n_before, struck=struck):
                if not struck and c.status()["transfers"]["done"] > n_before:
                    struck.append(victim)
                    os.kill(c.pid(f"worker-{victim}"), signal.SIGKILL)

            assert [answer(got) for got in run(c, bodies[victim], on_event)] == want[victim]
            assert struck
        assert c.status()["requests"]["failed"] == 0
