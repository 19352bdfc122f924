"""Implements bench/shapes; the comment at the top of that script describes it."""
import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import httpx
from cluster import ROOT, Cluster, run_cox
from footprint import MIB, kib_rows
from options import count, names, option_parser
from serving import machine

MODELS = ("llama31_8b_awq", "phi3_mini_4k", "deepseek_coder_v2_lite_awq", "vicuna_13b_awq")
SIZES = ["--max-model-len", "1024", "--num-gpu-blocks-override", "128"]
BOUND = 0.01

broken = []


def mappings(pid):
    """Returns [(size, rss)] of the mappings with huge pages, and the rss of all other mappings."""
    large, rest = [], 0
    for text in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{pid}/smaps").read_text(), flags=re.MULTILINE)[1:]:
        rows = kib_rows(text)
        if re.search(r"^VmFlags:.* hg\b", text, re.MULTILINE):
            large.append((rows["Size"], rows["Rss"]))
        else:
            rest += rows["Rss"]
    return large, rest


def take_nearest(large, n_bytes):
    """Removes and returns the mapping whose size is nearest to n_bytes."""
    best = min(large, key=lambda m: abs(m[0] - n_bytes))
    large.remove(best)
    return best


def compare(what, a, b):
    fine = abs(a - b) <= BOUND * b
    if not fine:
        broken.append(what)
    return f"{a / MIB:.1f}" + ("" if fine else f" ({100 * (a / b - 1):+.1f} %: BROKEN)")


def show(title, plan, tables, c):
    print("| rank | | cox plan | own table | smaps |\n|---|---|---|---|---|")
    for rank, planned in enumerate(plan["ranks"]):
        table, (large, rest) = tables[rank], mappings(c.pids()[f"worker-{rank}"])
        resident = rest + sum(rss for _, rss in large)
        named, drawn = {}, table["sampler_bytes"]  # the samplers are on the heap; each thread has one sampler
        table = {**table, "activation_bytes": table["activation_bytes"] - drawn}
        planned = {**planned, "activation_bytes": planned["activation_bytes"] - drawn}
        for key in sorted(("weights_bytes", "kv_bytes", "activation_bytes"), key=lambda k: -table[k]):
            named[key] = take_nearest(large, table[key])
        for key, i in (("weights_bytes", 1), ("activation_bytes", 0), ("kv_bytes", 0)):
            where = f"{title}, rank {rank}, {key}"
            print(f"| {rank} | {key[:-6]} | {compare(where, planned[key], table[key])} | {table[key] / MIB:.1f} | "
                  f"{compare(where, named[key][i], table[key])} |")
        touched = sum(rss for _, rss in named.values())
        print(f"| {rank} | bytes a token of KV | {sum(g['bytes_per_token'] for g in planned['kv_groups'])} | "
              f"{table['kv_bytes'] // 128 // 16} | |")
        if drawn:
            print(f"| {rank} | samplers | | {drawn / MIB:.1f} | heap |")
        print(f"| {rank} | all | {planned['total_bytes'] / MIB:.1f} | {table['total_bytes'] / MIB:.1f} | resident {resident / MIB:.1f}: "
              f"{touched / MIB:.1f} of these, {(resident - touched) / MIB:.1f} for the process |", flush=True)


def ask(c, n, tokens):
    for i in range(n):
        begin = time.perf_counter()
        body = {"model": "m", "prompt": [11 + i, 7, 5, 3], "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        r = httpx.post(f"{c.url}/v1/completions", json=body, timeout=600)
        usage = r.raise_for_status().json()["usage"]
        print(f"- request {i}: {usage['prompt_tokens']} + {usage['completion_tokens']} tokens in "
              f"{time.perf_counter() - begin:.1f} s", flush=True)


def available():
    return kib_rows(Path("/proc/meminfo").read_text())["MemAvailable"]


def serve(name, options):
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder:
        for file in [ROOT / f"bench/models/{name}/config.json", *(ROOT / "build/goldens/llama_tiny").glob("tokenizer*")]:
            shutil.copy(file, folder)
        plan = json.loads(run_cox("plan", folder, "--tp", options.tp, "--json", *SIZES).stdout)
        need = sum(r["total_bytes"] for r in plan["ranks"])
        print(f"\n### {name}: {plan['family']}, {plan['dtype']}, {need / MIB:.0f} MiB on {options.tp} ranks\n", flush=True)
        if need + (1 << 30) > available():
            print(f"left out: {available() / MIB:.0f} MiB are free")
            return
        c = Cluster("--device", "cpu", "--load-format", "dummy", "--served-model-name", "m", "--log-format", "json", *SIZES,
                    model=folder, workers=options.tp, tp=options.tp)
        begin = time.perf_counter()
        c.start(wait=False)
        try:
            c.wait_ready(300)
            print(f"- ready after {time.perf_counter() - begin:.1f} s")
            ask(c, options.requests, options.tokens)
            events = [json.loads(line) for line in c.log().splitlines() if line.startswith("{") and '"memory_plan"' in line]
            show(name, plan, {int(e["process"].removeprefix("worker-")): e for e in events}, c)
        finally:
            c.stop()


def main():
    parser = option_parser("shapes")
    parser.add_argument("--models", type=names(sorted(p.name for p in (ROOT / "bench/models").iterdir())), default=list(MODELS))
    parser.add_argument("--tp", type=count(1, 64), default=2)
    parser.add_argument("--requests", type=count(), default=3)
    parser.add_argument("--tokens", type=count(), default=4)
    options = parser.parse_args()
    print(machine())
    for name in options.models:
        serve(name, options)
    print("\nbroken: " + ", ".join(broken) if broken else "\nall pairs are within 1 %")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
