"""Tests frames that CURVE would never deliver: frame_relay.c, with the keys of both sides, repeats, swaps, drops, cuts and damages
frames in both directions. Streams still end with their expected tokens. This file also tests peers of another version, and
unknown peers."""
import collections
import re
import subprocess
import time
from pathlib import Path

import findings
import httpx
import null_oracle as oracle
import pytest
from cluster import BIN, ROOT, SLOW, Cluster, end_all, free_ports, get, run_cox, wait_for
from completions import run

RELAY = BIN.parent / "tests/frame_relay"
PERIOD_MS = 400 * SLOW  # milliseconds between strikes on each kind of link
N_STREAMS, N_TOKENS = 6, 350
KINDS = {"repeat", "swap", "drop", "cut", "header"}  # kinds of the first strikes on each link
LINKS = {("gateway", "head"), ("worker", "head"), ("head", "gateway"), ("head", "worker")}


class Processes:
    """Runs a head, a relay in front of it, a gateway and workers, each started directly."""

    def __init__(self, folder):
        self.folder, self.started = Path(folder), {}
        self.keys = self.folder / "keys"
        self.head_port, self.admin_port, self.port = free_ports(3)
        assert run_cox("keys", "--keys-dir", self.keys).returncode == 0
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin = f"http://127.0.0.1:{self.admin_port}"

    def start(self, name, program, *args, **more):
        self.started[name] = subprocess.Popen([str(program), *map(str, args)], stderr=self.log_path(name).open("wb"),
                                              stdin=subprocess.PIPE, stdout=self.log_path(name + ".out").open("wb"),
                                              **more)

    def log_path(self, name):
        return self.folder / f"{name}.log"

    def log(self, name):
        return self.log_path(name).read_text(errors="replace")

    def start_head(self, tp=2):
        self.start("head", BIN / "cox-head", "--port", self.head_port, "--admin-port", self.admin_port, "--keys-dir",
                   self.keys, "--tp", tp)
        wait_for("the head answers", lambda: get(self.admin + "/livez")[0] == 200)

    def start_relay(self, *args):
        """Starts a relay. Returns the port that peers connect to."""
        self.start("relay", RELAY, self.keys, self.head_port, *args)
        return int(wait_for("the relay's port", lambda: self.log("relay.out").splitlines()[:1])[0].split()[1])

    def start_worker(self, name, port, *args, keys=None, tp=2):
        self.start(name, BIN / "cox-worker", "--model", "null", "--device", "null", "--head", f"127.0.0.1:{port}",
                   "--keys-dir", keys or self.keys, "--tp", tp, "--http-port", 0, "--null-step-us", 10000, *args)

    def start_gateway(self, port):
        self.start("gateway", BIN / "cox-gateway", "--model", "null", "--head", f"127.0.0.1:{port}", "--port", self.port,
                   "--keys-dir", self.keys)

    def status(self):
        return httpx.get(self.admin + "/api/status").json()

    def end(self):
        end_all(self.started.values())
        for name, p in self.started.items():
            p.stdin.close()
            findings.look_at_log(self.log(name))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.end()
        if kind is not None:
            for name in self.started:
                print(f"---- {name}\n" + "\n".join(self.log(name).splitlines()[-40:]))


def test_spoiled_frames_cost_no_token(tmp_path):
    with Processes(tmp_path) as c:
        c.start_head()
        port = c.start_relay(7, PERIOD_MS)
        for i in range(2):
            c.start_worker(f"worker-{i}", port)
        c.start_gateway(port)
        wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)
        strikes, i_round = [], 0
        while not ({s[0] for s in strikes} >= KINDS and {(s[1], s[2]) for s in strikes} == LINKS):
            i_round += 1
            prompts = [f"stream {i} of round {i_round} over a spoiled link" for i in range(N_STREAMS)]
            got = run(c, [{"prompt": p, "max_tokens": N_TOKENS, "temperature": 0} for p in prompts])
            for p, g in zip(prompts, got):
                assert g.texts == {0: oracle.text(p, N_TOKENS, temperature=0)}
                assert g.finish == {0: "length"}
            strikes = [line.split() for line in c.log("relay.out").splitlines()[1:]]
            print(f"{len(strikes)} strikes: {dict(collections.Counter(s[0] for s in strikes))}")
        assert all(p.poll() is None for p in c.started.values()), "a process ended"
        wait_for("nothing runs", lambda: c.status()["requests"]["running"] + c.status()["requests"]["waiting"] == 0)


def test_another_version_is_refused_by_name(tmp_path):
    with Processes(tmp_path) as c:
        c.start_head(tp=1)
        c.start_worker("worker-0", c.head_port, tp=1)
        c.start_gateway(c.head_port)
        wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)
        c.start_worker("later", c.start_relay(1, 1000, "another-version"), tp=1)
        minor = re.search(r"^#define PROTOCOL_MINOR (\d+)u", (ROOT / "proto/messages.h").read_text(), re.M)[1]
        said = f"protocol 3.{minor} of the peer does not match protocol 2.{minor} of the head: run the same release on every machine"
        wait_for("the worker says why", lambda: "head_refused" in c.log("later") and said in c.log("later"))
        wait_for("the head does", lambda: "peer_refused" in c.log("head") and said in c.log("head"))
        wait_for("the worker ends", lambda: c.started["later"].poll() == 2)  # the worker ends with 2, because a retry would change nothing
        assert len(c.status()["workers"]) == 1
        r = httpx.post(c.url + "/v1/completions", json={"prompt": "a", "max_tokens": 5, "temperature": 0}, timeout=20)
        assert r.json()["choices"][0]["text"] == oracle.text("a", 5, temperature=0)


def test_strangers_are_told_and_stay_outside(tmp_path):
    with Processes(tmp_path) as c:
        c.start_head(tp=1)
        other, mixed = tmp_path / "other", tmp_path / "mixed"
        assert run_cox("keys", "--keys-dir", other).returncode == run_cox("keys", "--keys-dir", mixed).returncode == 0
        (mixed / "head.pub").write_bytes((c.keys / "head.pub").read_bytes())
        c.start_worker("stranger", c.head_port, keys=other, tp=1)
        c.start_worker("unknown", c.head_port, keys=mixed, tp=1)
        c.start_worker("insecure", c.head_port, "--insecure", tp=1)
        wait_for("the head names it", lambda: "peer_refused" in c.log("head") and
                 "the file authorized does not list this key" in c.log("head"))
        wait_for("the one says why", lambda: "refused the key of this process" in c.log("unknown"))
        for name in ("stranger", "insecure"):
            wait_for(f"{name} says why", lambda: "head_unreachable" in c.log(name) and "handshake" in c.log(name))
        time.sleep(0.5)
        assert c.status()["workers"] == [] and len(c.log("head").splitlines()) < 30
        assert all(p.poll() is None for p in c.started.values())
