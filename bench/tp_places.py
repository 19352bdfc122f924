"""Where bench/tp's ranks run: here, on two hosts that are network namespaces, and what runs on such hosts of distributed-llama."""
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cpu_peers_setup as peers
import hosts
import random_q4
from cluster import ROOT, Cluster
from cpu_peers import Child
from serving import cpu_ns

MODELS = ("demo", "1b")
CLIENT = [sys.executable, ROOT / "bench/tp_client.py"]
VOCABULARY = 30000  # ids below it are any model's
ROOM = ["--max-model-len", 2048]


def model_path(name):
    return peers.model_file(name) if name == "demo" else random_q4.gguf_file()


def settle(pids):
    """Until the processes rest: what a start leaves to be done beside requests (a grammar's vocabulary) takes seconds."""
    end = time.monotonic() + 60
    last = 0
    while time.monotonic() < end:
        used = sum(cpu_ns(pid) for pid in pids)
        if used - last < 0.02e9:
            return
        last = used
        time.sleep(0.5)


class Place:
    """A cluster with a client beside its gateway."""
    client = port = None

    def decode(self, streams, tokens):
        return self.client.ask(f"decode {self.port} {streams} {tokens}")["rate"]

    def prompt(self, tokens):
        return self.client.ask(f"prompt {self.port} {tokens} {VOCABULARY}")["rate"]


class Here(Place):
    """tp x pp ranks on this machine, on `cores` of it in all."""

    def __init__(self, path, tp, pp, cores, threads=None):
        threads = threads or max(1, len(cores) // (tp * pp))
        self.name = f"`--pp {pp}`" if pp > 1 else f"`--tp {tp}`"
        self.cluster = Cluster("--device", "cpu", "--pp", pp, "--threads", threads, *ROOM, model=path, workers=tp * pp, tp=tp)
        self.cluster.command = ["taskset", "-c", ",".join(map(str, cores)), *self.cluster.command]

    def __enter__(self):
        begin = time.perf_counter()
        self.cluster.start()
        self.ready_s = time.perf_counter() - begin
        settle(self.cluster.pids().values())
        self.client, self.port = Child(CLIENT), self.cluster.ports[0]
        return self

    def __exit__(self, *_):
        self.client.close()
        self.cluster.stop()


class Pair(hosts.HostCluster):
    """Two hosts and one cable: head, gateway and rank 0 are on the first, rank 1 is on the second. cores: rank i has the ith."""
    cores = ()

    def start_worker(self, i, *args, **kwargs):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores[i:i + 1] or before)  # what is started has it, too
        try:
            return super().start_worker(i, *args, **kwargs)
        finally:
            os.sched_setaffinity(0, before)

    def __enter__(self):
        try:
            self.workers = self.add("one", "two")
            self.head = self.workers[0]
            self.connect(1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def head_at(self, i):
        return super().head_at(1)


class TwoHosts(Place):
    """--tp 2 over the cable of a Pair, a thread for each rank."""
    name, port = "`--tp 2`, two hosts", hosts.HTTP_PORT

    def __init__(self, path, cores):
        self.folder = tempfile.TemporaryDirectory(prefix="coxbench-")
        self.pair = Pair(self.folder.name, path, ["--device", "cpu", "--threads", 1, *ROOM])
        self.pair.cores = cores[:2]

    def __enter__(self):
        begin = time.perf_counter()
        self.pair.__enter__()
        try:
            self.pair.start_all()
        except BaseException:
            self.pair.__exit__()
            raise
        self.ready_s = time.perf_counter() - begin
        settle([process.pid for process in self.pair.processes.values()])
        self.client = Child(self.pair.head.inside(*CLIENT))
        return self

    def __exit__(self, *_):
        self.client.close()
        self.pair.__exit__()


class DistributedLlama:
    """Two nodes of a thread each on the hosts of a Pair. A run is a process at the root, which loads its weights and sends the
    others theirs; its own figures of evaluation and prediction are what counts."""
    name, port, text = "distributed-llama, two hosts", 9998, random_q4.LETTERS

    def __init__(self, folder, pair):
        self.program, self.pair = Path(folder).resolve() / "dllama", pair
        self.model, self.tokenizer = random_q4.dllama_model(), random_q4.dllama_tokenizer()

    def on(self, i):
        """As our ranks have them."""
        return ["taskset", "-c", str(self.pair.cores[i])] if len(self.pair.cores) > i else []

    def run(self, n_prompt, n_tokens):
        """(prompt tokens/s, decoded tokens/s)."""
        node = subprocess.Popen(self.pair.workers[1].inside(*self.on(1), self.program, "worker", "--port", self.port, "--nthreads", 1),
                                stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            time.sleep(0.5)
            text = (self.text * (n_prompt // len(self.text) + 1))[:n_prompt]
            said = self.pair.head.run(
                *self.on(0), self.program, "inference", "--model", self.model, "--tokenizer", self.tokenizer, "--buffer-float-type", "q80", "--prompt", text,
                "--steps", n_prompt + n_tokens, "--nthreads", 1, "--temperature", "0", "--max-seq-len", 2048,
                "--workers", f"{self.pair.address(1, 2)}:{self.port}", timeout=300)
        finally:
            node.kill()
            node.wait()
        rates = re.findall(r"tokens/s: ([\d.]+)", said)
        if len(rates) != 2:
            raise RuntimeError(f"{self.program}: {said[-1000:]}")
        return float(rates[0]), float(rates[1])
