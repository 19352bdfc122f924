"""Implements bench/load; the comment at the top of that script describes it."""
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checkpoint
from cluster import ROOT, Cluster
from footprint import MIB, size_of, tables
from options import count, option_parser
from serving import go_first, machine, spread

READY_S, MEMORY_SHARE, MEMORY_MORE = 2.0, 1.05, 64 * MIB


def into_page_cache(file):
    with open(file, "rb") as f:
        while f.read(8 << 20):
            pass


class Round:
    """Measures one start: seconds until ready, seconds of the workers' loading, and the largest rss of all workers together."""

    def __init__(self, folder, options):
        into_page_cache(folder / "model.safetensors")
        c = Cluster("--device", "cpu", "--max-model-len", "2048", model=str(folder), workers=options.tp, tp=options.tp)
        begin = time.perf_counter()
        c.start(wait=False)
        if options.first:
            go_first(c.process.pid)
        try:
            c.wait_ready(120)
            self.ready = time.perf_counter() - begin
            self.loading = max(float(s) for s in re.findall(r"model_loaded .*seconds=([\d.]+)", c.log()))
            workers = [pid for name, pid in c.pids().items() if name.startswith("worker")]
            self.peak = sum(size_of(pid).peak for pid in workers)
            self.table = sum(rows["total"] for rows in tables(c).values())
        finally:
            c.stop()


def main():
    parser = option_parser("load")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--tp", type=count(1, 64), default=2)
    parser.add_argument("--shape", type=Path, default=ROOT / "bench/models/tinyllama_1b")
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "build/goldens/llama_tiny")
    parser.add_argument("--first", action="store_true")
    options = parser.parse_args()
    if options.first:
        go_first("self")
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder:
        n_bytes = checkpoint.write(options.shape, options.tokenizer, Path(folder))
        subprocess.run(["sync", "-f", folder], check=True)  # the measured load must not include writing the file back
        print(f"{machine()}; {n_bytes / 1e9:.2f} GB, --tp {options.tp}, {options.rounds} rounds: median (least … most)")
        before = Round(Path(folder), options)
        rounds = [Round(Path(folder), options) for _ in range(options.rounds)]
    ready, peak = [r.ready for r in rounds], max(r.peak for r in rounds)
    bound = int(MEMORY_SHARE * rounds[0].table) + MEMORY_MORE
    print(f"the round before these, not counted: {before.ready:.2f} s")
    print(f"ready after {spread(ready, '%.2f')} s (at most {READY_S:g}), of which the slowest rank loads "
          f"{spread([r.loading for r in rounds], '%.2f')} s")
    print(f"workers' peak rss {peak / MIB:.0f} MiB, their tables {rounds[0].table / MIB:.0f} MiB (at most {bound / MIB:.0f})")
    return sorted(ready)[len(ready) // 2] > READY_S or peak > bound


if __name__ == "__main__":
    sys.exit(main())
