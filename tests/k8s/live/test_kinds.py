"""Tests special releases: several ranks in a pod, and a namespace with a quota."""
import pytest
from release import REDIS, REDIS_IMAGE, SMALL, Release, demo_model, fill_claim, load_redis, more, null_values

pytestmark = pytest.mark.usefixtures("image")


def rank_pids(kube, space, pod):
    """Returns the process IDs, on the node, of the ranks in a worker's container: all of its processes except the first."""
    lines = kube.ctr("tasks", "ps", kube.container(space, pod, "worker")).splitlines()[1:]
    return sorted(int(line.split()[0]) for line in lines)[1:]


def test_ranks_that_share_a_pod_are_groups_of_it(kube, space):
    """The two ranks of each pod form a replica of TP 2. The pod itself restarts a killed rank. Pods can be scaled and deleted."""
    release = Release(kube, space, **null_values(ranks=2, tp=2))
    release.install()
    release.wait_serving(2)
    workers = release.status()["workers"]
    assert sorted((w["node"], w["ordinal"]) for w in workers) == [(f"{release.full}-worker-{i // 2}", i) for i in range(4)]
    assert len({(w["node"], w["group"]) for w in workers}) == 2, f"a group has ranks in two pods: {workers}"
    victim = f"{release.full}-worker-0"
    before = release.uids()
    with release.steady(n_users=16) as load:
        more(load, kube)
        pids = rank_pids(kube, space, victim)
        assert len(pids) == 2
        kube.cluster("run", "kill", "-KILL", pids[0])
        kube.wait("a new process of the killed rank", lambda: len(now := rank_pids(kube, space, victim)) == 2 and pids[0] not in now)
        release.wait_serving(2)
        more(load, kube)
        assert release.uids() == before and release.restarts() == 0, "Kubernetes replaced or restarted a pod"
        release.upgrade(worker={"replicas": 3})
        release.wait_serving(3)
        more(load, kube)
        kube.kubectl("-n", space, "delete", "pod", victim, "--grace-period=0", "--force", "--wait=false")
        kube.wait(f"a new pod {victim}", lambda: release.uids("worker").get(victim, before[victim]) != before[victim])
        release.wait_serving(3)
        more(load, kube)
    assert load.n_passed_by == 0


QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all"}, "spec": {"hard": {
    "requests.cpu": "1500m", "requests.memory": "4Gi", "limits.cpu": "32", "limits.memory": "32Gi", "pods": "12", "persistentvolumeclaims": "1"}}}
# The limits are for pods. Limits for containers would also set defaults for containers that state none.
BOUNDS = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "each"}, "spec": {"limits": [
    {"type": "Pod", "min": {"cpu": "10m", "memory": "16Mi"}, "max": {"cpu": "8", "memory": "8Gi"}}]}}


def without_limits(kube, space):
    """Returns the API server's reason to refuse a restricted pod without requests and limits."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "it"}, "spec": {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "it", "image": "none", "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}]}}
    with pytest.raises(AssertionError) as refused:
        kube.apply(space, pod)
    return str(refused.value)


def test_a_namespace_with_a_quota_admits_every_pod(kube, space, tmp_path):
    """A namespace with a quota admits the release. The namespace refuses containers without limits, so all containers have limits,
    also those of Jobs and of `helm test`."""
    source = demo_model()
    if source is None or REDIS is None:
        pytest.skip("SKIPPED: the demo model or redis-server is missing; run scripts/setup and scripts/fetch-demo-model")
    load_redis(kube, tmp_path)
    kube.apply(space, QUOTA)
    kube.wait("the used amounts of the quota", lambda: kube.get("resourcequota", space, "all").get("status", {}).get("used"))
    assert "must specify limits.cpu" in without_limits(kube, space)
    kube.apply(space, BOUNDS)
    fill_claim(kube, space, "models", source)
    release = Release(kube, space, model={"name": "demo", "servedNames": ["demo"]}, head=SMALL | {"standby": True},
                      cache={"existingClaim": "models"},
                      redis={"enabled": True, "image": REDIS_IMAGE}, worker=SMALL | {"replicas": 1}, gateway=SMALL | {"replicas": 2})
    release.install()
    release.wait_serving(1)
    release.helm("test", release.name, "--timeout", "5m")
    jobs = kube.get("jobs", space)
    assert jobs and all(job["status"].get("succeeded") == 1 for job in jobs)
    used = kube.get("resourcequota", space, "all")["status"]["used"]
    assert int(used["pods"]) >= 6 and used["limits.cpu"] != "0"
