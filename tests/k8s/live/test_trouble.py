"""Tests a release in trouble: faults of heads, Redis and the node, evictions, and wrong upgrades. Streams run during the tests, and
none fails.

A part stays away for the time of a check because the node takes no pod, or no kubelet runs. No check depends on timing.
"""
import pytest
from release import REDIS, REDIS_IMAGE, Release, load_redis, more, null_values

pytestmark = pytest.mark.usefixtures("image")
KILL = ["--grace-period=0", "--force", "--wait=false"]


@pytest.fixture(scope="module")
def redis(kube, tmp_path_factory):
    if REDIS is None:
        pytest.skip("SKIPPED: redis-server is missing; run scripts/setup, which installs redis-tools")
    load_redis(kube, tmp_path_factory.mktemp("redis"))


def installed(kube, space, n_groups=2, **more_values):
    """Installs a release of the null model. The node never pulls the release's image, so pods with a tag that the node does not have
    fail at once."""
    release = Release(kube, space, **null_values(**more_values.pop("worker", {})), image={"pullPolicy": "Never"})
    release.put("install", "--wait", **more_values)
    release.wait_serving(n_groups)
    return release


def with_standby(kube, space):
    return installed(kube, space, head={"standby": True}, redis={"enabled": True, "image": REDIS_IMAGE})


def serves(status):
    return status["role"] == "serving"


def has_store(status):
    return status["lease"]["store_reached"]


def test_a_standby_head_takes_over_and_a_lost_redis_changes_nothing(kube, space, redis):
    release = with_standby(kube, space)
    kube.wait("a serving head and a standby", lambda: {(release.ask_head(i) or {}).get("role") for i in (0, 1)} == {"serving", "standby"})
    first, status = release.serving_head()
    with release.steady(n_users=16) as load:
        more(load, kube)
        with kube.cordoned():
            kube.kubectl("-n", space, "delete", "pod", f"{release.full}-head-{first}", *KILL)
            after = kube.wait("the standby to serve", lambda: release.head_is(1 - first, serves))
            assert after["term"] > status["term"]
            more(load, kube)
        kube.wait("the first head to be the standby", lambda: release.head_is(first, lambda status: status["role"] == "standby"))
        with kube.cordoned():
            kube.kubectl("-n", space, "delete", "pod", "-l", f"{release.selector},app.kubernetes.io/component=redis", *KILL)
            kube.wait("the head to report the loss of Redis", lambda: release.head_is(1 - first, lambda status: not has_store(status)))
            more(load, kube)
            assert kube.wait("the status of the serving head", lambda: release.ask_head(1 - first))["term"] == after["term"]
        kube.wait("both heads to be connected to Redis again", lambda: all(release.head_is(i, has_store) for i in (0, 1)))
        more(load, kube)
        last = kube.wait("the status of the serving head", lambda: release.ask_head(1 - first))
        assert serves(last) and last["term"] == after["term"]
        release.wait_serving(2)
    assert load.n_passed_by == 0


def test_a_node_without_its_kubelet_serves_and_what_crashed_comes_back(kube, space):
    """Streams go directly to the gateways' addresses, because a Service drops the only node after 50 s without its kubelet."""
    release = installed(kube, space)
    before = release.uids()
    gateways = [f"http://{pod['status']['podIP']}:8000" for pod in release.pods("gateway").values()]
    with release.steady(gateways, n_users=16) as load:
        more(load, kube)
        kube.cluster("stop", "kubelet")
        try:
            more(load, kube)
            kube.ctr("tasks", "kill", "-s", "SIGKILL", kube.container(space, f"{release.full}-worker-0", "worker"))
            release.wait_serving(1, release.status_by_http)  # one replica serves, because without a kubelet nothing restarts the other replica
            more(load, kube)
            kube.ctr("tasks", "kill", "-s", "SIGKILL", kube.container(space, f"{release.full}-head-0", "head"))
        finally:
            kube.cluster("start", "kubelet")
        release.wait_serving(2)
        more(load, kube)
    assert release.uids() == before, "a pod was replaced; only containers may restart"
    kube.wait("two restarts in the kubelet's count", lambda: release.restarts() == 2)


def allowed(kube, release, part):
    """Returns the number of a part's pods that may be evicted, once the disruption budget counts all of its pods."""
    pods = len(release.pods(part))

    def counted():
        status = kube.get("pdb", release.namespace, f"{release.full}-{part}").get("status", {})
        return [status["disruptionsAllowed"]] if status.get("expectedPods") == status.get("currentHealthy") == pods else None

    return kube.wait(f"the disruption budget of {part}", counted)[0]


def test_budgets_let_a_group_and_a_gateway_go_at_a_time(kube, space):
    """With two replicas of two ranks, the two pods of one replica may be evicted, and no third pod. One of the two gateways may be
    evicted."""
    release = installed(kube, space, worker={"tp": 2, "replicas": 4})
    workers, gateways = sorted(release.uids("worker")), sorted(release.uids("gateway"))
    assert allowed(kube, release, "worker") == 2 and allowed(kube, release, "gateway") == 1
    with release.steady(n_users=16) as load:
        more(load, kube)
        with kube.cordoned():
            assert kube.evict(space, workers[0]) is None and kube.evict(space, workers[1]) is None
            for pod in workers[2:]:
                assert "disruption budget" in kube.evict(space, pod)
            release.wait_serving(1)
            assert kube.evict(space, gateways[0]) is None
            assert "disruption budget" in kube.evict(space, gateways[1])
            more(load, kube)
        release.wait_serving(2)
        assert allowed(kube, release, "gateway") == 1
        more(load, kube)
        assert kube.evict(space, f"{release.full}-head-0") is None, "a single head must have no disruption budget, which would block every drain of its node"
        kube.wait("a serving head", lambda: release.serving_head())
        release.wait_serving(2)
        more(load, kube)
    assert load.n_passed_by == 0


def stuck(release):
    """Returns {name: reasons of its containers} of the pods that cannot start."""
    out = {}
    for name, pod in release.pods().items():
        states = [*pod["status"].get("initContainerStatuses", []), *pod["status"].get("containerStatuses", [])]
        reasons = [one["state"]["waiting"].get("reason") for one in states if "waiting" in one["state"]]
        if {"ErrImageNeverPull", "CrashLoopBackOff"} & set(reasons):
            out[name] = reasons
    return out


WRONG = {"image": {"image": {"tag": "none-of-that-name"}}, "model": {"model": {"name": "/models/none"}}}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_upgrade_leaves_those_who_serve_and_is_rolled_back(kube, space, redis, wrong):
    """After an upgrade to a missing image or model, one pod of each part is stuck. The next pod is not replaced, so the other pods
    serve."""
    release = with_standby(kube, space)
    before = release.uids()
    good = release.values["image"].copy(), release.values["model"].copy()
    with release.steady(n_users=16) as load:
        more(load, kube)
        release.put("upgrade", **WRONG[wrong])
        kube.wait("a worker and a gateway that cannot start", lambda: {f"{release.full}-worker-1"} <= stuck(release).keys()
                  and any("-gateway-" in name for name in stuck(release)))
        more(load, kube)
        stay = {name for part in ("worker", "gateway") for name in release.uids(part)} & before.keys() - {f"{release.full}-worker-1"}
        assert {name: release.uids()[name] for name in stay} == {name: before[name] for name in stay}
        assert len(stay) == 3, "a worker and both gateways must keep running"
        release.helm("rollback", release.name, "--wait", "--timeout", "5m")
        release.values["image"], release.values["model"] = good
        release.wait_serving(2)
        more(load, kube)
        assert {name: release.uids()[name] for name in stay} == {name: before[name] for name in stay}
    assert not stuck(release) and load.n_passed_by == 0


def test_a_head_that_is_alone_is_away_until_the_rollback(kube, space):
    """Without its only head a release cannot serve. Requests wait at the gateways and continue when the head is back."""
    release = installed(kube, space, gateway={"config": {"head_timeout": 600}})  # the default, 30 s, is too short on a slow machine
    with release.steady(n_users=16) as load:
        more(load, kube)
        release.put("upgrade", **WRONG["image"])
        kube.wait("a head that cannot start", lambda: f"{release.full}-head-0" in stuck(release))
        release.helm("rollback", release.name, "--wait", "--timeout", "5m")
        release.wait_serving(2)
        more(load, kube)
    assert not stuck(release) and load.n_passed_by == 0
