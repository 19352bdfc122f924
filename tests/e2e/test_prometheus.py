"""Tests deploy/grafana with a real Prometheus (scripts/setup --metrics) that scrapes a running cluster. The rules are valid, each
alert fires when it should, and every query of the dashboard, the rules and vLLM's dashboard has data."""
import json
import math
import re
import shutil
import subprocess
import threading
import urllib.parse

import alert_cases
import httpx
import jsonschema
import pytest
from cluster import ROOT, SLOW, Cluster, end_all, free_ports, get, wait_for

GRAFANA = ROOT / "deploy/grafana"
RULES = GRAFANA / "coxswain.rules.yml"
BOARD = json.loads((GRAFANA / "coxswain.json").read_text())
WINDOW = "20s"  # replaces $__rate_interval in the queries

# NOT_HERE lists metrics that have no series in a cluster without a GPU, a certificate or a second head.
NOT_HERE = {
    "coxswain_worker_gpu_": "there is no GPU",
    "coxswain_gateway_tls_certificate_": "gateways without --ssl-certfile",
    "coxswain_head_serves": "a head without --redis",
    "coxswain_head_store_reached": "a head without --redis",
}
# These are the metrics in vLLM's own dashboard (examples/observability/prometheus_grafana/grafana.json of its repository), each with the label
# model_name. docs/reference/metrics.md lists the panels of that dashboard.
VLLM_GAUGES = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"]
VLLM_RATES = ["prompt_tokens_total", "generation_tokens_total", "request_success_total", "request_queue_time_seconds_sum",
              "request_prefill_time_seconds_sum", "request_decode_time_seconds_sum", "request_max_num_generation_tokens_sum",
              *(f"{n}_{part}" for n in ("e2e_request_latency_seconds", "inter_token_latency_seconds",
                                        "time_to_first_token_seconds") for part in ("bucket", "sum", "count")),
              "request_prompt_tokens_bucket", "request_generation_tokens_bucket"]
# This is a schema of our dashboard, because Grafana publishes none. Grafana 8 and later read these members.
TEXT, SOURCE = {"type": "string", "minLength": 1}, {"const": {"type": "prometheus", "uid": "${datasource}"}}


def an_object(properties, *optional):
    return {"type": "object", "properties": properties, "required": sorted(properties.keys() - set(optional)),
            "additionalProperties": False}


TARGET = an_object({"refId": {"type": "string", "pattern": "^[A-Z]$"}, "expr": TEXT, "legendFormat": TEXT})
PANEL = an_object({
    "id": {"type": "integer", "minimum": 1}, "title": TEXT, "description": {"type": "string"}, "type": {"const": "timeseries"},
    "datasource": SOURCE, "gridPos": an_object({k: {"type": "integer", "minimum": 0} for k in "xywh"}),
    "fieldConfig": an_object({"defaults": an_object({"unit": {"enum": ["short", "s", "percentunit", "bytes", "celsius", "watt"]},
                                     "min": {"const": 0}}), "overrides": {"const": []}}),
    "options": an_object({"legend": an_object({"displayMode": {"const": "list"}, "placement": {"const": "bottom"}})}),
    "targets": {"type": "array", "items": TARGET, "minItems": 1, "maxItems": 26}})
VARIABLE = an_object({"name": TEXT, "label": TEXT, "type": {"enum": ["datasource", "query"]}, "query": TEXT, "datasource": SOURCE,
              "refresh": {"const": 2}, "regex": TEXT}, "datasource", "refresh", "regex")
DASHBOARD = an_object({"title": TEXT, "uid": {"type": "string", "pattern": "^[a-z0-9-]{1,40}$"}, "tags": {"type": "array", "items": TEXT},
               "schemaVersion": {"type": "integer", "minimum": 30}, "version": {"type": "integer", "minimum": 1},
               "editable": {"type": "boolean"}, "refresh": {"type": "string", "pattern": "^[0-9]+[smh]$"},
               "time": an_object({"from": TEXT, "to": TEXT}), "timezone": TEXT,
               "templating": an_object({"list": {"type": "array", "items": VARIABLE}}), "panels": {"type": "array", "items": PANEL}})


def program(name):
    path = ROOT / ".deps/prometheus" / name
    found = str(path) if path.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"no {name} here; scripts/setup --metrics unpacks Debian's into .deps/prometheus")
    return found


def test_the_dashboard_is_one():
    jsonschema.validate(BOARD, DASHBOARD)
    panels = BOARD["panels"]
    assert len({p["id"] for p in panels}) == len({p["title"] for p in panels}) == len(panels)
    cells = [(p["gridPos"]["x"] + x, p["gridPos"]["y"] + y) for p in panels for x in range(p["gridPos"]["w"]) for y in range(p["gridPos"]["h"])]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24, "panels lie over each other"
    names = {v["name"] for v in BOARD["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD))) <= names
    for wanted in ("E2E latency", "TTFT", "ITL", "Tokens per second", "Cache usage", "Cache hit rate", "queue", "recoveries",
                   "GPU utilisation", "GPU memory", "Invocations", "Model latency"):
        assert [p for p in panels if wanted in p["title"]], f"no panel of {wanted}"


def test_promtool_takes_the_rules():
    done = subprocess.run([program("promtool"), "check", "rules", RULES], capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def test_every_alert_fires_when_it_should(tmp_path):
    file = tmp_path / "cases.yml"
    file.write_text(json.dumps(alert_cases.promtool_file(RULES)))
    done = subprocess.run([program("promtool"), "test", "rules", file], capture_output=True, text=True, timeout=120 * SLOW)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_cases():
    alerts = re.findall(r"^ +- alert: (\w+)", RULES.read_text(), re.M)
    for fires in (True, False):
        assert {a for a, _, _, f in alert_cases.CASES if f == fires} == set(alerts), f"cases in which it {'fires' if fires else 'is silent'}"


class Prometheus:
    """Runs a real Prometheus on a free loopback port, with the configuration of deploy/grafana except for ports and intervals."""

    def __init__(self, cluster, folder):
        admin, gateways = cluster.admin_port, cluster.ports
        workers = [cluster.worker_http_port + i for i in range(2)]
        text = (GRAFANA / "prometheus.yml").read_text()
        for was, ports in (("8265", [admin]), ("8000", gateways), ('7001", "127.0.0.1:7002', workers)):
            assert f'["127.0.0.1:{was}"]' in text
            text = text.replace(f'["127.0.0.1:{was}"]', json.dumps([f"127.0.0.1:{p}" for p in ports]))
        (folder / "prometheus.yml").write_text(text.replace(": 15s", ": 500ms"))
        shutil.copy(RULES, folder)
        self.port = free_ports(1)[0]
        self.log = folder / "log"
        self.process = subprocess.Popen(
            [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log.open("wb"), stderr=subprocess.STDOUT, cwd=folder)

    def ask(self, path, **query):
        code, body = get(f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}")
        assert code == 200, f"{path} {query}: {code} {body}\n{self.log.read_text()[-2000:]}"
        return json.loads(body)["data"]

    def values(self, expression):
        return [float(r["value"][1]) for r in self.ask("query", query=expression)["result"]]

    def numbers(self, expression):
        """Waits for values and returns them. On a busy machine a scrape may be missed. A series is then absent until the next
        scrape."""
        def some():
            found = self.values(expression)
            return found if are_numbers(found) else None
        return wait_for(f"numbers of {expression}", some)

    def is_scraped(self, n_targets=5):
        if get(f"http://127.0.0.1:{self.port}/-/ready")[0] != 200:
            return False
        targets = self.ask("targets")["activeTargets"]
        return len(targets) == n_targets and all(t["health"] == "up" for t in targets)


def load(cluster, until):
    """Runs streams at both gateways with a common prefix in their prompts, and some invalid requests."""
    def client(i):
        with httpx.Client(timeout=30 * SLOW) as http:
            n = 0
            while not until.is_set():
                url = f"http://127.0.0.1:{cluster.ports[n % 2]}/v1/completions"
                body = {"prompt": "the same words of every client, as many as fill some blocks of the cache " * 4 + f"{i} {n}",
                        "max_tokens": 20, "stream": n % 2 == 0}
                assert http.post(url, json=body).status_code == 200
                if n % 4 == 0:
                    assert http.post(url, json={"prompt": 5}).status_code in (400, 422)
                n += 1

    threads = [threading.Thread(target=client, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    return threads


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """Yields a Prometheus that has scraped some seconds of load, which continues."""
    program("prometheus")
    with Cluster("--null-step-us", 3000, gateways=2) as c:
        p, until = Prometheus(c, tmp_path_factory.mktemp("prometheus")), threading.Event()
        threads = load(c, until)
        try:
            wait_for("every target is scraped", p.is_scraped, 30)
            wait_for("counters of a few scrapes, and what is known late", lambda: p.values(
                f'increase(vllm:generation_tokens_total{{job="coxswain-gateway"}}[{WINDOW}]) > 100') and p.values(
                    "coxswain_head_desired_workers") and p.values("coxswain:generation_tokens:rate1m > 0"), 30)
            yield p
        finally:
            until.set()
            for t in threads:
                t.join()
            end_all([p.process])


def expected_here(expression):
    return not any(name in expression for name in NOT_HERE)


def are_numbers(values):
    return bool(values) and all(math.isfinite(v) for v in values)


def test_every_query_of_the_dashboard_has_data(prometheus):
    names = {v["name"]: v for v in BOARD["templating"]["list"]}
    jobs = prometheus.ask("label/job/values", **{"match[]": 'coxswain_uptime_seconds{namespace=""}'})
    release = re.fullmatch(names["release"]["regex"].strip("/").replace("\\/", "/"), jobs[0])[1]
    assert (jobs, release) == (["coxswain-head"], "coxswain")
    assert prometheus.ask("label/namespace/values", **{"match[]": "coxswain_uptime_seconds"}) == [], "Grafana's variable is empty"
    n_here = 0
    for p in BOARD["panels"]:
        for t in p["targets"]:
            query = t["expr"].replace("$__rate_interval", WINDOW).replace("$namespace", "").replace("$release", release)
            if expected_here(query):
                prometheus.numbers(query)
                labels = set(re.findall(r"\{\{(\w+)\}\}", t["legendFormat"])) - {"pod"}
                assert all(labels <= r["metric"].keys() for r in prometheus.ask("query", query=query)["result"]), p["title"]
                n_here += 1
            else:
                assert prometheus.values(query) == [], f"{p['title']} has data here: it is no longer one of NOT_HERE"
    assert n_here >= 45, "most of it does not need what is not here"


def test_every_rule_has_data_and_none_fires(prometheus):
    rules = prometheus.ask("rules")["groups"][0]["rules"]
    assert len(rules) == RULES.read_text().count("- alert: ") + RULES.read_text().count("- record: ")
    for r in rules:
        assert r["health"] == "ok", r
        if r["type"] == "recording":
            prometheus.numbers(r["name"])
            continue
        assert r["state"] != "firing", r
        # The series that the query selects exist, whatever the comparison gives.
        for selector in re.findall(r"[a-z_]+:?[a-z0-9_]+\{[^}]*\}", r["query"]):
            if expected_here(selector):
                wait_for(f"{r['name']} has a series {selector}", lambda s=selector: prometheus.values(re.sub(r',? *status="5xx"', "", s)))


def test_vllms_dashboard_has_data(prometheus):
    models = prometheus.ask("label/model_name/values")
    assert models == ["null"], "its variable takes every model_name there is"
    page = (ROOT / "docs/reference/metrics.md").read_text().split("These metrics do not exist:", 1)[0]
    for name in VLLM_GAUGES:
        prometheus.numbers(f'vllm:{name}{{model_name="null"}}')
    for name in VLLM_RATES:
        wait_for(f"{name} rises", lambda n=name: prometheus.values(f'rate(vllm:{n}{{model_name="null"}}[{WINDOW}]) > 0'))
    for name in VLLM_GAUGES + VLLM_RATES:
        assert f"`vllm:{re.sub('_(bucket|sum|count)$', '', name)}`" in page, f"docs/reference/metrics.md lacks {name}"


def test_prometheus_itself_has_nothing_to_say(prometheus):
    log = prometheus.log.read_text()
    assert not re.search(r"level=(warn|error)", log), log
