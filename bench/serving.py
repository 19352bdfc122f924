#!/usr/bin/env python3
"""What head, gateways, links and scheduling cost: a whole cluster of null workers (no model), started
several times, idle, and under load. Prints the table of docs/performance.md; run it by
  tests/run_python bench/serving.py [--rounds 5] [--idle-seconds 20] [--models null,demo]
The client (asyncio, raw bytes) runs on the same cores and is part of what is measured. Rounds of the
stream counts are interleaved; medians are printed, with the least and the most."""
import argparse
import asyncio
import os
import platform
import statistics
import time
from pathlib import Path

from cluster import Cluster

COUNTS = {1: 500, 8: 500, 64: 200}  # streams: tokens each


def spread(values, form):
    return f"{form % statistics.median(values)} ({form % min(values)} … {form % max(values)})"


def processes(c):
    return {**c.pids(), "cox": c.process.pid}


def pss_mb(pid):
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_ns(pid):
    return sum(int(p.read_text().split()[0]) for p in Path(f"/proc/{pid}/task").glob("*/schedstat"))


async def stream(port, i, tokens):
    """Seconds to the first byte of the answer's body."""
    body = b'{"prompt":"p%d","max_tokens":%d,"stream":true,"temperature":0}' % (i, tokens)
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    status = await reader.readuntil(b"\r\n\r\n")
    data = await reader.read(1 << 16)
    first, tail = time.perf_counter() - begin, data[-64:]
    while data := await reader.read(1 << 16):
        tail = (tail + data)[-64:]
    writer.close()
    if b" 200 " not in status or b"[DONE]" not in tail:
        raise RuntimeError(f"a stream did not end well: {status[:40]!r} … {tail!r}")
    return first


async def load(port, n):
    begin = time.perf_counter()
    firsts = await asyncio.gather(*(stream(port, i, COUNTS[n]) for i in range(n)))
    return n * COUNTS[n] / (time.perf_counter() - begin), 1000 * statistics.median(firsts)


def measure(model, rounds, idle_seconds):
    args = ["--null-step-us", "0"] + (["--device", "null"] if model != "null" else [])
    ready, stop = [], []
    for k in range(rounds):
        c = Cluster(*args, model=model)
        begin = time.perf_counter()
        c.start()
        ready.append(time.perf_counter() - begin)
        if k < rounds - 1:
            stop.append(c.stop()[1])
    time.sleep(2)
    print(f"\n## {model}\n")
    print(f"- ready after: {spread(ready, '%.2f')} s, the first {ready[0]:.2f} s")
    print("- memory, PSS in MB: " + ", ".join(f"{n} {pss_mb(p):.1f}" for n, p in processes(c).items()))
    before = {n: cpu_ns(p) for n, p in processes(c).items()}
    time.sleep(idle_seconds)
    share = {n: (cpu_ns(p) - before[n]) / idle_seconds / 1e7 for n, p in processes(c).items()}
    print(f"- idle CPU, % of a core: {sum(share.values()):.2f} in all; " +
          ", ".join(f"{n} {v:.2f}" for n, v in share.items()))
    speed = {n: [] for n in COUNTS}
    first = {n: [] for n in COUNTS}
    for _ in range(rounds):
        for n in COUNTS:
            s, f = asyncio.run(load(c.ports[0], n))
            speed[n].append(s)
            first[n].append(f)
    for n in COUNTS:
        print(f"- {n} streams: {spread(speed[n], '%.0f')} tokens/s; first token {spread(first[n], '%.1f')} ms")
    stop.append(c.stop()[1])
    print(f"- Ctrl-C to the end of every process: {spread(stop, '%.2f')} s")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--idle-seconds", type=float, default=20)
    a.add_argument("--models", default="null,demo")
    o = a.parse_args()
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    print(f"{time.strftime('%Y-%m-%d')}, {cpu}, {os.cpu_count()} cores")
    for model in o.models.split(","):
        measure(model, o.rounds, o.idle_seconds)


if __name__ == "__main__":
    main()
