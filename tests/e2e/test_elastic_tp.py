"""Tests replicas of fewer ranks than TP: two of four workers are killed and restarted under load. No stream fails."""
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request

import null_oracle as oracle
import pytest
from cluster import SLOW, Cluster, end_all, free_ports, get, run_cox, wait_for
from steady import Steady

WAIT = 1  # value of --elastic-tp-wait in seconds


class Fewer(Cluster):
    """`Fewer` has two workers of a replica of four. The test starts and kills the other two workers, which `cox up` does not
    restart."""

    def __init__(self, *args, env=None):
        super().__init__("--elastic-tp", "--elastic-tp-wait", WAIT, "--null-step-us", 10000, *args, workers=2, tp=4, env=env)
        self.added = []

    def add_workers(self, ordinals):
        with open(f"/proc/{self.pid('worker-0')}/cmdline", "rb") as f:
            args = f.read().decode().rstrip("\0").split("\0")
        for ordinal, port in zip(ordinals, free_ports(len(ordinals))):
            mine = list(args)
            for flag, value in {"--ordinal": ordinal, "--http-port": port}.items():
                mine[mine.index(flag) + 1] = str(value)
            self.added.append(subprocess.Popen(mine, stdout=self.log_file, stderr=subprocess.STDOUT,
                                               stdin=subprocess.DEVNULL, env=self.env))

    def kill_added(self, n):
        for p in self.added[:n]:
            p.kill()
            p.wait()
        del self.added[:n]

    def tp(self):
        """Returns the TP of the only replica when it serves, else 0."""
        code, body = get(self.admin + "/api/status")
        groups = json.loads(body)["groups"] if code == 200 else []
        return groups[0]["tp"] if len(groups) == 1 and groups[0]["state"] == "ready" else 0

    def wait_tp(self, tp):
        wait_for(f"a group of TP {tp}\n{self.log()[-3000:]}", lambda: self.tp() == tp, 30)

    def metric(self, name):
        return float(re.search(rf"^{name}(?:\{{.*\}})? (\S+)$", get(self.admin + "/metrics")[1], re.M)[1])

    def __exit__(self, *args):
        end_all(self.added)
        super().__exit__(*args)


def test_streams_go_on_with_two_of_four_and_with_four_again():
    with Fewer() as cluster:
        wait_for("a cluster that was never whole serves", lambda: cluster.tp() == 2)
        with Steady([cluster.url]) as load:
            def goes_on(n=48):
                done = load.check().n_done
                wait_for("streams go on", lambda: load.check().n_done >= done + n, 40)

            goes_on()
            cluster.add_workers([2, 3])
            cluster.wait_tp(4)
            assert cluster.metric("coxswain_groups_shrunk") == 0
            goes_on()
            cluster.kill_added(2)
            cluster.wait_tp(2)
            assert cluster.metric("coxswain_groups_shrunk") == 1
            goes_on()
            cluster.add_workers([2])
            time.sleep(2 * WAIT)
            assert cluster.tp() == 2, "three are no reason to stop"
            os.kill(cluster.pid("worker-1"), signal.SIGKILL)  # the third worker takes the slot of worker-1, and `cox up` restarts worker-1
            wait_for("a group of two others", lambda: cluster.log().count(" group_shrinks ") == 3 and cluster.tp() == 2, 30)
            wait_for("the one that was killed is a spare", lambda: len(cluster.status()["workers"]) == 3, 30)
            cluster.add_workers([3])
            cluster.wait_tp(4)
            goes_on()
        status = cluster.status()
        assert status["requests"]["failed"] == 0 and cluster.metric("coxswain_formation_failures_total") == 0
        names = [e["event"] for e in json.loads(get(cluster.admin + "/api/events?since=0")[1])["events"]]
        assert names.count("group_grows") == 2 and names.count("group_shrinks") == 3, names
        cluster.wait_idle()
        print(f"{load.n_done} streams")


def test_a_head_that_is_killed_adopts_what_is_shrunk():
    with Fewer() as cluster, Steady([cluster.url], 8) as load:
        cluster.wait_tp(2)
        wait_for("streams", lambda: load.check().n_done > 8)
        for n in range(2, 6):  # a head that dies while it sends a step leaves ranks that differ by one, and such a group is formed again
            os.kill(cluster.pid("head"), signal.SIGKILL)
            wait_for("the group serves again", lambda n=n: cluster.log().count(" group_ready ") == n, 30)
            if "adopted=yes tp=2 whole_tp=4" in cluster.log():
                break
        assert "adopted=yes tp=2 whole_tp=4" in cluster.log(), "no group was adopted as it is"
        done = load.n_done
        wait_for("streams go on", lambda: load.check().n_done > done + 16, 40)
        cluster.add_workers([2, 3])
        cluster.wait_tp(4)
        done = load.n_done
        wait_for("streams go on", lambda: load.check().n_done > done + 16, 40)
        assert cluster.status()["requests"]["failed"] == 0


@pytest.fixture
def small():
    """Yields a cluster that has 10 blocks of 16 tokens with TP 2."""
    with Fewer("--max-model-len", 512, env={"COX_NULL_ELASTIC_BLOCKS": "10"}) as c:
        c.wait_tp(2)
        yield c


def complete(cluster, n, out):
    body = {"model": "null", "prompt": "long", "max_tokens": n, "temperature": 0, "ignore_eos": True}
    r = urllib.request.Request(cluster.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=60 * SLOW) as answer:
        out.append(json.load(answer)["choices"][0]["text"])


def test_what_is_too_long_for_fewer_waits_for_all(small):
    long, short = [], []
    waits = threading.Thread(target=complete, args=(small, 400, long))
    waits.start()
    wait_for("it waits", lambda: small.status()["requests"]["waiting"] == 1)
    complete(small, 100, short)
    assert short == [oracle.text("long", 100, temperature=0)] and not long
    said = run_cox("status", "--address", f"127.0.0.1:{small.admin_port}").stdout
    assert re.search(r"^0 +ready .* 2/4x1 ", said, re.M), said
    assert "replica 0 serves with tp 2 of 4: it needs 2 more workers to be whole; 1 request waits until then" in said, said
    small.add_workers([2, 3])
    waits.join(60 * SLOW)
    assert long == [oracle.text("long", 400, temperature=0)]
    assert small.tp() == 4 and small.status()["requests"]["failed"] == 0
