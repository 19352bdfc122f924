"""Runs the peers of bench/gateway: vLLM's whole server and llama.cpp's on a model that computes next to nothing, or a server that
already runs."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checkpoint
from cluster import ROOT, free_ports, get
from vllm_peer import PEER

sys.path.append(str(ROOT / "scripts/goldens"))
import to_gguf  # noqa: E402

READY_S = 600
LLAMA = "llama-cpp-python==0.3.36"
PEER_STREAMS = (64, 128)


def family(pid):
    """Returns the ids of the process and of all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += family(int(child))
    return found


class Server:
    """Starts a server on a model of one layer of width 128. `bar`: the least ratio of Coxswain's tokens/s to the server's."""

    def __init__(self, tokenizer):
        self.folder = tempfile.TemporaryDirectory(prefix="coxbench-")
        model = Path(self.folder.name) / "model"
        checkpoint.write(ROOT / "bench/models/negligible", tokenizer, model)
        [self.port] = free_ports(1)
        self.log = Path(self.folder.name) / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(word) for word in self.command(model)], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, env={**os.environ, **self.env}, cwd=self.folder.name,
                                            start_new_session=True)

    def wait_ready(self):
        end = time.monotonic() + READY_S
        while get(f"http://127.0.0.1:{self.port}/health")[0] != 200:
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{self.name} does not serve; its last words:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.5)

    def pids(self):
        return {f"{self.name}-{i}": pid for i, pid in enumerate(family(self.process.pid))}

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Vllm(Server):
    """Runs vLLM's server in the venv of bench/scheduler --setup-peer, with its defaults except for the model's length."""

    name, bar = "vllm", 10
    env = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "CUDA_VISIBLE_DEVICES": ""}

    def command(self, model):
        return [PEER / "bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1",
                "--port", self.port, "--max-model-len", "2048", "--dtype", "bfloat16", "--served-model-name", "peer"]


class Llama(Server):
    """Runs llama-server with a slot of 256 tokens for each stream, and as many threads as there are cores."""

    name, bar = "llama-server", 25
    env = {}
    program = PEER.parent / "llama/llama-server"

    def command(self, model):
        gguf = model / "model.gguf"
        with open(model / "config.json", encoding="utf-8") as f:
            config = json.load(f)
        to_gguf.write(gguf, config, to_gguf.read_safetensors(model), model)
        slots = max(PEER_STREAMS)
        return [self.program, "--model", gguf, "--host", "127.0.0.1", "--port", self.port, "--parallel", slots,
                "--ctx-size", 256 * slots, "--threads", os.cpu_count(), "--no-webui"]


class Listening:
    """`Listening` stands for a server that already runs, such as llama-server."""

    name, bar = "peer", None

    def __init__(self, port):
        self.port = port

    def wait_ready(self):
        if get(f"http://127.0.0.1:{self.port}/health")[0] != 200:
            raise SystemExit(f"nobody says 200 at http://127.0.0.1:{self.port}/health")

    def pids(self):
        return {}

    def stop(self):
        pass


def setup_llama():
    """Builds llama-server for this host's processor from the sources in PyPI's llama-cpp-python. Takes minutes."""
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder:
        def run(*command):
            subprocess.run([str(word) for word in command], cwd=folder, check=True, stdout=sys.stderr)
        run(sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", LLAMA)
        [archive] = Path(folder).glob("*.tar.gz")
        run("tar", "xzf", archive, "--strip-components=1")
        run("cmake", "-S", "vendor/llama.cpp", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
            "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF")
        run("cmake", "--build", "build", "--target", "llama-server")
        Llama.program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(folder) / "build/bin/llama-server", Llama.program)


PEERS = {"vllm": Vllm, "llama": Llama}
