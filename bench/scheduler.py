"""bench/scheduler: see there."""
import json
import statistics
import subprocess
import sys
from pathlib import Path

from serving import machine, option_parser

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/release"
BARS_US = {256: 15, 4096: 250}
PEER_RATIO = {256: 100}
PHASES = ("schedule", "plan", "result", "apply", "tokens")
COLUMNS = ("median", "p99", "/seq", *PHASES, "mallocs", "turn", "p99", "mallocs", "arrival")


def build():
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", BUILD, "--target", "scheduler_bench"], check=True, stdout=sys.stderr)


def lines_of(command):
    """What it prints, a JSON object per line, by count. It says what is wrong on stderr itself."""
    out = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if out.returncode > 1:
        sys.exit(f"{command[0]}: exit status {out.returncode}")
    rows = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
    return {row["count"]: row for row in rows}


def median(rounds, count, key):
    return statistics.median(r[count][key] for r in rounds)


def number(v):
    return f"{v:9.2f}" if v < 100 else f"{v:9.0f}"


def print_row(count, alone, turn):
    us = median(alone, count, "median")
    cells = [us, median(alone, count, "p99"), us / count]
    cells += [median(alone, count, phase) for phase in PHASES]
    cells += [max(r[count]["mallocs"] for r in alone)]
    cells += [median(turn, count, "median"), median(turn, count, "p99"), median(turn, count, "mallocs"),
              median(alone, count, "arrival")]
    print(f"{count:5}" + "".join(number(v) for v in cells), flush=True)


def broken_bars(alone):
    out = []
    for count in alone[0]:
        us = median(alone, count, "median")
        if us > BARS_US.get(count, us):
            out.append(f"{count} sequences: {us:.1f} µs, at most {BARS_US[count]} are allowed")
        if any(r[count]["mallocs"] for r in alone):
            out.append(f"{count} sequences: a step called malloc")
    return out


def main():
    parser = option_parser("scheduler")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--counts", type=lambda text: [int(n) for n in text.split(",")],
                        default=[1, 64, 256, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    build()
    print(f"{machine()}; {options.rounds} rounds of {options.steps} steps: µs, medians of the rounds' figures")
    alone, turn = [], []
    command = [BUILD / "bin/scheduler_bench", "--steps", options.steps, "--seed", options.seed]
    for _ in range(options.rounds):
        alone.append(lines_of([*command, *options.counts]))
        turn.append(lines_of([*command, "--turn", *options.counts]))
    print("count" + "".join(f"{name:>9}" for name in COLUMNS))
    for count in options.counts:
        print_row(count, alone, turn)
    broken = broken_bars(alone)
    for line in broken:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
