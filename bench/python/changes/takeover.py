"""Implements bench/takeover; the comment at the top of that script describes it."""
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import null_oracle as oracle
from cluster import Cluster, wait_for
from completions import run
from options import count, option_parser
from serving import machine
from test_quotas import SERVER, Redis
from test_standby import Pair

STREAMS, TOKENS, STEP_US = 16, 400, 3000
BARS = {"worker": 3.0, "head": 3.0, "standby": 5.0}


def options():
    p = option_parser("takeover")
    p.add_argument("--rounds", type=count(), default=20)
    p.add_argument("--only", choices=BARS)
    p.add_argument("--bars", type=count(0, 1), default=1)
    return p.parse_args()


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p))]


class Clocked:
    """Records the arrival times of each stream's chunks, and kills a process during the streams."""

    def __init__(self, strike):
        self.strike, self.killed, self.times = strike, None, {}

    def look(self, got):
        now = time.monotonic()
        self.times.setdefault(id(got), []).append(now)
        if self.killed is None and got.n_chunks > 60:
            self.killed = now
            self.strike()

    def pauses(self):
        """Yields for each stream the time from the kill to the end of the longest pause after it. Tokens that were already sent
        arrive before that pause."""
        for times in self.times.values():
            after = [self.killed] + [t for t in times if t > self.killed]
            gaps = [(b - a, b) for a, b in zip(after, after[1:])]
            if gaps:
                yield max(gaps)[1] - self.killed


def one_round(cluster, victim, seed):
    clock = Clocked(lambda: os.kill(cluster.pid(victim), signal.SIGKILL))
    bodies = [{"prompt": f"takeover {seed} {i}", "max_tokens": TOKENS, "temperature": i % 2, "seed": i} for i in range(STREAMS)]
    wrong = 0
    for body, got in zip(bodies, run(cluster, bodies, clock.look)):
        want = oracle.text(body["prompt"], TOKENS, seed=body["seed"], temperature=body["temperature"])
        wrong += got.texts != {0: want}
    return list(clock.pauses()), wrong


def worker(seed):
    with Cluster("--null-step-us", STEP_US, workers=3) as c:
        wait_for("a group and a spare", lambda: len(c.status()["workers"]) == 3)
        time.sleep(random.random() / 4)  # the kill is then at a random time between heartbeats
        members = [w["ordinal"] for w in c.status()["workers"] if w["group"] is not None]
        return one_round(c, f"worker-{random.choice(members)}", seed)


def head(seed):
    with Cluster("--null-step-us", STEP_US) as c:
        time.sleep(random.random() / 4)
        return one_round(c, "head", seed)


def standby(seed):
    with tempfile.TemporaryDirectory() as folder, Redis(Path(folder)) as redis:
        with Pair(redis, "--null-step-us", STEP_US, "--lease-ttl", 2) as c:
            wait_for("one serves, one waits", c.settled)
            time.sleep(2.5 + random.random())  # the standby has then watched for a whole TTL, and the kill is at a random time between renewals
            return one_round(c, c.serving()[0], seed)


def main():
    o = options()
    failed = False
    print(machine())
    for name, one in (("worker", worker), ("head", head), ("standby", standby)):
        if o.only not in (None, name):
            continue
        if name == "standby" and not SERVER:
            print("standby: skipped, no redis-server here")
            continue
        pauses, wrong, begin = [], 0, time.monotonic()
        for i in range(o.rounds):
            found, n_wrong = one(i)
            pauses += found
            wrong += n_wrong
        print(f"{name:8} {o.rounds} kills, {len(pauses)} streams: p50 {percentile(pauses, .5):.2f} s, p99 {percentile(pauses, .99):.2f} s, "
              f"maximum {max(pauses):.2f} s (bar {BARS[name]:g} s); wrong streams {wrong}; {time.monotonic() - begin:.0f} s in all", flush=True)
        if wrong or (o.bars and max(pauses) > BARS[name]):
            print(f"FELL SHORT: {name}")
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
