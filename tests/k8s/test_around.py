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


TWO = {"extraModels": {"llama": {"model": {"name": "hf:a/b"}, "worker": {"tp": 2, "config": {"block_size": 32}}},
                       "qwen": {"model": {"name": "demo", "servedNames": ["qwen"]}, "gateway": {"replicas": 1}, "service": {"port": 81}}},
       "gateway": {"config": {"tool_call_parser": "hermes"}}, "redis": {"enabled": True}, "head": {"standby": True}, "metrics": {"podMonitor": True, "dashboards": True, "rules": True},
       "ingress": {"enabled": True, "host": "llm.example"}, "service": {"type": "LoadBalancer"}}


def test_several_models():
    objs = c.objects(TWO)
    assert len(objs.ids()) == len(set(objs.ids()))
    for o in objs:
        if o["kind"] not in ("PodMonitor", "PrometheusRule"):
            c.validate(o)
    worker, gateway = objs.config("worker", f"{F}-llama"), objs.config("gateway", f"{F}-llama")
    assert (worker["model"], worker["tp"], worker["block_size"]) == ("hf:a/b", 2, 32)
    assert worker["head"].startswith(f"{F}-llama-head-0.{F}-llama-head:7000,") and gateway["root_path"] == "/llama"
    assert "tool_call_parser" not in gateway and objs.config("gateway")["tool_call_parser"] == "hermes"
    assert objs.config("gateway", f"{F}-qwen")["served_model_name"] == ["qwen"]
    names = [objs.config("head", f)["cluster_name"] for f in (F, f"{F}-llama", f"{F}-qwen")]
    assert len(set(names)) == 3, "heads of one name would wait for each other"
    paths = {o["metadata"]["name"]: o["spec"]["rules"][0]["http"]["paths"][0]["path"] for o in objs.kinds("Ingress")}
    assert paths == {F: "/", f"{F}-llama": "/llama", f"{F}-qwen": "/qwen"}
    services = {o["metadata"]["name"]: o["spec"] for o in objs.kinds("Service")}
    assert services[f"{F}-qwen"]["type"] == "ClusterIP" and services[f"{F}-qwen"]["ports"][0]["port"] == 81


def test_models_share_what_is_the_release_s_and_nothing_else():
    objs = c.objects(TWO)
    # Each Service, StatefulSet and Deployment selects the pods of exactly one template.
    pods = list(objs.templates())
    for o in objs:
        if o["kind"] in ("Service", "StatefulSet", "Deployment"):
            chooses = o["spec"]["selector"].get("matchLabels", o["spec"]["selector"])
            assert len([1 for labels, _ in pods if chooses.items() <= labels.items()]) == 1, o["metadata"]["name"]
    used = {name: {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v} for name, pod in objs.pods()}
    assert used[f"Deployment/{F}-llama-gateway"] == {f"{F}-llama-keys", f"{F}-admin", f"{F}-api-keys"}
    assert {o["metadata"]["name"] for o in objs.kinds("Secret")} == {f"{F}-{n}" for n in (
        "keys", "admin", "api-keys", "redis", "llama-keys", "qwen-keys")}
    assert [o["metadata"]["name"] for o in objs.kinds("PersistentVolumeClaim")] == [f"{F}-cache"]
    assert len(objs.kinds("Deployment")) == 4, "three of gateways, one Redis"
    assert len([o for o in objs.kinds("ConfigMap") if o["metadata"]["name"].endswith("dashboard")]) == 1
    p = {o["metadata"]["name"].removeprefix(f"{F}-"): o["spec"] for o in objs.kinds("NetworkPolicy")}
    assert reaches(p["llama-head"], "out", "redis", 6379) and reaches(p["redis"], "in", "head", 6379)
    others = p["llama-head"]["ingress"][0]["from"]
    assert all(x["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == "coxswain-llama" for x in others), "no other model's"
    assert "svc/demo-coxswain-llama, also below /llama/v1" in c.notes(TWO)
