"""Tests that the tests' cluster is a working Kubernetes and leaves nothing behind when it ends."""
import json
import os
import signal
import subprocess
from pathlib import Path

import cluster_images
import pytest
from kube import CLUSTER, Kube
from openshift import UID

SPACE = "cluster-test"


def pod(name, *arguments, uid=UID, volumes=(), mounts=(), **context):
    """Returns a pod of one container that Pod Security "restricted" admits."""
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "automountServiceAccountToken": False, "enableServiceLinks": False, "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "securityContext": {"runAsNonRoot": True, "runAsUser": uid, "runAsGroup": 0,
                                "seccompProfile": {"type": "RuntimeDefault"}} | context,
            "volumes": list(volumes),
            "containers": [{
                "name": "it", "image": cluster_images.PROBE, "imagePullPolicy": "Never", "args": list(arguments),
                "volumeMounts": list(mounts), "resources": {"limits": {"memory": "64Mi"}},
                "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                    "capabilities": {"drop": ["ALL"]}}}]}}


@pytest.fixture(scope="module")
def space(kube, tmp_path_factory):
    kube.cluster("load", cluster_images.probe(tmp_path_factory.mktemp("images")))
    kube.namespace(SPACE)
    yield SPACE
    kube.remove_namespace(SPACE)


def finished(kube, name):
    """Waits for the pod's end, checks that it succeeded, and returns its output."""
    def phase():
        state = kube.get("pod", SPACE, name)["status"]["phase"]
        return state if state in ("Succeeded", "Failed") else None

    ended = kube.wait(f"the end of {name}", phase)
    said = kube.kubectl("-n", SPACE, "logs", name)
    assert ended == "Succeeded", said
    return said


def test_a_service_is_reached_by_name_from_a_restricted_pod(kube, space):
    kube.apply(space, pod("server", "serve", "8080"),
               {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"},
                "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]}})
    for name, host in (("short", "front"), ("long", f"front.{space}.svc.cluster.local")):
        kube.apply(space, pod(name, "ask", host, "80"))
        assert finished(kube, name) == f"uid={UID} gid=0\n"


def test_a_claim_is_bound_and_belongs_to_the_group_of_the_pod(kube, space):
    kube.apply(space, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
                       "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}},
               pod("keeper", "keep", "/data/it", fsGroup=UID,
                   volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                   mounts=[{"name": "data", "mountPath": "/data"}]))
    assert finished(kube, "keeper") == f"kept by {UID}\n"
    assert kube.get("pvc", space, "data")["status"]["phase"] == "Bound"


def test_what_is_not_restricted_is_refused(kube, space):
    wrong = pod("root", "serve", "8080", uid=0)
    with pytest.raises(AssertionError, match='violates PodSecurity "restricted'):
        kube.apply(space, wrong)


def test_a_namespace_that_goes_takes_containers_volumes_and_folders(kube, space):
    containers = lambda: kube.cluster("run", "ctr", "--address", kube.state / "containerd.sock", "-n", "k8s.io",  # noqa: E731
                                      "containers", "ls", "-q", f'labels."io.kubernetes.pod.namespace"=={space}')
    kube.wait("a running container", lambda: containers().strip())
    claims = [claim["spec"]["volumeName"] for claim in kube.get("pvc", space)]
    kube.remove_namespace(space)
    kube.wait("the end of the container", lambda: not containers().strip())
    kube.wait("the removal of the volumes", lambda: not [one for one in kube.get("pv", "default") if one["metadata"]["name"] in claims])
    assert not [name for name in claims if (kube.state / "volumes" / name).exists()]


def traces(state):
    """Returns everything that a cluster could leave on this host."""
    cgroups = [str(path) for path in Path("/sys/fs/cgroup").glob("**/cox-k8s*") if path.is_dir()]
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # the process has ended in the meantime
    return {
        "cgroups": sorted(cgroups), "processes": [line for line in commands if str(state) in line],
        "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if "cox-k8s" in line or str(state) in line],
        "links": sorted(one["ifname"] for one in json.loads(subprocess.check_output(["ip", "-j", "link"]))),
        "rules": [line for line in subprocess.check_output(["iptables-save"], text=True).splitlines() if line.startswith("-A")],
        "sysctls": [Path(f"/proc/sys/{name}").read_text() for name in
                    ("net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")],
        "folders": [name for name in ("/var/lib/kubelet", "/var/lib/cni", "/run/flannel", "/etc/cni") if os.path.exists(name)],
    }


def test_a_second_cluster_that_crashes_starts_again_and_leaves_nothing(kube, tmp_path):
    """A second cluster runs beside the first one, which is not disturbed. The fixture `kube` skips the test on machines without a
    cluster."""
    state = tmp_path / "second"
    before = traces(state)
    second = Kube(state)
    try:
        assert second.node != kube.node
        pid, _ = (state / "init.pid").read_text().split()
        os.kill(int(pid), signal.SIGKILL)
        assert subprocess.run([str(CLUSTER), "status"], env=second.own, capture_output=True).returncode == 1
        second.cluster("up")
        assert "node-1" in second.kubectl("get", "nodes", "-o", "name")
    finally:
        second.cluster("down")
    assert not state.exists()
    assert traces(state) == before
    assert "node-1" in kube.kubectl("get", "nodes", "-o", "name")
