"""Tests the storage of the model: a claim that a Job fills, and pods on the nodes that can mount the claim."""
import itertools
import json
import shutil

import chart as c
import helm_python as helm
import pytest
import yaml

F = "demo-coxswain"
LABEL = "coxswain.io/cache"
HOST = "kubernetes.io/hostname"
RWX = {"cache": {"accessMode": "ReadWriteMany"}}


def claim_of(spec):
    return next((v["persistentVolumeClaim"] for v in spec["volumes"] if "persistentVolumeClaim" in v), None)


def by_part(values):
    """Returns {part: (labels, pod spec)} of the scheduled pods, the Job's included."""
    return {labels["app.kubernetes.io/component"]: (labels, spec) for labels, spec in c.objects(values).templates()}


def terms(spec):
    """Returns the label selectors of the pods that must be on the same node."""
    found = spec.get("affinity", {}).get("podAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    assert all(t["topologyKey"] == HOST for t in found)
    return [t["labelSelector"]["matchLabels"] for t in found]


def test_the_defaults_are_a_claim_that_a_job_fills():
    objs = c.objects()
    claim = objs.one("PersistentVolumeClaim", f"{F}-cache")["spec"]
    assert claim == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}}, "the cluster's own class"
    job, = objs.kinds("Job")
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [2]
    parts = by_part({})
    assert parts.keys() == {"head", "worker", "gateway", "prefetch"}
    for part in ("worker", "gateway", "prefetch"):
        labels, spec = parts[part]
        assert claim_of(spec) == {"claimName": f"{F}-cache"}
        assert labels.get(LABEL) == (None if part == "prefetch" else f"{F}-cache")
        pull = c.containers(spec)[0]
        assert pull["args"] == ["pull", "demo", "--cache-dir", "/cache"]
    labels, spec = parts["head"]
    assert claim_of(spec) is None and LABEL not in labels and "affinity" not in spec


def test_cache_kinds():
    def cache(v):
        pod = by_part(v)["worker"][1]
        return next((x for x in pod["volumes"] if x["name"] == "cache"), None), pod.get("initContainers")
    assert cache({"cache": {"kind": "emptyDir"}})[0]["emptyDir"] == {"sizeLimit": "8Gi"}
    assert cache({"cache": {"kind": "none"}}) == (None, None)
    assert cache({"cache": {"kind": "hostPath", "hostPath": "/data"}})[0]["hostPath"]["path"] == "/data"
    for kind in ({"kind": "emptyDir"}, {"kind": "none"}, {"kind": "hostPath", "hostPath": "/data"}):
        objs = c.objects({"cache": kind})
        assert not objs.kinds("Job") and not objs.kinds("PersistentVolumeClaim")
        assert not any(terms(spec) for _, spec in objs.templates())
    # A model that is not fetched needs no claim, because pods would wait for a claim that stays empty. The model may be a path in an existing
    # claim.
    for name in ("null", "/models/x"):
        objs = c.objects({"model": {"name": name}})
        assert not objs.kinds("Job") and not objs.kinds("PersistentVolumeClaim") and cache({"model": {"name": name}}) == (None, None)
    volume, pulls = cache({"model": {"name": "/cache/x"}, "cache": {"existingClaim": "mine"}})
    assert volume["persistentVolumeClaim"] == {"claimName": "mine"} and pulls is None
    assert not c.objects({"cache": {"prefetch": {"enabled": False}}}).kinds("Job")


def test_another_claim_or_job_has_another_name():
    """Claims and Jobs cannot be changed, so new values give them a new name: `helm upgrade` makes the new object and removes the old
    one."""
    def name(kind, **values):
        return c.objects(values).kinds(kind)[0]["metadata"]["name"]
    claims = [name("PersistentVolumeClaim", cache=v) for v in (
        {}, {"storageClass": "a"}, {"storageClass": "b"}, {"accessMode": "ReadWriteMany"}, {"accessMode": "ReadWriteMany", "storageClass": "a"})]
    assert len(set(claims)) == 5 and name("PersistentVolumeClaim", cache={"size": "9Gi"}) == claims[0], "a claim can grow"
    jobs = [name("Job", **v) for v in ({}, {"model": {"name": "hf:a/b"}}, {"image": {"tag": "x"}}, {"modelHf": {"endpoint": "http://h"}},
                                       {"tmpSize": "1Gi"}, {"worker": {"tolerations": [{"operator": "Exists"}]}})]
    assert len(set(jobs)) == len(jobs) and name("Job", worker={"replicas": 4}) == jobs[0], "scaling does not run it again"


MODES = """{{ range $modes := list (list "ReadWriteOnce") (list "ReadWriteMany") (list "ReadOnlyMany") (list "ReadWriteOnce" "ReadWriteMany") }}
- {{ include "coxswain.accessModes" (dict "found" (dict "spec" (dict "accessModes" $modes)) "said" "ReadWriteOnce") | quote }}
{{ end }}
- {{ include "coxswain.accessModes" (dict "found" dict "said" "ReadWriteMany") | quote }}
"""


def test_a_claim_that_is_there(tmp_path):
    spec = by_part({"cache": {"existingClaim": "mine"}})
    assert all(terms(spec[part][1]) for part in ("worker", "gateway", "prefetch"))
    assert not c.objects({"cache": {"existingClaim": "mine"}}).kinds("PersistentVolumeClaim")
    assert not any(terms(s) for _, s in by_part({"cache": {"existingClaim": "mine", "accessMode": "ReadWriteMany"}}).values())
    read_only = by_part({"cache": {"existingClaim": "mine", "accessMode": "ReadOnlyMany"}})
    for part in ("worker", "gateway", "prefetch"):
        assert claim_of(read_only[part][1]) == {"claimName": "mine", "readOnly": True} and not terms(read_only[part][1])
    long = "a" * 200
    labels, _ = by_part({"cache": {"existingClaim": long}})["worker"]
    assert len(labels[LABEL]) == 32, "a label has 63 characters"
    with pytest.raises(helm.HelmError, match="Set cache.existingClaim to a claim that has the model"):
        c.objects({"cache": {"accessMode": "ReadOnlyMany"}})
    # The access modes of an existing claim override cache.accessMode. `lookup` finds nothing without a server, so the test passes the claim to the
    # helper.
    shutil.copytree(c.CHART, tmp_path / "chart")
    (tmp_path / "chart" / "templates" / "modes.yaml").write_text(MODES)
    text = next(t for n, t in c.texts(chart=tmp_path / "chart").items() if n.endswith("modes.yaml"))
    assert yaml.safe_load(text) == ["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce,ReadWriteMany", "ReadWriteMany"]


def matches(selector, labels):
    return selector.items() <= labels.items()


class Scheduler:
    """Simulates the scheduler's handling of required pod affinity. A pod is placed beside a matching pod. When no pod of the cluster
    matches, it is placed anywhere if it matches its own terms."""

    def __init__(self, *nodes):
        self.nodes = {n: [] for n in nodes}

    def fits(self, labels, spec):
        wanted = terms(spec)
        there = [node for node, pods in self.nodes.items() if all(any(matches(t, other) for other in pods) for t in wanted)]
        if there:
            return there
        somewhere = [other for pods in self.nodes.values() for other in pods if all(matches(t, other) for t in wanted)]
        return list(self.nodes) if not somewhere and all(matches(t, labels) for t in wanted) else []

    def run(self, pods, choose):
        """Places all pods, and retries pending pods repeatedly. Returns the pods that can never be placed."""
        waiting = list(pods)
        while True:
            n = len(waiting)
            for labels, spec in list(waiting):
                if fits := self.fits(labels, spec):
                    self.nodes[fits[choose % len(fits)]].append(labels)
                    waiting = [w for w in waiting if w[0] is not labels]
            if len(waiting) in (0, n):
                return waiting


def copies(parts, **counts):
    return [(dict(parts[part][0]), parts[part][1]) for part, n in counts.items() for _ in range(n)]


@pytest.mark.parametrize("values", [{}, {"worker": {"topologyKey": "topology.kubernetes.io/zone"}}, {"worker": {"replicas": 0}},
                                    {"autoscaling": {"enabled": True, "minGroups": 0}},
                                    {"cache": {"existingClaim": "mine"}}], ids=json.dumps)
def test_pods_of_a_claim_of_one_node_find_each_other(values):
    parts = by_part(values)
    n = 0 if "autoscaling" in values else values.get("worker", {}).get("replicas", 2)
    for i, order in enumerate(itertools.permutations(copies(parts, prefetch=1, gateway=2, worker=n))):
        s = Scheduler("a", "b", "c")
        assert s.run(order, i) == []
        assert sorted(len(pods) for pods in s.nodes.values()) == [0, 0, 3 + n]
        # First all workers are removed and the gateways stay; then all pods are removed.
        node = next(k for k, pods in s.nodes.items() if pods)
        s.nodes[node] = [p for p in s.nodes[node] if p["app.kubernetes.io/component"] == "gateway"]
        assert s.run(copies(parts, worker=n), i + 1) == [] and len(s.nodes[node]) == 2 + n
        s.nodes[node] = []
        assert s.run(order, i + 1) == []


def test_the_first_is_a_worker():
    """A worker is placed first, because only workers have GPUs, taints and selectors: a Job on another node would keep the claim
    from them."""
    parts = by_part({"worker": {"device": "cuda", "gpus": 1, "tolerations": [{"key": "gpu", "operator": "Exists"}]},
                     "gateway": {"tolerations": [{"key": "mine", "operator": "Exists"}]}})
    s = Scheduler("a", "b")
    assert len(s.run(copies(parts, gateway=1, prefetch=1), 0)) == 2
    assert parts["prefetch"][1]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert [t["key"] for t in parts["gateway"][1]["tolerations"]] == ["mine", "gpu"]
    # A Job's pod on a lost node does not keep workers from other nodes, although its finalizer keeps the pod until the node is removed.
    s.nodes["a"] = [p for _, p in copies(parts, prefetch=1)]
    lost = s.nodes.pop("a")
    assert s.run(copies(parts, worker=2, gateway=1), 0) == [] and not any(LABEL in p for p in lost)
    spread = by_part(c.merged(RWX, {"worker": {"tolerations": [{"operator": "Exists"}]}}))
    assert "tolerations" not in spread["gateway"][1] and "tolerations" not in spread["prefetch"][1]


def test_affinity_of_the_values_stays():
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOST, "labelSelector": {"matchLabels": {"a": "b"}}}]},
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}}}
    spec = by_part({"worker": {"affinity": near}, "gateway": {"affinity": near}})
    for part in ("worker", "gateway"):
        assert terms(spec[part][1])[0] == {"a": "b"} and terms(spec[part][1])[1][LABEL] == f"{F}-cache"
        assert spec[part][1]["affinity"]["nodeAffinity"] == near["nodeAffinity"]
    spread = by_part(c.merged(RWX, {"worker": {"affinity": near}}))
    assert spread["worker"][1]["affinity"] == near
    with pytest.raises(helm.HelmError, match=r"nodeSelector asks for two \(pool: gpu, cpu\)"):
        c.objects({"worker": {"nodeSelector": {"pool": "gpu"}}, "gateway": {"nodeSelector": {"pool": "cpu"}}})
    assert c.objects(c.merged(RWX, {"worker": {"nodeSelector": {"pool": "gpu"}}, "gateway": {"nodeSelector": {"pool": "cpu"}}}))


def test_a_node_of_such_pods_can_be_drained():
    """Pods that share a node have no disruption budget: an evicted pod would wait for the pods that the budget keeps on the node."""
    assert c.objects().kinds("PodDisruptionBudget") == []
    assert len(c.objects(RWX).kinds("PodDisruptionBudget")) == 2 == len(c.objects({"model": {"name": "null"}}).kinds("PodDisruptionBudget"))


def test_notes_say_how_to_spread():
    text = c.notes({})
    assert f"share the claim {F}-cache" in text and "--set cache.accessMode=ReadWriteMany,cache.storageClass=CLASS" in text
    assert "no default StorageClass" in text and "Each pod downloads" not in text
    assert "share the claim" not in c.notes(RWX) and "no default StorageClass" in c.notes(RWX)
    assert "Each pod downloads" in c.notes({"cache": {"kind": "emptyDir"}})
    for v in ({"cache": {"existingClaim": "mine", "accessMode": "ReadWriteMany"}}, {"model": {"name": "null"}}):
        assert "claim" not in c.notes(v)


def test_models_share_the_claim_with_the_gateways():
    def claims(**values):
        objs = c.objects({"models": {"a": {"model": {"name": "null"}}, "b": {"model": {"name": "hf:a/b"}}}, **values})
        made = [o["metadata"]["name"] for o in objs.kinds("PersistentVolumeClaim")]
        specs = [objs.one(*what)["spec"]["template"]["spec"] for what in (("StatefulSet", f"{F}-b-worker"), ("Deployment", f"{F}-gateway"))]
        assert [o["metadata"]["name"].rsplit("-", 1)[0] for o in objs.kinds("Job")] == [f"{F}-b-prefetch"]
        assert "initContainers" not in specs[1], "a model that is added must not replace the gateways, so they download nothing"
        return made, [claim_of(s).get("claimName") for s in specs]
    assert claims() == ([f"{F}-cache"], [f"{F}-cache"] * 2)
    assert claims(cache={"existingClaim": "mine"}) == ([], ["mine", "mine"])
    assert claims(model={"pullEnv": []}) == ([f"{F}-cache"], [f"{F}-cache"] * 2)
    # The gateways follow the workers to the node of the claim, with the tolerations of all of them.
    toleration = {"key": "gpu", "operator": "Exists"}
    values = {"models": {"a": {"model": {"name": "null"}}, "b": {"model": {"name": "hf:a/b"}, "worker": {"tolerations": [toleration]}}}}
    pod = c.objects(values).one("Deployment", f"{F}-gateway")["spec"]["template"]["spec"]
    assert toleration in pod["tolerations"]
    term = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert term["labelSelector"]["matchLabels"] == {"coxswain.io/cache": f"{F}-cache", "app.kubernetes.io/component": "worker"}
