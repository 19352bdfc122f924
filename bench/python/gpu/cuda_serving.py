"""Implements bench/cuda_serving; the comment at the top of that script describes it."""
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from cluster import BIN, ROOT, Cluster
from options import amount, count, option_parser
from serving import load, machine

BAR = 2500  # least tokens/s of one stream
TINY = ROOT / "build/goldens/llama_tiny"
NO_DEVICE = "no CUDA device found"


def emulated_programs(folder):
    """`cox up` searches for the worker in its own folder, so it finds the emulated worker in this folder."""
    for name in ("cox", "cox-head", "cox-gateway"):
        shutil.copy(BIN / name, folder / name)
    shutil.copy(BIN.parent / "tests/cox-worker-emulated", folder / "cox-worker")
    return folder / "cox"


def cluster_of(options, folder):
    more = ["--max-model-len", 512, "--num-gpu-blocks-override", 96] if options.emulated else []
    c = Cluster("--device", "cuda", "--served-model-name", "m", *more, model=str(options.model), workers=1, tp=1)
    if options.emulated:
        c.command[0] = str(emulated_programs(folder))
    return c


def measure(c, options, tokens):
    """Returns tokens/s and ms to the first token of each round. One round before them, which records the passes, is not counted."""
    asyncio.run(load(c.ports[0], 1, min(tokens, 64)))
    rounds, begin = [], time.monotonic()
    while len(rounds) < options.rounds:
        if rounds and options.seconds and (time.monotonic() - begin) * (len(rounds) + 1) / len(rounds) > options.seconds:
            print(f"cut: {options.rounds - len(rounds)} rounds, there was no time left")
            break
        rounds.append(asyncio.run(load(c.ports[0], 1, tokens)))
    return rounds


def main():
    parser = option_parser("cuda_serving")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--tokens", type=count(), default=512)
    parser.add_argument("--seconds", type=amount(), help="what would take longer is cut")
    parser.add_argument("--model", default=None)
    parser.add_argument("--emulated", action="store_true")
    options = parser.parse_args()
    is_demo = options.model in (None, "demo-base") and not options.emulated
    options.model = options.model or (TINY if options.emulated else "demo-base")
    cache = Path(os.environ.get("COX_CACHE") or Path.home() / ".cache/coxswain")
    missing = cache / "models/demo" if is_demo else Path(options.model)
    if not missing.exists():
        print(f"SKIPPED: needs the whole build and a model: {missing} is not here (scripts/fetch-demo-model, make-goldens)")
        return 77
    print(machine())
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder:
        c = cluster_of(options, Path(folder))
        try:
            begin = time.perf_counter()
            c.start()
            print(f"ready after {time.perf_counter() - begin:.2f} s")
            rounds = measure(c, options, options.tokens)
        except AssertionError as e:
            if NO_DEVICE in str(e):
                print("SKIPPED: " + next(line for line in str(e).splitlines() if NO_DEVICE in line))
                return 77
            raise
        finally:
            c.kill()
    rate = statistics.median(r for r, _ in rounds)
    print(f"{len(rounds)} rounds of {options.tokens} tokens: " + ", ".join(f"{r:.0f}" for r, _ in rounds) +
          f" tokens/s; first token after {statistics.median(f for _, f in rounds):.1f} ms")
    held = rate >= BAR
    verdict = "emulated: not judged" if options.emulated else "" if not is_demo else "held" if held else "**below**"
    bar = f"at least {BAR}" if is_demo else ""
    print(f"\n| cuda_serving | {Path(options.model).name}, one stream through head and gateway | {rate:.0f} tokens/s | "
          f"{bar} | {verdict} |")
    return 1 if is_demo and not held else 0


if __name__ == "__main__":
    sys.exit(main())
