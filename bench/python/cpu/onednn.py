"""Implements bench/onednn: compares our product of plain weights (bench_kernels) with oneDNN's, in turns on one thread."""
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cluster import ROOT
from options import count, names, option_parser

PACKAGES = ["onednn-cpu-gomp==2023.2.0", "onednn-devel-cpu-gomp==2023.2.0"]  # the last versions that a program written only in C can use
FOLDER = Path(os.environ.get("COX_CACHE") or Path.home() / ".cache/coxswain") / "peers/onednn"
PROGRAM = FOLDER / "onednn"
BUILD = ROOT / "build/release"
LEVELS = {"BF16": "avx512-bf16", "F32": "avx512"}  # dtype: argument of bench_kernels for it


def setup():
    if not list(FOLDER.glob("*.data/data/include")):
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="coxbench-") as wheels:
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, *PACKAGES],
                           check=True)
            for wheel in sorted(Path(wheels).glob("*.whl")):
                zipfile.ZipFile(wheel).extractall(FOLDER)
    include = next(FOLDER.glob("*.data/data/include"))
    lib = next(FOLDER.glob("onednn_cpu_gomp-*.data/data/lib"))
    subprocess.run(["cc", "-O2", f"-I{include}", ROOT / "bench/cpu/onednn.c", f"-L{lib}", "-l:libdnnl.so.3", f"-Wl,-rpath,{lib}",
                    "-o", PROGRAM], check=True)
    subprocess.run(["cmake", "--build", BUILD, "--target", "bench_kernels"], check=True, stdout=subprocess.DEVNULL)


def check_cpu(dtypes):
    """Ends the script when the CPU lacks an instruction set. bench_kernels refuses such a set with exit status 2; for an unknown
    dtype it measures nothing."""
    for level in map(LEVELS.get, dtypes):
        if subprocess.run([BUILD / "bin/bench_kernels", level, "none", "1"], capture_output=True).returncode != 0:
            sys.exit(f"bench/onednn: this CPU has no {level}; --dtypes names those to compare")


def ours(level, dtype):
    out = subprocess.run([BUILD / "bin/bench_kernels", level, dtype, "1"], check=True, capture_output=True, text=True).stdout
    # The columns are: dtype n k rows threads us GB/s %read GFLOP/s %fma.
    lines = [line.split() for line in out.splitlines() if line.startswith(dtype)]
    return {tuple(map(int, w[1:4])): float(w[8]) for w in lines if w[4] == "1"}, out.splitlines()[0]


def theirs(dtype):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = subprocess.run([PROGRAM, dtype], check=True, capture_output=True, text=True, env=env).stdout
    lines = [line.split() for line in out.splitlines() if line.startswith(dtype)]
    return ({tuple(map(int, w[1:4])): float(w[6]) for w in lines},
            [line for line in out.splitlines() if line.startswith("bits:")])


def main():
    parser = option_parser("onednn")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--dtypes", type=names(LEVELS), default=list(LEVELS))
    options = parser.parse_args()
    setup()
    check_cpu(options.dtypes)
    for dtype in options.dtypes:
        rounds = []
        for i in range(options.rounds):
            pair = {}
            for who in ("ours", "theirs") if i % 2 == 0 else ("theirs", "ours"):
                if who == "ours":
                    pair[who], ceiling = ours(LEVELS[dtype], dtype)
                else:
                    pair[who], bits = theirs(dtype)
            rounds.append(pair)
        print(f"{dtype}: {ceiling}")
        print(f"{'n':>6} {'k':>5} {'rows':>5} {'ours':>9} {'oneDNN':>9} {'ratio':>6}   GFLOP/s, medians of {options.rounds}")
        for case in rounds[0]["theirs"]:
            if case not in rounds[0]["ours"]:
                continue
            a, b = ([r[who][case] for r in rounds] for who in ("ours", "theirs"))
            ratio = statistics.median(x / y for x, y in zip(a, b))
            print(f"{case[0]:6} {case[1]:5} {case[2]:5} {statistics.median(a):9.1f} {statistics.median(b):9.1f} {ratio:6.2f}")
        print("\n".join(f"oneDNN, {line}" for line in bits))


if __name__ == "__main__":
    main()
