"""Tests that the chart's objects are valid in every version of Kubernetes that the chart names, restricted and complete."""
import base64
import json
import re
import shutil
import subprocess
import tarfile

import chart as c
import helm_python as helm
import pytest
import yaml

VERSIONS = [f"1.{minor}" for minor in range(28, 37)]
FOREIGN = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication", "Route", "HTTPRoute",
           "LeaderWorkerSet", "SecurityContextConstraints"}  # these kinds come from CRDs and are not in Kubernetes' own schemas
FILES = [None, *c.values_files()]
F = "demo-coxswain"
MANY_NODES = {"cache": {"accessMode": "ReadWriteMany"}}


def values(file):
    return c.values_of(file) if file else {}


def test_lint():
    for file in FILES:
        with helm.Chart.load(str(c.CHART)) as ch:
            ch.validate_schema(values(file))
    result = helm.lint(str(c.CHART), strict=True, kube_version="v1.31.0")
    assert not result.get("errors"), result
    assert [m for m in result["messages"] if m.get("severity", 0) not in (0, 1, "info")] == [], result


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES)
def test_objects_are_valid(file, version):
    for o in c.objects(values(file), kube=f"v{version}.0"):
        if o["kind"] not in FOREIGN:
            c.validate(o, version)


def test_the_package_has_what_it_needs(tmp_path):
    with tarfile.open(helm.package(str(c.CHART), destination=str(tmp_path))) as t:
        names = {n.removeprefix("coxswain/") for n in t.getnames()}
    assert {"Chart.yaml", "values.yaml", "values.schema.json", "README.md", "dashboards/coxswain.json", "rules/coxswain.rules.yml", "templates/NOTES.txt",
            "templates/tests/smoke.yaml", "values-gpu.yaml"} <= names
    assert not any(n.startswith("ci/") for n in names), "values for our own tests"


def test_too_old_a_kubernetes_is_refused():
    # Only the program helm checks kubeVersion, not the library, so the test reads the bound itself.
    meta = yaml.safe_load((c.CHART / "Chart.yaml").read_text())
    assert meta["kubeVersion"] == ">=1.28.0-0" and meta["version"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("openshift", [False, True])
def test_pods_are_restricted(file, openshift):
    objs = c.objects(values(file), apis=c.OPENSHIFT if openshift else [])
    forced = str(values(file).get("openshift", {}).get("enabled", "auto")).lower()
    on_openshift = openshift if forced == "auto" else forced == "true"
    seen = 0
    for name, pod in objs.pods():
        seen += 1
        assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        s = pod["securityContext"]
        assert s["runAsNonRoot"] is True and s["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert ("fsGroup" in s) == (not on_openshift), f"{name}: OpenShift gives a group itself"
        assert not {"runAsGroup", "supplementalGroups"} & s.keys(), name
        assert "runAsUser" not in s or (not on_openshift and "redis" in name), name
        for container in c.containers(pod):
            where = f"{name} {container['name']}"
            assert "runAsUser" not in container["securityContext"], where
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, where
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, where
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, where
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys(), where
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), where
            assert not any(p.get("hostPort") for p in container.get("ports", [])), where
        if "hostPath" not in str(values(file).get("cache", {}).get("kind", "")):
            assert not any("hostPath" in v for v in pod.get("volumes", [])), name
    assert seen >= 4


def test_values_files_go_together():
    """Every two values files beside the chart can be combined, in either order."""
    files = [file for file in c.values_files() if "/" not in file]
    for a in files:
        for b in files:
            both = c.merged(c.values_of(a), c.values_of(b))
            objs = c.objects(both, apis=c.OPENSHIFT)
            if "values-gpu.yaml" in (a, b):
                claim = objs.kinds("PersistentVolumeClaim")[0]["spec"]["resources"]["requests"]["storage"]
                assert claim == "300Gi", f"{a} {b}: the model is larger than that"


def test_mounts_have_volumes_and_the_other_way_round():
    for file in FILES:
        for name, pod in c.objects(values(file)).pods():
            volumes = {v["name"] for v in pod.get("volumes", [])}
            mounts = {m["name"] for k in c.containers(pod) for m in k.get("volumeMounts", [])}
            assert volumes == mounts, f"{file} {name}"


def test_services_name_ports_that_pods_have():
    for file in FILES:
        objs = c.objects(values(file))
        pods = [(labels, {p["name"] for k in spec["containers"] for p in k.get("ports", [])}) for labels, spec in objs.templates()]
        for s in objs.kinds("Service"):
            chosen = [ports for labels, ports in pods if s["spec"]["selector"].items() <= labels.items()]
            assert len(chosen) == 1, f"{file} {s['metadata']['name']}"
            assert {p["targetPort"] for p in s["spec"]["ports"]} <= chosen[0]


def test_selectors_do_not_change_with_values():
    """Values do not change a selector. A selector is immutable, so such an upgrade would be refused."""
    def selectors(objs):
        return {i: o["spec"]["selector"] for i, o in zip(objs.ids(), objs) if o["kind"] in ("StatefulSet", "Deployment")}
    plain = selectors(c.objects())
    for file in c.values_files():
        mine = selectors(c.objects(values(file)))
        assert all(mine[i] == plain[i] for i in plain if i in mine), file
    assert all(set(s["matchLabels"]) == {"app.kubernetes.io/name", "app.kubernetes.io/instance",
                                         "app.kubernetes.io/component"} for s in plain.values())


def test_two_releases_in_one_namespace():
    a, b = c.objects(name="one"), c.objects(name="two")
    assert not set(a.ids()) & set(b.ids())
    for s in a.kinds("Service"):
        for o in b:
            labels = o.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {})
            assert not labels or not s["spec"]["selector"].items() <= labels.items()
    assert a.config("worker", "one-coxswain")["head"] == "one-coxswain-head-0.one-coxswain-head:7000"


@pytest.mark.parametrize("name", ["a", "x" * 53, "release-with.dots", "7up", "coxswain", "my-coxswain-2"])
def test_names_fit(name):
    objs = c.objects(c.values_of("ci/everything.yaml"), name=name)
    for kind, n in objs.ids():
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", n) or kind == "Secret", n
        assert len(n) <= 63
        if kind == "StatefulSet":
            assert len(n) + 11 <= 63, f"{n}: its revision's label is too long"


@pytest.mark.parametrize("name", ["a", "x" * 53])
def test_names_of_a_leaderworkerset_fit(name):
    """The names from a LeaderWorkerSet are short enough. Its StatefulSets are called NAME-GROUP, and their revision names become
    labels. Pods are called NAME-GROUP-RANK."""
    objs = c.objects({"worker": {"kind": "LeaderWorkerSet"}, "autoscaling": {"enabled": True}}, name=name)
    made = objs.kinds("LeaderWorkerSet")[0]["metadata"]["name"]
    assert len(f"{made}-99999") + 11 <= 63 and len(f"{made}-99999-1023") <= 63
    assert objs.kinds("ScaledObject")[0]["spec"]["scaleTargetRef"]["name"] == made
    assert name == "a" or c.objects({"worker": {"kind": "LeaderWorkerSet"}}, name=name[1:] + "y").kinds("LeaderWorkerSet")[0]["metadata"]["name"] != made


def test_a_group_is_near_itself_where_pods_say_their_group():
    near = {"topologyKey": "rack", "annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}}
    for kind, keys in (("StatefulSet", None), ("LeaderWorkerSet", ["leaderworkerset.sigs.k8s.io/group-key"])):
        objs = c.objects({"worker": {"kind": kind, **near}, **MANY_NODES})
        affinity = dict(objs.pods())[f"{kind}/{F}-worker"]["affinity"]["podAffinity"]
        assert affinity["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"].get("matchLabelKeys") == keys
        assert objs.one(kind, f"{F}-worker")["metadata"]["annotations"] == near["annotations"]


def test_long_names_stay_different():
    long = "a-very-long-name-of-a-release-indeed-"
    assert c.objects(name=long + "one").ids() != c.objects(name=long + "two").ids()
    names = [c.objects(name=long + x).kinds("Deployment")[0]["metadata"]["name"] for x in ("one", "two")]
    assert names[0] != names[1]


def selectors(objs):
    """Returns {(kind, name): its pod selector}."""
    found = {i: o["spec"]["selector"] for i, o in zip(objs.ids(), objs) if o["kind"] in ("Service", "StatefulSet", "Deployment")}
    return {i: tuple(sorted(s.get("matchLabels", s).items())) for i, s in found.items()}


def test_models_with_long_names_have_pods_of_their_own():
    models = {"my-own-model-a": {"model": {"name": "null"}}, "my-own-model-b": {"model": {"name": "null"}}}
    chosen = selectors(c.objects({"nameOverride": "n" * 40, "models": models}))
    sets = [s for (kind, _), s in chosen.items() if kind == "StatefulSet"]
    assert len(sets) == 4 and len(set(sets)) == 4


@pytest.mark.parametrize("name", ["a" * 44 + ".b", "a" * 36 + "..." + "b" * 9, "a" * 35 + "--" + "b" * 9])
def test_values_of_labels_end_in_a_letter_or_digit(name):
    for o in c.objects(c.merged(c.values_of("ci/everything.yaml"), {"nameOverride": name})):
        for label, value in o["metadata"]["labels"].items():
            assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value), (label, value)


def test_each_head_has_a_lease_of_its_own():
    def lease(namespace, name):
        objs = c.objects({"redis": {"enabled": True}, "fullnameOverride": name}, namespace=namespace)
        return objs.config("head", objs.one("Deployment", f"{name}-redis")["metadata"]["name"].removesuffix("-redis"))["cluster_name"]
    assert lease("team", "a-b") != lease("team-a", "b")
    long = "n" * 40
    one, two = lease(long, "f" * 40 + "one"), lease(long, "f" * 40 + "two")
    assert one != two and max(len(one), len(two)) <= 63


NAMED = ("name", "claimName", "secretName", "storageClassName", "serviceName", "serviceAccountName", "namespace", "key", "priorityClassName")


def named(node):
    """Yields names and labels found anywhere in an object."""
    if isinstance(node, dict):
        for k, v in node.items():
            if k in ("labels", "matchLabels"):
                yield from v.items()
            elif k in NAMED:
                yield k, v
            yield from named(v)
    elif isinstance(node, list):
        for v in node:
            yield from named(v)


@pytest.mark.parametrize("name", ["123", "true", "null", "on", "12.3", "2024-01-01", "12e4567"])
def test_names_that_look_like_something_else(name):
    own = {"nameOverride": name, "fullnameOverride": name, "keys": {"existingSecret": name}, "admin": {"existingSecret": name},
           "cache": {"storageClass": name}, "image": {"pullSecrets": [name]}, "redis": {"existingSecret": name}}
    for o in c.objects(own, name=name, namespace=name.replace(".", "-")):
        assert [(k, v) for k, v in named(o) if not isinstance(v, str)] == [], o["kind"]
    for text in c.texts(own, name=name).values():
        assert not re.search(rf"(?m)(/name|/instance|[nN]ame): {re.escape(name)}$", text)


def test_what_programs_are_told():
    objs = c.objects({"worker": {"tp": 2, "pp": 2, "replicas": 4, "config": {"block_size": 32, "kv_cache_memory_bytes": 8589934592}},
                      "head": {"config": {"max_waiting": 7, "enable_prefix_caching": False}},
                      "gateway": {"config": {"queue_timeout": 1.5}},
                      "model": {"name": "hf:org/name@v1", "servedNames": ["one", "two"]}, "elasticTp": {"enabled": True}})
    head, worker, gateway = (objs.config(p) for p in ("head", "worker", "gateway"))
    assert (head["tp"], head["pp"], head["max_waiting"], head["enable_prefix_caching"]) == (2, 2, 7, False)
    assert head["model"] == "one" and head["elastic_tp"] is True
    assert head["served_model_name"] == gateway["served_model_name"] == ["one", "two"]
    assert worker["block_size"] == 32 and worker["kv_cache_memory_bytes"] == 8589934592
    assert worker["model"] == gateway["model"] == "hf:org/name@v1"
    assert gateway["queue_timeout"] == 1.5
    worker_pod = objs.one("StatefulSet", f"{F}-worker")["spec"]["template"]["spec"]
    env = c.env_of(worker_pod["containers"][0])
    assert env["COX_ORDINAL"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['apps.kubernetes.io/pod-index']"
    assert worker_pod["initContainers"][0]["args"] == ["pull", "hf:org/name@v1", "--cache-dir", "/cache"]


def test_a_change_of_one_part_replaces_that_part_only():
    def checksums(values):
        templates = {o["metadata"]["name"]: o["spec"]["template"]["metadata"].get("annotations", {})
                     for o in c.objects(values) if o["kind"] in ("Deployment", "StatefulSet")}
        return {name: a["checksum/config"] for name, a in templates.items() if "checksum/config" in a}
    before, after = checksums({}), checksums({"gateway": {"config": {"queue_timeout": 5}}})
    assert [n for n in before if before[n] != after[n]] == [f"{F}-gateway"]
    scaled = checksums({"worker": {"replicas": 8}})
    assert scaled == before, "scaling restarts nobody"


def test_standby_and_redis():
    objs = c.objects({"head": {"standby": True}, "redis": {"url": "redis://r:6379/2"}})
    assert objs.one("StatefulSet", f"{F}-head")["spec"]["replicas"] == 2
    both = f"{F}-head-0.{F}-head:7000,{F}-head-1.{F}-head:7000"
    assert objs.config("worker")["head"] == objs.config("gateway")["head"] == both
    assert objs.config("head")["cluster_name"] == f"ns.{F}"
    for kind, part in (("StatefulSet", "head"), ("Deployment", "gateway")):
        container = objs.one(kind, f"{F}-{part}")["spec"]["template"]["spec"]["containers"][0]
        assert c.env_of(container)["COX_REDIS"]["value"] == "redis://r:6379/2"
    secret = c.objects({"redis": {"existingSecret": "r", "key": "u"}}).one("StatefulSet", f"{F}-head")
    ref = c.env_of(secret["spec"]["template"]["spec"]["containers"][0])["COX_REDIS"]["valueFrom"]["secretKeyRef"]
    assert ref == {"name": "r", "key": "u"}


def grace(objs, kind, part):
    return objs.one(kind, f"{F}-{part}")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


def test_heads_of_a_pair_find_each_other():
    objs = c.objects({"head": {"standby": True}, "redis": {"enabled": True}, "networkPolicy": {"enabled": True}})
    env = c.env_of(objs.one("StatefulSet", f"{F}-head")["spec"]["template"]["spec"]["containers"][0])
    assert env["COX_ADVERTISE_HOST"]["value"] == f"$(POD_NAME).{F}-head" and "POD_NAME" in env
    policy = objs.one("NetworkPolicy", f"{F}-head")["spec"]
    admin = [{"port": 8265, "protocol": "TCP"}]
    assert [r["ports"] for r in policy["ingress"]][1:] == [admin] and admin in [r.get("ports") for r in policy["egress"]]
    alone = c.objects({"networkPolicy": {"enabled": True}})
    assert "COX_ADVERTISE_HOST" not in c.env_of(alone.one("StatefulSet", f"{F}-head")["spec"]["template"]["spec"]["containers"][0])
    assert "8265" not in str(alone.one("NetworkPolicy", f"{F}-head"))


def shutdown_timeout(objs):
    return yaml.safe_load(objs.one("ConfigMap", f"{F}-gateway")["data"]["gateway.yaml"])["shutdown_timeout"]


def test_grace_outlasts_what_a_stop_takes():
    objs = c.objects()
    assert grace(objs, "Deployment", "gateway") == 10 + 3600 + 15 and grace(objs, "StatefulSet", "worker") == 30 + 15
    assert shutdown_timeout(objs) == 3600  # the time-out is long enough for streams of several minutes
    alone = c.objects({"gateway": {"replicas": 1, "state": {"enabled": True}}})  # nothing serves until the only gateway has ended
    assert grace(alone, "Deployment", "gateway") == 10 + 30 + 15 and shutdown_timeout(alone) == 30
    objs = c.objects({"gateway": {"shutdownDelay": 20, "config": {"shutdown_timeout": 0}}, "worker": {"config": {"drain_timeout": 600}}})
    assert shutdown_timeout(objs) == 0 and grace(objs, "Deployment", "gateway") == 35 and grace(objs, "StatefulSet", "worker") == 615


def test_each_role_has_its_own_keys_only():
    objs = c.objects()
    pods = dict(objs.pods())
    for name, private in ((f"StatefulSet/{F}-head", "head.key"), (f"StatefulSet/{F}-worker", "worker.key"),
                          (f"Deployment/{F}-gateway", "gateway.key")):
        keys = next(v for v in pods[name]["volumes"] if v["name"] == "keys")["secret"]
        assert [i["key"] for i in keys["items"] if i["key"].endswith(".key")] == [private]
        assert keys["defaultMode"] == 0o440
    made = objs.one("Secret", f"{F}-keys")["data"]
    named = {i["key"] for p in pods.values() for v in p["volumes"] if v["name"] == "keys" for i in v["secret"]["items"]}
    assert named == made.keys()
    assert base64.b64decode(made["authorized"]).decode().split("\n") == ["worker @worker.pub", "gateway @gateway.pub", ""]
    for role in ("head", "worker", "gateway"):
        assert base64.b64decode(made[f"{role}.key"]).startswith(b"-----BEGIN PRIVATE KEY-----\n")
        assert base64.b64decode(made[f"{role}.pub"]).startswith(b"-----BEGIN CERTIFICATE-----\n")


def test_existing_secrets_and_no_others():
    objs = c.objects({"keys": {"existingSecret": "k"}, "admin": {"existingSecret": "a"}, "gateway": {"apiKeys": {"existingSecret": "p"}}})
    assert not objs.kinds("Secret")
    used = {v["secret"]["secretName"] for _, p in objs.pods() for v in p["volumes"] if "secret" in v}
    assert used == {"k", "a", "p"}


KEEPS = """{{ $found := dict "data" (dict "head.key" "S0VZ" "head.pub" "UFVC" "authorized" "QVVUSA==" "mine" "TUlORQ==") }}
kept: {{ include "coxswain.keysData" (dict "found" $found) | fromYaml | toJson }}
new: {{ include "coxswain.keysData" (dict "found" dict) | fromYaml | toJson }}
adminKept: {{ include "coxswain.randomData" (dict "found" (dict "data" (dict "admin-key" "T0xE")) "names" (list "admin-key" "metrics-key")) | fromYaml | toJson }}
adminNew: {{ include "coxswain.randomData" (dict "found" dict "names" (list "admin-key" "metrics-key")) | fromYaml | toJson }}
oldValues: {{ include "coxswain.adminKey" (dict "ctx" (dict "Values" (dict "admin" (dict "key" "admin-key"))) "part" "worker") }}
"""


def test_an_upgrade_keeps_the_keys(tmp_path):
    """The helpers keep existing keys. `lookup` finds nothing without a server, so the test passes its result to the helpers."""
    shutil.copytree(c.CHART, tmp_path / "chart")
    (tmp_path / "chart" / "templates" / "keeps.yaml").write_text(KEEPS)
    text = next(t for n, t in c.texts(chart=tmp_path / "chart").items() if n.endswith("keeps.yaml"))
    out = yaml.safe_load(text)
    kept = out["kept"]
    assert (kept["head.key"], kept["head.pub"], kept["authorized"], kept["mine"]) == ("S0VZ", "UFVC", "QVVUSA==", "TUlORQ==")
    assert {"worker.key", "worker.pub", "gateway.key", "gateway.pub"} <= kept.keys(), "what was missing is made"
    assert out["new"]["head.key"] != "S0VZ" and len(out["new"]) == 7
    assert out["adminKept"]["admin-key"] == "T0xE" and len(base64.b64decode(out["adminKept"]["metrics-key"])) == 32, "of an older chart"
    assert {len(base64.b64decode(k)) for k in out["adminNew"].values()} == {32} and len(set(out["adminNew"].values())) == 2
    assert out["oldValues"] == "metrics-key"


def field(manager, operation, *fields):
    return {"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {f"f:{name}": {} for name in fields}}}


HPA = field("kube-controller-manager", "Update", "replicas")
HELM4 = field("helm", "Apply", "template")
FLUX = field("helm-controller", "Apply", "template", "replicas")
OWNERS = [  # each case: owners of `replicas` on the server, whether the chart renders the number again, reason
    ([HELM4, HPA], False, "an autoscaler's: another number here would be a conflict, at an upgrade or at a rollback to it"),
    ([field("helm", "Apply", "template", "replicas"), HPA], False, "both's: it stays without Helm"),
    ([field("helm", "Apply", "template", "replicas")], True, "Helm's alone: without one here it would become 1"),
    ([FLUX], True, "a controller of Helm is Helm"),
    ([FLUX, HPA], False, "and gives way as Helm does"),
    ([HELM4], False, "nobody's: the default"),
    ([field("helm", "Update", "template"), HPA], True, "Helm 3 takes away what an earlier revision said"),
    ([field("helm", "Update", "template", "replicas")], True, "Helm 3"),
    ([], True, "somebody has cleared them"),
]


@pytest.mark.parametrize("fields, is_said, why", OWNERS, ids=[why[:12] for _, _, why in OWNERS])
def test_whose_the_number_of_pods_is(tmp_path, fields, is_said, why):
    """The owners of the field decide whether the chart renders `replicas`; a number in the values is always rendered. `lookup` finds
    nothing without a server, so the test passes its result to the helper."""
    shutil.copytree(c.CHART, tmp_path / "chart")
    found = json.dumps({"metadata": {"managedFields": fields}, "spec": {"replicas": 5}})
    (tmp_path / "chart" / "templates" / "said.yaml").write_text(
        f"scaled: {{{{ include \"coxswain.replicas\" (dict \"said\" \"\" \"found\" ({json.dumps(found)} | fromJson)) | quote }}}}\n"
        f"fixed: {{{{ include \"coxswain.replicas\" (dict \"said\" \"2\" \"found\" ({json.dumps(found)} | fromJson)) | quote }}}}\n")
    text = next(t for n, t in c.texts(chart=tmp_path / "chart").items() if n.endswith("said.yaml"))
    assert yaml.safe_load(text) == {"scaled": "replicas: 5" if is_said else "", "fixed": "replicas: 2"}, why


NOBODY = {"worker": {"replicas": None}, "gateway": {"replicas": None}}


def test_a_number_of_pods_that_is_not_the_values():
    scaled = {"autoscaling": {"enabled": True}, "gateway": {"autoscaling": {"enabled": True}}}
    for v in (NOBODY, scaled, c.merged(NOBODY, {"worker": {"tp": 2}})):
        objs = c.objects(v)
        assert not any("replicas" in objs.one(*what)["spec"] for what in (("StatefulSet", f"{F}-worker"), ("Deployment", f"{F}-gateway")))
    assert "replicas" not in c.objects({"worker": {"kind": "LeaderWorkerSet", "replicas": None}}).one("LeaderWorkerSet", f"{F}-worker")["spec"]
    several = c.objects({"models": {"a": {"model": {"name": "null"}, "worker": {"replicas": None}}, "b": {"model": {"name": "null"}}}})
    assert several.one("StatefulSet", f"{F}-b-worker")["spec"]["replicas"] == 2
    assert "replicas" not in several.one("StatefulSet", f"{F}-a-worker")["spec"]
    notes = c.notes(c.merged(NOBODY, {"worker": {"tp": 2}}))
    assert f"scale sts/{F}-worker --replicas=4" in notes and "worker.replicas=" not in notes and "no replica" in notes
    assert "--force-conflicts" in c.notes() and "replicas 0)" in c.notes({"worker": {"replicas": 0}})


def test_only_the_head_has_the_key_that_leads_the_cluster():
    for v, head, others in (({}, "admin-key", "metrics-key"), ({"admin": {"existingSecret": "a", "key": "k", "metricsKey": "m"}}, "k", "m"),
                            ({"worker": {"kind": "LeaderWorkerSet"}}, "admin-key", "metrics-key")):
        objs = c.objects(c.merged(v, {"models": {"one": {"model": {"name": "null"}, "keepNames": True}, "other": {"model": {"name": "null"}}}}))
        found = 0
        for name, pod in objs.pods():
            for volume in (x for x in pod["volumes"] if x["name"] == "admin"):
                found += 1
                has = head if name.endswith("-head") else others
                assert volume["secret"]["items"] == [{"key": has, "path": has}], name
                said = c.env_of(pod["containers"][0]).get("COX_ADMIN_KEY_FILE")
                assert not said or said["value"] == f"/etc/coxswain/admin/{has}", name
        assert found == 5, "of two models"
        for f in (F, f"{F}-other"):
            for part in ("head", "worker", "gateway") if f == F else ("head", "worker"):
                assert objs.config(part, f)["admin_key_file"] == f"/etc/coxswain/admin/{head if part == 'head' else others}"
    made = c.objects().one("Secret", f"{F}-admin")["data"]
    assert made.keys() == {"admin-key", "metrics-key"} and made["admin-key"] != made["metrics-key"]


def test_a_secret_made_by_hand_that_lacks_a_key_is_refused(tmp_path):
    """The check names the missing key. `lookup` finds nothing without a server, so the test passes its result to the check."""
    shutil.copytree(c.CHART, tmp_path / "chart")
    for there, lacks in ((["admin-key", "metrics-key"], None), (["admin-key"], "metrics-key"), (["metrics-key"], "admin-key"), ([], "admin-key")):
        data = " ".join(f'"{k}" "eA=="' for k in there)
        (tmp_path / "chart" / "templates" / "check.yaml").write_text(
            f'{{{{ include "coxswain.checkAdmin" (dict "ctx" $ "found" (dict "data" (dict {data}))) }}}}')
        if not lacks:
            c.texts({"admin": {"existingSecret": "a"}}, chart=tmp_path / "chart")
            continue
        with pytest.raises(Exception, match=f"Secret a .* has no key {lacks}: kubectl -n ns patch secret a"):
            c.texts({"admin": {"existingSecret": "a"}}, chart=tmp_path / "chart")


def test_secrets_of_the_hub_reach_only_who_fetches():
    v = {"model": {"name": "s3://b/p"}, "modelHf": {"existingSecret": "hf"}, "modelS3": {"existingSecret": "s3", "endpoint": "http://minio:9000"}}
    for name, pod in c.objects(v).pods():
        for container in c.containers(pod):
            has = {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY"} & c.env_of(container).keys()
            assert bool(has) == (container["name"] == "pull"), f"{name} {container['name']}"


def test_gpus():
    v = {"worker": {"device": "cuda", "gpus": 1}, "nccl": {"debug": "INFO", "rdmaResource": "rdma/ib"}}
    pod = dict(c.objects(v).pods())[f"StatefulSet/{F}-worker"]
    container = pod["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1 and container["resources"]["limits"]["rdma/ib"] == 1
    assert container["image"].endswith("-cuda") and c.env_of(container)["NCCL_DEBUG"]["value"] == "INFO"
    gateway = dict(c.objects(v).pods())[f"Deployment/{F}-gateway"]
    assert not gateway["containers"][0]["image"].endswith("-cuda")
    own = c.objects({"worker": {"device": "cuda", "gpus": 1, "image": {"repository": "other", "tag": "x"}}})
    assert dict(own.pods())[f"StatefulSet/{F}-worker"]["containers"][0]["image"] == "other:x"


def test_several_ranks_in_a_pod():
    v = MANY_NODES | {"worker": {"device": "cuda", "gpus": 4, "ranks": 4, "tp": 8, "replicas": 4}, "metrics": {"serviceMonitor": True},
         "networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {}}]}}
    objs = c.objects(v)
    container = dict(objs.pods())[f"StatefulSet/{F}-worker"]["containers"][0]
    assert container["args"] == ["workers", "--ranks", "4", "--config", "/etc/coxswain/config/worker.yaml"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert [ports[f"rank-{i}"] for i in range(4)] == [7002, 7003, 7004, 7005] and container["readinessProbe"]["httpGet"]["port"] == "admin"
    monitor = objs.one("ServiceMonitor", f"{F}-worker")["spec"]["endpoints"]
    assert [e["port"] for e in monitor] == [f"rank-{i}" for i in range(4)]
    assert {p["name"] for p in objs.one("Service", f"{F}-worker")["spec"]["ports"]} == {"admin", *(e["port"] for e in monitor)}
    allowed = objs.one("NetworkPolicy", f"{F}-worker")["spec"]["ingress"][-1]["ports"]
    assert [(p["port"], p.get("endPort")) for p in allowed] == [(7001, None), (7002, 7005)]
    assert objs.one("PodDisruptionBudget", f"{F}-worker")["spec"]["maxUnavailable"] == 2, "two pods are a group"
    assert "16 workers in 2 replicas of 8 workers" in c.notes(v) and "worker.replicas=6" in c.notes(v)
    for o in objs:
        if o["kind"] not in FOREIGN:
            c.validate(o)
    scaled = {"autoscaling": {"enabled": True, "minGroups": 1, "maxGroups": 4}}
    for more, bounds, each in (({}, (2, 8), "4"), ({"worker": {"tp": 2}}, (1, 2), "4"), ({"worker": {"tp": 4}}, (1, 4), "4"),
                               ({"worker": {"kind": "LeaderWorkerSet"}}, (1, 4), "8")):
        objs = c.objects(c.merged(v, scaled, more))
        so = objs.one("ScaledObject", f"{F}-worker")["spec"]
        assert ((so["minReplicaCount"], so["maxReplicaCount"]), so["triggers"][0]["metadata"]["targetValue"]) == (bounds, each), more
        world = more.get("worker", {}).get("tp", 8)
        assert (objs.config("head")["scale_min"], objs.config("head")["scale_max"]) == (world, 4 * world)
    assert objs.one("LeaderWorkerSet", f"{F}-worker")["spec"]["leaderWorkerTemplate"]["size"] == 2


def test_images():
    def image(v):
        return dict(c.objects({"image": v}).pods())[f"StatefulSet/{F}-head"]["containers"][0]["image"]
    assert image({}) == "coxswain:0.1.0"
    assert image({"registry": "r.example:5000/", "repository": "a/b", "tag": "t"}) == "r.example:5000/a/b:t"
    digest = "sha256:" + "0" * 64
    assert image({"digest": digest}) == f"coxswain@{digest}"
    for own, wanted in (({"digest": "sha256:" + "1" * 64}, "coxswain@sha256:" + "1" * 64), ({"tag": "own"}, "coxswain:own")):
        v = {"image": {"digest": digest}, "worker": {"device": "cuda", "gpus": 1, "image": own}}
        assert dict(c.objects(v).pods())[f"StatefulSet/{F}-worker"]["containers"][0]["image"] == wanted
    pods = c.objects({"image": {"pullSecrets": ["s"]}}).pods()
    assert all(p["imagePullSecrets"] == [{"name": "s"}] for _, p in pods)


def test_disruption_budgets_only_where_there_are_several():
    def budgets(v):
        return {o["metadata"]["name"]: o["spec"] for o in c.objects(v | MANY_NODES).kinds("PodDisruptionBudget")}
    assert budgets({"gateway": {"replicas": 1}, "worker": {"replicas": 1}}) == {}
    b = budgets({"worker": {"tp": 4, "replicas": 8}})
    assert b[f"{F}-worker"]["maxUnavailable"] == 4 and b[f"{F}-gateway"]["maxUnavailable"] == "50%"
    assert f"{F}-worker" not in budgets({"worker": {"tp": 4, "replicas": 4}})
    assert budgets({"pdb": {"enabled": False}}) == {}
    # The values do not contain the number of pods. The budget limits the unavailable pods, so a single replica or gateway may be evicted.
    for v in ({"autoscaling": {"enabled": True}, "gateway": {"autoscaling": {"enabled": True, "minReplicas": 1}}}, NOBODY):
        b = budgets(c.merged({"worker": {"tp": 4, "replicas": 4}}, v))
        assert b[f"{F}-worker"]["maxUnavailable"] == 4 and b[f"{F}-gateway"]["maxUnavailable"] == "50%", v
    one = {"autoscaling": {"enabled": True, "maxGroups": 1}, "gateway": {"autoscaling": {"enabled": True, "minReplicas": 1, "maxReplicas": 1}}}
    assert budgets(one) == {}


def test_notes():
    text = c.notes({"worker": {"tp": 4, "replicas": 6}})
    for part in ("kubectl -n ns exec sts/demo-coxswain-head -- cox status", "helm test -n ns demo",
                 "port-forward svc/demo-coxswain 8000:80", "2 of the 6 workers will be spares", "worker.replicas=10",
                 "get secret demo-coxswain-api-keys", 'Authorization: Bearer $KEY', 'echo "$KEY"', "chat page is at http://127.0.0.1:8000/",
                 "port-forward sts/demo-coxswain-head 8265:8265", "get secret demo-coxswain-admin -o jsonpath='{.data.admin-key}'"):
        assert part in text, part
    # The commands print the keys in the Secrets, without names and comments.
    for line, key in ((r"get secret demo-coxswain-admin .*", "admin-key"), (r"get secret demo-coxswain-api-keys [^\n]*(?=\))", "api-keys")):
        command = re.search(line, text)[0].split(" | ", 1)
        assert f"jsonpath='{{.data.{key}}}'" in command[0]
        encoded = base64.b64encode(b"# whose\n\nsha256:00 bob\nthe-key alice\nanother\n").decode()
        shown = subprocess.run(["sh", "-c", f"printf %s {encoded} | {command[1]}"], capture_output=True, text=True)
        assert (shown.returncode, shown.stdout) == (0, "the-key\n"), shown.stderr
    other = c.notes({"admin": {"existingSecret": "led", "key": "a.key"}, "gateway": {"tls": {"existingSecret": "t"}}})
    assert r"get secret led -o jsonpath='{.data.a\.key}'" in other and "chat page is at https://127.0.0.1:8000/" in other
    assert "image.registry" in text and "must already have the image coxswain:0.1.0." in text and "docker://REGISTRY/coxswain:0.1.0" in text
    gpu = c.notes({"worker": {"device": "cuda", "gpus": 1}})
    assert "coxswain:0.1.0-cuda" in gpu and "--variant cuda" in gpu and "docker://REGISTRY/coxswain:0.1.0-cuda" in gpu
    for image in ({"registry": "registry.example/team"}, {"repository": "quay.io/team/coxswain"}):
        assert "No registry is set" not in c.notes({"image": image})
    assert "anyone who can reach the Service" not in text and "anyone who can reach the Service" in c.notes({"gateway": {"apiKeys": {"generate": False}}})
    assert "needs Kubernetes 1.35" in c.notes({"worker": {"maxUnavailable": 4}}, kube="v1.34.0")
    assert "needs Kubernetes 1.35" not in c.notes({"worker": {"maxUnavailable": 4}}, kube="v1.35.0")


def test_smoke_test_asks_with_the_key():
    objs = c.objects({"gateway": {"tls": {"existingSecret": "t"}}})
    pod = objs.one("Pod", f"{F}-smoke")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-succeeded,hook-failed", "so it need not stay"
    assert pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded,hook-failed"
    container = pod["spec"]["containers"][0]
    assert container["args"] == ["smoke", "--url", f"https://{F}.ns.svc:80", "--timeout", "300", "--cacert", "/etc/coxswain/tls/tls.crt"]
    plain = c.objects().one("Pod", f"{F}-smoke")["spec"]["containers"][0]
    assert plain["args"] == ["smoke", "--url", f"http://{F}:80", "--timeout", "300"]
    assert c.env_of(container)["COX_API_KEY"]["valueFrom"]["secretKeyRef"] == {"name": f"{F}-api-keys", "key": "api-keys"}
    assert "COX_API_KEY" not in c.env_of(c.objects({"gateway": {"apiKeys": {"generate": False}}}).one("Pod", f"{F}-smoke")["spec"]["containers"][0])


def test_autoscaling_is_in_whole_groups():
    v = {"autoscaling": {"enabled": True, "minGroups": 2, "maxGroups": 5}, "worker": {"tp": 4}}
    objs = c.objects(v)
    so = objs.one("ScaledObject", f"{F}-worker")["spec"]
    assert (so["minReplicaCount"], so["maxReplicaCount"]) == (8, 20)
    assert so["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]["policies"][0]["value"] == 4
    assert so["triggers"][0]["metadata"]["url"] == f"http://{F}-head.ns.svc:8265/scale"
    token = objs.one("TriggerAuthentication", so["triggers"][0]["authenticationRef"]["name"])["spec"]["secretTargetRef"]
    assert token == [{"parameter": "token", "name": f"{F}-admin", "key": "admin-key"}]
    assert "replicas" not in objs.one("StatefulSet", f"{F}-worker")["spec"], "the autoscaler's"
    assert (objs.config("head")["scale_min"], objs.config("head")["scale_max"]) == (8, 20)
    hpa = c.objects(c.merged(v, {"autoscaling": {"kind": "hpa"}})).one("HorizontalPodAutoscaler", f"{F}-worker")["spec"]
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (8, 20)
    asked = c.objects(c.merged(v, {"autoscaling": {"prometheusUrl": "http://p:9090"}})).one("ScaledObject", f"{F}-worker")
    assert asked["spec"]["triggers"][0]["metadata"]["query"] == f'max(coxswain_head_desired_workers{{namespace="ns", pod=~"{F}-head-.*"}})'
    gateways = c.objects({"gateway": {"autoscaling": {"enabled": True}}})
    assert "replicas" not in gateways.one("Deployment", f"{F}-gateway")["spec"]
    assert gateways.one("HorizontalPodAutoscaler", f"{F}-gateway")["spec"]["maxReplicas"] == 8


TO_ZERO = {"autoscaling": {"enabled": True, "minGroups": 0, "maxGroups": 3}, "worker": {"tp": 2}}


def test_to_no_workers_and_back():
    objs = c.objects(TO_ZERO)
    so = objs.one("ScaledObject", f"{F}-worker")["spec"]
    assert (so["idleReplicaCount"], so["minReplicaCount"], so["maxReplicaCount"], so["cooldownPeriod"]) == (0, 2, 6, 30)
    assert so["triggers"][0]["metadata"]["activationTargetValue"] == "0"
    head, gateway = objs.config("head"), objs.config("gateway")
    assert (head["scale_min"], head["scale_max"], head["scale_start_s"], gateway["queue_timeout"]) == (0, 6, 180, 180)
    own = c.objects(c.merged(TO_ZERO, {"head": {"config": {"scale_start_s": 600, "scale_idle_s": 60}}}))
    assert (own.config("head")["scale_start_s"], own.config("head")["scale_idle_s"], own.config("gateway")["queue_timeout"]) == (600, 60, 600)
    kept = c.objects(c.merged(TO_ZERO, {"gateway": {"config": {"queue_timeout": 20}}}))
    assert (kept.config("head")["scale_start_s"], kept.config("gateway")["queue_timeout"]) == (180, 20)
    asked = c.objects(c.merged(TO_ZERO, {"autoscaling": {"prometheusUrl": "http://p:9090"}})).one("ScaledObject", f"{F}-worker")
    trigger = asked["spec"]["triggers"][0]["metadata"]
    assert (trigger["activationThreshold"], trigger["ignoreNullValues"]) == ("0", "false")
    # A part with one pod or none has no budget, and missing workers raise no alert while none are wanted.
    assert f"{F}-worker" not in [o["metadata"]["name"] for o in objs.kinds("PodDisruptionBudget")]
    rules = c.objects(c.merged(TO_ZERO, {"metrics": {"rules": True}})).kinds("PrometheusRule")[0]["spec"]["groups"][0]["rules"]
    nothing = next(r for r in rules if r.get("alert") == "CoxswainNothingServes")["expr"]
    assert re.search(r"unless max\(coxswain_head_desired_workers\{[^}]*\}\) == 0 unless max\(coxswain_head_sleep_level\{[^}]*\}\) > 0$", nothing), nothing
    assert "for 180 s" in c.notes(TO_ZERO) and "while there are no requests" in c.notes(TO_ZERO) and "0 to 3 replicas" in c.notes(TO_ZERO)


def test_scaling_that_keeps_a_group_has_nothing_of_that():
    v = c.merged(TO_ZERO, {"autoscaling": {"minGroups": 1}, "metrics": {"rules": True}})
    objs = c.objects(v)
    so = objs.one("ScaledObject", f"{F}-worker")["spec"]
    assert not {"idleReplicaCount", "cooldownPeriod"} & set(so) and "activationTargetValue" not in so["triggers"][0]["metadata"]
    assert "queue_timeout" not in objs.config("gateway") and "scale_start_s" not in objs.config("head")
    assert objs.config("head").get("scale_min", 1) >= 1, "with one group or more none is ever wanted, and the alert's `unless` never holds"
    assert "while there are no requests" not in c.notes(v)


def test_own_redis():
    objs = c.objects({"redis": {"enabled": True}, "head": {"standby": True}})
    secret = {k: base64.b64decode(v).decode() for k, v in objs.one("Secret", f"{F}-redis")["data"].items()}
    assert secret["url"] == f"redis://:{secret['password']}@{F}-redis:6379" and len(secret["password"]) == 32
    pods = dict(objs.pods())
    for name in (f"StatefulSet/{F}-head", f"Deployment/{F}-gateway"):
        ref = c.env_of(pods[name]["containers"][0])["COX_REDIS"]["valueFrom"]["secretKeyRef"]
        assert ref == {"name": f"{F}-redis", "key": "url"}
    assert "COX_REDIS" not in c.env_of(pods[f"StatefulSet/{F}-worker"]["containers"][0])


def redis_versions(objs):
    """Returns {workload: checksum of the Redis password that it uses, or None}."""
    made = {o["metadata"]["name"]: o["spec"]["template"]["metadata"] for o in objs if o["kind"] in ("StatefulSet", "Deployment")}
    return {name: meta.get("annotations", {}).get("checksum/redis") for name, meta in made.items()}


def test_a_redis_and_those_who_ask_it_begin_anew_together():
    """Redis and its clients share a checksum, so they restart together. Without a cluster, each rendering makes a new password."""
    v = {"redis": {"enabled": True}, "head": {"standby": True}, "models": {"a": {"model": {"name": "null"}}}}
    first, second = c.objects(v), c.objects(v)
    passwords = [base64.b64decode(o.one("Secret", f"{F}-redis")["data"]["password"]).decode() for o in (first, second)]
    assert passwords[0] != passwords[1] and [len(p) for p in passwords] == [32, 32]
    asks = {f"{F}-redis", f"{F}-gateway", f"{F}-a-head"}
    for objs in (first, second):
        seen = redis_versions(objs)
        assert {name for name, version in seen.items() if version} == asks and len({seen[name] for name in asks}) == 1, seen
    assert redis_versions(first)[f"{F}-redis"] != redis_versions(second)[f"{F}-redis"]
    assert not any(redis_versions(c.objects({"redis": {"url": "redis://r"}})).values())


def test_a_redis_with_a_password_made_by_hand():
    v = {"redis": {"enabled": True, "existingSecret": "mine"}, "models": {"a": {"model": {"name": "null"}}}, **MANY_NODES}
    first, second = c.objects(v), c.objects(v)
    assert not any(name.endswith("-redis") for kind, name in first.ids() if kind == "Secret")
    pods = dict(first.pods())
    password = c.env_of(pods[f"Deployment/{F}-redis"]["containers"][0])["REDIS_PASSWORD"]["valueFrom"]["secretKeyRef"]
    assert password == {"name": "mine", "key": "password"}
    for name in (f"Deployment/{F}-gateway", f"StatefulSet/{F}-a-head"):
        ref = c.env_of(pods[name]["containers"][0])["COX_REDIS"]["valueFrom"]["secretKeyRef"]
        assert ref == {"name": "mine", "key": "url"}
    assert pods == dict(second.pods()), "what is rendered again is the same"


def test_a_secret_of_the_redis_that_lacks_a_key_is_refused(tmp_path):
    shutil.copytree(c.CHART, tmp_path / "chart")
    v = {"redis": {"enabled": True, "existingSecret": "r"}}
    for there, lacks in ((["password", "url"], None), (["password"], "url"), (["url"], "password")):
        data = " ".join(f'"{k}" "eA=="' for k in there)
        (tmp_path / "chart" / "templates" / "check.yaml").write_text(
            f'{{{{ include "coxswain.checkRedis" (dict "ctx" $ "found" (dict "data" (dict {data}))) }}}}')
        if not lacks:
            c.texts(v, chart=tmp_path / "chart")
            continue
        with pytest.raises(helm.HelmError, match=f"Secret r .* has no key {lacks}: .*redis://:PASSWORD@{F}-redis:6379 as url"):
            c.texts(v, chart=tmp_path / "chart")
    c.texts({"redis": {"existingSecret": "r"}}, chart=tmp_path / "chart")  # an external Redis needs only its URL
