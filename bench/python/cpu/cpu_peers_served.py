"""Implements bench/cpu-peers --served. Both servers stay up through the rounds, and only one server works at a time. `cox bench
serve` is the client of both."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cpu_peers_setup as peers
from cluster import BIN, Cluster, free_ports, get, wait_for
from cpu_peers_rows import Row

TOKENS = 128  # tokens of a prompt, and also of an answer
FIGURES = {"output_throughput": "served tokens/s", "p99_ttft_ms": "TTFT p99, ms", "p99_itl_ms": "ITL p99, ms",
           "p100_itl_ms": "longest gap, ms"}
VLLM_STREAMS = (8, 32)


class Server:
    """Runs a peer's server on a free port."""

    def __init__(self, command, env, seconds):
        self.port = free_ports(1)[0]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(word) for word in [*command, "--host", "127.0.0.1", "--port", self.port]],
                                        stdout=self.log, stderr=subprocess.STDOUT, env=env, start_new_session=True)
        self.url = f"http://127.0.0.1:{self.port}"
        self.seconds = seconds

    def is_ready(self):
        if self.process.poll() is not None:
            self.log.seek(0)
            raise RuntimeError(f"{self.process.args[0]} ended: {self.log.read().decode(errors='replace')[-1500:]}")
        return get(self.url + "/health")[0] == 200

    def __enter__(self):
        try:
            wait_for("the peer's /health is 200", self.is_ready, self.seconds)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def llama_server(path, threads, n_streams, isa):
    """Starts llama-server with a slot for each stream; a slot has context for one request. All other settings have their defaults."""
    return Server([peers.LLAMA[isa] / "bin/llama-server", "-m", path, "-t", threads, "-tb", threads, "-np", n_streams,
                   "-c", n_streams * 2 * (TOKENS + 64), "--alias", "m"], os.environ, 120)


def vllm_server(path, threads):
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "VLLM_CPU_KVCACHE_SPACE": "2",
           "VLLM_CPU_OMP_THREADS_BIND": ",".join(str(n) for n in range(threads))}
    return Server([peers.VLLM / "bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", path,
                   "--served-model-name", "m", "--dtype", "bfloat16", "--max-model-len", 2048], env, 600)


def load(url, tokenizer, n_streams, seed):
    """Sends two requests for each stream, one after the other."""
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder:
        command = [BIN / "cox", "bench", "serve", "--base-url", url, "--model", "m", "--tokenizer", tokenizer, "--dataset-name", "random",
                   "--random-input-len", TOKENS, "--random-output-len", TOKENS, "--ignore-eos", "--num-prompts", 2 * n_streams,
                   "--max-concurrency", n_streams, "--num-warmups", 1, "--seed", seed, "--metric-percentiles", "99,100",
                   "--save-result", "--result-dir", folder, "--result-filename", "r.json", "--disable-tqdm"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"cox bench serve: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        figures = json.loads((Path(folder) / "r.json").read_text())
    if figures["completed"] != 2 * n_streams or figures["total_output_tokens"] != 2 * n_streams * TOKENS:
        sys.exit(f"{url}: {figures['completed']} requests, {figures['total_output_tokens']} tokens")
    return figures


def rows_of(name, threads, peer, n_streams, skipped=""):
    return {key: Row(name, threads, f"{n_streams} streams, {title}", peer, skipped=skipped, less_is_more=title.endswith("ms"))
            for key, title in FIGURES.items()}


def measure(pair, rows, ours, theirs, rounds, tokenizer):
    for i in range(-1, rounds):
        peers.say(f"served beside {pair}, round {i + 1}")
        for n_streams, row in rows.items():
            for who, url in (("ours", ours), ("theirs", theirs))[::1 if i % 2 == 0 else -1]:
                time.sleep(0.5)
                found = load(url, tokenizer, n_streams, seed=1000 * n_streams + 10 * i + 17)
                if i >= 0:  # the first round is not counted
                    for key in FIGURES:
                        getattr(row[key], who).append(found[key])


@contextlib.contextmanager
def cox_up(path, threads, options):
    isa = "auto" if options.isa == "native" else options.isa
    c = Cluster("--device", "cpu", "--threads", threads, "--cpu-isa", isa, "--served-model-name", "m", model=str(path),
                workers=1, tp=1)
    try:
        c.start(wait=False)
        c.wait_ready(120)
        yield c
    finally:
        c.stop()
        c.folder.cleanup()


def is_there(peer, options):
    return (peers.LLAMA[options.isa] / "bin/llama-server").exists() if peer == "llama-server" else peers.has_vllm()


def beside(peer, name, path, counts, options):
    """Returns the rows of one model beside one peer's server."""
    threads = max(options.threads)
    rows = {n: rows_of(name, threads, peer, n) for n in counts}
    if not is_there(peer, options):
        return [row for n in counts for row in rows_of(name, threads, peer, n, "not installed").values()]
    server = llama_server(path, threads, max(counts), options.isa) if peer == "llama-server" else vllm_server(path, threads)
    with server, cox_up(path, threads, options) as c:
        measure(f"{peer}, {name}", rows, c.url, server.url, options.rounds, path)
    return [row for found in rows.values() for row in found.values()]


def pairs_of(options):
    """Returns [(peer, model)]."""
    vllm = [("vLLM", "bf16")] if "bf16" in options.models and options.isa == "native" and not options.no_vllm else []
    return [("llama-server", name) for name in options.models] + vllm


def check(options):
    """Ends the script when nothing could be measured."""
    if not (BIN / "cox").exists():
        sys.exit(f"there is no {BIN / 'cox'}: scripts/build")
    wanted = pairs_of(options)
    if not any(is_there(peer, options) for peer, _ in wanted):
        builds = ", ".join(dict.fromkeys(f"{peer} ({options.isa})" for peer, _ in wanted))
        sys.exit(f"nothing can be measured, these are not installed: {builds}: bench/cpu-peers --setup")


def all_rows(options):
    rows = []
    for peer, name in pairs_of(options):
        path, counts = (peers.checkpoint_folder(), VLLM_STREAMS) if peer == "vLLM" else (peers.model_file(name), [options.streams])
        rows += beside(peer, name, path, counts, options)
    return rows
