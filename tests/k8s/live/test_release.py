"""Tests the chart on a real Kubernetes, in a namespace that admits restricted pods only: install, scale, kill, upgrade, remove.

Streams run during the tests (steady.py of tests/e2e). Each answer is compared with the expected one, and none may fail. Times are
printed, not judged.
"""
import time

import pytest
from openshift import UID, restricted
from release import KINDS, SMALL, Release, demo_model, fill_claim, more, null_values

pytestmark = pytest.mark.usefixtures("image")


@pytest.fixture(scope="module")
def serving(kube, image):
    """Yields a release with two replicas of one null worker each and two gateways. Tests share it and must leave it unchanged."""
    release = Release(kube, kube.namespace("t-serving"), **null_values())
    release.install()
    release.wait_serving(2)
    yield release
    kube.remove_namespace("t-serving")


def test_workers_are_scaled_under_load(kube, serving):
    """Workers are scaled 2 → 4 → 2. With more workers there are more replicas, and old pods stay. With fewer workers, the remaining
    replicas take over the requests."""
    before = serving.uids()
    with serving.steady(n_users=16) as load:
        more(load, kube)
        serving.upgrade(worker={"replicas": 4})
        serving.wait_serving(4)
        more(load, kube)
        assert before.items() <= serving.uids().items(), "scaling replaced a pod"
        serving.upgrade(worker={"replicas": 2})
        serving.wait_serving(2)
        more(load, kube)
    assert serving.uids() == before
    assert serving.restarts() == 0 and load.n_passed_by == 0


@pytest.mark.parametrize("how", [["--wait=false"], ["--grace-period=0", "--force", "--wait=false"]], ids=["drained", "killed"])
@pytest.mark.parametrize("part", ["worker", "head"])
def test_a_pod_that_is_deleted_is_replaced_under_load(kube, serving, part, how):
    victim = f"{serving.full}-{part}-0"
    before = serving.uids(part)[victim]
    with serving.steady(n_users=16) as load:
        more(load, kube)
        kube.kubectl("-n", serving.namespace, "delete", "pod", victim, *how)
        kube.wait(f"a new pod {victim}", lambda: serving.uids(part).get(victim, before) != before)
        serving.wait_serving(2)
        more(load, kube)
    assert load.n_passed_by == 0


def test_a_gateway_pod_that_is_deleted_ends_its_streams_first(kube, serving):
    """After a gateway is deleted, the other gateway takes new connections. The deleted gateway still serves connections that the
    node sends to it."""
    before = serving.uids("gateway")
    with serving.steady(n_users=16) as load:
        more(load, kube)
        kube.kubectl("-n", serving.namespace, "delete", "pod", sorted(before)[0], "--wait=false")
        kube.wait("a new gateway pod", lambda: len(serving.uids("gateway")) == 2 and serving.uids("gateway") != before)
        more(load, kube)
    assert load.n_passed_by == 0


def test_an_upgrade_of_every_part_under_load_keeps_keys_and_streams(kube, serving):
    secrets = {one["metadata"]["name"]: one["data"] for one in kube.get("secrets", serving.namespace, selector=serving.selector)}
    before = {part: serving.uids(part) for part in ("head", "worker", "gateway")}
    changed = {part: {"podAnnotations": {"coxswain.test/round": "2"}} for part in before}
    # The two long streams last more than a minute, longer than most charts give a pod for its end.
    with serving.steady(n_users=16) as load, serving.steady(n_users=2, n_tokens=4000) as long:
        more(load, kube)
        kube.wait("100 tokens of the long streams", lambda: long.check().n_tokens_seen > 100)
        serving.upgrade(**changed)
        for part, uids in before.items():
            serving.wait_replaced(part, uids)
        serving.wait_serving(2)
        more(load, kube)
        between = {part: serving.uids(part) for part in before}
        serving.helm("rollback", serving.name, "--wait", "--timeout", "5m")
        for part, uids in between.items():
            serving.wait_replaced(part, uids)
        serving.wait_serving(2)
        more(load, kube)
    assert long.n_done >= 2
    assert {one["metadata"]["name"]: one["data"] for one in kube.get("secrets", serving.namespace, selector=serving.selector)} == secrets
    assert serving.restarts() == 0 and load.n_passed_by == 0


def test_helm_test_and_a_second_release_beside_it(kube, serving):
    other = Release(kube, serving.namespace, "other", **null_values(replicas=1))
    other.install()
    other.wait_serving(1)
    serving.wait_serving(2)  # the head still has two workers, so no worker joined the other head
    for release in (serving, other):
        release.helm("test", release.name, "--timeout", "5m")
        assert release.chat()
    other.helm("uninstall", "other", "--wait")
    serving.wait_serving(2)


@pytest.mark.parametrize("program", ["helm", "helm4"])
def test_uninstall_leaves_nothing(kube, space, program):
    objects = lambda: {line for line in kube.kubectl("-n", space, "get", KINDS, "-o", "name").splitlines()}  # noqa: E731
    before = objects()
    release = Release(kube, space, program=program, **null_values())
    release.install()
    release.wait_serving(2)
    release.upgrade(worker={"replicas": 3})
    release.wait_serving(3)
    assert len(objects()) > len(before) + 10
    release.helm("uninstall", release.name, "--wait")
    kept, key = f"secret/{release.full}-api-keys", release.auth()
    kube.wait("the removal of all objects except the API key", lambda: objects() == before | {kept})
    release.install()  # clients keep their key
    assert release.auth() == key
    release.helm("uninstall", release.name, "--wait")
    kube.kubectl("-n", space, "delete", kept)
    kube.wait("the removal of the release's objects", lambda: objects() == before)


@pytest.mark.parametrize("program", ["helm", "helm4"])
def test_a_helm_test_that_fails_says_why_and_leaves_nothing(kube, space, program):
    release = Release(kube, space, program=program, tests={"timeout": 5}, **null_values(replicas=0))
    release.install()
    with pytest.raises(AssertionError, match="failed +(health|completion|models)"):
        release.helm("test", release.name, "--timeout", "5m")
    assert not any(name.endswith("-smoke") for name in release.pods())


def scale(kube, release, n):
    kube.kubectl("-n", release.namespace, "scale", f"sts/{release.full}-worker", f"--replicas={n}")
    release.wait_serving(n)


@pytest.mark.parametrize("program", ["helm", "helm4"])
def test_whoever_scales_by_kubectl_is_in_nobodys_way(kube, space, program):
    """Workers are scaled 2 → 4 → 2 by `kubectl scale`, then upgraded and rolled back. With a number in the values, an upgrade sets
    that number again. Helm 4 needs force for that, because it refuses a conflict. With no number in the values, an upgrade keeps
    any number."""
    release = Release(kube, space, program=program, **null_values())
    release.install()
    release.wait_serving(2)
    workers = lambda: kube.get("sts", space, f"{release.full}-worker")["spec"]["replicas"]  # noqa: E731
    with release.steady(n_users=16) as load:
        more(load, kube)
        scale(kube, release, 4)
        more(load, kube)
        scale(kube, release, 2)
        release.upgrade(gateway={"podAnnotations": {"coxswain.test/round": "2"}})
        release.helm("rollback", release.name, "--wait")
        assert workers() == 2
        scale(kube, release, 4)
        if program == "helm4":
            with pytest.raises(AssertionError, match='conflict with "kubectl" with subresource "scale"'):
                release.upgrade()
            release.put("upgrade", "--wait", "--force-conflicts")
        else:
            release.upgrade()
        release.wait_serving(2)
        release.upgrade(worker={"replicas": None})
        assert workers() == 2, "the take-over of the field changed the number of workers"
        for n in (3, 4):
            scale(kube, release, n)
            release.upgrade(gateway={"podAnnotations": {"coxswain.test/round": str(n)}})
            assert workers() == n
        scale(kube, release, 3)
        if program == "helm4":  # Helm 3 would restore the number of the revision
            release.helm("rollback", release.name, "--wait")
            assert workers() == 3
        more(load, kube)
    assert load.n_passed_by == 0


def test_groups_of_two_are_scaled_as_groups(kube, space):
    """With TP 2, four workers are two replicas. A fifth worker is a spare, which takes the rank slot of a killed rank."""
    release = Release(kube, space, **null_values(tp=2))
    release.install()
    release.wait_serving(1)
    with release.steady(n_users=16) as load:
        more(load, kube)
        release.upgrade(worker={"replicas": 5})
        kube.wait("two ready groups and a spare worker", lambda: len(release.status()["workers"]) == 5
                  and sum(g["state"] == "ready" for g in release.status()["groups"]) == 2)
        more(load, kube)
        kube.kubectl("-n", space, "delete", "pod", f"{release.full}-worker-1", "--grace-period=0", "--force", "--wait=false")
        kube.wait("two ready groups after the change", lambda: sum(g["state"] == "ready" for g in release.status()["groups"]) == 2
                  and len(release.status()["workers"]) == 5)
        more(load, kube)


def test_pods_pass_what_openshift_does_to_them(kube, space):
    """The release serves under OpenShift's rules: each pod runs as a high user ID with group 0 and an fsGroup of the namespace's range."""
    with restricted(kube, space):
        release = Release(kube, space, openshift={"enabled": True}, **null_values())
        release.install()
        release.wait_serving(2)
        assert {pod["spec"]["securityContext"]["runAsUser"] for pod in release.pods().values()} == {UID}
        release.helm("test", release.name, "--timeout", "5m")


@pytest.mark.parametrize("program", ["helm", "helm4"])
def test_the_demo_model_answers_from_a_claim(kube, space, program):
    source = demo_model()
    if source is None:
        pytest.skip("SKIPPED: the demo model is missing; run scripts/fetch-demo-model")
    fill_claim(kube, space, "models", source)
    release = Release(kube, space, program=program, model={"name": "demo", "servedNames": ["demo"]},
                      cache={"existingClaim": "models"}, head=SMALL, worker=SMALL | {"replicas": 2}, gateway=SMALL | {"replicas": 1})
    start = time.monotonic()
    release.put("install")
    installed = time.monotonic()
    release.first_token()
    print(f"\n{program} install took {installed - start:.1f} s, the first token came {time.monotonic() - start:.1f} s after its start")
    release.wait_serving(2)
    release.helm("test", release.name, "--timeout", "5m")
    assert release.chat().strip()
    prefetch = "app.kubernetes.io/component=prefetch"  # the pod of the prefetch Job may start last
    kube.kubectl("-n", space, "wait", "--for=condition=complete", "job", "-l", prefetch, "--timeout=120s")
    assert "it is there" in kube.kubectl("-n", space, "logs", "-l", prefetch)
