"""Tests that the chart refuses wrong values before an object is installed, with a sentence that names the mistake."""
import base64
import json
import os
import re
import subprocess
import sys

import chart as c
import helm_python as helm
import pytest

WRONG = [  # each case: wrong values, words of Helm's message
    ({"worker": {"kind": None}}, "/worker.*missing property 'kind'"),
    ({"worker": {"probes": None}}, "/worker.*missing property 'probes'"),
    ({"worker": {"probes": {"startup": None}}}, "/worker/probes.*missing property 'startup'"),
    ({"head": {"resources": None}}, "/head.*missing property 'resources'"),
    ({"cache": {"kind": None}}, "/cache.*missing property 'kind'"),
    ({"cache": None}, "missing property 'cache'"),
    ({"model": {"servedNames": None}}, "/model.*missing property 'servedNames'"),
    ({"model": {"name": None}}, "--set-string model.name=null"),
    ({"worker": {"replica": 2}}, "/worker.*additional properties 'replica' not allowed"),
    ({"wroker": {}}, "additional properties 'wroker' not allowed"),
    ({"worker": {"replicas": "two"}}, "/worker/replicas"),
    ({"worker": {"replicas": -1}}, "/worker/replicas"),
    ({"worker": {"tp": 0}}, "/worker/tp"),
    ({"worker": {"kind": "DaemonSet"}}, "/worker/kind"),
    ({"worker": {"device": "tpu"}}, "/worker/device"),
    ({"worker": {"gpuResource": "gpu"}}, "/worker/gpuResource"),
    ({"worker": {"shmSize": "64 MB"}}, "/worker/shmSize"),
    ({"worker": {"image": {"tag": "a b"}}}, "/worker/image/tag"),
    ({"worker": {"resources": {"limits": {"memory": None}}}}, "/worker/resources/limits.*missing property 'memory'"),
    ({"worker": {"config": {"block_sze": 16}}}, "/worker/config.*'block_sze' not allowed"),
    ({"worker": {"config": {"block-size": 16}}}, "/worker/config.*'block-size' not allowed"),
    ({"worker": {"config": {"block_size": 8}}}, "/worker/config/block_size"),
    ({"worker": {"config": {"dtype": "int3"}}}, "/worker/config/dtype"),
    ({"worker": {"config": {"tp": 4}}}, "the chart sets this: use worker.tp"),
    ({"worker": {"config": {"head": "x:7000"}}}, "the chart sets this: it cannot be changed"),
    ({"worker": {"config": {"kv_cache_memory_bytes": "8 Gi"}}}, "/worker/config/kv_cache_memory_bytes"),
    ({"head": {"config": {"max_waiting": 0}}}, "/head/config/max_waiting"),
    ({"head": {"config": {"port": 7001}}}, "the chart sets this"),
    ({"head": {"config": {"keys_dir": "/k"}}}, "use keys.existingSecret"),
    ({"head": {"config": {"insecure": True}}}, "the chart sets this"),
    ({"head": {"config": {"enable_prefix_caching": "yes"}}}, "/head/config/enable_prefix_caching"),
    ({"gateway": {"config": {"api_key": ["k"]}}}, "use gateway.apiKeys"),
    ({"gateway": {"config": {"port": 80}}}, "use service.port"),
    ({"gateway": {"config": {"max_logprobs": 65}}}, "/gateway/config/max_logprobs"),
    ({"gateway": {"shutdownDelay": 5000}}, "/gateway/shutdownDelay"),
    ({"cache": {"kind": "nfs"}}, "/cache/kind"),
    ({"cache": {"size": "lots"}}, "/cache/size"),
    ({"cache": {"accessMode": "ReadWriteOncePod"}}, "/cache/accessMode"),
    ({"cache": {"kind": "hostPath", "hostPath": "data"}}, "/cache/hostPath"),
    ({"model": {"name": ""}}, "/model/name"),
    ({"model": {"name": "a b"}}, "/model/name"),
    ({"model": {"servedNames": ["a\nb"]}}, "/model/servedNames/0"),
    ({"ingress": {"path": "/a\n  b: c"}}, "/ingress/path"),
    ({"ingress": {"path": "/a #b"}}, "/ingress/path"),
    ({"httpRoute": {"path": "/a\tb"}}, "/httpRoute/path"),
    ({"cache": {"hostPath": "/a\nb: c"}}, "/cache/hostPath"),
    ({"lora": {"root": "/a\"b"}}, "/lora/root"),
    ({"lora": {"root": "/etc/coxswain"}}, "/lora/root"),
    ({"lora": {"root": "/a/../etc"}}, "/lora/root"),
    ({"gateway": {"config": {"ssl_keyfile_password": "p"}}}, "set COX_SSL_KEYFILE_PASSWORD in gateway.extraEnv"),
    ({"modelS3": {"endpoint": "minio:9000"}}, "/modelS3/endpoint"),
    ({"openshift": {"enabled": "yes"}}, "/openshift/enabled"),
    ({"service": {"type": "ExternalName"}}, "/service/type"),
    ({"image": {"pullPolicy": "never"}}, "/image/pullPolicy"),
    ({"image": {"digest": "sha256:12"}}, "/image/digest"),
    ({"nccl": {"debug": "LOUD"}}, "/nccl/debug"),
    ({"listen": "127.0.0.1"}, "/listen"),
    ({"redis": {"url": "http://r"}}, "/redis/url"),
    ({"models": {"a": {}}}, "/models/a.*missing property 'model'"),
    ({"models": {"Big": {"model": {"name": "x"}}}}, "invalid propertyName 'Big'"),
    ({"models": {"gateway": {"model": {"name": "x"}}}}, "invalid propertyName 'gateway'"),
    ({"models": {"a": {"model": {"name": "x"}, "worker": {"config": {"tp": 2}}}}}, "use worker.tp"),
    ({"models": {"a": {"model": {"name": "x"}, "redis": {"enabled": True}}}}, "'redis' not allowed"),
    ({"models": {"a": {"model": {"name": "x"}, "gateway": {"config": {"max_body_bytes": 1000000}}}}}, "'max_body_bytes' not allowed"),
    ({"models": {"a": {"model": {"name": "x"}, "gateway": {"config": {"head": "h:7000"}}}}}, "the chart sets this"),
    ({"gateway": {"config": {"models": "/x"}}}, "the chart sets this: use models"),
    ({"worker": {"pools": {"prefill": 2}}}, "/worker/pools"),
    ({"extraModels": {"a": {"model": {"name": "x"}}}}, "extraModels is now models, behind one Service"),
    ({"ingress": {"host": "a_b"}}, "/ingress/host"),
    ({"route": {"termination": "reencrypt"}}, "/route/termination"),
    ({"httpRoute": {"timeout": "an hour"}}, "/httpRoute/timeout"),
    ({"metrics": {"interval": "15"}}, "/metrics/interval"),
    ({"lora": {"root": "/"}}, "/lora/root"),
    ({"models": {"a": {"model": {}}}}, "/models/a/model.*missing property 'name'"),
    ({"modelS3": {"endpoint": "http://me:pw@minio:9000"}}, "/modelS3/endpoint"),
    ({"modelHf": {"endpoint": "https://token@hub.example/x"}}, "/modelHf/endpoint"),
    ({"worker": {"podLabels": {"app.kubernetes.io/component": "head"}}}, "/worker/podLabels/.*the chart sets this label itself"),
    ({"head": {"podLabels": {"coxswain.io/cache": "x"}}}, "/head/podLabels/.*the chart sets this label itself"),
    ({"metrics": {"labels": {"app.kubernetes.io/name": "x"}}}, "/metrics/labels/.*the chart sets this label itself"),
    ({"metrics": {"dashboardLabels": {"helm.sh/chart": "x"}}}, "/metrics/dashboardLabels/.*the chart sets this label itself"),
    ({"worker": {"probes": {"liveness": {"path": "/readyz"}}}}, "/worker/probes/liveness.*'path' not allowed"),
    ({"gateway": {"probes": {"startup": {"path": "/readyz"}}}}, "/gateway/probes/startup.*'path' not allowed"),
    ({"networkPolicy": {"from": ["10.0.0.0/8"]}}, "/networkPolicy/from/0"),
    ({"seccompProfile": {"type": "Unconfined"}}, "/seccompProfile/type"),
    ({"seccompProfile": {"type": "Localhost", "localhostProfile": "../x.json"}}, "/seccompProfile/localhostProfile"),
    ({"seccompProfile": {"type": "Localhost", "localhostProfile": "/etc/x.json"}}, "/seccompProfile/localhostProfile"),
    ({"gateway": {"apiKeys": {"generate": "no"}}}, "/gateway/apiKeys/generate"),
    ({"worker": {"image": {"digest": "latest"}}}, "/worker/image/digest"),
]
CONTRADICTIONS = [
    ({"model": {"name": "https://me:pw@hub.example/x.gguf"}}, "model.name contains a user or a password"),
    ({"models": {"a": {"model": {"name": "https://me:pw@hub.example/x.gguf"}}}}, "model.name contains a user or a password"),
    ({"head": {"standby": True}}, "head.standby needs a Redis"),
    ({"redis": {"enabled": True, "url": "redis://x"}}, "Set one of redis.enabled, redis.url and redis.existingSecret"),
    ({"redis": {"existingSecret": "s", "url": "redis://x"}}, "Set one of redis.enabled, redis.url and redis.existingSecret"),
    ({"redis": {"enabled": True, "key": "password"}}, "redis.key password"),
    ({"worker": {"tp": 4, "replicas": 2}}, r"worker.replicas 2 is less than the 4 workers of one replica of the model \(worker.tp 4 x worker.pp 1\)"),
    ({"worker": {"device": "cuda"}}, "worker.device cuda needs a GPU for each worker"),
    ({"worker": {"device": "cuda", "gpus": 1}, "image": {"digest": "sha256:" + "0" * 64}}, "Also set worker.image.digest"),
    ({"worker": {"gpus": 1}}, "worker.gpus 1 with worker.device cpu"),
    ({"worker": {"device": "cuda", "gpus": 2}}, "worker.gpus 2 and worker.ranks 1"),
    ({"worker": {"tp": 3, "ranks": 2, "replicas": 3}}, "worker.ranks 2 and the 3 workers of one replica of the model"),
    ({"worker": {"tp": 8, "ranks": 2, "replicas": 3}}, "worker.tp 8 x worker.pp 1, worker.ranks 2 in each pod"),
    ({"cache": {"kind": "hostPath"}}, "cache.kind hostPath needs cache.hostPath"),
    ({"cache": {"kind": "emptyDir", "existingClaim": "c"}}, "cache.existingClaim is not used with cache.kind emptyDir"),
    ({"gateway": {"state": {"enabled": True}}}, "Set gateway.replicas to 1"),
    ({"seccompProfile": {"type": "Localhost"}}, "needs seccompProfile.localhostProfile"),
    ({"autoscaling": {"enabled": True, "minGroups": 3}}, "autoscaling.minGroups 3 is more than autoscaling.maxGroups 2"),
    ({"autoscaling": {"enabled": True, "kind": "hpa", "minGroups": 0}}, "Set autoscaling.kind to keda, or minGroups to 1"),
    ({"gateway": {"config": {"ssl_cert_reqs": 2}}}, "probes of Kubernetes have no certificate"),
    ({"models": {"a": {"model": {"name": "x"}, "worker": {"tp": 4}}}}, "worker.replicas 2 is less than the 4 workers"),
    ({"models": {"a": {"model": {"name": "x"}}, "a-head": {"model": {"name": "x"}}}}, "a-head would have the names of objects of a .its head."),
    ({"models": {"a": {"model": {"name": "x"}}, "b": {"model": {"name": "y", "servedNames": ["c", "a"]}}}}, "a is a name of a and of b"),
    ({"models": {n: {"model": {"name": "x"}, "keepNames": True} for n in "ab"}}, "a and b have keepNames"),
    ({"models": {"a": {"model": {"name": "x"}}}, "model": {"name": "hf:o/n"}}, "model.name hf:o/n and models"),
    ({"models": {"a": {"model": {"name": "x"}}}, "cache": {"kind": "emptyDir"}}, "models with cache.kind emptyDir"),
    ({"models": {"a": {"model": {"name": "x"}}}, "cache": {"accessMode": "ReadOnlyMany"}}, "cache.accessMode ReadOnlyMany"),
    ({"models": {"a": {"model": {"name": "x"}, "fallback": "b"}}}, "models.a.fallback b: no model has this as its first name"),
    ({"models": {"a": {"model": {"name": "x"}}}, "routes": [{"name": "r", "targets": [{"model": "b"}]}]}, "r leads to b, but no model"),
    ({"models": {"a": {"model": {"name": "x"}}}, "routes": [{"name": "r", "targets": [{"model": "a", "weight": 0}]}]}, "a weight above 0"),
    ({"models": {"a": {"model": {"name": "x"}}}, "routes": [{"name": "r", "targets": [{"model": "a"}, {"model": "a"}]}]}, "has the target a twice"),
    ({"worker": {"tp": 2, "pools": {"prefill": 2, "decode": 3}}}, "worker.pools.decode 3 is not a multiple of the 2 pods"),
    ({"worker": {"pools": {"prefill": 2, "decode": 3}}, "autoscaling": {"enabled": True}}, "worker.pools cannot be combined"),
    ({"worker": {"pools": {"prefill": 1, "decode": 1}, "extraEnv": [{"name": "COX_ROLE", "value": "x"}]}}, "COX_ROLE is set twice"),
    ({"inferencePool": {"enabled": True}}, "set inferencePool.endpointPicker.name"),
    ({"inferencePool": {"enabled": True, "endpointPicker": {"name": "p"}}}, "Set gateway.config.metrics_public"),
    ({"inferencePool": {"enabled": True, "endpointPicker": {"name": "p"}}, "gateway": {"tls": {"existingSecret": "t"}}}, "has no HTTPS"),
    ({"metrics": {"serviceMonitor": True, "podMonitor": True}}, "would count everything twice"),
    ({"httpRoute": {"enabled": True}}, "set httpRoute.parentRefs"),
    ({"route": {"enabled": True, "termination": "passthrough"}}, "the gateways have no certificate"),
    ({"route": {"enabled": True}, "gateway": {"tls": {"existingSecret": "t"}}}, "set route.termination to passthrough"),
    ({"route": {"enabled": True, "termination": ""}, "gateway": {"tls": {"existingSecret": "t"}}}, "set route.termination to passthrough"),
    ({"service": {"nodePort": 30000}}, "Set service.type to NodePort"),
    ({"worker": {"extraEnv": [{"name": "COX_COMM_HOST", "value": "x"}]}}, "worker.extraEnv: COX_COMM_HOST is set twice"),
    ({"gateway": {"extraEnv": [{"name": "COX_REDIS", "value": "x"}]}, "redis": {"url": "redis://r"}}, "gateway.extraEnv: COX_REDIS is set twice"),
    ({"head": {"extraEnv": [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]}}, "head.extraEnv: A is set twice"),
    ({"model": {"pullEnv": [{"name": "AWS_REGION", "value": "x"}]}, "modelS3": {"region": "r"}}, "model.pullEnv: AWS_REGION is set twice"),
    ({"admin": {"metricsKey": "admin-key"}}, "admin.key and admin.metricsKey have the same name"),
    ({"worker": {"kind": "LeaderWorkerSet", "tp": 2, "replicas": 3}}, "worker.replicas 3 is not a multiple of 2"),
    ({"autoscaling": {"enabled": True}, "head": {"standby": True}, "redis": {"enabled": True}}, "Set autoscaling.prometheusUrl"),
    ({"gateway": {"autoscaling": {"enabled": True, "minReplicas": 9}}}, "minReplicas 9 is more than gateway.autoscaling.maxReplicas 8"),
]
RIGHT = [
    {"worker": {"config": {"kv_cache_memory_bytes": "8Gi"}}},
    {"worker": {"tp": 4, "replicas": 2}, "elasticTp": {"enabled": True}},
    {"worker": {"tp": 4, "replicas": 0}},
    {"worker": {"tp": 2, "replicas": 5}},
    {"worker": {"tp": 2, "ranks": 4, "replicas": 1}},
    {"model": {"name": "null"}},
    {"model": {"name": "https://hub.example/org/name@main/x.gguf"}},
    {"lora": {"enabled": True, "root": "/etcetera:", "existingClaim": "c"}},
    {"ingress": {"enabled": True, "path": "/a:"}, "httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}], "path": "/a:"}},
    {"models": {"a": {"model": {"name": "x"}}, "a-heads": {"model": {"name": "x"}}, "b-head": {"model": {"name": "x"}}}},
    {"models": {"a": {"model": {"name": "x"}, "worker": {"tp": 4, "replicas": 4}}}, "worker": {"tp": 8}, "extraModels": {}},
    {"global": {"of a parent chart": 1}},
    {"gateway": {"config": {"allowed_origins": ["*"], "max_body_bytes": "16Mi"}}},
    {"openshift": {"enabled": True}},
    {"modelS3": {"endpoint": "http://minio.example:9000/a@b"}},
    {"gateway": {"extraEnv": [{"name": "COX_REDIS", "value": "redis://r"}]}},
    {"metrics": {"dashboards": True, "dashboardLabels": {"grafana_dashboard": None}}},
    {"metrics": {"dashboards": True, "dashboardLabels": {"app.kubernetes.io/of-ours": "x"}}},
    {"gateway": {"probes": {"readiness": {"path": "/readyz"}}}},
    {"gateway": {"apiKeys": {"existingSecret": "s", "generate": True}}},
    {"seccompProfile": {"type": "Localhost", "localhostProfile": "profiles/coxswain.json"}},
]


@pytest.mark.parametrize("values, sentence", WRONG, ids=lambda v: json.dumps(v)[:60])
def test_refused_by_the_schema(values, sentence):
    with helm.Chart.load(str(c.CHART)) as chart, pytest.raises(helm.HelmError, match=f"(?s){sentence}"):
        chart.validate_schema(values)


@pytest.mark.parametrize("values, sentence", CONTRADICTIONS, ids=lambda v: json.dumps(v)[:60])
def test_contradictions_are_refused_with_what_to_do(values, sentence):
    with pytest.raises(helm.HelmError, match=sentence):
        c.texts(values)


@pytest.mark.parametrize("values", RIGHT, ids=lambda v: json.dumps(v)[:60])
def test_taken(values):
    assert c.objects(values)


TLS = {"gateway": {"tls": {"existingSecret": "t"}}}


def test_an_ingress_speaks_https_to_gateways_that_do():
    name = "nginx.ingress.kubernetes.io/backend-protocol"
    on = {"ingress": {"enabled": True}}
    protocol = lambda *v: c.objects(c.merged(on, *v)).one("Ingress", "demo-coxswain")["metadata"]["annotations"].get(name)
    assert protocol() is None
    assert protocol(TLS) == "HTTPS"
    assert protocol(TLS, {"ingress": {"annotations": {name: "GRPCS"}}}) == "GRPCS"


MODELS = [({}, "demo"), ({"name": "hf:org/name/x.gguf"}, "x of /v1/models"), ({"servedNames": ["it's \"one\" $HOME"]}, "it's \"one\" $HOME")]


@pytest.mark.parametrize("model, asked", MODELS, ids=["demo", "fetched", "named"])
def test_notes_ask_for_a_model_that_is_there_with_a_key_of_the_file(tmp_path, model, asked):
    keys = b"# ours\n\nsha256:" + b"0" * 64 + b"\nsecret tenant=a rate=2\nother\n"
    (tmp_path / "keys").write_text(base64.b64encode(keys).decode())
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\ncat {tmp_path}/keys\n")
    (tmp_path / "curl").write_text(f"""#!/bin/sh
for a; do case $a in */models) echo '{{"data": [{{"id": "x of /v1/models"}}, {{"id": "lora"}}]}}' ;; esac; done
for a; do printf '%s\\n' "$a"; done >{tmp_path}/asked
""")
    for name in ("kubectl", "curl"):
        (tmp_path / name).chmod(0o755)
    notes = c.notes({"model": model, "gateway": {"apiKeys": {"existingSecret": "mine"}}})
    script = "\n".join(line.strip() for line in notes.splitlines() if re.match("  (KEY=|MODEL=|curl )", line))
    subprocess.run(["sh", "-euc", script], check=True, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    said = (tmp_path / "asked").read_text().splitlines()
    assert "Authorization: Bearer secret" in said
    assert json.loads(said[-1])["model"] == asked


def test_every_value_has_a_schema_and_the_other_way_round():
    schema = json.loads((c.CHART / "values.schema.json").read_text())

    def walk(node, values, path):
        node = schema["definitions"][node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node
        named = node.get("properties")
        if named is None or not isinstance(values, dict) or path.endswith(("/config", "/image", "/limits", "/pools", "/probes")):
            return
        assert set(values) == set(named) - {"global", "extraModels"}, path
        for k, v in values.items():
            walk(named[k], v, f"{path}/{k}")
        assert node.get("additionalProperties") is False, path
    walk({**schema, "additionalProperties": schema.get("additionalProperties")}, c.values_of("values.yaml"), "")


@pytest.mark.skipif(not os.path.exists(os.path.join(os.environ.get("COX_BIN", ""), "cox")), reason="no programs: scripts/build makes them")
def test_the_schema_is_that_of_the_programs():
    script = c.ROOT / "deploy" / "helm" / "schema"
    subprocess.run([sys.executable, script, "--check", "--cox", os.path.join(os.environ["COX_BIN"], "cox")], check=True)


def test_the_readme_is_that_of_the_values():
    subprocess.run([sys.executable, c.ROOT / "deploy" / "helm" / "readme", "--check"], check=True)
    text = (c.CHART / "README.md").read_text()
    for name in ("`worker.replicas`", "`gateway.probes.readiness`", "`worker.resources`"):
        assert name in text, name
