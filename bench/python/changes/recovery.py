"""Implements bench/recovery; the comment at the top of that script describes it."""
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import checkpoint
import gateway_peer
import httpx
from cluster import ROOT, Cluster, alive, get
from options import count, names, option_parser
from serving import PROGRAMS, build, machine

N_STREAMS, N_TOKENS = 8, 1500
UNWELL_S = 30.0  # seconds without a 200 from /health after which a server is restarted, as a liveness probe would do
GIVE_UP_S = 300.0
BACK_S = 3.0  # most seconds until Coxswain must serve again after the loss of a worker


class Watched:
    """Runs a server, and starts it again when it has ended."""

    def __init__(self, tokenizer):
        super().__init__(tokenizer)
        self.words, self.was_ready, self.left = self.process.args, False, []
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        well = time.monotonic()
        while not self.ending.wait(0.1):
            if self.process.poll() is None:
                ok = get(f"http://127.0.0.1:{self.port}/health", 5)[0] == 200
                self.was_ready = self.was_ready or ok
                well = time.monotonic() if ok or not self.was_ready else well
                if time.monotonic() - well < UNWELL_S:
                    continue
                self.kill_all()
            for pid in self.left:  # ranks that still run after the server's end use its port or its memory
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                                env={**os.environ, **self.env}, cwd=self.folder.name, start_new_session=True)
            well, self.was_ready = time.monotonic(), False

    def kill_all(self):
        for pid in reversed(gateway_peer.family(self.process.pid)):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def begin(self):
        self.wait_ready()
        self.was_ready = True
        self.left = gateway_peer.family(self.process.pid)[1:]
        self.thread.start()
        return f"http://127.0.0.1:{self.port}"

    def end(self):
        self.ending.set()
        self.thread.join()
        self.kill_all()


class Vllm(Watched, gateway_peer.Vllm):
    env = {**gateway_peer.Vllm.env, "VLLM_CPU_OMP_THREADS_BIND": "0|1"}

    def command(self, model):
        return [*super().command(model), "--tensor-parallel-size", "2"]

    def victim(self):
        ranks = [p for p in gateway_peer.family(self.process.pid) if b"Worker" in Path(f"/proc/{p}/comm").read_bytes() +
                 Path(f"/proc/{p}/cmdline").read_bytes()]
        return ranks[-1]


class Llama(Watched, gateway_peer.Llama):
    def command(self, model):
        words = super().command(model)
        words[words.index("--parallel") + 1] = N_STREAMS
        words[words.index("--ctx-size") + 1] = 2048 * N_STREAMS
        return words

    def victim(self):
        return self.process.pid


class Cox:
    name = "cox"

    def __init__(self, tokenizer):
        self.folder = tempfile.TemporaryDirectory(prefix="coxbench-")
        model = Path(self.folder.name) / "model"
        checkpoint.write(ROOT / "bench/models/negligible", tokenizer, model)
        self.cluster = Cluster("--device", "cpu", "--max-model-len", 2048, workers=2, tp=2, model=str(model))

    def begin(self):
        self.cluster.start()
        return self.cluster.url

    def victim(self):
        return self.cluster.pid("worker-1")

    def end(self):
        self.cluster.stop()


async def stream(client, url, model, i, begun):
    """Returns True when the stream received all of its tokens."""
    n, done = 0, False
    body = {"model": model, "prompt": f"stream {i} of a few", "max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}}
    try:
        async with client.stream("POST", url + "/v1/completions", json=body) as r:
            async for line in r.aiter_lines():
                begun.add(i)
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    n = max(n, ((json.loads(line[6:]).get("usage") or {}).get("completion_tokens") or 0))
    except (httpx.HTTPError, ValueError):
        begun.add(i)
        return False
    return done and n == N_TOKENS


async def time_back(client, url, model, at):
    while time.monotonic() < at + GIVE_UP_S:
        try:
            r = await client.post(url + "/v1/completions", json={"model": model, "prompt": "back?", "max_tokens": 1},
                                  timeout=GIVE_UP_S)
            if r.status_code == 200:
                return time.monotonic() - at
        except httpx.HTTPError:
            pass
        await asyncio.sleep(0.05)
    return float("inf")


class Slot:
    """Runs one stream after the other until the kill, so that a stream is open at the kill with a server of any speed."""

    def __init__(self):
        self.is_open = False

    async def run(self, client, url, model, i, begun, killed):
        """Returns True when the last stream, which may be open at the kill, received all of its tokens."""
        whole = True
        while whole and not killed.is_set():
            self.is_open = True
            whole = await stream(client, url, model, i, begun)
            self.is_open = False
        return whole


async def one_round(server, url):
    model = httpx.get(url + "/v1/models", timeout=30).json()["data"][0]["id"]
    async with httpx.AsyncClient(timeout=GIVE_UP_S) as client:
        await client.post(url + "/v1/completions", json={"model": model, "prompt": "warm", "max_tokens": 8})
        begun, killed, slots = set(), asyncio.Event(), [Slot() for _ in range(N_STREAMS)]
        tasks = [asyncio.create_task(s.run(client, url, model, i, begun, killed)) for i, s in enumerate(slots)]
        while len(begun) < N_STREAMS:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        killed.set()
        n_open = sum(s.is_open for s in slots)
        os.kill(server.victim(), signal.SIGKILL)
        at = time.monotonic()
        back = await time_back(client, url, model, at)
        return n_open, sum(not whole for whole in await asyncio.gather(*tasks)), back


def judge(name, rounds):
    """Returns a text for each bar that these rounds miss."""
    failed, slowest = sum(r[1] for r in rounds), max(r[2] for r in rounds)
    if name != "cox":
        return [] if failed else [f"{name}: no stream failed, was it killed?"]
    return ([f"{failed} streams of ours failed"] if failed else []) + (
        [f"ours was back after {slowest:.2f} s (bar {BACK_S:g} s)"] if slowest > BACK_S else [])


def row(name, rounds):
    back = [r[2] for r in rounds]
    return (f"{name:6} {sum(r[1] for r in rounds):3} of {sum(r[0] for r in rounds):3} streams failed, back after "
            f"{statistics.median(back):6.2f} s ({min(back):.2f} to {max(back):.2f}, {len(rounds)} rounds)")


SERVERS = {"cox": Cox, "llama": Llama, "vllm": Vllm}


def main():
    parser = option_parser("recovery")
    parser.add_argument("--rounds", type=count(), default=3)
    parser.add_argument("--only", type=names(SERVERS), default=list(SERVERS))
    parser.add_argument("--bars", action="store_true")
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "build/goldens/llama_tiny")
    o = parser.parse_args()
    build(*PROGRAMS)
    print(f"{machine()}; {N_STREAMS} streams, SIGKILL to one process, {o.rounds} rounds")
    rows, beyond = [], []
    for name in o.only:
        rounds = []
        for _ in range(o.rounds):
            server = SERVERS[name](o.tokenizer)
            try:
                rounds.append(asyncio.run(one_round(server, server.begin())))
            finally:
                server.end()
            n_open, failed, back = rounds[-1]
            print(f"  {name}: {n_open} open at the kill, {failed} failed, back after {back:.2f} s", flush=True)
        rows.append(row(name, rounds))
        beyond += judge(name, rounds)
    print("\n".join(rows), flush=True)
    if o.bars and beyond:
        print("FELL SHORT: " + "; ".join(beyond))
        sys.exit(1)


if __name__ == "__main__":
    main()
