"""Implements bench/builds, which compares two builds in turns, round by round."""
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from cluster import ROOT
from options import amount, count, names, option_parser
from serving import machine

COUNTS = ("64", "256", "1024")
PROGRAMS = {"scheduler": "scheduler_bench", "gateway": "gateway_load", "model": "bench_cpu_model"}
GATEWAY = {"rate, events/s": r"^rate: (\d+)", "CPU, us per event": r", all ([\d.]+)", "p50 added, us": r"^  p50 (\d+)", "p99 added, us": r"^  p99 (\d+)"}


def scheduler(tree, _):
    """Returns microseconds of a step, by the number of sequences."""
    said = subprocess.run([tree / "build/release/bin/scheduler_bench", "--steps", "320", "--seed", "1", *COUNTS], capture_output=True,
                          text=True, check=True).stdout
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {f"step of {r['count']}, us": r["median"] for r in rows}


def gateway(tree, options):
    said = subprocess.run([tree / "bench/gateway", "--rounds", "1", "--seconds", str(options.seconds), "--parts", "rate,latency"],
                          capture_output=True, text=True, env={k: v for k, v in os.environ.items() if k != "COX_BIN"}).stdout
    found = {name: re.search(pattern, said, re.M) for name, pattern in GATEWAY.items()}
    return {name: float(m[1]) for name, m in found.items() if m}


def model(tree, options):
    """Returns the tokens per second of one rank."""
    lines = ("prompt 512", "decode 1 128 64", "decode 8 128 64") * 3  # repeated, because other load changes within a round
    with subprocess.Popen([tree / "build/release/bin/bench_cpu_model", str(options.model), str(options.threads), "auto"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        said = p.communicate("\n".join(lines) + "\n")[0]
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    found = {}
    for line, r in zip(lines, rows):
        if "tokens" in r:
            found.setdefault(f"{line}, tokens/s", []).append(r["tokens"] / r["seconds"])
    return {name: statistics.median(rates) for name, rates in found.items()}


def main():
    p = option_parser("builds")
    p.add_argument("other", type=Path)
    p.add_argument("--rounds", type=count(), default=7)
    p.add_argument("--parts", type=names(PROGRAMS), default=["scheduler", "gateway"])
    p.add_argument("--model", help="folder of a model; adds the part model")
    p.add_argument("--threads", type=count(), default=2)
    p.add_argument("--seconds", type=amount(), default=3)
    options = p.parse_args()
    parts = list(dict.fromkeys([*options.parts, *(["model"] if options.model else [])]))
    if "model" in parts and not options.model:
        sys.exit("bench/builds: the part model needs --model FOLDER")
    trees = (ROOT, options.other.resolve())
    for tree in trees:
        subprocess.run(["ninja", "-C", tree / "build/release", *(PROGRAMS[part] for part in parts)], check=True, stdout=subprocess.DEVNULL)
    ratios, figures = {}, {}
    for i in range(options.rounds):
        for part in parts:
            measured = {}
            for tree in trees if i % 2 == 0 else trees[::-1]:
                measured[tree] = globals()[part](tree, options)
            for name in measured[trees[0]].keys() & measured[trees[1]].keys():
                a, b = (measured[tree][name] for tree in trees)
                ratios.setdefault(name, []).append(a / b)
                figures.setdefault(name, []).append((a, b))
    print(f"{machine()}; {options.rounds} rounds, this build / the other: median (least … most), the ratio of each one's "
          "best round, and the medians of both")
    for name, found in sorted(ratios.items()):
        best = max if name.endswith("/s") else min
        ours, theirs = ([f[k] for f in figures[name]] for k in (0, 1))
        print(f"{name:28} {statistics.median(found):6.3f} ({min(found):.3f} … {max(found):.3f})   {best(ours) / best(theirs):6.3f}   "
              f"{statistics.median(ours):10.2f} {statistics.median(theirs):10.2f}", flush=True)
    return 0 if ratios else 1


if __name__ == "__main__":
    sys.exit(main())
