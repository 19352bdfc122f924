"""Implements bench/elastic; the comment at the top of that script describes it."""
import signal
import sys
import time

from cluster import wait_for
from options import count, option_parser
from serving import PROGRAMS, build, machine
from steady import Steady
from test_elastic import Elastic

FOLLOWS_S = 10  # most seconds after a change until throughput has followed
NEAR = 0.8      # n replicas must reach this fraction of n times one replica's rate


def tokens_each_second(load, seconds):
    rates = []
    for _ in range(seconds):
        before, at = load.n_tokens_seen, time.monotonic()
        time.sleep(1)
        rates.append((load.n_tokens_seen - before) / (time.monotonic() - at))
    return rates


def show(what, rates):
    print(f"{what:28} " + " ".join(f"{r:5.0f}" for r in rates), flush=True)
    return rates


def main():
    parser = option_parser("elastic")
    parser.add_argument("--seconds", type=count(), default=12)
    o = parser.parse_args()
    build(*PROGRAMS)
    print(f"{machine()}; 64 streams, tokens of each second")
    with Elastic() as cluster, Steady([cluster.url], n_users=64) as load:
        one = show("1 group", tokens_each_second(load, o.seconds))
        begin = time.monotonic()
        for _ in range(3):
            cluster.add_worker()
        wait_for("four groups serve", lambda: cluster.n_ready() == 4)
        print(f"three workers were started and serve after {time.monotonic() - begin:.2f} s")
        four = show("4 groups, since ready", tokens_each_second(load, o.seconds))
        begin = time.monotonic()
        for w in cluster.added[:2]:
            w.send_signal(signal.SIGTERM)
        for w in cluster.added[:2]:
            w.wait(60)
        print(f"two were told to end and have after {time.monotonic() - begin:.2f} s")
        two = show("2 groups, since the end", tokens_each_second(load, o.seconds))
        load.check()
    of_one = sorted(one)[len(one) // 2]
    bars = [("up within 10 s of readiness", max(four[:FOLLOWS_S]), NEAR * 4 * of_one),
            ("down within 10 s, and not below", max(two[:FOLLOWS_S]), NEAR * 2 * of_one)]
    for what, have, want in bars:
        print(f"{what}: {have:.0f} tokens/s, at least {want:.0f} wanted: {'ok' if have >= want else 'NOT'}")
    print(f"{load.n_done} streams, none failed")
    return 0 if all(have >= want for _, have, want in bars) else 1


sys.exit(main())
