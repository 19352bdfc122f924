#!/usr/bin/env python3
"""Tests every kind of fault separately, on a calm machine and beside busy processes. The table has one row for each fault.

The cluster is that of tests/chaos/run (three hosts, two heads with Redis, two gateways, five null workers) and is kept from row
to row. A client in a separate session keeps streams open all the time and compares every byte as it arrives. Each row strikes
once (matrix_hands.py), waits until the cluster is whole, and counts the client's results meanwhile:

  streams       right answers whose longest pause ended in the row
  failed        errors, refusals and lost connections that no strike at their gateway excuses; processes that ended unasked
  wrong         answers with a wrong byte
  broken        answers that broke with their killed gateway, were requested again at the other gateway, and were right there
  refused       new connections that a gateway did not take while it was ending or away; also requested again, and right
  pause         longest wait of each stream for the next token (with the first one), in seconds
  well          seconds from the last strike's end until every process and replica serves
  client late   longest time for which the client's own process was off the processor and itself caused a pause.
                Its session has a higher weight than other sessions, so that this time stays small

Busy processes (--hogs) are separate sessions, like other users' processes. Linux gives each session an equal share, and the
cluster with its supervisor is one session. Bars (exit status 1 when missed): no stream failed or wrong; the cluster complete
again within 60 s; a pause of at most 15 s beyond the fault's own duration. For kills with up to six hogs, a pause is also at most
1.5 times the calm pause divided by the remaining share of the CPU. Exit status 77: this machine cannot run the test; the reason
is printed.

Usage: tests/chaos/matrix [--only kill_worker,clock] [--rounds 1] [--hogs 20] [--loads calm,loaded] [--json FILE]
       --weight N (-19 to 20) gives cluster, client and hogs a nice of -N towards other sessions; their shares among each other stay
"""
import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import findings
from busy_recovery import FACTOR, MOST_S, hogs, weigh
from chaos_hosts import percentile
from chaos_net import BIN, CLOCK, REDIS, SANITIZED, ChaosCluster, why_not
from matrix_hands import FAULTS, NEEDS_CLOCK, NEEDS_REDIS, MatrixHands, why_no_limits

SETTLE_S, BETWEEN_S, WHOLE_S, REST_S = 2.0, 1.0, 60, 90
FEW_HOGS = 6  # most hogs with which a kill's pause is also compared with the calm pause
CLIENT_WEIGHT = 10  # weight of the client's session above the other sessions: 9 times their share
SPIN = ("import time; t, c = time.monotonic(), time.process_time()\nwhile time.monotonic() - t < 1.5: pass\n"
        "print((time.process_time() - c) / (time.monotonic() - t))")


class Row:
    def __init__(self, name, load, begin):
        self.name, self.load, self.begin, self.end = name, load, begin, float("inf")
        self.counts, self.pauses, self.failures = Counter(), [], []
        self.late, self.well, self.not_run = 0.0, 0.0, None

    def pause(self, p):
        return max(self.pauses, default=0.0) if p == 1 else percentile(self.pauses, p)

    def facts(self):
        return {"fault": self.name, "load": self.load, **{k: self.counts[k] for k in ("streams", "failed", "wrong", "broken", "refused", "in flight")},
                "pause_p50_s": self.pause(.5), "pause_p99_s": self.pause(.99), "pause_max_s": self.pause(1), "fault_s": FAULTS[self.name][0],
                "well_s": self.well, "client_late_s": self.late, "not_run": self.not_run, "failures": self.failures}


def excused(lost, strikes):
    """Returns the column for a lost connection. An answer breaks only with a kill. A connection without any answer may be refused
    from the strike until the gateway serves again."""
    for gateway, sig, when, until in strikes:
        if gateway != lost["gateway"]:
            continue
        if lost["answered"] and sig == 9 and lost["begin"] <= when <= lost["at"]:
            return "broken"
        if not lost["answered"] and when <= lost["at"] and lost["begin"] <= until:
            return "refused"
    return "failed"


def row_at(rows, at):
    """Returns the last row that had begun at this time. Before all rows it returns the first row."""
    return next((r for r in reversed(rows) if r.begin <= at), rows[0])


def attribute(events, rows, strikes):
    """Counts each event in its row."""
    for e in events:
        at = e["pause_end"] if e["kind"] == "stream" else e["at"]
        if e["kind"] in ("rested", "going") or at < rows[0].begin and e["kind"] in ("stream", "late"):
            continue
        row = row_at(rows, at)
        if e["kind"] == "stream":
            row.counts["streams"] += 1
            row.pauses.append(e["pause"])
            for gateway, _, when, _ in strikes:  # the stream's longest pause may have been in another row
                if gateway == e["gateway"] and e["begin"] < when < e["at"]:
                    row_at(rows, when).counts["in flight"] += 1
        elif e["kind"] == "late":
            row.late = max(row.late, e["seconds"])
        else:
            count = excused(e, strikes) if e["kind"] == "lost" else e["kind"]
            row.counts[count] += 1
            if count in ("failed", "wrong"):
                row.failures.append(e.get("text") or f"{e['gateway']} was not struck, but a connection to it ended: {e['why']}")


def verdict(row, calm, n_hogs, share):
    """Returns the bar for the longest pause in seconds, and a text for each missed bar."""
    span, bar = FAULTS[row.name][0], MOST_S
    if row.load and calm is not None and n_hogs <= FEW_HOGS and row.name.startswith("kill_"):
        bar = min(bar, FACTOR * calm / share)
    beyond = [f"{row.counts[k]} {k}" for k in ("failed", "wrong") if row.counts[k]]
    if not row.counts["streams"]:
        beyond.append("no stream")
    if row.name == "sigterm_gateway" and not row.counts["in flight"]:
        beyond.append("the gateway had no stream")
    if row.pause(1) > span + bar:
        beyond.append(f"a pause above {span + bar:.1f} s")
    return span + bar, "" if row.not_run else ", ".join(beyond)


class Client:
    """Runs and controls the client's process."""

    def __init__(self, o):
        self.o, self.events, self.done = o, [], {"rested": asyncio.Event(), "going": asyncio.Event()}

    async def __aenter__(self):
        program = Path(__file__).parent / "matrix_client.py"
        self.process = await asyncio.create_subprocess_exec(
            "setpriv", "--pdeathsig", "KILL", sys.executable, str(program), str(self.o.streams), str(self.o.seed), str(self.o.tokens),
            self.o.model, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        weigh(self.process.pid, min(20, self.o.weight + CLIENT_WEIGHT))
        self.reader = asyncio.create_task(self.read())
        return self

    async def read(self):
        async for line in self.process.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["kind"] in self.done:
                self.done[self.events[-1]["kind"]].set()
            elif self.events[-1]["kind"] in ("failed", "wrong"):
                print(f"  {self.events[-1]['kind']}: {self.events[-1]['text']}", flush=True)

    async def tell(self, word, answer):
        """Sends `go` or `rest`. `go` starts streams, and the answer is `going`. `rest` starts no new streams, and the answer is
        `rested` when the open streams have ended."""
        self.done[answer].clear()
        self.process.stdin.write(word + b"\n")
        await self.process.stdin.drain()
        await asyncio.wait_for(self.done[answer].wait(), REST_S)

    async def __aexit__(self, *_):
        self.process.stdin.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.process.wait(), 5)
        self.reader.cancel()
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


class Failures:
    """Collects the findings of a fault itself, for the running row."""

    def __init__(self):
        self.row = None

    def fail(self, text):
        print(f"  failed: {text}", flush=True)
        self.row.counts["failed"] += 1
        self.row.failures.append(text)


async def share_left():
    """Returns the share of this machine's processors that the cluster's session gets."""
    n = os.cpu_count()
    spinning = [await asyncio.create_subprocess_exec(sys.executable, "-c", SPIN, stdout=subprocess.PIPE) for _ in range(n)]
    return sum([float((await p.communicate())[0]) for p in spinning]) / n


class Matrix:
    def __init__(self, o, cluster):
        self.o, self.cluster, self.failures = o, cluster, Failures()
        self.hands = MatrixHands(cluster, self.failures)
        self.rows, self.shares = [], {}

    def why_not(self, name):
        if name in NEEDS_CLOCK and (SANITIZED or not CLOCK.exists()):
            return f"no {CLOCK.name} in this build"
        if name in NEEDS_REDIS and not self.cluster.two_heads:
            return "no redis-server: apt-get install redis-server"
        return why_no_limits() if name == "cgroup" else None

    async def row(self, name, load):
        row = Row(name, load, time.monotonic())
        self.failures.row = row
        self.rows.append(row)
        row.not_run = self.why_not(name)
        if row.not_run:
            return
        n_crashes = len(self.cluster.crashes)
        await self.hands.strike(name)
        row.not_run, healed = self.hands.not_run, time.monotonic()
        await asyncio.sleep(SETTLE_S)
        _, reason = await self.cluster.wait_well(WHOLE_S)
        row.well = time.monotonic() - healed
        self.hands.well()
        if reason:
            self.failures.fail(f"not whole {WHOLE_S} s after the fault: {reason}")
        for crash in self.cluster.crashes[n_crashes:]:
            self.failures.fail(crash)
        await asyncio.sleep(BETWEEN_S)
        row.end = time.monotonic()
        print(f"  {row.end - row.begin:5.1f} s  {name}, {f'{load} hogs' if load else 'calm'}", flush=True)

    async def one_pass(self, client, load):
        with hogs(load, self.o.weight):
            self.shares.setdefault(load, await share_left())
            await client.tell(b"go", "going")
            await asyncio.sleep(SETTLE_S)
            first = len(self.rows)
            for name in self.o.only:
                await self.row(name, load)
            try:
                await client.tell(b"rest", "rested")
            except asyncio.TimeoutError:
                self.failures.fail(f"streams did not end within {REST_S} s")
            _, reason = await self.cluster.wait_well(WHOLE_S, self.cluster.left_over)
            if reason:
                self.failures.fail(reason)
        attribute(client.events, self.rows[first:], self.hands.strikes)
        client.events.clear()

    async def go(self):
        supervisor = asyncio.create_task(self.cluster.supervise())
        took, reason = await self.cluster.wait_well(WHOLE_S)
        if reason:
            raise RuntimeError(f"the cluster did not begin: {reason}")
        print(f"well after {took:.1f} s; {self.o.streams} streams", flush=True)
        async with Client(self.o) as client:
            for _ in range(self.o.rounds):
                for load in self.o.loads:
                    await self.one_pass(client, load)
        supervisor.cancel()

    def report(self):
        """Prints the table. Returns the number of rows that miss a bar."""
        n_beyond = 0
        print("\nshare of the CPU that is left to the cluster: " + ", ".join(f"{n} hogs {s:.3f}" for n, s in self.shares.items()) + "\n\n"
              "| fault | hogs | streams | failed | wrong | broken | refused | pause p50, p99, max, s | bar, s | well, s | client late, s | |\n"
              "|---|---|---|---|---|---|---|---|---|---|---|---|")
        for r in self.rows:
            calm = [x.pause(1) for x in self.rows if x.name == r.name and not x.load]
            share = self.shares[r.load] / self.shares.get(0, 1.0) if r.load else 1.0
            bar, beyond = verdict(r, max(calm, default=None), r.load, share)
            n_beyond += bool(beyond)
            if r.not_run:
                print(f"| {r.name} | {r.load} | not run: {r.not_run} |")
                continue
            c = r.counts
            print(f"| {r.name} | {r.load} | {c['streams']} | {c['failed']} | {c['wrong']} | {c['broken']} | {c['refused']} | {r.pause(.5):.2f}, "
                  f"{r.pause(.99):.2f}, {r.pause(1):.2f} | {bar:.1f} | {r.well:.1f} | {r.late:.2f} | {'BEYOND: ' + beyond if beyond else 'held'} |")
        for r in self.rows:
            for text in r.failures[:5]:
                print(f"{r.name}, {r.load} hogs: {text}")
        return n_beyond


def parse():
    parser = argparse.ArgumentParser(prog="tests/chaos/matrix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="rows, with commas between: " + ", ".join(FAULTS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--hogs", type=int, default=20, help="busy processes of the loaded rows")
    parser.add_argument("--loads", default="calm,loaded")
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--model", default="null", help="null, demo, or the path of a model, which then computes on the CPU")
    parser.add_argument("--tokens", type=int, help="the most that a stream asks for; default: 120, of a path 400, of demo 40")
    parser.add_argument("--step-us", type=int, default=25000, help="of the null device")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weight", type=int, default=0)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--keep-logs", metavar="FOLDER", help="the processes' logs, also when every bar holds")
    o = parser.parse_args()
    o.only = o.only.split(",") if o.only else list(FAULTS)
    o.tokens = o.tokens or {"null": 120, "demo": 40}.get(o.model, 400)
    if o.model not in ("null", "demo") and not Path(o.model).exists():
        parser.error(f"there is no {o.model}; scripts/make-goldens makes small models")
    loads = {"calm": 0, "loaded": o.hogs}
    if unknown := [n for n in o.only if n not in FAULTS] + [n for n in o.loads.split(",") if n not in loads]:
        parser.error(f"there is no {unknown[0]}")
    o.loads = [loads[n] for n in o.loads.split(",")]
    return o


def main():
    o = parse()
    if reason := why_not():
        print(f"SKIPPED: {reason}")
        sys.exit(77)
    with contextlib.suppress(PermissionError):
        os.setsid()  # cluster and supervisor become one session; a job of a shell leads a process group and cannot call setsid
    weigh(os.getpid(), o.weight)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="coxmatrix-") as folder:
        with ChaosCluster(folder, o.model, "null" if o.model == "null" else "cpu", o.step_us) as cluster:
            matrix = Matrix(o, cluster)
            try:
                asyncio.run(matrix.go())
            finally:
                n_beyond = matrix.report()
                if o.keep_logs or n_beyond:
                    kept = Path(o.keep_logs or BIN.parent / f"chaos_matrix-{o.seed}")
                    cluster.keep_logs(kept)
                    print(f"logs: {kept}")
        found = findings.take()
    if found:
        print(f"a process crashed or has a sanitizer's report:\n{found}")
    print(f"{len(matrix.rows)} rows, {sum(r.counts['streams'] for r in matrix.rows)} streams, {n_beyond} beyond a bar, "
          f"{time.monotonic() - begin:.0f} s")
    if o.json:
        Path(o.json).write_text(json.dumps({"shares": matrix.shares, "rows": [r.facts() for r in matrix.rows]}, indent=1) + "\n")
    sys.exit(1 if n_beyond or found else 0)


if __name__ == "__main__":
    main()
