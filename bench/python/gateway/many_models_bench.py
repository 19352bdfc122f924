"""Implements bench/many-models; the comment at the top of that script describes it."""
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time

from cluster import end_all
from gateway import client
from many_models import Gateway, Head
from options import amount, count, names, option_parser
from serving import build, machine, memory, spread

BARS = {"cost": 1.05, "change": 1.10, "split": 3, "bytes": 1.05}
UNITS = {"split": "standard deviations"}
PARTS = ("cost", "change", "split", "bytes")
HEADS = 4  # heads that the models share; each model has a link of its own
STREAMS, STEP_US = 32, 5000


@contextlib.contextmanager
def running(n, folder, **head):
    """Starts the heads and a gateway of n models, and waits until all of them serve."""
    heads = [Head(folder, **head) for _ in range(min(HEADS, n))]
    entries = [heads[i % len(heads)].entry(f"model-{i}") for i in range(n)]
    gateway = Gateway(folder, entries)
    try:
        gateway.wait_states(**{e["name"]: "serving" for e in entries})
        yield gateway, entries
    finally:
        end_all([gateway.process])
        for h in heads:
            h.end()


def cost(o):
    """Returns the gateway's CPU per event and its memory, by the number of models."""
    found = {}
    for n in (1, o.models):
        with tempfile.TemporaryDirectory(prefix="coxbench-") as folder, running(n, folder, step_us=0) as (g, entries):
            said = client(g.port, {"gateway": g.process.pid}, "--model", entries[-1]["name"], "--streams", 32, "--tokens", 4,
                          "--seconds", o.seconds)
            found[n] = (said["us_per_event"]["gateway"], memory(g.process.pid)["VmRSS"])
    return found


async def read_gaps(port, model, gaps, until):
    """Reads streams of `model` one after the other, and appends (time, gap) of each token."""
    while time.perf_counter() < until:
        body = json.dumps({"model": model, "prompt": [5, 6, 7], "max_tokens": 400, "stream": True, "ignore_eos": True}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        last, ended = None, False
        while line := await reader.readline():
            if not line.startswith(b"data: {"):
                continue
            now, ended = time.perf_counter(), ended or b'"finish_reason":"length"' in line
            if last:
                gaps.append((now, now - last))
            last = now
        writer.close()
        assert ended, "a stream lost its end"


async def change_models(g, entries, add, begin, until, window):
    """Changes the file of models in every second window: a model comes, gets another alias, and leaves."""
    extra, i = {**entries[1], "name": "newcomer", "model": add}, 0
    while time.perf_counter() < until:
        if int((time.perf_counter() - begin) / window) % 2 == 1:
            g.write([entries[:2], [*entries[:2], extra], [*entries[:2], {**extra, "aliases": [f"alias-{i}"]}]][i % 3])
            i += 1
        await asyncio.sleep(0.6)  # the gateway sees a change when the file has been the same for two looks
    g.write(entries)


async def change_round(g, entries, o):
    gaps, begin = [], time.perf_counter()
    until = begin + 4 * o.seconds
    await asyncio.gather(change_models(g, entries, o.add, begin, until, o.seconds),
                         *[read_gaps(g.port, entries[0]["name"], gaps, until) for _ in range(STREAMS)])
    quiet, busy = ([gap for at, gap in gaps if int((at - begin) / o.seconds) % 2 == k] for k in (0, 1))
    return [statistics.quantiles(part, n=100)[98] for part in (quiet, busy)]


def change(o):
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder, running(2, folder, step_us=STEP_US) as (g, entries):
        found = [asyncio.run(change_round(g, entries, o)) for _ in range(o.rounds)]
        changes = g.log().count("models_read")
    print(f"change: {changes} changes of the file; p99 between two tokens, ms: quiet {spread([1e3 * q for q, _ in found], '%.2f')}, "
          f"changing {spread([1e3 * b for _, b in found], '%.2f')}")
    return [b / q for q, b in found]


async def ask(port, n, answered):
    """Sends n requests one after the other to the route and counts the models that answer."""
    body = json.dumps({"model": "chat", "prompt": [5, 6], "max_tokens": 2}).encode()
    for _ in range(n):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head, _, text = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert b" 200 " in head, head
        answered.append(json.loads(text)["model"])


async def roll_back(g, entries, one_way):
    """Rolls back while streams and requests run. Returns the models that answered before and after."""
    before, after, gaps = [], [], []
    streams = [asyncio.create_task(read_gaps(g.port, "chat", gaps, time.perf_counter() + 3)) for _ in range(STREAMS)]
    await ask(g.port, 200, before)
    g.write(json.dumps({"models": entries, "routes": one_way}))
    await asyncio.gather(ask(g.port, 200, before), asyncio.sleep(2))
    await ask(g.port, 200, after)
    await asyncio.gather(*streams)
    return before, after


def split(o):
    """Returns the distance of the split from its weights, in standard deviations."""
    routes = [{"name": "chat", "targets": [{"model": "model-0", "weight": 90}, {"model": "model-1", "weight": 10}]}]
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder, running(2, folder, step_us=STEP_US // 5) as (g, entries):
        g.write(json.dumps({"models": entries, "routes": routes}))
        time.sleep(2)
        answered = []
        asyncio.run(ask(g.port, 1000, answered))
        second = answered.count("model-1")
        before, after = asyncio.run(roll_back(g, entries, [{"name": "chat", "targets": [{"model": "model-0"}]}]))
    distance = abs(second - 100) / (1000 * 0.9 * 0.1) ** 0.5
    print(f"split: {second} of 1000 requests went to the model with a tenth of the weight; after the roll-back {after.count('model-1')} of "
          f"{len(after)}, beside {STREAMS} streams and {len(before)} other requests, of which 0 failed")
    assert after.count("model-1") == 0
    return [distance]


def print_cost(o):
    rounds = [cost(o) for _ in range(o.rounds)]
    one, many = ([r[n][0] for r in rounds] for n in (1, o.models))
    each = [(r[o.models][1] - r[1][1]) * 1024 / (o.models - 1) for r in rounds]
    print(f"cost: us of the gateway's CPU per event: 1 model {spread(one, '%.2f')}, {o.models} models {spread(many, '%.2f')}; "
          f"{spread(each, '%.0f')} KiB for each model")
    return [b / a for a, b in zip(one, many)]


def held(n, o):
    """Returns the bytes of the gateway for each of many open streams of one model, when it has n models."""
    head = ["--max-num-seqs", 8192, "--max-num-batched-tokens", 65536]
    worker = ["--num-gpu-blocks-override", 20 * o.held]  # each token needs a block of 16 positions
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder, running(n, folder, step_us=100_000, head=head, worker=worker) as (g, entries):
        said = client(g.port, {"gateway": g.process.pid}, "--model", entries[-1]["name"], "--streams", o.held, "--tokens", 256, "--hold")
        return said["bytes_per_stream"]["gateway"]


def bytes_of_streams(o):
    one, many = zip(*[(held(1, o), held(o.models, o)) for _ in range(o.rounds)])
    print(f"bytes: {o.held} open streams of one model, bytes each of the gateway: 1 model {spread(one, '%.0f')}, {o.models} models {spread(many, '%.0f')}")
    return [b / a for a, b in zip(one, many)]


def main():
    p = option_parser("many-models")
    p.add_argument("--rounds", type=count(), default=5)
    p.add_argument("--models", type=count(2, 256), default=100)
    p.add_argument("--seconds", type=amount(), default=3)
    p.add_argument("--parts", type=names(PARTS), default=PARTS)
    p.add_argument("--add", default="null")
    p.add_argument("--held", type=count(), default=5000)
    o = p.parse_args()
    build("cox-gateway", "cox-head", "cox-worker", "gateway_load")
    print(machine())
    broken = False
    for part in o.parts:
        ratios = {"cost": print_cost, "change": change, "split": split, "bytes": bytes_of_streams}[part](o)
        print(f"  {part}: {spread(ratios, '%.3f')} {UNITS.get(part, 'times')} (at most {BARS[part]})")
        broken = broken or statistics.median(ratios) > BARS[part]
    sys.exit(broken)


if __name__ == "__main__":
    main()
