"""Implements bench/slo; the comment at the top of that script describes it."""
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time

from cluster import BIN, Cluster
from options import amount, count, option_parser
from serving import build, machine, running

WITHIN, SHARE, MISS = 0.25, 0.9, 2
NO_LIMIT_MS = 3_600_000
NULL_STEPS = ["--null-step-us", "20000", "--null-token-us", "100"]  # its tokens are bytes
WORDS = "the head predicts when a request gets its first token and refuses it early if that is too late".split()


class Load:
    """Makes requests, and keeps (milliseconds to the first token, predicted ones, status) of those that ended."""

    def __init__(self, port, seed):
        self.port, self.rng, self.seen = port, random.Random(seed), []
        self.common = [self.words(150) for _ in range(3)]

    def words(self, n):
        return " ".join(self.rng.choice(WORDS) + str(self.rng.randrange(10)) for _ in range(n))

    def body(self):
        prompt = self.words(int(min(400, 10 + self.rng.expovariate(1 / 40))))
        if self.rng.random() < 0.5:
            prompt = self.rng.choice(self.common) + " " + prompt
        n = int(min(120, 1 + self.rng.expovariate(1 / 20)))
        return {"prompt": prompt, "max_tokens": n, "stream": True, "temperature": 0, "ignore_eos": True}

    async def one(self, slo_ms):
        body = json.dumps(self.body()).encode()
        begin = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nx-slo-ttft-ms: %d\r\n"
                     b"Content-Length: %d\r\n\r\n" % (slo_ms, len(body)) + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.read(1 << 16)
        ms = 1000 * (time.perf_counter() - begin)
        while await reader.read(1 << 16):
            pass
        writer.close()
        fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        status = int(head.split()[1])
        if status not in (200, 429):
            raise RuntimeError(f"an answer has the status {status}")
        self.seen.append((ms, int(fields.get("x-slo-predicted-ttft-ms", 0)), status))

    async def users(self, n, seconds):
        """Returns the requests that n clients get answered in a second."""
        end = time.perf_counter() + seconds

        async def user():
            while time.perf_counter() < end:
                await self.one(NO_LIMIT_MS)
        await asyncio.gather(*(user() for _ in range(n)))
        return len(self.seen) / seconds

    async def poisson(self, per_second, seconds, slo_ms):
        tasks, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            tasks.append(asyncio.create_task(self.one(slo_ms)))
            await asyncio.sleep(self.rng.expovariate(per_second))
        await asyncio.gather(*tasks)


def report(name, load, slo_ms):
    """Prints the figures. Returns True when they miss a bar."""
    taken = [(ms, predicted) for ms, predicted, status in load.seen if status == 200]
    ratios = [ms / predicted for ms, predicted in taken if predicted]
    share = sum(abs(r - 1) <= WITHIN for r in ratios) / len(ratios)
    worst, refused = max(ms for ms, _ in taken) / slo_ms, 1 - len(taken) / len(load.seen)
    late = sum(ms > slo_ms for ms, _ in taken) / len(taken)
    q = statistics.quantiles(ratios, n=20)
    print(f"{name}: {len(load.seen)} requests, median first token {statistics.median(ms for ms, _ in taken):.0f} ms; "
          f"{100 * share:.1f} % of the predictions within {100 * WITHIN:.0f} % (real / predicted: {q[0]:.2f} … {q[9]:.2f} … {q[-1]:.2f}); "
          f"promise {slo_ms} ms: {100 * refused:.1f} % refused, {100 * late:.1f} % missed, worst {worst:.2f} times; "
          f"load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    return share < SHARE or worst > MISS


def measure(c, options):
    port = c.ports[0]
    asyncio.run(Load(port, 1).users(2, 5))
    capacity = asyncio.run(Load(port, 2).users(options.users, options.seconds / 3))
    rate = options.load * capacity
    print(f"{capacity:.2f} requests/s with {options.users} clients; {rate:.2f} requests/s are sent")
    load = Load(port, 3)
    asyncio.run(load.poisson(rate, options.seconds, NO_LIMIT_MS))
    missed = report("loose promise", load, NO_LIMIT_MS)
    slo_ms = options.slo or int(2 * statistics.median(ms for ms, _, _ in load.seen))
    load = Load(port, 4)
    asyncio.run(load.poisson(rate, options.seconds, slo_ms))
    return report("tight promise", load, slo_ms) or missed


def main():
    parser = option_parser("slo")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--seconds", type=count(6), default=60)
    parser.add_argument("--slo", type=count(1, NO_LIMIT_MS), help="promise of the second part, ms (default: twice the median first token)")
    parser.add_argument("--users", type=count(), default=12)
    parser.add_argument("--load", type=amount(), default=0.7)
    parser.add_argument("--queue", type=count(), help="measure a prediction behind so many waiting requests instead")
    parser.add_argument("--cache-dir", help="folder of the cached models")
    parser.add_argument("--first", action="store_true", help="take priority over all other programs of the machine")
    options = parser.parse_args()
    print(machine())
    if options.queue:
        build("promise_bench")
        return subprocess.run([BIN / "promise_bench", str(options.queue)]).returncode
    more = ["--cache-dir", options.cache_dir] if options.cache_dir else []
    more += NULL_STEPS if options.model == "null" else ["--device", "cpu"]
    c = Cluster(*more, model=options.model, workers=1, tp=1)
    with running(c, options.first):
        return 1 if measure(c, options) else 0


if __name__ == "__main__":
    sys.exit(main())
