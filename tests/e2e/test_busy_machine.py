"""Tests a machine whose processors are all busy: every process is slow, but none counts as dead. COX_HOG_S sets the seconds (20;
1800 for the long form)."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from cluster import SLOW, Cluster, get, wait_for
from steady import Steady

HOG_S = float(os.environ.get("COX_HOG_S", 20))
LOSSES = {"worker_lost", "gateway_lost", "group_dissolved", "session_broken", "term_taken"}
HOG = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"


def events(cluster, since):
    seen = json.loads(get(f"{cluster.admin}/api/events?since={since}", timeout=30)[1])
    return seen["events"], seen["next"]


@contextlib.contextmanager
def hogs(n, seconds):
    """Starts n busy processes, each in its own session: the kernel shares the processors by session."""
    running = [subprocess.Popen([sys.executable, "-c", HOG.format(seconds)], start_new_session=True) for _ in range(n)]
    try:
        yield
    finally:
        for h in running:
            h.kill()
            h.wait()


@pytest.mark.timeout(HOG_S + 200 * SLOW)
def test_hogs_make_nobody_look_dead():
    with Cluster("--null-step-us", 5000, workers=3, tp=2, gateways=2) as cluster:
        with Steady([f"http://127.0.0.1:{p}" for p in cluster.ports], n_users=16) as load:
            wait_for("streams run", lambda: load.check().n_done > 32)
            _, since = events(cluster, 1)
            before = load.n_done
            with hogs(2 * os.cpu_count(), HOG_S):
                end = time.monotonic() + HOG_S
                while time.monotonic() < end:
                    time.sleep(1)
                    new, since = events(cluster, since)
                    lost = [e for e in new if e["event"] in LOSSES]
                    assert not lost, lost
                    load.check()
            wait_for("streams went on", lambda: load.check().n_done > before + 16, 60 * SLOW)
        print(f"{load.n_done - before} streams beside {2 * os.cpu_count()} hogs in {HOG_S:g} s")


def test_a_kill_is_one_loss():
    """With five busy processes for each processor, the replica is dissolved and formed once. Only the killed worker is lost or
    restarted, and every stream keeps its tokens. bench/busy-recovery judges the time."""
    with Cluster("--null-step-us", 2000, workers=2, tp=2) as cluster:
        with Steady([cluster.url], n_users=8) as load:
            wait_for("streams run", lambda: load.check().n_done > 8)
            others = {name: pid for name, pid in cluster.pids().items() if name != "worker-1"}
            _, since = events(cluster, 1)
            with hogs(min(5 * os.cpu_count(), 40), 60 * SLOW):
                os.kill(cluster.pid("worker-1"), signal.SIGKILL)
                before = load.n_done
                wait_for("streams went on", lambda: load.check().n_done > before + 16, 60)
            names = [e["event"] for e in events(cluster, since)[0]]
            assert names.count("group_dissolved") == names.count("group_ready") == names.count("worker_lost") == 1, names
            assert not {"gateway_lost", "session_broken", "worker_reconnected"} & set(names), names
            assert {name: pid for name, pid in cluster.pids().items() if name != "worker-1"} == others
