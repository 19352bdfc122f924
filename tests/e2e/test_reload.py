"""Tests deploy/systemd/replace-processes, which `systemctl reload coxswain` runs after an upgrade. Under 16 streams it replaces every process by
one of the new version, and no stream fails. After a failure it leaves the rest of the cluster as it is."""
import json
import os
import subprocess

import cluster as c
import pytest
from cluster import ROOT, SLOW, get, wait_for
from steady import Steady
from test_upgrade import NEW, OLD, install

SCRIPT = ROOT / "deploy/systemd/replace-processes"


def reload(cluster, *args, timeout=60):
    """Runs the script as systemd does: with the pid file and the process id of `cox up`."""
    env = {**cluster.env, "COX": str(c.BIN / "cox"), "COX_REPLACE_TIMEOUT": str(timeout * SLOW)}
    return subprocess.run([SCRIPT, *(args or (cluster.pids_file, str(cluster.process.pid)))], env=env, capture_output=True, text=True,
                          timeout=110 * SLOW)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Returns a folder with programs of the old version, from which clusters of this test start."""
    install(tmp_path / "bin", OLD)
    monkeypatch.setattr(c, "BIN", tmp_path / "bin")
    return tmp_path / "bin"


def test_every_process_is_replaced_and_no_stream_fails(programs):
    with c.Cluster("--null-step-us", 10000, "--dp", "2", workers=2, tp=1, gateways=2) as cluster:
        before = cluster.pids()
        wait_for("two replicas serve", lambda: sum(g["state"] == "ready" for g in cluster.status()["groups"]) == 2)
        with Steady([f"http://127.0.0.1:{p}" for p in cluster.ports], n_users=16) as load:
            wait_for("streams run", lambda: load.check().n_done > 16, 60)
            install(programs, NEW)
            done = reload(cluster)
            assert done.returncode == 0, done.stderr + cluster.log()
            n_done = load.check().n_done
            wait_for("streams go on", lambda: load.check().n_done > n_done + 32, 60)
        after = cluster.pids()
        assert set(after) == set(before) and not set(after.values()) & set(before.values()), (before, after)
        assert f"process {cluster.process.pid}, keeps its version" in done.stdout
        status = cluster.status()
        assert [status["version"], *(w["version"] for w in status["workers"])] == [NEW.decode()] * 3
        for port in cluster.ports:
            assert json.loads(get(f"http://127.0.0.1:{port}/version")[1])["version"] == NEW.decode()
        print(f"{load.n_done} streams, 0 failed")


def test_a_single_gateway_is_kept(programs):
    with c.Cluster(workers=1, tp=1) as cluster:
        before = cluster.pids()
        done = reload(cluster)
        assert done.returncode == 0, done.stderr
        after = cluster.pids()
        assert {name for name in before if after[name] != before[name]} == {"worker-0", "head"}
        assert "gateway-0 is the only gateway" in done.stdout


def test_a_new_version_that_cannot_start_stops_it(programs):
    with c.Cluster(workers=1, tp=1) as cluster:
        before = cluster.pids()
        install(programs, NEW)
        broken = programs / "cox-worker.new"
        broken.write_text("#!/bin/sh\nexit 1\n")
        broken.chmod(0o755)
        broken.rename(programs / "cox-worker")
        done = reload(cluster, timeout=2)
        assert done.returncode == 1 and "worker-0 does not serve" in done.stderr, done.stderr
        assert "Nothing more is replaced" in done.stderr
        after = cluster.pids()
        assert (after["head"], after["gateway-0"]) == (before["head"], before["gateway-0"])


def test_what_it_refuses():
    with c.Cluster(workers=1, tp=1) as cluster:
        before = cluster.pids()
        for args, said in (((cluster.pids_file,), "usage"), (("/not/here", "1"), "usage"), ((cluster.pids_file, "1; id"), "not the number"),
                           ((cluster.pids_file, str(os.getpid())), "found no cluster of process")):
            done = reload(cluster, *args)
            assert done.returncode == 1 and said in done.stderr, (args, done.stderr)
        assert cluster.pids() == before
