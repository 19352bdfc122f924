#!/usr/bin/env python3
"""Starts a whole cluster several times and measures it idle and under load; prints the figures of bench/results/serving.md. Without
--device cpu its workers are null workers, so the figures are the cost of head, gateways, links and scheduling. With --device cpu,
they run the model. The first start then has neither the file in memory nor a compiled tokenizer.
  tests/run_python bench/python/serving.py [--rounds 5] [--idle-seconds 20] [--models null,demo-base]
  tests/run_python bench/python/serving.py --device cpu --models demo-base [--rounds 5] [--threads N]
The client (asyncio, raw bytes) runs on the same cores and is part of the measured work. Rounds of the stream counts are
interleaved. Figures are medians, with minimum and maximum."""
import asyncio
import contextlib
import fcntl
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from cluster import ROOT, Cluster
from footprint import MIB, sizes, tables
from options import THREADS, Parser, amount, count

BUILD = ROOT / "build/release"
PROGRAMS = "cox", "cox-head", "cox-gateway", "cox-worker"
COUNTS = {"null": {1: 500, 8: 500, 64: 200}, "cpu": {1: 64, 8: 64}}  # number of streams: tokens of each stream
PROMPT_WORDS = 500


def machine():
    """Returns date, machine and load. This text is the first line of every table."""
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    return f"{time.strftime('%Y-%m-%d')}, {cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def spread(values, form):
    return f"{form % statistics.median(values)} ({form % min(values)} … {form % max(values)})"


def build(*targets):
    """Builds targets in build/release, which is configured when it is missing."""
    try:
        if not (BUILD / "build.ninja").exists():
            subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True, stdout=sys.stderr)
        subprocess.run(["cmake", "--build", BUILD, "--target", *targets], check=True, stdout=sys.stderr)
    except (OSError, subprocess.CalledProcessError) as why:
        sys.exit(f"{', '.join(targets)}: not built ({why}): scripts/build says what is missing")


def go_first(pid):
    """Gives the process priority over all other processes on the machine. nice(1) alone has an effect only within a session."""
    Path(f"/proc/{pid}/autogroup").write_text("-20")


@contextlib.contextmanager
def quiet():
    """Waits until the machine is free. Other programs lock the file that COX_MACHINE_LOCK names with flock(1) while they work.
    Without that variable, the function does not wait."""
    name = os.environ.get("COX_MACHINE_LOCK")
    with open(name) if name else contextlib.nullcontext() as f:
        if f:
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def running(cluster, first=False):
    """Starts a cluster, waits until it serves, and stops it. `first`: it and this program take priority over all others."""
    with quiet():
        cluster.start(wait=False)
        try:
            if first:
                go_first("self")
                go_first(cluster.process.pid)
            cluster.wait_ready(120)
            yield
        finally:
            cluster.stop()


def processes(c):
    return {**c.pids(), "cox": c.process.pid}


def cpu_ns(pid):
    return sum(int(p.read_text().split()[0]) for p in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def memory(pid):
    """Returns the memory rows of /proc/PID/status in MiB, by the kernel's names."""
    rows = re.findall(r"^((?:Vm|Rss)\w+):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return {name: int(kib) / 1024 for name, kib in rows}


async def stream(port, i, tokens, prompt=None, gaps=None, model=None):
    """Returns the seconds to the first byte of the answer's body. The longest time between two reads is appended to `gaps`. A server of
    several models needs the name `model`."""
    named = {"model": model} if model else {}
    body = json.dumps({**named, "prompt": prompt or f"p{i}", "max_tokens": tokens, "stream": True, "temperature": 0,
                       "ignore_eos": True}).encode()
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    status = await reader.readuntil(b"\r\n\r\n")
    data = await reader.read(1 << 16)
    first, tail = time.perf_counter() - begin, data[-64:]
    last, longest = time.perf_counter(), 0
    while data := await reader.read(1 << 16):
        tail = (tail + data)[-64:]
        now = time.perf_counter()
        last, longest = now, max(longest, now - last)
    writer.close()
    if gaps is not None:
        gaps.append(longest)
    if b" 200 " not in status or b"[DONE]" not in tail:
        raise RuntimeError(f"a stream did not end well: {status[:40]!r} … {tail!r}")
    return first


async def load(port, n, tokens):
    begin = time.perf_counter()
    firsts = await asyncio.gather(*(stream(port, i, tokens) for i in range(n)))
    return n * tokens / (time.perf_counter() - begin), 1000 * statistics.median(firsts)


def long_prompt(k):
    """Returns a prompt that no round has used before, so that no part of the prompt is in the prefix cache."""
    words = "sea boat oar wind tide coast harbour sail rope anchor".split()
    draw = random.Random(k)
    return f"{k}: " + " ".join(draw.choice(words) for _ in range(PROMPT_WORDS))


def forget_file(path):
    """Removes the file from the page cache, so that its state is that after a reboot."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cold_cache(folder):
    """Returns the environment for a cache folder with the base demo model and no compiled tokenizer."""
    real = Path(os.environ.get("COX_CACHE") or Path.home() / ".cache/coxswain") / "models/demo"
    (folder / "models").mkdir()
    (folder / "models/demo").symlink_to(real)
    for path in real.glob("*.gguf"):
        forget_file(path)
    return {"COX_CACHE": str(folder)}


def prefill(c, rounds):
    """Returns tokens/s of a long prompt alone: its tokens, divided by the time to its first token."""
    rates = []
    for _ in range(rounds):
        prompt = long_prompt(time.time_ns())
        seconds = asyncio.run(stream(c.ports[0], 0, 1, prompt))
        asked = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
        usage = httpx.post(c.url + "/v1/completions", json=asked, timeout=600).json()["usage"]
        rates.append(usage["prompt_tokens"] / seconds)
    return rates


async def beside_a_prompt(port):
    """Returns the ms of the longest pause of 4 streams while a prompt of ten times PROMPT_WORDS is computed."""
    gaps = []
    prompt = " ".join(long_prompt(time.time_ns() + k) for k in range(10))

    async def late():
        await asyncio.sleep(1)
        return await stream(port, 0, 1, prompt)

    seconds, *_ = await asyncio.gather(late(), *(stream(port, i, 150, gaps=gaps) for i in range(4)))
    return 1000 * max(gaps), seconds


def report_memory(c):
    want = {name: n / MIB for name, n in tables(c)["worker-0"].items()}
    have = memory(c.pid("worker-0"))
    print("- the worker's own table, MiB: " + ", ".join(f"{k} {v:.1f}" for k, v in want.items()))
    print("- what it holds, MiB: " + ", ".join(f"{k} {have[k]:.1f}" for k in ("VmRSS", "RssAnon", "RssFile", "VmHWM")) +
          f"; anonymous memory is {have['RssAnon'] / want['total']:.2f} of the table's total")


def measure(model, rounds, idle_seconds, device, more):
    args = ["--null-step-us", "0"] + (["--device", device] if model != "null" else []) + more
    shape = {"workers": 2, "tp": 2} if device == "null" else {"workers": 1, "tp": 1}
    folder = tempfile.TemporaryDirectory(prefix="coxbench-")
    env = cold_cache(Path(folder.name)) if device != "null" and model == "demo-base" else None
    counts = COUNTS[device]
    ready, stop = [], []
    for k in range(rounds):
        c = Cluster(*args, model=model, env=env, **shape)
        begin = time.perf_counter()
        c.start()
        ready.append(time.perf_counter() - begin)
        if k < rounds - 1:
            stop.append(c.stop()[1])
    time.sleep(2)
    print(f"\n## {model}\n")
    print(f"- ready after: {spread(ready[1:] or ready, '%.2f')} s, the first {ready[0]:.2f} s")
    print("- memory, PSS in MB: " + ", ".join(f"{n} {s.pss / MIB:.1f}" for n, s in sizes(c).items()))
    before = {n: cpu_ns(p) for n, p in processes(c).items()}
    time.sleep(idle_seconds)
    share = {n: (cpu_ns(p) - before[n]) / idle_seconds / 1e7 for n, p in processes(c).items()}
    print(f"- idle CPU, % of a core: {sum(share.values()):.2f} in all; " +
          ", ".join(f"{n} {v:.2f}" for n, v in share.items()))
    speed = {n: [] for n in counts}
    first = {n: [] for n in counts}
    for _ in range(rounds):
        for n in counts:
            s, f = asyncio.run(load(c.ports[0], n, counts[n]))
            speed[n].append(s)
            first[n].append(f)
    for n in counts:
        print(f"- {n} streams: {spread(speed[n], '%.0f')} tokens/s; first token {spread(first[n], '%.1f')} ms")
    if device != "null":
        print(f"- a prompt of {PROMPT_WORDS} words: {spread(prefill(c, rounds), '%.0f')} tokens/s to its first token")
        pauses, seconds = zip(*(asyncio.run(beside_a_prompt(c.ports[0])) for _ in range(rounds)))
        print(f"- ten times as long, beside 4 streams: {spread(seconds, '%.1f')} s; "
              f"their longest pause {spread(pauses, '%.0f')} ms")
        report_memory(c)
    stop.append(c.stop()[1])
    print(f"- Ctrl-C to the end of every process: {spread(stop, '%.2f')} s")


def main():
    a = Parser("tests/run_python bench/python/serving.py", __doc__)
    a.add_argument("--rounds", type=count(), default=5)
    a.add_argument("--idle-seconds", type=amount(), default=20)
    a.add_argument("--models", default="null,demo-base")
    a.add_argument("--device", choices=("null", "cpu"), default="null")
    a.add_argument("--threads", type=count(1, THREADS))
    o = a.parse_args()
    print(machine())
    for model in o.models.split(","):
        measure(model, o.rounds, o.idle_seconds, o.device, ["--threads", o.threads] if o.threads else [])


if __name__ == "__main__":
    main()
