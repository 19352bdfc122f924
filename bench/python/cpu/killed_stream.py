"""Implements bench/killed-stream: it kills a computing process with SIGKILL during a stream, and reports how the stream ends."""
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import cpu_peers_setup as peers
from cluster import Cluster, get
from cpu_peers_served import vllm_server
from options import count, names, option_parser

KILLED_AFTER = 30  # number of events that the client has received at the kill


class Stream(threading.Thread):
    """Reads one stream to its end."""

    def __init__(self, url, n_tokens):
        super().__init__(daemon=True)
        body = {"model": "m", "prompt": "bada bede", "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        self.request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        self.texts, self.times, self.error, self.is_done = [], [], None, False
        self.start()

    def run(self):
        try:
            for line in urllib.request.urlopen(self.request, timeout=300):
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    if "error" in event:
                        self.error = event["error"]["message"]
                        return
                    self.texts.append(event["choices"][0]["text"])
                    self.times.append(time.monotonic())
                self.is_done |= line.startswith(b"data: [DONE]")
        except (OSError, urllib.error.URLError) as error:
            self.error = repr(error)

    def until(self, n):
        while self.is_alive() and len(self.texts) < n:
            time.sleep(0.005)
        return self

    def text(self):
        self.join()
        return "".join(self.texts)


def struck(url, n_tokens, victim):
    """Runs a stream and kills a process during the stream. `victim` returns the process to kill once the stream runs."""
    undisturbed = Stream(url, n_tokens).text()
    stream = Stream(url, n_tokens).until(KILLED_AFTER)
    pid, events = victim(), len(stream.texts)
    os.kill(pid, signal.SIGKILL)
    stream.join()
    gaps = [b - a for a, b in zip(stream.times, stream.times[1:])]
    return {"events_before": events, "ends": "error" if stream.error else "whole" if stream.is_done else "cut off", "error": stream.error,
            "same_text": stream.text() == undisturbed, "longest_pause_s": round(max(gaps[events - 2:], default=0), 2)}


def cox(n_tokens):
    cluster = Cluster("--device", "cpu", "--served-model-name", "m", "--max-model-len", "2048", model=str(peers.checkpoint_folder()), workers=3, tp=2)
    try:
        cluster.start(wait=False)
        cluster.wait_ready(300)
        return struck(cluster.url, n_tokens, lambda: cluster.pid("worker-0"))
    finally:
        cluster.stop()
        cluster.folder.cleanup()


def vllm(n_tokens):
    with vllm_server(peers.checkpoint_folder(), 2) as server:
        def victim():
            ours = subprocess.run(["pgrep", "-s", str(server.process.pid), "-f", "^VLLM::Worker"], capture_output=True, text=True, check=True)
            return int(ours.stdout.split()[0])

        found = struck(server.url, n_tokens, victim)
        time.sleep(5)
        return {**found, "serves_after_5_s": server.process.poll() is None and get(server.url + "/health")[0] == 200}


def main():
    parser = option_parser("killed-stream")
    parser.add_argument("--only", type=names(("cox", "vllm")), default=["cox", "vllm"])
    parser.add_argument("--tokens", type=count(2 * KILLED_AFTER, 1500), default=200)
    options = parser.parse_args()
    if "vllm" in options.only and not peers.has_vllm():
        parser.error("vLLM is not there: bench/cpu-peers --setup --only vllm, or --only cox")
    for name in options.only:
        print(json.dumps({"server": name, **{"cox": cox, "vllm": vllm}[name](options.tokens)}), flush=True)


main()
