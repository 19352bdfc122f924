"""Tests workers in pods that LeaderWorkerSet's own controller makes. These workers have no ordinals; the head forms replicas of the
workers that are present."""
import json
import shutil
import subprocess
from pathlib import Path

import cluster_images
import pytest
from kube import CLUSTER
from release import KINDS, Release, more, null_values

pytestmark = pytest.mark.usefixtures("image", "controller")
IMAGE = ("coxswain.test/lws", "1")


@pytest.fixture(scope="module")
def controller(kube, tmp_path_factory):
    """Runs the controller from its own manifests, with three changes: our image, one pod in place of two, and no resource requests."""
    asked = subprocess.run([str(CLUSTER.parent / "tools/lws"), "--where"], capture_output=True, text=True)
    if asked.returncode != 0:
        pytest.skip(f"SKIPPED: {asked.stderr.strip()}")
    built, folder = Path(asked.stdout.strip()), tmp_path_factory.mktemp("lws")
    kube.cluster("load", cluster_images.archive(folder / "lws.tar", ":".join(IMAGE), {"/manager": built / "manager"}, ["/manager"]))
    shutil.copytree(built / "config", folder / "config")
    (folder / "kustomization.yaml").write_text(json.dumps({
        "resources": ["config/default"],
        "images": [{"name": "us-central1-docker.pkg.dev/k8s-staging-images/lws/lws", "newName": IMAGE[0], "newTag": IMAGE[1]}],
        "replicas": [{"name": "lws-controller-manager", "count": 1}],
        "patches": [{"target": {"kind": "Deployment"},
                     "patch": json.dumps([{"op": "remove", "path": "/spec/template/spec/containers/0/resources"}])}]}))
    kube.kubectl("apply", "--server-side", "-k", folder)
    kube.kubectl("-n", "lws-system", "rollout", "status", "deployment/lws-controller-manager", "--timeout=5m")
    yield
    kube.kubectl("delete", "-k", folder, "--ignore-not-found")


def test_its_pods_are_groups_that_are_scaled_and_mended(kube, space):
    """With TP 2, four pods are two sets. The release grows to three sets and shrinks to two. When a rank's pod is killed, the other
    pods stay. An upgrade replaces one set after the other. Uninstalling leaves nothing."""
    objects = lambda: set(kube.kubectl("-n", space, "get", f"{KINDS},leaderworkersets", "-o", "name").splitlines())  # noqa: E731
    before = objects()
    release = Release(kube, space, **null_values(kind="LeaderWorkerSet", tp=2, replicas=4, topologyKey="kubernetes.io/hostname"))
    release.install()
    release.wait_serving(2)
    name = f"{release.full}-worker"
    first = release.uids("worker")
    assert sorted(first) == [f"{name}-0", f"{name}-0-1", f"{name}-1", f"{name}-1-1"]
    for pod in release.pods("worker").values():
        term = pod["spec"]["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]
        key = "leaderworkerset.sigs.k8s.io/group-key"
        assert {"key": key, "operator": "In", "values": [pod["metadata"]["labels"][key]]} in term["labelSelector"]["matchExpressions"]
    assert {w["ordinal"] for w in release.status()["workers"]} == {None}
    with release.steady(n_users=16) as load:
        more(load, kube)
        release.upgrade(worker={"replicas": 6})
        release.wait_serving(3)
        more(load, kube)
        release.upgrade(worker={"replicas": 4})
        kube.wait("the first pods of both sets", lambda: release.uids("worker") == first)
        release.wait_serving(2)
        more(load, kube)
        kube.kubectl("-n", space, "delete", "pod", f"{name}-1-1", "--grace-period=0", "--force", "--wait=false")
        kube.wait("a new pod of the lost rank", lambda: release.uids("worker").keys() == first.keys()
                  and release.uids("worker")[f"{name}-1-1"] != first[f"{name}-1-1"])
        release.wait_serving(2)
        more(load, kube)
        now = release.uids("worker")
        assert [pod for pod in first if now[pod] != first[pod]] == [f"{name}-1-1"], "the loss of one rank replaced other pods too"
        release.upgrade(worker={"podAnnotations": {"coxswain.test/round": "2"}})
        release.wait_replaced("worker", now)
        release.wait_serving(2)
        more(load, kube)
    assert load.n_passed_by == 0
    release.helm("test", release.name, "--timeout", "5m")
    release.helm("uninstall", release.name, "--wait")
    kube.kubectl("-n", space, "delete", f"secret/{release.full}-api-keys")  # Helm keeps it, because clients have the key
    kube.wait("the removal of the release's objects", lambda: objects() == before)
