"""Runs a hostile tenant with a valid key beside a polite one: all attacks of this folder at 50 requests a second, for ten minutes.

    tests/run_python tests/hostile/neighbour.py [--minutes 10] [--rate 50] [--only NAME ...] [--json FILE]

It starts a cluster with `cox up` (the demo model if it is there, else the null model), two keys, and a polite tenant of 16
streams, which runs alone and attacked in turns. It prints these figures and writes them as JSON:
- the polite tenant's gaps between tokens, alone and attacked, with the ratio of their p99 (bar: 1.5);
- its tokens a second and times to the first token, alone and attacked, and its failures (bar: 0);
- each process's peak memory beside the chart's limit, and restarts (bar: 0);
- the outcomes of each attack's shots.
The exit status is 1 when a bar is missed. --short checks only failures, restarts and memory, which do not depend on how busy the
machine is.

The hostile client is a process of its own at nice 10 with prepared bytes (shots.py). Its CPU time is in the report, as a fraction
of a core.
"""
import argparse
import collections
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

from attack import delete_file, fits, resident_mib, upload_file, wanted
from attacks import Target, all_attacks
from cluster import ROOT, Cluster
from polite import Polite, Seen, summary
from real_model import MODEL
from shots import Engine, Shot

MAX_OPEN = 3000
SLOW_SHOT_S = 30  # most seconds of a shot beside other shots; a shot without an answer by then is abandoned


def chart_limits():
    """Returns the limits in MiB by process, from the chart's values."""
    found, part = {}, None
    for line in (ROOT / "deploy/helm/coxswain/values.yaml").read_text().splitlines():
        if m := re.match(r"(head|worker|workers|gateway|gateways):$", line):
            part = m[1].rstrip("s")
        elif re.match(r"\S", line):
            part = None
        elif part and part not in found and (m := re.match(r"    limits: .*memory: (\d+)(Mi|Gi)", line)):
            found[part] = int(m[1]) * (1024 if m[2] == "Gi" else 1)
    assert set(found) == {"head", "worker", "gateway"}, f"the chart's limits are not to be read: {found}"
    return found


# ---- the hostile tenant, a process of its own ----


class Hostile:
    def __init__(self, t, attacks, rate, seed):
        self.t, self.rate, self.random = t, rate, random.Random(seed)
        self.engine = Engine(t.host, t.port)
        self.outcomes, self.open = collections.defaultdict(collections.Counter), collections.Counter()
        self.later = collections.deque()  # ids of uploaded files that are still to be deleted
        self.deck = [(a.name, s) for a in attacks for s in self.cut(a.shots(t))]
        self.n_left_out = 0

    def cut(self, shots):
        """Puts only a few shots of each attack in the deck, so that every attack has its turn."""
        for s in shots[:4]:
            s.hold_s = min(s.hold_s, SLOW_SHOT_S)
            yield s

    def strike(self, name, shot):
        self.open[name] += 1

        def done(r):
            self.open[name] -= 1
            self.outcomes[name]["left" if r.status == 0 and not r.closed else str(r.status)] += 1
            if name.startswith("disk/uploads") and r.status == 200:
                if m := re.search(rb'"id": ?"(file-[0-9a-f]+)"', r.body):
                    self.later.append(m[1].decode())
        self.engine.start(shot, done)

    def run(self, seconds):
        begin, n, order = time.monotonic(), 0, []
        while (now := time.monotonic()) - begin < seconds:
            while n < (now - begin) * self.rate:
                n += 1
                if self.engine.n_open > MAX_OPEN:
                    self.n_left_out += 1
                    continue
                if self.later:
                    self.strike("delete", Shot(self.t.head("DELETE", f"/v1/files/{self.later.popleft()}")))
                if not order:
                    order = self.deck[:]
                    self.random.shuffle(order)
                self.strike(*order.pop())
            self.engine.poll(0.02)
        for i in self.later:
            self.strike("delete", Shot(self.t.head("DELETE", f"/v1/files/{i}")))
        end = time.monotonic() + 5
        while self.engine.n_open and time.monotonic() < end:
            self.engine.poll(0.1)
        for name, n_open in self.open.items():
            self.outcomes[name]["open"] += n_open  # these shots have not ended yet
        return n


def hostile_main(t, names, has, rate, seconds, seed, pipe):
    os.nice(10)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    h = Hostile(t, [a for a in wanted(all_attacks(), names) if fits(a, has)], rate, seed)
    pipe.send("ready")  # the attack's bytes are ready now, because making them costs more than sending them
    pipe.recv()
    before, begin = time.process_time(), time.monotonic()
    n = h.run(seconds)
    pipe.send({"sent": n, "left_out": h.n_left_out, "cores": round((time.process_time() - before) / (time.monotonic() - begin), 3),
               "outcomes": {k: {s: n for s, n in v.items() if n} for k, v in h.outcomes.items()}})


def start_hostile(polite, watch, *args):
    """Keeps the polite tenant running while the hostile tenant prepares. If the polite tenant waited, its own pause would count as a
    delay of the cluster."""
    ours, theirs = multiprocessing.Pipe()
    p = multiprocessing.get_context("fork").Process(target=hostile_main, args=(*args, theirs), daemon=True)
    p.start()
    while not ours.poll():
        polite.run(0.2, watch.look)
    assert ours.recv() == "ready"
    ours.send("go")
    return p, ours


# ---- the watched cluster ----


class Watch:
    """Watches the memory and the restarts of the cluster's processes, once a second."""

    def __init__(self, cluster, kill_mib=3000):
        self.cluster, self.kill_mib = cluster, kill_mib
        self.most, self.restarts, self.last = {}, [], cluster.pids()

    def look(self):
        try:
            pids = self.cluster.pids()
        except (OSError, ValueError):
            return
        for name, pid in pids.items():
            if self.last.get(name, pid) != pid:
                self.restarts.append(name)
            mib = resident_mib(pid)
            self.most[name] = max(self.most.get(name, 0), mib)
            if mib > self.kill_mib:  # a kernel would have ended the process at its limit
                os.kill(pid, signal.SIGKILL)
        self.last = pids


def start_cluster(o, folder):
    keys = folder / "keys"
    keys.write_text("polite-key-0001 polite\nhostile-key-001 hostile\n")
    model = o.model or ("demo-base" if MODEL.exists() else "null")
    args = ["--api-key-file", keys, "--state-dir", folder / "state", "--served-model-name", "demo", "--trust-request-chat-template",
            "--chat-template", "chatml", "--enable-auto-tool-choice", "--tool-call-parser", "hermes", *o.cox]
    if model != "null":
        args += ["--device", "cpu"]
    return model, Cluster(*args, workers=1, tp=1, model=model)


def run_phases(o, cluster, watch, polite, hostile_target, has):
    alone, attacked, reports = Seen(), Seen(), []
    polite.run(o.warm_s, watch.look)
    for i in range(o.phases):
        alone += polite.run(o.alone_s, watch.look)
        attack_s = o.minutes * 60 / o.phases
        p, pipe = start_hostile(polite, watch, hostile_target, o.only, has, o.rate, attack_s, o.seed + i)
        attacked += polite.run(attack_s, watch.look)
        while not pipe.poll():
            polite.run(0.5, watch.look)
        reports.append(pipe.recv())
        p.join()
        polite.run(o.rest_s, watch.look)  # the time after an attack counts neither as alone nor as attacked
        print(f"phase {i + 1} of {o.phases}: alone {summary(alone)}, attacked {summary(attacked)}, failures {len(polite.failures)}, "
              f"restarts {len(watch.restarts)}, MiB { {k: round(v) for k, v in watch.most.items()} }", flush=True)
    return alone, attacked, reports


def judge(o, report):
    limits, bad = chart_limits(), []
    if report["polite"]["failures"]:
        bad.append(f"{len(report['polite']['failures'])} of the polite tenant's streams failed: {report['polite']['failures'][0]}")
    if report["restarts"]:
        bad.append(f"restarts: {' '.join(report['restarts'])}")
    for name, mib in report["memory_mib"].items():
        if mib > limits[name.split("-")[0]]:
            bad.append(f"{name} took {mib} MiB of {limits[name.split('-')[0]]}")
    if not o.short and report["p99_ratio"] > 1.5:
        bad.append(f"the p99 gap is {report['p99_ratio']} times that of alone (bar: 1.5)")
    return bad


def merge(reports):
    total = collections.defaultdict(collections.Counter)
    for r in reports:
        for name, outcomes in r["outcomes"].items():
            total[name].update(outcomes)
    return {k: dict(v) for k, v in sorted(total.items())}


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=10, help="of attack, all phases together")
    p.add_argument("--phases", type=int, default=5)
    p.add_argument("--alone-s", type=float, default=30, help="before each phase of attack")
    p.add_argument("--rest-s", type=float, default=10, help="behind it")
    p.add_argument("--warm-s", type=float, default=5)
    p.add_argument("--rate", type=float, default=50, help="shots a second")
    p.add_argument("--streams", type=int, default=16)
    p.add_argument("--only", nargs="+", metavar="NAME", default=[], help="attacks or families")
    p.add_argument("--model", default="", help="default: demo-base where it is there, else null")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--short", action="store_true", help="20 s, and no look at times")
    p.add_argument("--json", help="write the report there")
    p.add_argument("cox", nargs="*", help="further options of cox up, behind --")
    o = p.parse_args()
    if o.short:
        o.minutes, o.phases, o.alone_s, o.rest_s, o.warm_s = 10 / 60, 1, 3, 2, 1
    return o


def main():
    o = options()
    with tempfile.TemporaryDirectory(prefix="coxhostile-") as folder:
        model, cluster = start_cluster(o, Path(folder))
        with cluster:
            hostile = Target("127.0.0.1", cluster.ports[0], "hostile-key-001")
            hostile.file_id = upload_file(hostile)
            polite = Polite(Target("127.0.0.1", cluster.ports[0], "polite-key-0001"), o.streams)
            watch = Watch(cluster)
            alone, attacked, reports = run_phases(o, cluster, watch, polite, hostile, {"keys", "state", "template"})
            polite.close()
            delete_file(hostile)
            watch.look()
    before, beside = summary(alone), summary(attacked)
    report = {"model": model, "rate": o.rate, "minutes": o.minutes, "alone": before, "attacked": beside,
              "p99_ratio": round(beside["p99_ms"] / max(before["p99_ms"], 0.1), 2),
              "throughput_ratio": round(beside["tokens_per_s"] / max(before["tokens_per_s"], 0.1), 2),
              "polite": {"done": polite.n_done, "failures": polite.failures}, "restarts": watch.restarts,
              "memory_mib": {k: round(v) for k, v in watch.most.items()}, "limits_mib": chart_limits(),
              "hostile": {"sent": sum(r["sent"] for r in reports), "left_out": sum(r["left_out"] for r in reports),
                          "cores": max(r["cores"] for r in reports)},
              "outcomes": merge(reports)}
    bad = judge(o, report)
    if o.json:
        Path(o.json).write_text(json.dumps(report, indent=1) + "\n")
    for name, outcomes in report["outcomes"].items():
        print(f"  {name:36} {outcomes}")
    print(json.dumps({k: v for k, v in report.items() if k != "outcomes"}, indent=1))
    print("HELD" if not bad else "NOT HELD: " + "; ".join(bad))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
