"""Defines the places where bench/tp's ranks run: this machine, and two hosts that are network namespaces."""
import os
import sys
import tempfile
import time

import cpu_peers_setup as peers
import hosts
import random_q4
from cluster import ROOT, Cluster
from cpu_peers import Child
from serving import cpu_ns

MODELS = ("demo", "1b")
CLIENT = [sys.executable, ROOT / "bench/python/tp/tp_client.py"]
VOCABULARY = 30000  # ids below this are valid in every model
ROOM = ["--max-model-len", 2048]


def model_path(name):
    return peers.model_file(name) if name == "demo" else random_q4.gguf_file()


def settle(pids):
    """Waits until the processes are idle. Work that a start postpones, such as a grammar's vocabulary, takes seconds."""
    end = time.monotonic() + 60
    last = 0
    while time.monotonic() < end:
        used = sum(cpu_ns(pid) for pid in pids)
        if used - last < 0.02e9:
            return
        last = used
        time.sleep(0.5)


class Place:
    """`Place` is a cluster, with a client beside its gateway."""
    client = port = None

    def decode(self, streams, tokens):
        return self.client.ask(f"decode {self.port} {streams} {tokens}")["rate"]

    def prompt(self, tokens):
        return self.client.ask(f"prompt {self.port} {tokens} {VOCABULARY}")["rate"]


class Here(Place):
    """`Here` is a cluster of tp x pp ranks on this machine, on `cores` in all."""

    def __init__(self, path, tp, pp, cores, threads=None):
        threads = threads or max(1, len(cores) // (tp * pp))
        self.name = f"`--pp {pp}`" if pp > 1 else f"`--tp {tp}`"
        self.cluster = Cluster("--device", "cpu", "--pp", pp, "--threads", threads, *ROOM, model=path, workers=tp * pp, tp=tp)
        self.cluster.command = ["taskset", "-c", ",".join(map(str, cores)), *self.cluster.command]

    def __enter__(self):
        begin = time.perf_counter()
        self.cluster.__enter__()  # when the cluster never becomes ready, this call ends the processes that it started
        self.ready_s = time.perf_counter() - begin
        settle(self.cluster.pids().values())
        self.client, self.port = Child(CLIENT), self.cluster.ports[0]
        return self

    def __exit__(self, *_):
        self.client.close()
        self.cluster.stop()


class Pair(hosts.HostCluster):
    """`Pair` consists of two hosts and one cable: head, gateway and rank 0 are on the first host, rank 1 is on the second. Rank i
    runs on cores[i]."""
    cores = ()

    def start_worker(self, i, *args, **kwargs):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores[i:i + 1] or before)  # processes that are started now inherit these cores
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
    """Runs --tp 2 over the cable of a Pair, with one thread for each rank."""
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
