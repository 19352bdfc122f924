"""Implements bench/sizes; the comment at the top of that script describes it."""
import asyncio
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from cluster import Cluster
from footprint import MIB, bounds, sizes, tables
from options import amount, count, counts, option_parser
from serving import cold_cache, cpu_ns, load, long_prompt, processes, stream

STREAMS, TOKENS = 16, 256
CPU_BOUND = 1.0  # % of a core that all processes of an idle cluster may use together
GROWTH_BOUND = MIB  # bytes that a process may grow in the second half of a soak
KV_BYTES = 128 * MIB  # bytes of KV cache, so few that a soak uses all of them within half of its time

broken = []


def verdict(name, value, bound, form):
    fine = value <= bound
    if not fine:
        broken.append(name)
    return f"{form(value)} of {form(bound)}" + ("" if fine else ": BROKEN")


def mib(n):
    return f"{n / MIB:.1f}"


def show_sizes(title, c, **how):
    print(f"\n### {title}\n\n| | Rss | Pss | private | peak | threads | fds | may be |\n|---" + "|---" * 7 + "|")
    judged = {}
    for name, what, value, bound in bounds(c, **how):
        judged.setdefault(name, []).append(f"{what} " + verdict(f"{title}: {name} {what}", value, bound, mib))
    for name, s in sizes(c).items():
        numbers = [mib(s.rss), mib(s.pss), mib(s.private), mib(s.peak), str(s.threads), str(s.fds)]
        print(f"| {name} | " + " | ".join(numbers) + f" | {', '.join(judged.get(name, ['-']))} |", flush=True)


def show_tables(c):
    for worker, rows in tables(c).items():
        print(f"- {worker}'s own table: " + ", ".join(f"{name} {mib(n)}" for name, n in rows.items()))


def show_cpu(title, c, seconds):
    time.sleep(2)  # waits until the work after a start or a load has ended
    before = {n: cpu_ns(p) for n, p in processes(c).items()}
    time.sleep(seconds)
    share = {n: (cpu_ns(p) - before[n]) / seconds / 1e7 for n, p in processes(c).items()}
    whole = verdict(f"{title}: CPU", sum(share.values()), CPU_BOUND, lambda v: f"{v:.2f} %")
    print(f"- idle for {seconds:g} s: {whole} of a core; " + ", ".join(f"{n} {v:.2f}" for n, v in share.items()))


def long_streams(c):
    async def all_at_once():
        await asyncio.gather(*(stream(c.ports[0], i, TOKENS, long_prompt(time.time_ns() + i)) for i in range(STREAMS)))
    asyncio.run(all_at_once())
    c.wait_idle(60)


def work(c, model):
    if model == "null":
        asyncio.run(load(c.ports[0], 64, TOKENS))
    else:
        long_streams(c)


def soak(c, model, seconds):
    """Checks that no process grows once all memory has been used. Each half has at least one round of work."""
    begin, half, rounds = time.monotonic(), None, 0
    while time.monotonic() - begin < seconds or half is None:
        work(c, model)
        rounds += 1
        if half is None and time.monotonic() - begin >= seconds / 2:
            half = sizes(c)
            work(c, model)
            rounds += 1
    end = sizes(c)
    print(f"- {rounds} rounds of work in {time.monotonic() - begin:.0f} s; growth in the second half, MiB: " + ", ".join(
        f"{n} " + verdict(f"soak: {n}", end[n].rss - half[n].rss, GROWTH_BOUND, mib) for n in end))
    fds = {n: end[n].fds - half[n].fds for n in end if end[n].fds > half[n].fds}
    if fds:
        broken.append("soak: descriptors")
        print(f"- more descriptors than at half the time: {fds}")


def measure(model, tp, options, env=None):
    title = f"{model}, --tp {tp}" + (", no compiled tokenizer" if env else "")
    args = ["--device", "cpu"] if model != "null" else ["--null-step-us", "0"]
    if options.soak and model != "null":
        args += ["--kv-cache-memory-bytes", KV_BYTES, "--max-model-len", 2048]
    with Cluster(*args, model=model, workers=tp, tp=tp, env=env) as c:
        show_sizes(f"{title}: idle", c, kv_used=False)
        show_tables(c)
        if env:
            return
        show_cpu(title, c, options.idle_seconds)
        work(c, model)
        show_sizes(f"{title}: after a load", c)
        if options.soak:
            soak(c, model, options.soak)


def main():
    parser = option_parser("sizes")
    parser.add_argument("--models", default="null,demo-base")
    parser.add_argument("--tp", type=counts(1, 64), default=[1, 2])
    parser.add_argument("--idle-seconds", type=amount(), default=20)
    parser.add_argument("--soak", type=count(0), default=0, metavar="SECONDS", help="of work, for each cluster")
    options = parser.parse_args()
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    print(f"{time.strftime('%Y-%m-%d')}, {cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; MiB")
    for model in options.models.split(","):
        if model == "demo-base":
            with tempfile.TemporaryDirectory(prefix="coxsizes-") as folder:
                measure(model, options.tp[0], options, cold_cache(Path(folder)))
        for tp in options.tp if model != "null" else [2]:
            measure(model, tp, options)
    print("\nbroken: " + "; ".join(broken) if broken else "\nevery bound holds")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
