#!/usr/bin/env python3
"""Runs a cluster over three hosts with 32 streams and a schedule of faults from a seed. The bytes of every stream are compared with
the expected ones as they arrive.

Hosts are network namespaces on a switch (chaos_net.py): a head, two gateways, two replicas of two workers, and a spare. Where
there is a redis-server, gateways count in it, and where cox-head has --redis there is a standby head. Faults (chaos_faults.py):
processes killed, hung, or killed while a replica forms; partitions, also in one direction; loss, delay, flapping links; wall
clocks that jump; full disks; Redis down and back empty; slow readers. A stream may break only when its gateway dies, and is then
requested again at the other gateway.

Exit status 1: a failed request, a wrong token, a crashed process, or a cluster that has not recovered within 15 s of the last
fault's end. The seed and the schedule so far are printed, and the logs kept. Exit status 77: this machine cannot run the test; the
reason is printed.

Usage: tests/chaos/run [--seed N] [--minutes M] [--streams 32] [--model null|demo|PATH]
       tests/chaos/run --seed N --minutes M --print > FILE;  tests/chaos/run --schedule FILE    (FILE may have some of the lines)
       tests/chaos/run --only kill_head,partition ...
"""
import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import findings
from chaos_faults import DECK, Hands, make_schedule, summary
from chaos_net import BIN, CLOCK, REDIS, SANITIZED, SLOW, ChaosCluster, why_not
from chaos_streams import Formula, Quiet, Streams

WELL_S = 15


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))] if values else 0.0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("COX_CHAOS_SEED", 1)))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--model", default="null", help="null, demo, or the path of a model")
    parser.add_argument("--tokens", type=int, help="the most that a stream asks for; default: 400, of a path 800, of demo 100")
    parser.add_argument("--step-us", type=int, default=25000, help="of the null device")
    parser.add_argument("--only", help="kinds of faults, with commas between: " + ", ".join(DECK))
    parser.add_argument("--print", action="store_true", help="the schedule, a line of JSON a fault, and nothing else")
    parser.add_argument("--schedule", metavar="FILE", help="this one in place of the seed's")
    parser.add_argument("--keep-logs", metavar="FOLDER", help="the processes' logs, also when nothing fails")
    options = parser.parse_args()
    options.tokens = options.tokens or {"null": 400, "demo": 100}.get(options.model, 800)
    return options


def schedule_of(options, cluster):
    if options.schedule:
        lines = Path(options.schedule).read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]
    kinds = options.only.split(",") if options.only else None
    names = [*cluster.heads, *(["redis"] if REDIS else []), "gateway0", "gateway1",
             *(f"worker{i}" for i in range(cluster.n_workers))]
    schedule = make_schedule(options.seed, options.minutes * 60, names, kinds)
    can_jump = CLOCK.exists() and not SANITIZED
    return [f for f in schedule if f["kind"] != "clock" or can_jump]


async def go(options, cluster, streams, hands, schedule):
    supervisor = asyncio.create_task(cluster.supervise())
    took, reason = await cluster.wait_well(30)
    if reason:
        streams.fail(f"the cluster did not begin: {reason}")
        return
    if isinstance(streams.oracle, Quiet):
        await streams.oracle.ask(streams, options.seed)
    print(f"well after {took:.1f} s; {options.streams} streams", flush=True)
    begin = time.monotonic()
    clients = [asyncio.create_task(streams.one_client(i)) for i in range(options.streams)]
    printer = asyncio.create_task(say(hands, begin))
    await hands.run(schedule, lambda: bool(streams.failures or cluster.crashes))
    if not streams.failures:
        took, reason = await cluster.wait_well(WELL_S)
        streams.counts["seconds until well"] = round(took, 1)
        if reason:
            streams.fail(f"not well {WELL_S * SLOW} s after the last fault was healed: {reason}")
    while not streams.failures and time.monotonic() < begin + options.minutes * 60:
        await asyncio.sleep(0.2)
    streams.stopping = True
    done, pending = await asyncio.wait(clients, timeout=90 * SLOW)
    printer.cancel()
    if pending:
        streams.fail(f"{len(pending)} streams did not end")
    for task in [*clients, *pending]:
        task.cancel()
    for task in done:
        if not task.cancelled() and task.exception():
            streams.fail(f"{task.exception()!r}")
    if not streams.failures:
        _, reason = await cluster.wait_well(WELL_S, cluster.left_over)
        if reason:
            streams.fail(reason)
    supervisor.cancel()


async def say(hands, begin):
    n = 0
    while True:
        for fault in hands.begun[n:]:
            print(f"{time.monotonic() - begin:6.1f} s  {json.dumps(fault)}", flush=True)
        n = len(hands.begun)
        await asyncio.sleep(0.2)


def say_longest(pauses, hands, n=5):
    """Prints the longest pauses, each from another fault, with the faults that were in force meanwhile. The output shows the causes
    of the pauses."""
    told = []
    for seconds, end, gateway in sorted(pauses, reverse=True):
        if len(told) == n or seconds < 1 or any(end - seconds < e and e - s < end for s, e in told):
            continue
        told.append((seconds, end))
        at = end - hands.since
        faults = [f for f in hands.begun if f["at"] < at and f["at"] + f.get("for", 0) > at - seconds - 1]
        print(f"  a pause of {seconds:.1f} s until {at:.1f} s at {gateway}: "
              + ", ".join(f"{f['kind']} {f['on']} at {f['at']:.1f}" + (f" for {f['for']:g}" if "for" in f else "") for f in faults))


def report(options, cluster, streams, hands):
    c, p = streams.counts, [seconds for seconds, _, _ in streams.pauses]
    print(f"\nchaos: model {options.model}, seed {options.seed}, {options.minutes:g} minutes, {options.streams} streams, "
          f"{'two heads' if cluster.two_heads else 'one head'}, {'with' if REDIS else 'without'} Redis")
    print("  faults: " + ", ".join(f"{k} {n}" for k, n in summary(hands.begun).items()))
    print(f"  strikes that found nobody: {hands.n_nobody}; starts: "
          + ", ".join(f"{p.name} {p.n_starts}" for p in cluster.processes.values()))
    print(f"  streams asked again after their gateway was killed: {c['streams asked again']} "
          f"({c['connections broken by a gateway' + chr(39) + 's death']} connections)")
    print(f"  well {c['seconds until well']:g} s after the last fault")
    say_longest(streams.pauses, hands)
    print(f"{len(hands.begun)} faults, {c['streams']} streams, {c['tokens']} tokens, pause p50 {percentile(p, .5):.2f} s "
          f"p99 {percentile(p, .99):.2f} s max {max(p, default=0):.2f} s, {len(streams.failures)} failures", flush=True)


def main():
    options = parse()
    reason = None if options.print else why_not()
    if reason is None and options.model not in ("null", "demo") and not Path(options.model).exists():
        reason = f"no {options.model}; scripts/make-goldens makes small models"
    if reason:
        print(f"SKIPPED: {reason}")
        sys.exit(77)
    is_null = options.model == "null"
    with tempfile.TemporaryDirectory(prefix="coxchaos-") as folder:
        cluster = ChaosCluster(folder, options.model, "null" if is_null else "cpu", options.step_us)
        schedule = schedule_of(options, cluster)
        if options.print:
            print("\n".join(map(json.dumps, schedule)))
            return
        streams = Streams(cluster, (Formula if is_null else Quiet)(options.tokens), options.seed)
        with cluster:
            hands = Hands(cluster, streams, options.streams)
            asyncio.run(go(options, cluster, streams, hands, schedule))
            for crash in cluster.crashes:
                streams.fail(crash)
            report(options, cluster, streams, hands)
            if not hands.begun or not streams.counts["streams"]:
                streams.fail("nothing happened: no fault or no stream")
            if options.keep_logs or streams.failures:
                kept = Path(options.keep_logs or BIN.parent / f"chaos_hosts-{options.seed}")
                cluster.keep_logs(kept)
                print(f"logs: {kept}")
        found = findings.take()  # the findings include reports that processes wrote when they ended
    for crash in cluster.crashes[len(streams.failures):]:
        streams.fail(crash)
    if found:
        streams.fail(f"a process crashed or has a sanitizer's report:\n{found}")
    if streams.failures:
        print(f"FAILED with seed {options.seed}; the schedule so far, for --schedule:\n"
              + "\n".join(map(json.dumps, hands.begun)))
        sys.exit(1)


if __name__ == "__main__":
    main()
