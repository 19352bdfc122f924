"""Implements bench/gap; the comment at the top of that script describes it."""
import asyncio
import re
import time

from cluster import Cluster, get
from options import count, counts, option_parser
from serving import load, machine

SHARES = 0.5, 0.9, 0.99


def arguments():
    p = option_parser("gap")
    p.add_argument("--models", default="null")
    p.add_argument("--step-us", type=counts(0), default=[1000, 5000], help="of null workers")
    p.add_argument("--streams", type=counts(), default=[1, 8, 64])
    p.add_argument("--tokens", type=count(), default=200, help="of a stream")
    return p.parse_args()


def histogram(c):
    """Returns (cumulative number of steps by bound, seconds of all steps) from the metrics."""
    text = get(f"http://127.0.0.1:{c.admin_port}/metrics")[1]
    text = text.decode() if isinstance(text, bytes) else text
    rows = re.findall(r'^coxswain_rank_wait_seconds_bucket\{le="([^"]+)"\} (\d+)', text, re.MULTILINE)
    total = re.search(r"^coxswain_rank_wait_seconds_sum (\S+)", text, re.MULTILINE)
    return {float(le): int(n) for le, n in rows}, float(total[1])


def less(a, b):
    return {le: a[0][le] - b[0][le] for le in a[0]}, a[1] - b[1]


def show(buckets, seconds):
    n = buckets[float("inf")]
    if n == 0:
        return "no steps"
    bounds = sorted(buckets)
    at = [next(le for le in bounds if buckets[le] >= share * n) for share in SHARES]
    return " | ".join(f"<= {1e6 * le:g}" for le in at) + f" | {1e6 * seconds / n:.1f} | {n}"


def measure(c, streams, tokens):
    asyncio.run(load(c.ports[0], streams, 8))
    before = histogram(c)
    rate, _ = asyncio.run(load(c.ports[0], streams, tokens))
    time.sleep(0.3)
    return f"{show(*less(histogram(c), before))} | {rate:.0f}"


def main():
    a = arguments()
    print(machine() + "\n\n| model | scheduling | streams | p50 us | p90 | p99 | mean us | steps | tokens/s |\n" + "|---" * 9 + "|")
    for model in a.models.split(","):
        for step_us in a.step_us if model == "null" else [""]:
            for flag in "--async-scheduling", "--no-async-scheduling":
                args = [flag] + (["--null-step-us", step_us, "--null-token-us", "0"] if model == "null" else [])
                name = f"{model}, {step_us} us" if model == "null" else model
                with Cluster(*args, workers=1 if step_us == "" else 2, tp=1 if step_us == "" else 2, model=model) as c:
                    for streams in a.streams:
                        print(f"| {name} | {flag[2:]} | {streams} | {measure(c, streams, a.tokens)} |", flush=True)


main()
