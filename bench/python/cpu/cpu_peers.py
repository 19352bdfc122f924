"""Implements bench/cpu-peers; the comment at the top of that script describes it. Each program is a child that executes commands and
sleeps otherwise. In every round, each figure is measured in all children right after each other, in alternating order."""
import json
import os
import re
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import cpu_peers_served as served
import cpu_peers_setup as peers
from cpu_peers_rows import Row, conclude, show
from options import THREADS, count, counts, names, option_parser
from serving import BUILD, build, machine

PROMPT, SHORT = 512, 16  # PROMPT: tokens of a measured prompt; SHORT: tokens of the prompt that a decode stream begins with
STEPS = {1: 64, 8: 32, 32: 16}  # number of streams: number of measured steps
WORKS = {"prompt": f"prompt {PROMPT}"} | {f"decode {n}": f"decode {n} {steps} {SHORT}" for n, steps in STEPS.items()}
MODELS = ("demo", "bf16", "q8_0", "q4_0", "q4_k_m")
TEXT = "The harbour was quiet that morning, and the old pilot"
GREEDY = 64

Pair = namedtuple("Pair", "model threads path peer bytes")


class Ended(SystemExit):
    """`Ended` is raised when a program ended before it answered. An uncaught `Ended` ends the script with its message."""


class Child:
    """Runs a program that answers each line with a line of JSON."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=env, bufsize=1, start_new_session=True)

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
        except BrokenPipeError:
            pass
        for answer in self.process.stdout:
            if answer.startswith("{"):
                return json.loads(answer)
        raise Ended(f"{Path(self.process.args[0]).name} ended at {line!r} with exit status {self.process.wait()}")

    def rate(self, line):
        found = self.ask(line)
        return found["tokens"] / found["seconds"]

    def close(self):
        try:
            self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def program():
    """Returns the path of bench_cpu_model: from COX_BIN if the program is there, else built here."""
    given = Path(os.environ.get("COX_BIN", "/nowhere")) / "bench_cpu_model"
    if given.exists():
        return given
    build("bench_cpu_model")
    return BUILD / "bin/bench_cpu_model"


def start_children(pair, options):
    """Returns both children as [Coxswain's, the peer's]. The peer's child is None when the peer is not installed."""
    path, isa = pair.path, "auto" if options.isa == "native" else options.isa
    ours = Child([program(), path, pair.threads, isa])
    command = peers.llama_command(options.isa, "serve", path, pair.threads) if pair.peer == "llama.cpp" else \
        peers.vllm_command(path, pair.threads)
    return [ours, Child(*command) if command else None]


def agreement(ours, theirs):
    """Describes how many greedy tokens after the same text are equal."""
    ask = f"greedy {GREEDY} " + " ".join(map(str, theirs.ask(f"tokenize {TEXT}")["ids"]))
    both = zip(ours.ask(ask)["ids"], theirs.ask(ask)["ids"])
    same = next((i for i, (a, b) in enumerate(both) if a != b), GREEDY)
    return f"the first {same} of {GREEDY} greedy tokens are the same"


def describe(pair, ours, theirs):
    us = ours.ask("info")
    print(f"{pair.model}, {pair.threads} threads: {us['device']}; KV {us['kv']}", flush=True)
    if theirs and pair.peer == "llama.cpp":
        them = theirs.ask("info")
        print(f"  llama.cpp: KV {them['kv']}, flash attention {them['flash_attn']}, ubatch {them['ubatch']}; {agreement(ours, theirs)}; "
              f"{them['device']}", flush=True)


def cpu_seconds(children):
    """Returns the CPU seconds (of all processes, of these children and their descendants)."""
    busy = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:4]]
    sessions, own = {child.process.pid for child in children}, 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:  # the process has ended
            continue
        if int(fields[3]) in sessions:
            own += int(fields[11]) + int(fields[12])
    return sum(busy) / os.sysconf("SC_CLK_TCK"), own / os.sysconf("SC_CLK_TCK")


def one_round(i, rows, ours, theirs):
    for work, row in rows.items():
        if row.bytes:
            row.read.append(ours.ask(f"read {row.threads}")["bytes_per_second"])
        for values, child in ((row.ours, ours), (row.theirs, theirs))[::1 if i % 2 == 0 else -1]:
            if child:
                time.sleep(0.1)  # threads of the other program may still spin
                values.append(child.rate(WORKS[work]))
        peers.say(f"  {work}: {row.ours[-1]:.1f}" + (f" to {row.theirs[-1]:.1f} tokens/s" if theirs else " tokens/s"))


def measure(pair, options):
    """Returns the rows of one model and number of threads beside one peer."""
    ours, theirs = start_children(pair, options)
    rows = {work: Row(pair.model, pair.threads, work, pair.peer) for work in WORKS}
    rows["decode 1"].bytes = pair.bytes
    skipped = "" if theirs else f"not installed ({options.isa})"
    try:
        describe(pair, ours, theirs)
        for child in filter(None, (ours, theirs)):  # the first prompt warms up: the programs use their memory for the first time
            for line in WORKS.values():
                child.ask(line)
        ours.ask(f"read {pair.threads}")
        children = list(filter(None, (ours, theirs)))
        begin, before = time.monotonic(), cpu_seconds(children)
        for i in range(options.rounds):
            peers.say(f"{pair.model}, {pair.threads} threads, beside {pair.peer}: round {i + 1}")
            one_round(i, rows, ours, theirs)
        busy, own = (a - b for a, b in zip(cpu_seconds(children), before))
        share = (busy - own) / (time.monotonic() - begin) / os.cpu_count()
        print(f"  others took {max(0, share):.0%} of the machine meanwhile", flush=True)
    except Ended as why:
        if ours.process.poll() is not None:
            sys.exit(str(why))
        skipped = str(why)
    finally:
        for child in filter(None, (ours, theirs)):
            child.close()
    for row in rows.values():
        row.skipped = skipped
        if skipped:
            row.theirs.clear()
    return list(rows.values())


def pairs_of(options):
    """Yields the pairs to measure. vLLM does not read GGUF, so for vLLM both programs get a checkpoint."""
    for name in options.models:
        path = peers.model_file(name)
        for threads in options.threads:
            yield Pair(name, threads, path, "llama.cpp", peers.bytes_per_token(path))
    if "bf16" in options.models and 2 in options.threads and options.isa == "native" and not options.no_vllm:
        yield Pair("bf16", 2, peers.checkpoint_folder(), "vLLM", peers.bytes_per_token(peers.model_file("bf16")))


def cpu_line():
    flags = set(re.search(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1].split())
    known = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_tile")
    return "has " + " ".join(name for name in known if name in flags)


def arguments():
    parser = option_parser("cpu-peers")
    parser.add_argument("--setup", action="store_true")
    parser.add_argument("--only", choices=("llama.cpp", "vllm"), help="of --setup")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--models", type=names(MODELS), default=list(MODELS))
    parser.add_argument("--threads", type=counts(1, THREADS), default=[1, 2])
    parser.add_argument("--isa", choices=("native", "avx2"), default="native", help="of ours and of the peer's build")
    parser.add_argument("--no-vllm", action="store_true")
    parser.add_argument("--served", action="store_true", help="with the most of --threads")
    parser.add_argument("--streams", type=count(1, 256), default=8, help="of --served beside llama-server")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--bars", action="store_true")
    options = parser.parse_args()
    if options.only and not options.setup:
        parser.error("--only is what --setup builds")
    if options.quick:
        options.rounds, options.models = 1, ["demo"]
    return options


def main():
    options = arguments()
    if options.setup:
        return peers.setup(options.only)
    peers.check_models(options.models)
    if options.served:
        served.check(options)
    else:
        program()
    print(f"{machine()}, {cpu_line()}; {options.isa}, {peers.LLAMA_PACKAGE}; {options.rounds} rounds, medians", flush=True)
    rows = served.all_rows(options) if options.served else [row for pair in list(pairs_of(options)) for row in measure(pair, options)]
    show(rows)
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    held = conclude(rows)
    if not any(row.ours for row in rows):
        return 1
    return 1 if options.bars and not held else 0


if __name__ == "__main__":
    sys.exit(main())
