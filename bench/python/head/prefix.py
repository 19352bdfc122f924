"""Implements bench/prefix; the comment at the top of that script describes it."""
import asyncio
import json
import random
import statistics
import sys
import time

import httpx
from cluster import Cluster
from options import count, option_parser
from serving import machine
from sse import Collected

BLOCK = 16
LEAST_SHARED, LEAST_SPEEDUP = 0.95, 5


async def stream(client, body):
    """Returns (seconds to the first token, the collected answer)."""
    begin, first, got = time.perf_counter(), None, Collected()
    async with client.stream("POST", "/v1/completions", json=body) as r:
        assert r.status_code == 200, (await r.aread()).decode()
        async for line in r.aiter_lines():
            if line.startswith("data: {"):
                first = first or time.perf_counter() - begin
                got.add(json.loads(line[6:]))
    return first, got


def measure(options, bodies, *args):
    async def all_at_once():
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=c.url, timeout=None, limits=limits) as client:
            return await asyncio.gather(*(stream(client, b) for b in bodies))

    with Cluster("--device", "cpu", "--served-model-name", "m", "--max-model-len", 2048, "--block-size", BLOCK, *args,
                 model=options.model, workers=options.tp, tp=options.tp) as c:
        asyncio.run(stream_one(c, bodies[0]["prompt"][::-1]))  # this request warms up: the processes use their memory for the first time
        return asyncio.run(all_at_once())


async def stream_one(c, prompt):
    async with httpx.AsyncClient(base_url=c.url, timeout=None) as client:
        await stream(client, {"model": "m", "prompt": prompt, "max_tokens": 1, "stream": True})


def main():
    parser = option_parser("prefix")
    for name, value, kind in (("requests", 64, count(2)), ("prefix", 1000, count(BLOCK)), ("suffix", 20, count()), ("tokens", 8, count()), ("tp", 1, count(1, 64))):
        parser.add_argument(f"--{name}", type=kind, default=value)
    parser.add_argument("--model", default="demo-base")
    options = parser.parse_args()
    rng = random.Random(1)
    ids = [rng.randrange(1000, 50000) for _ in range(options.prefix)]
    bodies = [{"model": "m", "prompt": ids + [rng.randrange(1000, 50000) for _ in range(options.suffix)],
               "max_tokens": options.tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "stream": True,
               "stream_options": {"include_usage": True}} for _ in range(options.requests)]
    print(f"{machine()}; {options.model}, --tp {options.tp}; {options.requests} requests at once, {options.prefix} "
          f"tokens in common and {options.suffix} of their own")
    shared, fresh = measure(options, bodies), measure(options, bodies, "--no-enable-prefix-caching")
    n_shareable = (options.requests - 1) * (options.prefix // BLOCK)
    n_shared = sum(got.usage["prompt_tokens_details"]["cached_tokens"] // BLOCK for _, got in shared)
    first = [statistics.median(sorted(s for s, _ in run)[1:]) for run in (shared, fresh)]
    last = [max(s for s, _ in run) for run in (shared, fresh)]
    same = all(a.ids == b.ids for (_, a), (_, b) in zip(shared, fresh))
    share, speedup = n_shared / n_shareable, first[1] / first[0]
    print(f"shared blocks: {n_shared} of {n_shareable} ({100 * share:.1f} %; at least {100 * LEAST_SHARED:.0f} %)")
    print(f"first token of all but the first, median: {first[0]:.2f} s, without {first[1]:.2f} s: {speedup:.1f} times as "
          f"fast (at least {LEAST_SPEEDUP}); of the last: {last[0]:.2f} s, without {last[1]:.2f} s")
    print(f"the same tokens: {'yes' if same else 'NO'}")
    sys.exit(share < LEAST_SHARED or speedup < LEAST_SPEEDUP or not same)


if __name__ == "__main__":
    main()
