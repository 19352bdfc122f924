"""Tests that replicas are added and removed under load: from 1 to 4 to 2, with or without `GET /scale`. No stream fails."""
import json
import re
import signal
import subprocess

import pytest
from cluster import SLOW, Cluster, end_all, free_ports, get, wait_for
from steady import Steady

N_SEQS = 8  # sequences that a replica runs, so that 32 streams are work for four replicas


class Elastic(Cluster):
    """`Elastic` is a cluster that begins with one replica of one worker. The test starts more workers, as an operator would."""

    def __init__(self):
        super().__init__("--null-step-us", 10000, "--max-num-seqs", N_SEQS, workers=1, tp=1,
                         env={"COX_SCALE_MAX": "4", "COX_SCALE_TTFT_MS": "200", "COX_SCALE_CALM_S": "2"})
        self.added = []

    def add_worker(self):
        with open(f"/proc/{self.pid('worker-0')}/cmdline", "rb") as f:
            args = f.read().decode().rstrip("\0").split("\0")
        port, = free_ports(1)
        for flag, value in {"--ordinal": 1 + len(self.added), "--http-port": port}.items():
            args[args.index(flag) + 1] = str(value)
        p = subprocess.Popen(args, stdout=self.log_file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self.env)
        p.http_port = port
        self.added.append(p)

    def n_ready(self):
        return sum(g["state"] == "ready" for g in self.status()["groups"])

    def scale(self):
        code, body = get(self.admin + "/scale")
        return json.loads(body) if code == 200 else {"desired_workers": None, "code": code, "reason": body}

    def __exit__(self, *args):
        end_all(self.added)
        super().__exit__(*args)


@pytest.fixture
def cluster():
    with Elastic() as c:
        yield c


def drawn(port):
    return float(re.search(r"^coxswain_worker_tokens_drawn_total(?:\{.*\})? (\S+)$",
                           get(f"http://127.0.0.1:{port}/metrics")[1], re.M)[1])


def test_one_group_four_and_two_under_load(cluster):
    with Steady([cluster.url]) as load:
        said = wait_for("four workers are wanted", lambda: (s := cluster.scale())["desired_workers"] == 4 and s)
        assert said["workers"] == 1 and said["max_workers"] == 4 and "wait" in said["reason"], said
        assert re.search(r"^coxswain_head_desired_workers 4$", get(cluster.admin + "/metrics")[1], re.M)
        for _ in range(3):
            cluster.add_worker()
        wait_for("four groups serve", lambda: cluster.n_ready() == 4)
        wait_for("all of them draw tokens", lambda: all(drawn(w.http_port) > 50 for w in cluster.added))
        wait_for("nobody waits", lambda: cluster.status()["requests"]["waiting"] == 0)
        leaving = cluster.added[:2]
        for w in leaving:
            w.send_signal(signal.SIGTERM)
        for w in leaving:
            assert w.wait(timeout=40 * SLOW) == 0
        wait_for("two are known", lambda: len(cluster.status()["workers"]) == 2)
        assert cluster.n_ready() == 2
        done = load.check().n_done
        wait_for("streams go on", lambda: load.check().n_done > done + 64, 40)
        assert cluster.status()["requests"]["failed"] == 0
    print(f"{load.n_done} streams")
    wait_for("one worker is enough once it is calm", lambda: cluster.scale()["desired_workers"] == 1)
    assert cluster.status()["recent_failures"] == [] or all(
        "goodbye" in f["reason"] for f in cluster.status()["recent_failures"])
    cluster.wait_idle()
