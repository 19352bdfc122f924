"""Implements bench/hogged; the comment at the top of that script describes it."""
import contextlib
import os
import statistics
import subprocess
import sys
from pathlib import Path

import cpu_peers_setup as peers
from cpu_peers import Child, program
from options import count, counts_among, option_parser
from serving import machine, quiet

BAR = 2.2  # most times that decode may be slower than alone
STEPS = {1: 96, 8: 48}
NICE = {"alone": None, "nice 0": 0, "nice 19": 19}


@contextlib.contextmanager
def hog(core, nice):
    """Runs a busy loop on a core. With nice None, it runs nothing. Where the kernel groups sessions, `nice` has no effect on a
    process in a session of its own, so the function sets the loop's autogroup too."""
    if nice is None:
        yield
        return
    process = subprocess.Popen(["taskset", "-c", str(core), "nice", "-n", str(nice), "sh", "-c", "echo; while :; do :; done"],
                               stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        group = Path(f"/proc/{process.pid}/autogroup")
        if group.exists():
            with contextlib.suppress(OSError):  # the kernel accepts only one change in a tenth of a second
                group.write_text(str(nice))
        yield
    finally:
        process.kill()
        process.wait()


def programs(options, cores):
    """Returns {name: child that runs by commands}; all children run on these cores."""
    path, pin = peers.model_file("demo"), ["taskset", "-c", ",".join(map(str, cores))]
    isa = "auto" if options.isa == "native" else options.isa
    found = {"cox": Child([*pin, program(), path, 2, isa])}
    command = None if options.no_peer else peers.llama_command(options.isa, "serve", path, 2)
    if command:
        found["llama.cpp"] = Child([*pin, *command[0]], command[1])
    return found


def main():
    parser = option_parser("hogged")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--streams", type=counts_among(STEPS), default=list(STEPS))
    parser.add_argument("--isa", choices=("native", "avx2"), default="native")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        sys.exit("two cores are wanted")
    rounds = 1 if options.quick else options.rounds
    children = programs(options, cores)
    rates = {(n, name, how): [] for n in options.streams for name in children for how in NICE}
    print(f"{machine()}; cores {cores[0]},{cores[1]}, a busy loop on {cores[1]}; {rounds} rounds, medians", flush=True)
    try:
        for child in children.values():  # the first run warms up: the programs use their memory for the first time
            for n in options.streams:
                child.ask(f"decode {n} 4 16")
        for i in range(rounds):
            with quiet():
                for n in options.streams:
                    for name in list(children)[::1 if i % 2 == 0 else -1]:
                        for how, nice in NICE.items():
                            with hog(cores[1], nice):
                                rates[n, name, how].append(children[name].rate(f"decode {n} {STEPS[n]} 16"))
            peers.say(f"round {i + 1}: " + "; ".join(f"{name}, {n} streams, {how} {values[-1]:.1f}" for (n, name, how), values in rates.items()))
    finally:
        for child in children.values():
            child.close()
    return show(rates, options.streams, children)


def show(rates, streams, names):
    """Prints the table and the verdict."""
    print("\n| streams | | " + " | ".join(f"{how}, tokens/s" for how in NICE) + " | times slower | |\n|---|---" + "|---" * len(NICE) + "|---|---|")
    missed = 0
    for n in streams:
        for name in names:
            alone = rates[n, name, "alone"]
            slower = [statistics.median(a / b for a, b in zip(alone, rates[n, name, how])) for how in NICE if how != "alone"]
            verdict = "" if name != "cox" else "held" if max(slower) <= BAR else "MISSED"
            missed += verdict == "MISSED"
            print(f"| {n} | {name} | " + " | ".join(f"{statistics.median(rates[n, name, how]):.1f}" for how in NICE) +
                  f" | {', '.join(f'{s:.2f}' for s in slower)} | {verdict} |")
    print(f"bar: at most {BAR:g} times slower than alone: {'MISSED' if missed else 'held'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
