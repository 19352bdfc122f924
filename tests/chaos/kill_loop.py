#!/usr/bin/env python3
"""Kills, stops and drains the processes of a real cluster while streams run, and checks every token.

The cluster has 2 gateways, 1 head and 3 workers (tensor parallel 2 and a spare). Each stream must end with exactly the expected
text. When workers or the head are lost, the stream only pauses. When its gateway dies, the client gets a connection error, and
the retry gives the right answer. Afterwards, no trace may be left: no request, no KV block, no memory growth. Victims, times and
requests depend on --seed.

The expected text of the null device is a formula. For a model, the same cluster answers a few dozen requests alone before the
first strike, and these answers are the expected ones.

Usage: kill_loop.py [--seconds 60] [--seed N] [--streams 12] [--step-us 3000]
       kill_loop.py --model PATH [--device cpu] [--workers 3] [--tp 2] ...
"""
import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import findings
import null_oracle as oracle
from cluster import BIN, SANITIZED, SHORT, SLOW, Cluster, alive, get
from sse import Collected, collect

STALL_S = 20.0 * SLOW
VICTIMS = [("worker", 5), ("head", 3), ("gateway", 2)]
ACTIONS = [("kill", 6), ("stop", 2), ("term", 2)]
# DRAIN_S is the --shutdown-timeout of a gateway. A gateway that is told to end accepts no new request until its streams have ended, or until this
# time has passed.
DRAIN_S = 30
# AWAY_S is the time in seconds for which a struck gateway may refuse after its end: the longest back-off of a restart (5 s) and a start.
AWAY_S = {"kill": 8 * SLOW, "stop": 8 * SLOW, "term": DRAIN_S + 8 * SLOW}
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
N_QUIET = 24
PREFIXES = ["", "A common beginning shared by many requests. " * 3, "Another one, " * 20]


def make_body(rng, most=400):
    prompt = rng.choice(PREFIXES) + f"request {rng.randrange(10**6)}"
    n_tokens, temperature, seed = rng.randrange(10, most), rng.choice([0, 1]), rng.randrange(2**40)
    return {"model": "m", "prompt": prompt, "max_tokens": n_tokens, "temperature": temperature, "seed": seed,
            "n": rng.choice([1, 1, 1, 2, 4]), "stream": True}


def add_stop(rng, body, text):
    """Adds, at random, a stop string taken from the expected text."""
    if rng.random() < 0.3 and text:
        at = rng.randrange(len(text))
        body["stop"] = [text[at:at + 3], "NEVER"]
    return body


class Formula:
    """Computes expected texts by docs/develop/null-worker.md; every request is a new one."""

    def draw(self, rng):
        """Returns a request and its expected result: (body, {index: (text, finish_reason)})."""
        body = make_body(rng)
        answers = [oracle.text(body["prompt"], body["max_tokens"], seed=body["seed"], i_choice=i,
                               temperature=body["temperature"]) for i in range(body["n"])]
        add_stop(rng, body, answers[0])
        want = {}
        for i, answer in enumerate(answers):
            text, _, matched = oracle.cut(answer, body.get("stop", []))
            want[i] = (text, "stop" if matched else "length")
        return body, want

    def have(self, got):
        return {i: (got.texts.get(i, ""), finish) for i, finish in got.finish.items()}


class Quiet:
    """Holds expected texts of a quiet cluster, which answers N_QUIET requests one at a time; {index: (text, finish_reason, ids)}."""

    def __init__(self, cluster, seed):
        rng = random.Random(f"{seed}/quiet")
        self.known = []
        with httpx.Client(base_url=cluster.url, timeout=120 * SLOW) as client:
            for _ in range(N_QUIET):
                body = {**make_body(rng, 60 if SHORT else 400), "return_token_ids": True, "ignore_eos": True}
                got = collect(client, "/v1/completions", body)
                if "stop" in add_stop(rng, body, got.texts[0]):
                    got = collect(client, "/v1/completions", body)
                self.known.append((body, self.have(got)))

    def draw(self, rng):
        return rng.choice(self.known)

    def have(self, got):
        return {i: (got.texts[i], finish, got.ids[i]) for i, finish in got.finish.items()}


class Loop:
    def __init__(self, options, cluster, oracle):
        self.options, self.cluster, self.oracle = options, cluster, oracle
        self.strikes = []       # one (time, name, action) for each strike
        self.pauses = []        # longest time without a token in each stream, in seconds
        self.counts = Counter()
        self.failures = []
        self.head_rss_kb = 0
        self.stopping = False

    def fail(self, text):
        if len(self.failures) < 20:
            print("FAILED: " + text, flush=True)
        self.failures.append(text)

    # ---- streams --------------------------------------------------------------------------------

    async def attempt(self, client, i_gateway, body):
        """Requests a stream once. Returns Collected, or None when its gateway died."""
        got, begin = Collected(), time.monotonic()
        last, gap = begin, 0.0
        try:
            url = f"http://127.0.0.1:{self.cluster.ports[i_gateway]}/v1/completions"
            async with client.stream("POST", url, json=body) as r:
                if r.status_code != 200:
                    self.fail(f"status {r.status_code}: {(await r.aread()).decode()[:200]}")
                    return None
                lines = r.aiter_lines().__aiter__()
                while True:
                    # A comment only shows that the gateway runs. A comment is no token, so it does not end a stall.
                    line = await asyncio.wait_for(lines.__anext__(), max(0.1, last + STALL_S - time.monotonic()))
                    if line == "data: [DONE]":
                        self.pauses.append(gap)
                        return got
                    if line.startswith("data: "):
                        got.add(json.loads(line[6:]))
                        now = time.monotonic()
                        gap, last = max(gap, now - last), now
        except asyncio.TimeoutError:
            self.fail(f"stalled for {STALL_S:g} s after {got.n_chunks} chunks: {json.dumps(body)[:120]}")
        except (httpx.HTTPError, StopAsyncIteration) as e:
            name = self.gateway_name(i_gateway)
            if not any(when >= begin - AWAY_S[action] and victim == name for when, victim, action in self.strikes):
                self.fail(f"{name} was not struck, but a stream on it ended with {e!r}")
            self.counts["connection errors" if got.n_chunks else "refused while away"] += 1
        return None

    def gateway_name(self, i):
        names = sorted(n for n in self.names if n.startswith("gateway"))
        return names[i]

    async def one_client(self, i_client):
        rng = random.Random(f"{self.options.seed}/{i_client}")
        async with httpx.AsyncClient(timeout=httpx.Timeout(STALL_S + 5, connect=5)) as client:
            while not self.stopping:
                body, want = self.oracle.draw(rng)
                deadline, retried = time.monotonic() + 60 * SLOW, False
                while (got := await self.attempt(client, rng.randrange(2), body)) is None:
                    retried = True
                    if time.monotonic() > deadline or self.failures:
                        self.fail(f"never answered: {json.dumps(body)[:120]}")
                        return
                    await asyncio.sleep(0.2)
                self.counts["streams"] += 1
                self.counts["streams retried on another connection"] += retried
                self.counts["characters"] += sum(map(len, got.texts.values()))
                have = self.oracle.have(got)
                if have != want:
                    self.fail(f"wrong answer to {json.dumps(body)[:160]}\n  want {want}\n  got  {have}")

    # ---- strikes --------------------------------------------------------------------------------

    def strike(self, rng):
        """Strikes one process. Returns the later action for a stopped process, or None."""
        kind = rng.choices([k for k, _ in VICTIMS], [w for _, w in VICTIMS])[0]
        action = rng.choices([a for a, _ in ACTIONS], [w for _, w in ACTIONS])[0]
        pick = rng.random()
        pids = self.cluster.pids()
        names = sorted(n for n in pids if n.startswith(kind) and alive(pids[n]))
        if not names:
            self.counts["strikes that found nobody"] += 1
            return None
        name = names[int(pick * len(names))]
        os.kill(pids[name], SIGNALS[action])
        self.strikes.append((time.monotonic(), name, action))
        self.counts[f"{action} {kind}"] += 1
        return (name, pids[name]) if action == "stop" else None

    async def chaos(self, end):
        rng = random.Random(self.options.seed)
        stopped = []
        while time.monotonic() < end and not self.failures:
            await asyncio.sleep(rng.uniform(0.9, 2.1))
            self.watch_head()
            try:
                victim = self.strike(rng)
            except ProcessLookupError:
                continue
            if victim:  # a hang is detected after 1.5 s; only this loop restarts the process
                stopped.append(asyncio.get_running_loop().call_later(3.0, self.put_down, *victim))
        await asyncio.sleep(3.5 if stopped else 0)

    def put_down(self, name, pid):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
            self.strikes.append((time.monotonic(), name, "kill"))

    def watch_head(self):
        try:
            self.head_rss_kb = max(self.head_rss_kb, rss_kb(self.cluster.pid("head")))
        except (OSError, KeyError, ValueError):
            pass

    # ---- the run --------------------------------------------------------------------------------

    async def run(self):
        self.names = set(self.cluster.pids())
        clients = [asyncio.create_task(self.one_client(i)) for i in range(self.options.streams)]
        await self.chaos(time.monotonic() + self.options.seconds)
        self.stopping = True
        done, pending = await asyncio.wait(clients, timeout=60 * SLOW)
        if pending:
            self.fail(f"{len(pending)} streams did not end")
        for task in done:
            if task.exception():
                self.fail(f"{task.exception()!r}")

    def settle(self):
        """Checks that after the last strike the cluster's state is as at the start."""
        begin, status = time.monotonic(), None
        while time.monotonic() - begin < 20 * SLOW:
            healthy = all(get(f"http://127.0.0.1:{p}/health")[0] == 200 for p in self.cluster.ports)
            try:
                status = self.cluster.status() if healthy else None
            except AssertionError:
                status = None
            if status and status["healthy"] and len(status["workers"]) == self.options.workers and not left_over(status):
                self.counts["seconds to settle"] = round(time.monotonic() - begin, 1)
                return
            time.sleep(0.1)
        self.fail(f"not settled: {json.dumps(status)}")

    def check_memory(self):
        """Runs two equal loads. The second load may not make the head's memory grow."""
        sizes = []
        for _ in range(3):
            quiet = Loop(argparse.Namespace(seed="memory", streams=8, seconds=0), self.cluster, self.oracle)
            quiet.names = self.names

            async def load():
                tasks = [asyncio.create_task(quiet.one_client(i)) for i in range(8)]
                await asyncio.sleep(1.5)
                quiet.stopping = True
                await asyncio.gather(*tasks)

            asyncio.run(load())
            self.failures += quiet.failures
            sizes.append(rss_kb(self.cluster.pid("head")))
        if not SANITIZED and sizes[2] - sizes[1] > 2048:
            self.fail(f"the head grows: {sizes} KiB")
        if not SANITIZED and self.head_rss_kb > 64 * 1024:
            self.fail(f"the head had {self.head_rss_kb} KiB")
        self.counts["head RSS, MiB"] = round(max(*sizes, self.head_rss_kb) / 1024, 1)


def rss_kb(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ValueError("no VmRSS")


def left_over(status):
    return status["requests"]["running"] or status["requests"]["waiting"] or status["kv"]["blocks_used"]


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))] if values else 0.0


def report(loop):
    o = loop.options
    print(f"\nkill loop: {o.model}, {o.workers} workers, tp {o.tp}, seed {o.seed}, {o.seconds:g} s")
    for kind, _ in VICTIMS:
        row = "  ".join(f"{action} {loop.counts[f'{action} {kind}']:3d}" for action, _ in ACTIONS)
        print(f"  {kind:8s} {row}")
    for name in ("streams", "characters", "streams retried on another connection", "connection errors",
                 "refused while away", "strikes that found nobody", "seconds to settle", "head RSS, MiB"):
        print(f"  {name}: {loop.counts[name]}")
    p = loop.pauses
    print(f"  longest pause of a stream: p50 {percentile(p, .5):.2f} s, p99 {percentile(p, .99):.2f} s, "
          f"max {max(p, default=0):.2f} s")
    print(f"  {len(loop.failures)} failures")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="default: COX_CHAOS_SECONDS or 60; of a model a third, at least 20")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("COX_CHAOS_SEED", 1)))
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--step-us", type=int, default=3000)
    parser.add_argument("--keep-log", metavar="FILE", help="the cluster's log, also when nothing fails")
    parser.add_argument("--model", default="null", help="null, or the path of a model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--tp", type=int, default=2)
    options = parser.parse_args()
    is_null = options.model == "null"
    if not is_null and options.model != "demo" and not Path(options.model).exists():
        print(f"SKIPPED: no {options.model}; scripts/make-goldens makes small models")
        sys.exit(77)
    if options.seconds is None:
        options.seconds = float(os.environ.get("COX_CHAOS_SECONDS", 60))
        options.seconds = options.seconds if is_null else max(20.0, options.seconds / 3)
    cluster = Cluster("--null-step-us", options.step_us, "--device", options.device, "--served-model-name", "m",
                      model=options.model, workers=options.workers, tp=options.tp, gateways=2)
    with cluster:
        loop = Loop(options, cluster, Formula() if is_null else Quiet(cluster, options.seed))
        asyncio.run(loop.run())
        if not loop.failures:
            loop.settle()
        if not loop.failures:
            loop.check_memory()
        report(loop)
        if not sum(loop.counts[f"{a} {k}"] for k, _ in VICTIMS for a, _ in ACTIONS) or not loop.counts["streams"]:
            loop.fail("nothing happened: no strike or no stream")
        if options.keep_log or loop.failures:
            path = Path(options.keep_log or BIN.parent / "kill_loop.log")
            path.write_text(cluster.log())
            print(f"  log of the cluster: {path}")
    found = findings.take()  # the findings include the reports that processes wrote when they ended
    if found:
        print(f"FAILED: a process crashed or has a sanitizer's report:\n{found}")
    sys.exit(1 if loop.failures or found else 0)


if __name__ == "__main__":
    main()
