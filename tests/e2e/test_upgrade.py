"""Tests that under load every process of a cluster is replaced by a process of another version, one by one. No stream fails."""
import os
import re
import shutil
import signal

import cluster as c
import pytest
from cluster import BIN, ROOT, SLOW, alive, get, wait_for
from steady import Steady

OLD = re.search(rb"project\(coxswain VERSION (\S+)", (ROOT / "CMakeLists.txt").read_bytes())[1]
NEW = b"9" + OLD[1:]  # NEW ends like OLD, because linkers may store other strings ("1.0") as the end of this string


def install(folder, version):
    """Installs the programs as another version. They differ only in their version text. Files are replaced by renaming, as packages
    do."""
    folder.mkdir(exist_ok=True)
    for name in ("cox", "cox-head", "cox-worker", "cox-gateway"):
        program = (BIN / name).read_bytes()
        assert OLD in program, f"{name} does not say its version"
        new = folder / f"{name}.new"
        new.write_bytes(program.replace(OLD, version))
        shutil.copymode(BIN / name, new)
        new.rename(folder / name)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    install(tmp_path / "bin", OLD)
    monkeypatch.setattr(c, "BIN", tmp_path / "bin")
    with c.Cluster("--null-step-us", 10000, workers=4, tp=2, gateways=2) as made:
        yield made


def replace(cluster, name):
    """Sends SIGTERM, and `cox up` starts the program that is now in the folder."""
    old = cluster.pid(name)
    os.kill(old, signal.SIGTERM)
    wait_for(f"{name} has ended", lambda: not alive(old), 60)
    wait_for(f"another {name} runs", lambda: (pid := cluster.pids().get(name)) and pid != old and alive(pid), 30)


def n_serving(cluster):
    """Returns the number of replicas with ready ranks; 0 while the head is away."""
    if get(cluster.admin + "/api/status")[0] != 200:
        return 0
    return sum(g["state"] == "ready" and None not in g["workers"] for g in cluster.status()["groups"])


def version_at(port):
    code, body = get(f"http://127.0.0.1:{port}/version")
    return body if code == 200 else ""


def wait_for_more(load, cluster):
    """Waits until streams that began after the change have ended well."""
    done = load.check().n_done
    wait_for("streams go on", lambda: load.check().n_done > done + 2 * load.n_users, 60)


def test_every_process_is_replaced_under_load(cluster, tmp_path):
    version = NEW.decode()
    wait_for("two groups serve", lambda: n_serving(cluster) == 2)
    with Steady([f"http://127.0.0.1:{p}" for p in cluster.ports]) as load:
        wait_for_more(load, cluster)
        install(tmp_path / "bin", NEW)
        for i in range(4):
            replace(cluster, f"worker-{i}")
            wait_for(f"{i + 1} workers are new, and two groups serve", lambda: n_serving(cluster) == 2 and
                     sum(w["version"] == version for w in cluster.status()["workers"]) == i + 1, 40)
            load.check()
        for i, port in enumerate(cluster.ports):
            replace(cluster, f"gateway-{i}")
            wait_for(f"gateway {i} serves", lambda: version in version_at(port) and
                     get(f"http://127.0.0.1:{port}/health")[0] == 200, 40)
            load.check()
        replace(cluster, "head")
        wait_for("the new head has both groups", lambda: n_serving(cluster) == 2 and
                 cluster.status()["version"] == version, 40)
        wait_for_more(load, cluster)
    wait_for("no request is left", lambda: cluster.running() == 0)
    print(f"{load.n_done} streams, {load.n_passed_by} connections to a gateway that takes none")
    assert load.n_done > 4 * load.n_users
