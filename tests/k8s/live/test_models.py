"""Tests a release of several models behind one Service on a real Kubernetes, under OpenShift's rules for pods: a model is added and one
removed by `helm upgrade` under streams, and one without workers is asked. An HTTPRoute and an InferencePool lead to the gateways; the
API server checks them, and no controller acts on them."""
import json
import re
import threading
import time

import httpx
import null_oracle as oracle
import pytest
from keda import Keda, first_token
from openshift import UID, restricted
from release import KINDS, SMALL, Release, demo_model, fill_claim, more, null_values

pytestmark = pytest.mark.usefixtures("image")
IDLE_S = 5
OWN = "statefulsets,deployments,services,scaledobjects,httproutes,inferencepools"  # kinds of the objects that make pods or lead to them
ASLEEP = {"model": {"name": "demo"}, "head": SMALL | {"config": {"scale_idle_s": IDLE_S}}, "worker": SMALL,
          "autoscaling": {"enabled": True, "minGroups": 0, "maxGroups": 1, "cooldownSeconds": 1, "pollingSeconds": 1}}
ROUTES = {"httpRoute": {"enabled": True, "parentRefs": [{"name": "gw"}]},
          "inferencePool": {"enabled": True, "endpointPicker": {"name": "picker"}}}


def one_worker(model):
    return {"model": {"name": model}, "head": SMALL, "worker": SMALL | {"replicas": 1}}


def answer(release, model, url=None):
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    return httpx.post(f"{url or release.url()}/v1/completions", json=body, headers=release.auth(), timeout=120)


def codes(release, model):
    """Returns the status of an answer of each gateway. A gateway reads a changed list of models at its own time."""
    gateways = [f"http://{pod['status']['podIP']}:8000" for pod in release.pods("gateway").values()]
    return {answer(release, model, url).status_code for url in gateways}


def names(release):
    return {one["id"] for one in httpx.get(f"{release.url()}/v1/models", headers=release.auth(), timeout=60).json()["data"]}


def objects(kube, release):
    """Returns {kind/name: (uid, generation)} of the release's objects. The API server raises the generation with each change of a
    specification."""
    found = json.loads(kube.kubectl("-n", release.namespace, "get", OWN, "-l", release.selector, "-o", "json"))["items"]
    return {f"{one['kind']}/{one['metadata']['name']}": (one["metadata"]["uid"], one["metadata"].get("generation")) for one in found}


def n_failed(kube, release, part):
    """Returns the number of failed requests that the head of a model has counted."""
    said = kube.kubectl("-n", release.namespace, "exec", f"{part}-head-0", "--", "cox", "status", "--json", "--no-follow")
    return json.loads(said)["requests"]["failed"]


@pytest.fixture
def release(kube, kinds, space):
    """Yields a release of the models null (two workers), small and asleep (demo), which all serve."""
    source = demo_model()
    if source is None:
        pytest.skip("SKIPPED: the demo model is missing; run scripts/fetch-demo-model")
    fill_claim(kube, space, "models", source)
    values = null_values()
    gateway = values.pop("gateway") | {"config": {"metrics_public": True}}
    with restricted(kube, space):
        made = Release(kube, space, models={"null": values | {"keepNames": True}, "small": one_worker("demo"), "asleep": ASLEEP},
                       cache={"existingClaim": "models"}, gateway=gateway, openshift={"enabled": True}, **ROUTES)
        made.install()
        made.wait_serving(2)
        yield made


def check_routes(kube, release):
    """The HTTPRoute leads to the InferencePool, and the pool's selector finds exactly the gateways' pods."""
    [rule] = kube.get("httproutes", release.namespace, release.full)["spec"]["rules"]
    assert [(ref["kind"], ref["name"]) for ref in rule["backendRefs"]] == [("InferencePool", release.full)]
    labels = kube.get("inferencepools", release.namespace, release.full)["spec"]["selector"]["matchLabels"]
    chosen = kube.get("pods", release.namespace, selector=",".join(f"{key}={value}" for key, value in labels.items()))
    assert {pod["metadata"]["name"] for pod in chosen} == set(release.uids("gateway")) and len(chosen) == 2


def add_fourth(kube, release):
    """Adds a model by `helm upgrade`. No other object and no other pod changes."""
    before, pods = objects(kube, release), release.uids()
    release.upgrade(models={"fourth": one_worker("null")})
    kube.wait("an answer of the fourth model", lambda: codes(release, "fourth") == {200})
    assert answer(release, "fourth").json()["choices"][0]["text"] == oracle.text("Once upon a time", 24, temperature=0)
    after = objects(kube, release)
    assert before.items() <= after.items(), "the upgrade changed an object of another model"
    assert {name for name in after if name not in before} and all("-fourth-" in name for name in after if name not in before)
    assert pods.items() <= release.uids().items() and len(release.uids()) == len(pods) + 2


def remove(kube, release, model):
    """Removes a model by `helm upgrade`. All of its objects end, and no other object and no other pod changes."""
    def others(found):
        return {name: what for name, what in found.items() if not re.search(f"-coxswain-{model}(-|$)", name)}

    before, pods = objects(kube, release), release.uids()
    del release.values["models"][model]
    release.upgrade()
    kube.wait(f"the end of the name {model}", lambda: codes(release, model) == {404})
    kube.wait(f"the removal of the objects of {model}",
              lambda: f"coxswain-{model}" not in kube.kubectl("-n", release.namespace, "get", f"{KINDS},{OWN}", "-o", "name"))
    assert objects(kube, release) == others(before) and release.uids() == others(pods)


def ask_asleep(kube, release, keda, want):
    """Sends one request to the model without workers. KEDA's part starts a worker, and the request gets its answer."""
    seen, n_before = [], len(keda.scaled)
    client = threading.Thread(target=first_token, args=(release, "asleep", seen))
    client.start()
    kube.wait("the answer of the model without workers", lambda: keda.turn() or not client.is_alive())
    assert [text for _, text in seen] == [want]
    assert [n for _, n in keda.scaled[n_before:]] == [1]


def seconds(step, *arguments):
    """Returns how long a step takes."""
    begun = time.monotonic()
    step(*arguments)
    return time.monotonic() - begun


def test_models_come_sleep_and_go_behind_one_service(kube, space, release):
    assert {pod["spec"]["securityContext"]["runAsUser"] for pod in release.pods().values()} == {UID}
    release.helm("test", release.name, "--timeout", "5m")
    check_routes(kube, release)
    want = oracle.text("Once upon a time", 24, temperature=0)
    said = kube.wait("an answer of the demo model", lambda: (r := answer(release, "small")).status_code == 200 and r)
    assert len(said.json()["choices"][0]["text"]) > 24 and said.json()["choices"][0]["text"] != want
    assert answer(release, "null").json()["choices"][0]["text"] == want and answer(release, "fourth").status_code == 404
    assert names(release) == {"null", "small", "asleep"}
    small = []
    first_token(release, "small", small)
    keda = Keda(kube, release, f"{release.full}-asleep")
    kube.wait("the end of the worker of the model asleep", keda.has_no_pods)
    with release.steady(n_users=16) as load:
        more(load, kube)
        added = seconds(add_fourth, kube, release)
        more(load, kube)
        assert kube.get("sts", space, keda.name)["spec"]["replicas"] == 0, "the upgrade started workers of the model asleep"
        woken = seconds(ask_asleep, kube, release, keda, small[0][1])
        more(load, kube)
        removed = seconds(remove, kube, release, "small")
        more(load, kube)
    print(f"\n{load.n_done} streams ended exactly, {len(load.wrong)} failed; a model was added in {added:.0f} s, answered after a sleep in "
          f"{woken:.1f} s and was removed in {removed:.0f} s")
    assert names(release) == {"null", "asleep", "fourth"}
    check_routes(kube, release)
    assert [n_failed(kube, release, part) for part in (release.full, f"{release.full}-asleep", f"{release.full}-fourth")] == [0, 0, 0]
    assert release.restarts() == 0 and load.n_passed_by == 0
