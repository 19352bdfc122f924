"""Tests a machine that cannot run the tests' cluster: the script prints one sentence, and tests that need the cluster are skipped.
No cluster starts here."""
import importlib.machinery
import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CLUSTER = HERE / "cluster"
NONE = "kubelet kube-apiserver etcd kubectl kube-controller-manager kube-scheduler kube-proxy helm coredns helm4"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Loads the script as a module, with a separate state folder."""
    monkeypatch.setenv("COX_K8S_STATE", str(tmp_path / "state"))
    loader = importlib.machinery.SourceFileLoader("cluster_script", str(CLUSTER))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("cluster_script", loader))
    loader.exec_module(module)
    return module


def refusal(cluster):
    with pytest.raises(cluster.Failure) as refused:
        cluster.main(["up"])
    assert refused.value.code == 77 and not cluster.STATE.exists(), "nothing is left behind"
    return str(refused.value)


def test_without_root(cluster, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert refusal(cluster) == "SKIPPED: the cluster needs root for namespaces, cgroups and mounts. Run it as root."


def test_without_a_package(cluster, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cluster.shutil, "which", lambda name: None if name == "runc" else f"/usr/bin/{name}")
    assert refusal(cluster) == "SKIPPED: runc is not installed. Run scripts/setup --k8s, or apt-get install runc."


def test_without_namespaces(cluster, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cluster.shutil, "which", lambda name: f"/usr/bin/{name}")
    answer = subprocess.CompletedProcess([], 1, "", "unshare: unshare failed: Operation not permitted\n")
    monkeypatch.setattr(cluster.subprocess, "run", lambda *arguments, **options: answer)
    assert refusal(cluster) == ("SKIPPED: this machine does not allow new namespaces (unshare: unshare failed: Operation not permitted). "
                                "In a container, start it with --privileged.")


def test_without_programs(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(cluster, "check_machine", lambda: None)
    monkeypatch.setenv("COX_CACHE", str(tmp_path))
    assert refusal(cluster) == f"SKIPPED: not built: {NONE} (scripts/setup --k8s)"


@pytest.mark.parametrize("tool, what", [("crds", "not fetched: the chart's CustomResourceDefinitions"), ("lws", "not built: the controller of LeaderWorkerSet")])
def test_what_was_not_fetched(tmp_path, tool, what):
    done = subprocess.run([HERE / "tools" / tool, "--where"], env=dict(os.environ, COX_CACHE=str(tmp_path)), capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == f"{what} (scripts/setup --k8s)\n"


def test_a_folder_of_somebody_else_is_told_in_a_line(tmp_path):
    """For another user's state folder, the script prints one line and no traceback."""
    state = tmp_path / "state"
    (state / "lock").mkdir(parents=True)  # the lock is a folder, because even root cannot open a folder for writing
    done = subprocess.run([CLUSTER, "down"], env=dict(os.environ, COX_K8S_STATE=str(state)), capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and str(state / "lock") in done.stderr
