"""Runs distributed-llama as the peer of bench/tp on two hosts. Each node has one thread and one core, like Coxswain's ranks, and no
cluster of Coxswain is up meanwhile. Its nodes spin while they wait for each other, so any other load on one of their cores stops
both nodes at each of two sums a layer. The script therefore also prints the load of other processes. It measures one node alone
as well, which shows when the two nodes were short of CPU time."""
import os
import re
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import random_q4
from cluster import wait_for
from cpu_peers import cpu_seconds
from tp_places import Pair

ONE, TWO = "distributed-llama, one node", "distributed-llama, two hosts"
PROMPT, TOKENS = 128, 32  # PROMPT: tokens evaluated in batches; TOKENS: tokens predicted one by one
PORT = 9998
FLAGS = ["--buffer-float-type", "q80", "--max-seq-len", 2048, "--temperature", 0, "--steps", PROMPT + TOKENS]
QUIET = 0.1  # fraction of the machine that other processes may use; above it the figure is not judged


def program(folder):
    """Returns the path of distributed-llama's program in the folder where it was built; None when it is missing."""
    path = Path(folder).resolve() / "dllama"
    return path if path.is_file() and os.access(path, os.X_OK) else None


def listens(process, port):
    """Returns True when the process listens on the port of its host. Ends the script when the process has ended."""
    if process.poll() is not None:
        raise SystemExit(f"distributed-llama's second node ended with exit status {process.returncode}")
    rows = [row.split() for row in Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


class DistributedLlama:
    """Runs distributed-llama. Each run is a process at the root, which loads the weights and sends the other node its part. The
    process itself prints the figures of evaluation and prediction."""

    def __init__(self, folder, cores):
        self.program, self.cores, self.folder = program(folder), cores, tempfile.TemporaryDirectory(prefix="coxbench-")
        self.model, self.tokenizer = random_q4.dllama_model(), random_q4.dllama_tokenizer()
        self.pair, self.others, self.built_for = Pair(self.folder.name), [], "?"

    def __enter__(self):
        self.pair.__enter__()
        return self

    def __exit__(self, *_):
        self.pair.__exit__()
        self.folder.cleanup()

    def start(self, i, *args):
        """Starts a node on host i, on the core of that host."""
        command = ["taskset", "-c", self.cores[i], self.program, *args, "--nthreads", 1]
        return subprocess.Popen(self.pair.workers[i].inside(*command), stdout=subprocess.PIPE if i == 0 else subprocess.DEVNULL,
                                stderr=subprocess.STDOUT, text=True)

    def infer(self, nodes):
        """Runs one inference; returns the root's output."""
        running = []
        try:
            if nodes == 2:
                running.append(self.start(1, "worker", "--port", PORT))
                wait_for("distributed-llama's second node listens", lambda: listens(running[0], PORT), 30)
            others = ["--workers", f"{self.pair.address(1, 2)}:{PORT}"] if nodes == 2 else []
            text = (random_q4.LETTERS * PROMPT)[:PROMPT]  # each letter is one token
            running.append(self.start(0, "inference", "--model", self.model, "--tokenizer", self.tokenizer, "--prompt", text, *FLAGS, *others))
            return running[-1].communicate(timeout=600)[0]
        finally:
            for process in running:
                process.kill()
                process.wait()

    def run(self, nodes):
        """Returns (prompt tokens/s, decoded tokens/s)."""
        begin, before = time.monotonic(), self.busy()
        said = self.infer(nodes)
        self.others.append((self.busy() - before) / (time.monotonic() - begin) / os.cpu_count())
        rates = re.findall(r"tokens/s: ([\d.]+)", said)
        if len(rates) != 2:
            raise SystemExit(f"{self.program}, {nodes} nodes: it said no rates: {said[-1000:]}")
        self.built_for = (re.findall(r"CPU: *(.*)", said) or ["?"])[0]
        return float(rates[0]), float(rates[1])

    @staticmethod
    def busy():
        """Returns the CPU seconds of all processes, without this script's children that have ended."""
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cpu_seconds([])[0] - own.ru_utime - own.ru_stime

    def describe(self):
        return (f"distributed-llama: {self.program}, built for {self.built_for}; `--nthreads 1 {' '.join(map(str, FLAGS))}`, "
                f"a prompt of {PROMPT} in batches of 32, {TOKENS} decoded; one core a node, none of our clusters up")
