"""Tests what protects a release by default: the API key, the network policies and the profile of system calls."""
import base64
import json
import re

import chart as c
import pytest

F = "demo-coxswain"
EVERYTHING = "ci/everything.yaml"


def test_an_api_key_unless_somebody_else_has_it():
    """By default Helm makes a key and keeps it; gateways and `helm test` read it. A user's Secret takes its place, and `generate: false`
    turns authentication off."""
    objs = c.objects()
    made = objs.one("Secret", f"{F}-api-keys")
    assert re.fullmatch("[A-Za-z0-9]{32}", base64.b64decode(made["data"]["api-keys"]).decode())
    assert made["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    for kind, name in objs.ids():
        if kind == "Secret" and name != f"{F}-api-keys":
            assert "annotations" not in objs.one(kind, name)["metadata"], "the other keys end with the release"
    assert objs.config("gateway")["api_key_file"] == "/etc/coxswain/api-keys/api-keys"
    assert c.env_of(objs.one("Pod", f"{F}-smoke")["spec"]["containers"][0])["COX_API_KEY"]["valueFrom"]["secretKeyRef"] == {
        "name": f"{F}-api-keys", "key": "api-keys"}
    theirs = c.objects({"gateway": {"apiKeys": {"existingSecret": "mine", "key": "k"}}})
    assert f"{F}-api-keys" not in [n for _, n in theirs.ids()] and theirs.config("gateway")["api_key_file"] == "/etc/coxswain/api-keys/k"
    assert c.env_of(theirs.one("Pod", f"{F}-smoke")["spec"]["containers"][0])["COX_API_KEY"]["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "k"}
    off = {"gateway": {"apiKeys": {"generate": False}}}
    objs = c.objects(off)
    assert "api_key_file" not in objs.config("gateway") and f"{F}-api-keys" not in [n for _, n in objs.ids()]
    assert "COX_API_KEY" not in c.env_of(objs.one("Pod", f"{F}-smoke")["spec"]["containers"][0])
    said = "Authentication is off"
    assert said in c.notes(off) and said not in c.notes() and "Helm has generated the API key" in c.notes()
    assert "generated" not in c.notes({"gateway": {"apiKeys": {"existingSecret": "mine"}}})


def test_without_a_cluster_named_secrets_make_a_repeatable_rendering():
    """Without a cluster Helm would make other keys each time. With all Secrets named, two renderings are equal."""
    named = {"keys": {"existingSecret": "k"}, "admin": {"existingSecret": "a"}, "gateway": {"apiKeys": {"existingSecret": "g"}},
             "redis": {"enabled": True, "existingSecret": "r"}, "head": {"standby": True}}
    assert c.texts(named) == c.texts(named) and c.objects(named).kinds("Secret") == []
    for part in ("keys", "admin", "gateway", "redis"):
        rest = {k: v for k, v in named.items() if k != part} | ({"redis": {"enabled": True}} if part == "redis" else {})
        assert c.texts(rest) != c.texts(rest), part


def test_a_profile_of_system_calls():
    """With seccompProfile the programs of the image have a profile of the node. Redis is another program and keeps the default."""
    objs = c.objects({"seccompProfile": {"type": "Localhost", "localhostProfile": "coxswain.json"}, "redis": {"enabled": True},
                      "models": {"one": {"model": {"name": "null"}}, "other": {"model": {"name": "demo"}}}})
    found = {name: pod["securityContext"]["seccompProfile"] for name, pod in objs.pods()}
    assert found.pop(f"Deployment/{F}-redis") == {"type": "RuntimeDefault"}
    assert len(found) >= 7 and all(p == {"type": "Localhost", "localhostProfile": "coxswain.json"} for p in found.values())
    for o in objs:
        c.validate(o)
    old = c.objects({"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}})
    assert {str(pod["securityContext"]["seccompProfile"]) for _, pod in old.pods()} == {"{'type': 'RuntimeDefault'}"}


def policies(values):
    return {o["metadata"]["name"].removeprefix(f"{F}-"): o["spec"] for o in c.objects(values).kinds("NetworkPolicy")}


def part(peer):
    return peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component")


def reaches(spec, direction, other, port):
    """Returns whether a policy allows traffic to or from the part `other` at the port. `other` None means a peer outside the
    release."""
    def is_of(peer):
        chosen = peer.get("podSelector", {}).get("matchExpressions")
        return other in chosen[0]["values"] if chosen else part(peer) == other
    for rule in spec.get({"in": "ingress", "out": "egress"}[direction], []):
        peers = rule.get("from" if direction == "in" else "to")
        if peers is None or any(is_of(p) for p in peers):
            if not rule.get("ports") or any(p["port"] == port for p in rule["ports"]):
                return True
    return False


def test_network_policies_let_through_what_is_needed_and_no_more():
    p = policies({"redis": {"enabled": True}})
    assert p.keys() == {"head", "worker", "gateway", "redis", "prefetch"}
    needed = [("gateway", "head", 7000), ("worker", "head", 7000), ("worker", "worker", 7100), ("worker", "worker", 45678),
              ("worker", "worker", 7200), ("head", "redis", 6379), ("gateway", "redis", 6379)]
    for a, b, port in needed:
        assert reaches(p[a], "out", b, port) and reaches(p[b], "in", a, port), (a, b, port)
    for b, port in (("head", 7000), ("head", 8265), ("worker", 7100), ("worker", 7001), ("redis", 6379), ("gateway", 8001)):
        assert not reaches(p[b], "in", None, port), f"{b} {port} is open to whoever it is"
    assert not reaches(p["redis"], "in", "worker", 6379) and not reaches(p["head"], "in", "worker", 8265)
    assert not reaches(p["gateway"], "in", "worker", 8001) and reaches(p["gateway"], "in", None, 8000)
    for name in ("head", "worker", "gateway"):
        assert reaches(p[name], "out", None, 53), "names"
    assert reaches(p["worker"], "out", None, 443) and reaches(p["prefetch"], "out", None, 443) and not reaches(p["head"], "out", None, 443)
    assert all(set(s["policyTypes"]) == {"Ingress", "Egress"} for s in p.values())
    assert all(s.get("ingress") != [] != s.get("egress") for s in p.values()), "the API server drops an empty list, and each upgrade would add it again"


def test_network_policies_of_those_who_were_named():
    p = policies(c.values_of(EVERYTHING))
    public = p["gateway"]["ingress"][0]["from"]
    assert {"ipBlock": {"cidr": "10.0.0.0/8"}} in public and [part(x) for x in public][-1] == "test"
    for name, port in (("gateway", 8001), ("head", 8265), ("worker", 7001)):
        assert any(r["ports"][0]["port"] == port and "namespaceSelector" in r["from"][0] for r in p[name]["ingress"] if r.get("ports"))
    assert p["head"]["egress"][-1]["ports"][0]["port"] == 9000
    null = policies({"model": {"name": "null"}})
    assert not reaches(null["worker"], "out", None, 443), "nothing is fetched"
    assert "prefetch" not in null


FETCHED = [  # each case: values → ports that pods may fetch from
    ({}, [443]),
    ({"model": {"name": "hf:a/b"}}, [443]),
    ({"model": {"name": "http://mirror.example/x.gguf"}}, [443, 80]),
    ({"model": {"name": "https://mirror.example:8443/x.gguf?a=http://b:81"}}, [443, 8443]),
    ({"model": {"name": "s3://b/p"}, "modelS3": {"endpoint": "http://minio:9000"}}, [443, 9000]),
    ({"modelHf": {"endpoint": "http://[fd00::1]"}, "model": {"pullEnv": [{"name": "HTTPS_PROXY", "value": "http://u:p@proxy:3128"},
                                                                          {"name": "A", "valueFrom": {}}]}}, [443, 80, 3128]),
]


@pytest.mark.parametrize("values, ports", FETCHED, ids=lambda v: json.dumps(v)[:50])
def test_who_fetches_reaches_no_credentials_of_the_node(values, ports):
    p = policies(values)
    for name in ("worker", "gateway", "prefetch"):
        rules = [r for r in p[name]["egress"] if any("ipBlock" in peer for peer in r.get("to", []))]
        assert [x["port"] for x in rules[0]["ports"]] == ports and len(rules) == 1, name
        blocks = {peer["ipBlock"]["cidr"]: peer["ipBlock"]["except"] for peer in rules[0]["to"] if "ipBlock" in peer}
        assert blocks.keys() == {"0.0.0.0/0", "::/0"} and "169.254.0.0/16" in blocks["0.0.0.0/0"] and "fd00:ec2::254/128" in blocks["::/0"]
        for rule in p[name]["egress"]:
            assert "to" in rule or {x["port"] for x in rule["ports"]} == {53, 5353}, "nothing but names goes to whoever it is"


def test_policies_are_on_unless_turned_off():
    assert policies({}).keys() == {"head", "worker", "gateway", "prefetch"}
    assert policies({"networkPolicy": {"enabled": False}}) == {}


LEAVES = [  # each case: values → (part, port) pairs that policies let out to any machine, besides downloads
    ({"redis": {"url": "redis://u:p@r.example:6380/1"}}, {("head", 6380), ("gateway", 6380)}),
    ({"redis": {"url": "redis://[fd00::1]"}, "head": {"standby": True}}, {("head", 6379), ("gateway", 6379)}),
    ({"redis": {"existingSecret": "r"}}, {("head", 6379), ("gateway", 6379)}),
    ({"gateway": {"extraEnv": [{"name": "COX_REDIS", "value": "redis://r:7777"}]}}, {("head", 7777), ("gateway", 7777)}),
    ({"gateway": {"extraEnv": [{"name": "COX_REDIS", "valueFrom": {"secretKeyRef": {"name": "r", "key": "u"}}}]}}, {("head", 6379), ("gateway", 6379)}),
    ({"gateway": {"config": {"otlp_traces_endpoint": "http://otel:4318"}}}, {("gateway", 4318)}),
    ({"gateway": {"extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "https://otel"}]}}, {("gateway", 443)}),
    ({"worker": {"config": {"spec_model": "hf:a/small"}}}, {("worker", 443), ("gateway", 443)}),
    ({"worker": {"config": {"speculative_config": '{"model": "a/small"}'}}}, {("worker", 443), ("gateway", 443)}),
    ({"worker": {"config": {"spec_model": "/models/small"}}}, set()),
    ({"redis": {"enabled": True}, "head": {"standby": True}}, set()),
]


@pytest.mark.parametrize("values, out", LEAVES, ids=lambda v: json.dumps(v)[:70] if isinstance(v, dict) else "")
def test_what_the_values_name_outside_of_the_release_is_reached(values, out):
    """The model is in the image, so no port is open for a download."""
    p = policies(c.merged({"model": {"name": "/m"}, "cache": {"kind": "none"}}, values))
    found = {(name, port["port"]) for name, spec in p.items() for rule in spec.get("egress", []) if any("ipBlock" in peer for peer in rule.get("to", []))
             for port in rule["ports"]}
    assert found == out


ASKED = [  # each case: values → parts whose port for metrics other pods of the cluster reach
    ({}, set()),
    ({"metrics": {"serviceMonitor": True}}, {"head", "worker", "gateway"}),
    ({"metrics": {"podMonitor": True}}, {"head", "worker", "gateway"}),
    ({"autoscaling": {"enabled": True}}, {"head"}),
    ({"autoscaling": {"enabled": True, "prometheusUrl": "http://p:9090"}}, set()),
    ({"autoscaling": {"enabled": True, "kind": "hpa"}}, set()),
]


@pytest.mark.parametrize("values, parts", ASKED, ids=lambda v: json.dumps(v) if isinstance(v, dict) else "")
def test_monitors_and_keda_of_the_values_are_let_in(values, parts):
    ports = {"head": 8265, "worker": 7001, "gateway": 8001}
    assert {name for name, spec in policies(values).items() if name in ports and reaches(spec, "in", None, ports[name])} == parts
    named = policies(c.merged(values, {"networkPolicy": {"metricsFrom": [{"podSelector": {"matchLabels": {"a": "b"}}}]}}))
    for name, port in ports.items():
        peers = [peer for rule in named[name]["ingress"] if rule.get("ports") and rule["ports"][0]["port"] == port for peer in rule["from"]]
        assert peers == [{"podSelector": {"matchLabels": {"a": "b"}}}], "who is named is the only one"
    said = "No other pod may read /metrics" in c.notes(values)
    assert said == (not parts) and "No other pod" not in c.notes(c.merged(values, {"networkPolicy": {"enabled": False}}))
