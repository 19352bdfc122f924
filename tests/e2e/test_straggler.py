"""Tests that a rank that slows its replica down is named in every output for operators."""
import json
import re
import subprocess

from cluster import Cluster, end_all, free_ports, get, wait_for
from steady import Steady


def second_rank(cluster, step_us):
    """Starts the second rank with the arguments of the first, except for the time of a step."""
    with open(f"/proc/{cluster.pid('worker-0')}/cmdline", "rb") as f:
        args = f.read().decode().rstrip("\0").split("\0")
    port, = free_ports(1)
    for flag, value in {"--ordinal": 1, "--http-port": port, "--null-step-us": step_us}.items():
        args[args.index(flag) + 1] = str(value)
    return subprocess.Popen(args, stdout=cluster.log_file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=cluster.env)


def events(cluster):
    return json.loads(get(cluster.admin + "/api/events?since=1")[1])["events"]


def test_the_slow_one_of_two_ranks_is_named():
    cluster = Cluster("--null-step-us", 20000, workers=1, tp=2)
    cluster.start(wait=False)
    started = []
    try:
        wait_for("the first rank is known", lambda: get(cluster.admin + "/api/status")[0] == 200 and
                 cluster.status()["workers"])
        started.append(second_rank(cluster, 60000))  # as on a machine three times slower
        cluster.wait_ready()
        with Steady([cluster.url], n_users=4):
            told = wait_for("it is told", lambda: [e for e in events(cluster) if e["event"] == "straggler"], 40)
            workers = {w["instance"]: w for w in cluster.status()["workers"]}
            slow = workers.pop(told[0]["fields"]["instance"])
            assert slow["ordinal"] == 1 and slow["straggler"] and slow["own_step_s"] > 0.055, slow
            assert [w["straggler"] for w in workers.values()] == [False]
            assert float(told[0]["fields"]["step_ms"]) > 2 * float(told[0]["fields"]["group_step_ms"]), told
            assert re.search(r"^coxswain_stragglers(?:\{.*\})? 1$", get(cluster.admin + "/metrics")[1], re.M)
            assert not [e for e in events(cluster) if e["event"] in ("worker_lost", "group_dissolved")]
    finally:
        end_all(started)
        cluster.stop()


def test_two_equally_slow_ranks_are_not_named():
    cluster, started, windows = Cluster("--null-step-us", 60000, workers=1, tp=2), [], {}
    cluster.start(wait=False)

    def n_windows():
        for w in cluster.status()["workers"]:
            windows.setdefault(w["rank"], []).append(w["own_step_s"])
        return min(len(set(means) - {None}) for means in windows.values())

    try:
        wait_for("the first rank is known", lambda: get(cluster.admin + "/api/status")[0] == 200 and
                 cluster.status()["workers"])
        started.append(second_rank(cluster, 60000))
        cluster.wait_ready()
        with Steady([cluster.url], n_users=4):
            wait_for("four windows of each rank", lambda: n_windows() > 3 and len(windows) == 2, 60)
        assert min(min(set(means) - {None}) for means in windows.values()) > 0.055, windows
        assert not [e for e in events(cluster) if e["event"] == "straggler"], windows
    finally:
        end_all(started)
        cluster.stop()
