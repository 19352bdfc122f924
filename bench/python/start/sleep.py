"""Implements bench/sleep; the comment at the top of that script describes it."""
import asyncio
import re
import statistics
import sys
import time
import urllib.request

import sleep_peer
from cluster import Cluster, wait_for
from options import count, counts, option_parser
from serving import machine, memory, running, spread, stream

BAR_S = {1: 0.15, 2: 0.5}
LARGE_BYTES, LARGE_BAR_S = 1_000_000_000, {1: 0.5, 2: 1.5}


def order(c, path):
    begin = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(c.admin + path, method="POST"), timeout=90) as r:
        r.read()
    return time.perf_counter() - begin


def first_token(c, i):
    return asyncio.run(stream(c.ports[0], i, 2))


def workers_mib(c):
    return sum(memory(pid)["VmRSS"] for name, pid in c.pids().items() if name.startswith("worker"))


def round_of(c, level, i):
    """Returns the seconds of a first token awake, of falling asleep and of a first token asleep, and the memory awake and asleep."""
    warm = first_token(c, 2 * i)
    wait_for("no request runs", lambda: c.running() == 0)
    before = workers_mib(c)
    fell = order(c, f"/sleep?level={level}")
    time.sleep(0.3)
    asleep = workers_mib(c)
    return warm, fell, first_token(c, 2 * i + 1), before, asleep


def tell_parts(c):
    for line in c.log().splitlines():
        if re.search(r" (woke|slept|awake|asleep|waking|group_state|formed|forming|memory_plan) ", line):
            print("   ", line[:180])


def measure(c, options):
    late = False
    size = int(re.search(r"model_loaded .*weights_bytes=(\d+)", c.log())[1])
    for level in options.level:
        rows = [round_of(c, level, 1000 * level + i) for i in range(options.rounds)]
        warm, fell, first, before, asleep = zip(*rows)
        bar = (LARGE_BAR_S if size > LARGE_BYTES else BAR_S)[level]
        late |= statistics.median(first) > bar
        print(f"level {level}: first token {spread(first, '%.3f')} s (at most {bar} s; awake {spread(warm, '%.3f')} s), "
              f"asleep after {spread(fell, '%.3f')} s, memory {before[-1]:.0f} → {statistics.median(asleep):.0f} MiB")
    return late


def main():
    parser = option_parser("sleep")
    parser.add_argument("--rounds", type=count(), default=7)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--level", type=counts(1, 2), default=[1, 2])
    parser.add_argument("--tp", type=count(1, 64), default=1)
    parser.add_argument("--cache-dir", help="folder of the cached models")
    parser.add_argument("--first", action="store_true", help="take priority over all other programs of the machine")
    parser.add_argument("--verbose", action="store_true", help="print the log lines of every waking")
    parser.add_argument("--llama-server", metavar="PATH", help="also measure a stopped model beside the start of this program, with the same file")
    options = parser.parse_args()
    if options.llama_server:
        sleep_peer.check(parser, options)
    more = ["--cache-dir", options.cache_dir] if options.cache_dir else []
    print(f"{machine()}; {options.model}, --tp {options.tp}, {options.rounds} rounds: median (least … most)")
    c = Cluster("--device", "cpu", *more, model=options.model, workers=options.tp, tp=options.tp)
    with running(c, options.first):
        first_token(c, 0)
        late = measure(c, options)
        if options.llama_server:
            sleep_peer.measure(options, more, lambda level, i: round_of(c, level, i)[2])
        if options.verbose:
            tell_parts(c)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
