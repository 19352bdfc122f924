"""A machine whose processors are all taken: everybody is slow, and nobody is taken for dead.
COX_HOG_S: for how many seconds (20; 1800 for the long form)."""
import json
import os
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


@pytest.mark.timeout(HOG_S + 200 * SLOW)
def test_hogs_make_nobody_look_dead():
    with Cluster("--null-step-us", 5000, workers=3, tp=2, gateways=2) as cluster:
        with Steady([f"http://127.0.0.1:{p}" for p in cluster.ports], n_users=16) as load:
            wait_for("streams run", lambda: load.check().n_done > 32)
            _, since = events(cluster, 1)
            before = load.n_done
            # twice as many as there are processors, each of a session of its own: the kernel shares by session
            hogs = [subprocess.Popen([sys.executable, "-c", HOG.format(HOG_S)], start_new_session=True)
                    for _ in range(2 * os.cpu_count())]
            try:
                end = time.monotonic() + HOG_S
                while time.monotonic() < end:
                    time.sleep(1)
                    new, since = events(cluster, since)
                    lost = [e for e in new if e["event"] in LOSSES]
                    assert not lost, lost
                    load.check()
            finally:
                for h in hogs:
                    h.kill()
                    h.wait()
            wait_for("streams went on", lambda: load.check().n_done > before + 16, 60 * SLOW)
        print(f"{load.n_done - before} streams beside {len(hogs)} hogs in {HOG_S:g} s")
