"""Implements bench/scheduler; the comment at the top of that script describes it."""
import json
import os
import statistics
import subprocess
import sys

from cluster import ROOT
from options import count, counts, option_parser
from serving import BUILD, build, machine
from vllm_peer import PEER, setup_peer

ASYNC_COUNTS = 256  # largest count at which vLLM's AsyncScheduler is measured too; the ratio then uses the faster of vLLM's two schedulers
BARS_US = {256: 15, 4096: 250}
PEER_RATIO = {256: 100}
PHASES = ("schedule", "plan", "result", "apply", "tokens")
COLUMNS = ("median", "p99", "/seq", *PHASES, "mallocs", "turn", "p99", "mallocs", "arrival")
PEER_COLUMNS = ("vllm", "p99", "arrival", "ratio")


def lines_of(command, most=0, env=None):
    """Runs a command that prints a JSON object per line. Returns the objects by count. The command itself reports errors on stderr."""
    out = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, env=env)
    if out.returncode > most:
        sys.exit(f"{command[0]}: exit status {out.returncode}")
    rows = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
    return {row["count"]: row for row in rows}


def median(rounds, count, key):
    return statistics.median(r[count][key] for r in rounds)


def number(v):
    return f"{v:9.2f}" if v < 100 else f"{v:9.0f}"


class Rounds:
    """Keeps the figures of every round, by count."""

    def __init__(self, options):
        self.alone, self.turn, self.peer, self.peer_async = [], [], [], []
        self.o = options
        self.ours = [BUILD / "bin/scheduler_bench", "--steps", options.steps, "--seed", options.seed]

    def run_peer(self, is_async, counts):
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "CUDA_VISIBLE_DEVICES": ""}
        return lines_of([PEER / "bin/python", ROOT / "bench/python/head/scheduler_peer.py", self.o.steps, self.o.seed, is_async,
                         *counts], env=env)

    def run(self):
        self.alone.append(lines_of([*self.ours, *self.o.counts], most=1))
        self.turn.append(lines_of([*self.ours, "--turn", *self.o.counts]))
        if self.o.no_peer:
            return
        self.peer.append(self.run_peer(0, self.o.counts))
        self.peer_async.append(self.run_peer(1, [n for n in self.o.counts if n <= ASYNC_COUNTS]))

    def peer_us(self, count):
        """Returns the median of the faster one of vLLM's two schedulers."""
        return min(median(r, count, "median") for r in (self.peer, self.peer_async) if count in r[0])


def print_row(count, x):
    alone, turn = x.alone, x.turn
    us = median(alone, count, "median")
    cells = [us, median(alone, count, "p99"), us / count]
    cells += [median(alone, count, phase) for phase in PHASES]
    cells += [max(r[count]["mallocs"] for r in alone)]
    cells += [median(turn, count, "median"), median(turn, count, "p99"), median(turn, count, "mallocs"),
              median(alone, count, "arrival")]
    if x.peer:
        cells += [median(x.peer, count, "median"), median(x.peer, count, "p99"), median(x.peer, count, "arrival"),
                  x.peer_us(count) / us]
    print(f"{count:5}" + "".join(number(v) for v in cells), flush=True)


def broken_bars(x):
    out = []
    for count in x.o.counts:
        us = median(x.alone, count, "median")
        if us > BARS_US.get(count, us):
            out.append(f"{count} sequences: {us:.1f} µs, at most {BARS_US[count]} are allowed")
        if any(r[count]["mallocs"] for r in x.alone):
            out.append(f"{count} sequences: a step called malloc")
        if x.peer and x.peer_us(count) < us * PEER_RATIO.get(count, 0):
            out.append(f"{count} sequences: less than {PEER_RATIO[count]} times as fast as vLLM")
    return out


def main():
    parser = option_parser("scheduler")
    parser.add_argument("--setup-peer", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--counts", type=counts(),
                        default=[1, 64, 256, 1024, 4096])
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--steps", type=count(), default=320)
    parser.add_argument("--seed", type=count(0), default=1)
    options = parser.parse_args()
    if options.setup_peer:
        return setup_peer()
    if not options.no_peer and not (PEER / "bin/python").exists():
        sys.exit("vLLM is not there: bench/scheduler --setup-peer installs it, --no-peer does without")
    build("scheduler_bench")
    print(f"{machine()}; {options.rounds} rounds of {options.steps} steps: µs, medians of the rounds' figures")
    rounds = Rounds(options)
    for i in range(options.rounds):
        print(f"round {i + 1}", file=sys.stderr)
        rounds.run()
    columns = COLUMNS + (() if options.no_peer else PEER_COLUMNS)
    print("count" + "".join(f"{name:>9}" for name in columns))
    for n in options.counts:
        print_row(n, rounds)
    for n in rounds.peer_async[0] if rounds.peer_async else []:
        print(f"vLLM's AsyncScheduler, {n} sequences: {median(rounds.peer_async, n, 'median'):.0f} µs")
    broken = broken_bars(rounds)
    for line in broken:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
