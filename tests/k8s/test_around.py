"""Tests objects around the release: Ingress, network policies, monitors, alerts, the dashboard."""
import json
import re

import chart as c
import pytest
import yaml
from test_access import reaches

F = "demo-coxswain"
EVERYTHING = "ci/everything.yaml"


def test_ways_in_keep_long_streams():
    objs = c.objects(c.values_of(EVERYTHING))
    ingress = objs.one("Ingress", F)
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-read-timeout"] == "3600"
    assert ingress["spec"]["rules"][0]["host"] == "llm.example" and ingress["spec"]["tls"][0]["secretName"] == "tls"
    assert ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"] == {"name": F, "port": {"name": "http"}}
    route = objs.one("Route", F)
    assert route["metadata"]["annotations"]["haproxy.router.openshift.io/timeout"] == "3600s"
    assert route["spec"]["tls"]["termination"] == "passthrough" and route["spec"]["port"]["targetPort"] == "http"
    http = objs.one("HTTPRoute", F)["spec"]
    assert http["rules"][0]["timeouts"] == {"request": "3600s", "backendRequest": "3600s"}
    assert http["rules"][0]["backendRefs"] == [{"name": F, "port": 443}]
    plain = c.objects({"ingress": {"enabled": True}}).one("Ingress", F)["spec"]
    assert "host" not in plain["rules"][0] and "tls" not in plain and "ingressClassName" not in plain
    assert not {"Ingress", "Route", "HTTPRoute"} & {k for k, _ in c.objects().ids()}


def test_monitors_find_each_port_once():
    objs = c.objects(c.values_of(EVERYTHING))
    services = objs.kinds("Service")
    for o in objs.kinds("ServiceMonitor"):
        assert o["metadata"]["labels"]["release"] == "prometheus"
        endpoint, = o["spec"]["endpoints"]
        chosen = [s for s in services if o["spec"]["selector"]["matchLabels"].items() <= s["metadata"]["labels"].items()
                  and endpoint["port"] in {p["name"] for p in s["spec"]["ports"]}]
        assert len(chosen) == 1, o["metadata"]["name"]
        assert endpoint["authorization"]["credentials"] == {
            "name": f"{F}-admin", "key": "admin-key" if o["metadata"]["name"].endswith("-head") else "metrics-key"}
        assert (endpoint.get("scheme") == "https") == o["metadata"]["name"].endswith("-gateway")
    assert len(objs.kinds("ServiceMonitor")) == 3
    pods = c.objects({"metrics": {"podMonitor": True}})
    for o in pods.kinds("PodMonitor"):
        name = o["metadata"]["name"]
        spec = next(x for x in pods if x["kind"] in ("StatefulSet", "Deployment") and x["metadata"]["name"] == name)["spec"]["template"]
        assert o["spec"]["podMetricsEndpoints"][0]["port"] in {p["name"] for p in spec["spec"]["containers"][0]["ports"]}
        assert o["spec"]["selector"]["matchLabels"].items() <= spec["metadata"]["labels"].items()


def rules_of(values, f=F):
    return c.objects(values).one("PrometheusRule", f)["spec"]["groups"][0]["rules"]


def test_alerts_ask_for_metrics_that_are_there_and_say_what_to_do():
    known = c.metric_names()
    assert len(known) > 100
    rules = rules_of(c.values_of(EVERYTHING))
    alerts = [r for r in rules if "alert" in r]
    assert len(alerts) >= 12 and len({r.get("alert") or r["record"] for r in rules}) == len(rules)
    for r in rules:
        asked = c.metrics_in(r["expr"])
        assert asked and asked <= known, f"{r}: {asked - known}"
        assert {"namespace": "ns", "release": "demo", "model_release": F}.items() <= r["labels"].items(), "two releases record the same series"
    for r in alerts:
        assert r["expr"].count("(") == r["expr"].count(")") and f'namespace="ns", pod=~"{F}-' in r["expr"]
        assert r["labels"]["severity"] in ("critical", "warning", "info")
        assert len(r["annotations"]["runbook"]) > 40 and r["annotations"]["summary"].endswith((".", "s."))
        assert r["annotations"]["runbook_url"] == f"https://runbooks/cox#{r['alert'].lower()}"
    assert "{{ $labels.pod }}" in next(r for r in alerts if r["alert"] == "CoxswainGatewayWithoutHead")["annotations"]["summary"]


def test_the_chart_s_rules_are_those_of_deploy_grafana():
    """The chart's rules equal those of deploy/grafana, except for pods in place of jobs, the release's name, and thresholds from values."""
    source = yaml.safe_load((c.ROOT / "deploy/grafana/coxswain.rules.yml").read_text())["groups"][0]["rules"]
    def plain(r):
        text = json.dumps({k: v for k, v in r.items() if k != "labels"} | {"severity": r.get("labels", {}).get("severity")}, sort_keys=True)
        text = re.sub(r'namespace=\\"ns\\", pod=~\\"demo-coxswain-(\w+)-\.\*\\"', r'job=\\"coxswain-\1\\"', text)
        return text.replace("by (pod)", "by (instance)").replace("$labels.pod", "$labels.instance").replace("of demo-coxswain", "of Coxswain")
    all_of_it = {"metrics": {"rules": True}, "head": {"standby": True}, "redis": {"enabled": True}, "gateway": {"tls": {"existingSecret": "tls"}},
                 "worker": {"tp": 2}}
    assert [plain(r) for r in rules_of(all_of_it)] == [plain(r) for r in source]
    few = {r.get("alert") for r in rules_of({"metrics": {"rules": True}})}
    assert {r.get("alert") for r in source} - few == {"CoxswainNoStandby", "CoxswainCertificateEnds"}, "what can not be without these"
    own = {r.get("alert"): r["expr"] for r in rules_of({"metrics": {"rules": True, "firstTokenSeconds": 0.5}, "worker": {"tp": 4, "replicas": 4}})}
    assert own["CoxswainFirstTokenLate"].endswith(" > 0.5") and own["CoxswainWorkersLost"].endswith(" > 8")


def test_the_dashboard_asks_for_metrics_that_are_there():
    known = c.metric_names()
    data = c.objects({"metrics": {"dashboards": True}}).one("ConfigMap", f"{F}-dashboard")
    assert data["metadata"]["labels"]["grafana_dashboard"] == "1"
    board = json.loads(data["data"][f"{F}.json"])
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(board["panels"]) >= 12 and len(set(places)) == len(places)
    for p in board["panels"]:
        for t in p["targets"]:
            asked = c.metrics_in(t["expr"])
            assert asked and asked <= known, f"{p['title']}: {asked - known}"
    queries = " ".join(v["query"] for v in board["templating"]["list"] if v["type"] == "query")
    assert set(re.findall(r"coxswain_\w+", queries)) <= known


def test_leader_worker_set():
    objs = c.objects(c.values_of("ci/leaderworkerset.yaml"))
    lws = objs.one("LeaderWorkerSet", f"{F}-worker")["spec"]
    assert lws["leaderWorkerTemplate"]["size"] == 2 and lws["leaderWorkerTemplate"]["restartPolicy"] == "None"
    pod = lws["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    assert "COX_ORDINAL" not in c.env_of(pod["containers"][0]), "a LeaderWorkerSet has no number for it"
    hpa = objs.one("HorizontalPodAutoscaler", f"{F}-worker")["spec"]
    assert hpa["scaleTargetRef"] == {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": f"{F}-worker"}
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (1, 2) and hpa["metrics"][0]["external"]["target"]["averageValue"] == "2"
    fixed = c.objects({"worker": {"kind": "LeaderWorkerSet", "tp": 2, "replicas": 6}}).one("LeaderWorkerSet", f"{F}-worker")
    assert fixed["spec"]["replicas"] == 3
    assert objs.one("Deployment", f"{F}-gateway")["spec"]["strategy"] == {"type": "Recreate"}


TWO = {"models": {"llama": {"model": {"name": "hf:a/b"}, "worker": {"tp": 2, "config": {"block_size": 32}}, "gateway": {"config": {"tool_call_parser": "hermes"}}},
                  "qwen": {"model": {"name": "demo", "servedNames": ["qwen", "gpt-4o"]}, "keepNames": True}},
       "gateway": {"config": {"max_logprobs": 5}}, "redis": {"enabled": True}, "head": {"standby": True}, "metrics": {"podMonitor": True, "dashboards": True, "rules": True},
       "ingress": {"enabled": True, "host": "llm.example"}, "service": {"type": "LoadBalancer"}}


def models_of(objs, f=F):
    """Returns the gateways' file of models."""
    return c.yaml.load(objs.one("ConfigMap", f"{f}-models")["data"]["models.yaml"], c.Loader)["models"]


def test_several_models():
    objs = c.objects(TWO)
    assert len(objs.ids()) == len(set(objs.ids()))
    for o in objs:
        if o["kind"] not in ("PodMonitor", "PrometheusRule"):
            c.validate(o)
    heads = {f: f"{f}-head-0.{f}-head:7000,{f}-head-1.{f}-head:7000" for f in (F, f"{F}-llama")}
    assert models_of(objs) == [
        {"name": "llama", "model": "hf:a/b", "head": heads[f"{F}-llama"], "tool_call_parser": "hermes"},
        {"name": "qwen", "aliases": ["gpt-4o"], "model": "demo", "head": heads[F]}]
    worker, gateway = objs.config("worker", f"{F}-llama"), objs.config("gateway")
    assert (worker["model"], worker["tp"], worker["block_size"], worker["head"]) == ("hf:a/b", 2, 32, heads[f"{F}-llama"])
    assert gateway["models"] == "/etc/coxswain/models/models.yaml" and gateway["max_logprobs"] == 5
    assert not {"model", "head", "served_model_name"} & gateway.keys(), "cox-gateway refuses these beside --models"
    names = [objs.config("head", f)["cluster_name"] for f in heads]
    assert len(set(names)) == 2, "heads of one name would wait for each other"
    for kind in ("Ingress", "Deployment"):
        assert [o["metadata"]["name"] for o in objs.kinds(kind)][:1] == [F if kind == "Ingress" else f"{F}-gateway"]
    assert {o["metadata"]["name"] for o in objs.kinds("Service")} == {
        F, *(f"{F}-{n}" for n in ("gateway", "redis", "head", "worker", "llama-head", "llama-worker"))}
    assert {o["metadata"]["name"] for o in objs.kinds("PodMonitor")} == {
        f"{F}-{n}" for n in ("gateway", "head", "worker", "llama-head", "llama-worker")}


def test_a_model_may_set_a_part_of_its_resources():
    """The rest is the release's, as with every other value. A release itself needs all of them."""
    part = {"resources": {"requests": {"cpu": "20m"}, "limits": {"cpu": "8"}}}
    own = {"model": {"name": "demo", "pullResources": {"requests": {"cpu": "1"}}}, "head": part, "worker": part}
    objs = c.objects({"models": {"small": own}, "head": {"resources": {"limits": {"memory": "3Gi"}}}})
    release = c.values_of("values.yaml")
    for name, memory in (("head", "3Gi"), ("worker", release["worker"]["resources"]["limits"]["memory"])):
        [container] = objs.one("StatefulSet", f"{F}-small-{name}")["spec"]["template"]["spec"]["containers"]
        assert container["resources"] == {"requests": {"cpu": "20m", "memory": release[name]["resources"]["requests"]["memory"]},
                                          "limits": {"cpu": "8", "memory": memory}}
    for lacking in ({"requests": None}, {"limits": None}, {"limits": {"memory": None}}):
        with pytest.raises(c.helm.HelmError, match="missing propert"):
            c.objects({"worker": {"resources": lacking}})


def test_routes_and_fallbacks():
    routes = [{"name": "chat", "targets": [{"model": "llama", "weight": 90}, {"model": "qwen", "weight": 10}], "mirror": "qwen"}]
    objs = c.objects(c.merged(TWO, {"routes": routes, "models": {"llama": {"fallback": "qwen", "maxRequests": 200}}}))
    file = c.yaml.load(objs.one("ConfigMap", f"{F}-models")["data"]["models.yaml"], c.Loader)
    assert file["routes"] == routes and file["managed_by"] == "helm"
    assert (file["models"][0]["fallback"], file["models"][0]["max_requests"]) == ("qwen", 200)


def alerts_of(objs, name):
    return {r["alert"] for g in objs.one("PrometheusRule", name)["spec"]["groups"] for r in g["rules"] if "alert" in r}


def test_each_part_of_several_models_has_its_own_autoscaler():
    """The gateways are the release's, and the workers are each model's; qwen keeps the names of a release with one model."""
    values = c.merged(TWO, {"gateway": {"autoscaling": {"enabled": True}}, "autoscaling": {"enabled": True, "kind": "hpa"}})
    targets = {o["metadata"]["name"]: o["spec"]["scaleTargetRef"]["name"] for o in c.objects(values).kinds("HorizontalPodAutoscaler")}
    assert targets == {n: n for n in (f"{F}-gateway", f"{F}-llama-worker", f"{F}-worker")}


def test_models_share_what_is_the_release_s_and_nothing_else():
    objs = c.objects(TWO)
    # Each Service, StatefulSet and Deployment selects the pods of exactly one template.
    pods = list(objs.templates())
    for o in objs:
        if o["kind"] in ("Service", "StatefulSet", "Deployment"):
            chooses = o["spec"]["selector"].get("matchLabels", o["spec"]["selector"])
            assert len([1 for labels, _ in pods if chooses.items() <= labels.items()]) == 1, o["metadata"]["name"]
    used = {name: {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v} for name, pod in objs.pods()}
    assert used[f"StatefulSet/{F}-llama-head"] == {f"{F}-keys", f"{F}-admin"}
    assert {o["metadata"]["name"] for o in objs.kinds("Secret")} == {f"{F}-{n}" for n in ("keys", "admin", "api-keys", "redis")}
    assert [o["metadata"]["name"] for o in objs.kinds("PersistentVolumeClaim")] == [f"{F}-cache"]
    assert {o["metadata"]["name"].rsplit("-", 1)[0] for o in objs.kinds("Job")} == {f"{F}-llama-prefetch", f"{F}-prefetch"}
    assert len(objs.kinds("Deployment")) == 2, "gateways and a Redis"
    assert len([o for o in objs.kinds("ConfigMap") if o["metadata"]["name"].endswith("dashboard")]) == 1
    p = {o["metadata"]["name"].removeprefix(f"{F}-"): o["spec"] for o in objs.kinds("NetworkPolicy")}
    assert reaches(p["llama-head"], "out", "redis", 6379) and reaches(p["redis"], "in", "head", 6379)
    gateways, workers = (x["podSelector"]["matchLabels"] for x in p["llama-head"]["ingress"][0]["from"])
    assert (gateways["app.kubernetes.io/name"], gateways["app.kubernetes.io/component"]) == ("coxswain", "gateway")
    assert (workers["app.kubernetes.io/name"], workers["app.kubernetes.io/component"]) == ("coxswain-llama", "worker"), "no other model's"
    heads = next(r["to"][0]["podSelector"]["matchLabels"] for r in p["gateway"]["egress"] if r["ports"][0]["port"] == 7000)
    for name in ("head", "llama-head"):
        assert heads.items() <= objs.one("StatefulSet", f"{F}-{name}")["spec"]["template"]["metadata"]["labels"].items()
    of_release, of_model = alerts_of(objs, f"{F}-gateway"), alerts_of(objs, f"{F}-llama")
    assert of_release and of_model and not of_release & of_model and of_model == alerts_of(objs, F)
    assert of_release | of_model == alerts_of(c.objects({k: v for k, v in TWO.items() if k != "models"}), F)
    notes = c.notes(TWO)
    assert f"llama: hf:a/b, head sts/{F}-llama-head" in notes and "qwen, gpt-4o: demo" in notes and '"model": "llama"' in notes


def test_a_model_that_comes_goes_or_changes_touches_no_other():
    """The templates of all other pods stay the same, those of the gateways too, so a rollout of one model replaces no other pod."""
    def templates(values):
        return {o["metadata"]["name"]: o["spec"]["template"] for o in c.objects(c.merged(fixed, values)) if o["kind"] in ("StatefulSet", "Deployment")}
    fixed = {"keys": {"existingSecret": "k"}, "admin": {"existingSecret": "a"}, "gateway": {"apiKeys": {"existingSecret": "g"}}}
    two = {"models": {"a": {"model": {"name": "demo"}}, "b": {"model": {"name": "null"}}}}
    before = templates(two)
    third = {"model": {"name": "hf:o/n"}, "worker": {"tp": 2}, "autoscaling": {"enabled": True, "minGroups": 0}}
    after = templates(c.merged(two, {"models": {"c": third}}))
    assert before.items() <= after.items() and after.keys() - before.keys() == {f"{F}-c-head", f"{F}-c-worker"}
    changed = templates(c.merged(two, {"models": {"a": {"worker": {"tp": 2}, "head": {"config": {"max_waiting": 9}}, "gateway": {"config": {"max_logprobs": 3}}}}}))
    assert {n for n in before if before[n] != changed[n]} == {f"{F}-a-head", f"{F}-a-worker"}


def test_a_release_with_one_model_grows_without_replacing_it():
    one = {"model": {"name": "hf:a/b", "servedNames": ["b"]}, "head": {"config": {"max_waiting": 9}}, "worker": {"tp": 2, "config": {"block_size": 32}}}
    fixed = {"keys": {"existingSecret": "k"}, "admin": {"existingSecret": "a"}}
    grown = {"models": {"first": {**one, "keepNames": True}, "second": {"model": {"name": "demo"}}}}
    before, after = (c.objects(c.merged(fixed, v)) for v in (one, grown))
    for part in ("head", "worker"):
        for kind in ("StatefulSet", "Service", "ConfigMap"):
            assert before.one(kind, f"{F}-{part}") == after.one(kind, f"{F}-{part}")
    assert before.kinds("Job") == [j for j in after.kinds("Job") if "second" not in j["metadata"]["name"]]
    assert before.one("Deployment", f"{F}-gateway")["spec"]["selector"] == after.one("Deployment", f"{F}-gateway")["spec"]["selector"]


def test_pools_for_prompts_and_for_the_tokens_after_them():
    """Each pool is a StatefulSet of its own. Its pods have the role and no number, because both pools have a pod 0."""
    pools = {"worker": {"tp": 2, "pools": {"prefill": 2, "decode": 4}}, "cache": {"kind": "emptyDir"}}
    for f, values in ((F, pools), (f"{F}-a", {"models": {"a": {"model": {"name": "null"}, "worker": pools["worker"]}}})):
        objs = c.objects(values)
        sets = {o["metadata"]["name"]: o["spec"] for o in objs.kinds("StatefulSet")}
        assert set(sets) == {f"{f}-head", f"{f}-prefill", f"{f}-decode"}
        for pool, n in pools["worker"]["pools"].items():
            spec = sets[f"{f}-{pool}"]
            env = c.env_of(spec["template"]["spec"]["containers"][0])
            assert spec["replicas"] == n and env["COX_ROLE"]["value"] == pool and "COX_ORDINAL" not in env
            chooses = spec["selector"]["matchLabels"]
            assert [chooses.items() <= s["template"]["metadata"]["labels"].items() for s in sets.values()].count(True) == 1
        for o in objs:
            if o["kind"] not in ("PodMonitor", "PrometheusRule"):
                c.validate(o)
    assert c.objects(pools).one("PodDisruptionBudget", f"{F}-worker")["spec"]["maxUnavailable"] == 2
    assert f"2 pods for prompts (sts/{F}-prefill) and 4" in c.notes(pools) and "3 replicas of 2 workers" in c.notes(pools)


def test_each_model_has_its_own_way_to_no_pods():
    objs = c.objects({"models": {"a": {"model": {"name": "null"}}, "z": {"model": {"name": "demo"}, "head": {"config": {"scale_start_s": 60}},
                                                                        "autoscaling": {"enabled": True, "minGroups": 0}}}})
    scaled = objs.one("ScaledObject", f"{F}-z-worker")["spec"]
    assert scaled["scaleTargetRef"]["name"] == f"{F}-z-worker" and scaled["triggers"][0]["metadata"]["url"] == f"http://{F}-z-head.ns.svc:8265/scale"
    assert len(objs.kinds("ScaledObject")) == 1 and objs.one("StatefulSet", f"{F}-a-worker")["spec"]["replicas"] == 2
    assert {m["name"]: m.get("queue_timeout") for m in models_of(objs)} == {"a": None, "z": 60}


POOL = {"inferencePool": {"enabled": True, "endpointPicker": {"name": "picker"}}, "gateway": {"config": {"metrics_public": True}}}


def test_an_inference_pool():
    """The pool's endpoints are the gateways at the port of the API, where the picker reads the metrics that its protocol names."""
    objs = c.objects(c.merged(POOL, {"httpRoute": {"enabled": True, "parentRefs": [{"name": "gw"}]}, "models": {"a": {"model": {"name": "null"}}}}))
    pool = objs.one("InferencePool", F)["spec"]
    template = objs.one("Deployment", f"{F}-gateway")["spec"]["template"]
    assert pool["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert pool["targetPorts"] == [{"number": 8000}] and objs.config("gateway")["metrics_public"] is True
    backend = objs.one("HTTPRoute", F)["spec"]["rules"][0]["backendRefs"]
    assert backend == [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": F}]
    assert {"vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:lora_requests_info", "vllm:cache_config_info"} <= c.metric_names()


CUSTOM = [*c.values_files(), TWO | {"autoscaling": {"enabled": True, "prometheusUrl": "http://p:9090"}}, {"autoscaling": {"enabled": True, "minGroups": 0}},
          {"metrics": {"serviceMonitor": True}}, c.merged(POOL, {"httpRoute": {"enabled": True, "parentRefs": [{"name": "gw"}]}})]


def test_objects_of_custom_kinds_fit_their_definitions():
    if not c.custom_schemas():
        pytest.skip("SKIPPED: no CustomResourceDefinitions here: tests/k8s/tools/crds fetches them")
    seen = set()
    for values in CUSTOM:
        for o in c.objects(c.values_of(values) if isinstance(values, str) else values):
            if (o["apiVersion"], o["kind"]) in c.custom_schemas():
                c.validate_custom(o)
                seen.add(o["kind"])
    assert seen == {kind for _, kind in c.custom_schemas()}
    bad = c.objects(POOL).one("InferencePool", F)
    for wrong in ({**bad, "spec": {**bad["spec"], "selecter": {}}}, {**bad, "spec": {**bad["spec"], "targetPorts": [{"number": "8000"}]}}):
        with pytest.raises(Exception, match="selecter|8000"):
            c.validate_custom(wrong)
