"""Tests spans of requests at a collector, and trace ids in the access log. A slow or absent collector has no effect on requests."""
import json
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from cluster import BIN, Cluster, get, wait_for
from prometheus_client.parser import text_string_to_metric_families

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BODY = {"prompt": "some words of a prompt", "max_tokens": 8, "temperature": 0}


class Collector:
    """Accepts OTLP/HTTP in JSON as specified. answers: statuses of the next posts, then 200."""

    def __init__(self):
        self.spans, self.resources, self.answers, self.posts = [], [], [], 0
        self.go_on = threading.Event()
        self.go_on.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                text = self.rfile.read(int(self.headers["Content-Length"]))
                collector.go_on.wait()
                status = collector.answers.pop(0) if collector.answers else 200
                if status == 200:
                    assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/json")
                    collector.take(json.loads(text))
                collector.posts += 1
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request):
        assert request.keys() == {"resourceSpans"}
        for of in request["resourceSpans"]:
            self.resources.append(attributes(of["resource"]))
            for scope in of["scopeSpans"]:
                assert scope["scope"]["name"] == "cox-gateway"
                self.spans += scope["spans"]

    def of(self, trace):
        return [s for s in list(self.spans) if s["traceId"] == trace]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


def attributes(has):
    read = {"stringValue": str, "intValue": int, "doubleValue": float}
    found = {}
    for a in has["attributes"]:
        (kind, value), = a["value"].items()
        assert a["key"] not in found
        found[a["key"]] = read[kind](value)
    return found


@pytest.fixture(scope="module")
def collector():
    with Collector() as c:
        yield c


@pytest.fixture(scope="module")
def cluster(collector, tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    keys = folder / "keys"
    keys.write_text("sk-trace-1 a-tenant\nsk-trace-2\n")
    with Cluster("--otlp-traces-endpoint", collector.url, "--access-log", folder / "log", "--api-key-file", keys,
                 "--null-step-us", 1000, "--max-num-seqs", 1, "--max-waiting", 2) as c:
        c.log_of_requests = folder / "log"
        yield c


def ask(cluster, trace, flags="01", key="sk-trace-1", body=BODY, **headers):
    headers |= {"Authorization": f"Bearer {key}", "X-Request-Id": "r" + trace[:8]}
    if flags:
        headers["traceparent"] = f"00-{trace}-{PARENT}-{flags}"
    return httpx.post(cluster.url + "/v1/completions", json=body, headers=headers, timeout=30)


def line_of(cluster, request_id):
    """Returns the access log's line of this request. The last line may be incomplete."""
    def found():
        whole, _, _ = cluster.log_of_requests.read_text().rpartition("\n")
        return [e for e in map(json.loads, whole.splitlines()) if e["id"] == request_id]

    return wait_for("a line of the access log", found)[0]


def metric(cluster, name):
    text = get(cluster.url + "/metrics", headers={"Authorization": "Bearer sk-trace-1"})[1]
    return sum(s.value for f in text_string_to_metric_families(text) for s in f.samples if s.name == name)


def test_a_request_is_a_span_of_its_callers_trace(cluster, collector):
    answer = ask(cluster, TRACE, tracestate="rojo=00f067aa0ba902b7,congo=t61rcWkgMzE").json()
    span, = wait_for("its span", lambda: collector.of(TRACE))
    assert (span["name"], span["kind"], span["parentSpanId"]) == ("llm_request", 2, PARENT)
    assert span["traceState"] == "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE" and "status" not in span
    assert len(span["spanId"]) == 16 and span["spanId"] not in (PARENT, "0" * 16)
    a = attributes(span)
    wants = {"gen_ai.request.id": answer["id"], "gen_ai.response.model": "null", "gen_ai.request.max_tokens": 8,
             "gen_ai.request.n": 1, "gen_ai.request.temperature": 0, "gen_ai.request.top_p": 1,
             "gen_ai.usage.prompt_tokens": answer["usage"]["prompt_tokens"], "gen_ai.usage.completion_tokens": 8,
             "gen_ai.usage.num_sequences": 1, "http.response.status_code": 200, "coxswain.outcome": "length"}
    assert {k: a[k] for k in wants} == wants
    latency = {k.removeprefix("gen_ai.latency."): v for k, v in a.items() if k.startswith("gen_ai.latency.")}
    assert latency.keys() == {"e2e", "time_in_queue", "time_to_first_token", "time_in_model_prefill",
                              "time_in_model_decode", "time_in_model_inference"}
    assert 0 < latency["time_to_first_token"] < latency["e2e"] and latency["time_in_model_decode"] > 0
    seconds = (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e9
    assert latency["e2e"] == pytest.approx(seconds, abs=1)
    resource = collector.resources[-1]
    assert resource["service.name"] == "coxswain" and resource["service.version"] and resource["host.name"]
    line = line_of(cluster, "r" + TRACE[:8])
    assert (line["trace_id"], line["span_id"]) == (TRACE, span["spanId"])


def test_the_log_says_what_an_operator_asks(cluster):
    trace = "1" * 32
    used = ask(cluster, trace, body=BODY | {"n": 2, "stream": False}).json()["usage"]
    line = line_of(cluster, "r" + trace[:8])
    wants = {"tenant": "a-tenant", "trace_id": trace, "model": "null", "outcome": "length", "stream": False,
             "choices": 2, "prompt_tokens": used["prompt_tokens"], "completion_tokens": 16, "status": 200}
    assert {k: line[k] for k in wants} == wants
    assert 0 < line["ttft"] < line["seconds"] and 0 <= line["queue"] < line["seconds"]
    ask(cluster, "2" * 32, key="sk-trace-2")
    assert line_of(cluster, "r" + "2" * 8)["tenant"].startswith("sha256:")
    ask(cluster, "3" * 32, body={"prompt": "x", "max_tokens": 0})
    line = line_of(cluster, "r" + "3" * 8)
    assert (line["status"], line["trace_id"]) == (400, "3" * 32) and "model" not in line
    assert "sk-trace" not in cluster.log_of_requests.read_text()


def test_what_is_not_sampled_stays_here(cluster, collector):
    """The caller's flag decides. A malformed traceparent counts as absent."""
    ask(cluster, "4" * 32, flags="00")
    ask(cluster, "5" * 32, flags="0")
    own = line_of(cluster, "r" + "5" * 8)["trace_id"]
    assert own != "5" * 32
    wait_for("the later span", lambda: collector.of(own))
    assert "parentSpanId" not in collector.of(own)[0]
    assert collector.of("4" * 32) == [] and line_of(cluster, "r" + "4" * 8)["trace_id"] == "4" * 32


def test_errors_and_those_who_left_have_spans(cluster, collector):
    headers = {"Authorization": "Bearer sk-trace-1", "traceparent": f"00-{'6' * 32}-{PARENT}-01"}
    with httpx.stream("POST", cluster.url + "/v1/completions", headers=headers, timeout=30,
                      json=BODY | {"max_tokens": 8000, "stream": True, "n": 2, "ignore_eos": True}) as r:  # the stream would last 16 s, so it ends by the abort
        pieces = r.iter_raw()  # the iterator must stay, because its end would end the stream
        next(pieces)
        wait_for("one runs, one waits", lambda: cluster.status()["requests"]["waiting"] == 1)
        refused = ask(cluster, "7" * 32, body=BODY | {"n": 2})  # one request may wait and one does, so this request is refused
    assert refused.status_code == 429
    for trace, outcome, status in (("6" * 32, "abort", 200), ("7" * 32, "error", 429)):
        span, = wait_for(outcome, lambda trace=trace: collector.of(trace))
        a = attributes(span)
        assert (a["coxswain.outcome"], a["http.response.status_code"]) == (outcome, status)
        assert span.get("status", {}) == ({"code": 2} if outcome == "error" else {})
        assert ("gen_ai.latency.time_to_first_token" in a) == (outcome == "abort")


def test_a_collector_that_is_slow_or_refuses_hurts_nobody(cluster, collector):
    exported, dropped = (metric(cluster, f"coxswain_gateway_spans_{n}_total") for n in ("exported", "dropped"))
    collector.go_on.clear()
    posts, n, end = collector.posts, 0, time.monotonic() + 5
    # This loop takes 5 s at most: the gateway gives a collector 10 s to answer, tries four times, and then drops the spans.
    while n < 20 and (n == 0 or time.monotonic() < end):
        assert ask(cluster, f"8{n:031}").status_code == 200
        n += 1
    assert collector.posts == posts
    collector.answers = [503, 200]  # after the 503 the gateway sends the spans again
    collector.go_on.set()
    wait_for("all are there", lambda: sum(len(collector.of(f"8{i:031}")) for i in range(n)) == n)
    collector.answers = [400]  # the collector refuses them
    assert ask(cluster, "9" * 32).status_code == 200
    wait_for("it is counted", lambda: metric(cluster, "coxswain_gateway_spans_dropped_total") == dropped + 1)
    assert metric(cluster, "coxswain_gateway_spans_exported_total") >= exported + n
    assert collector.of("9" * 32) == []
    wait_for("it is told of", lambda: "spans_refused" in cluster.log())  # `cox up` prints the gateway's line


def test_the_last_spans_are_delivered_and_others_names_are_known():
    with Collector() as collector:
        with Cluster("--otlp-sampling", 0, env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url + "/",
                                                 "OTEL_SERVICE_NAME": "a boat"}) as c:
            assert ask(c, "a" * 32, flags="").status_code == 200
            assert ask(c, "b" * 32).status_code == 200
        assert len(collector.of("b" * 32)) == len(collector.spans) == 1
        assert collector.resources[0]["service.name"] == "a boat"


def test_an_endpoint_that_cannot_be_is_refused():
    for url, why in (("https://collector:4318", "cannot send data over https://"), ("collector:4317", "must have the form http://")):
        done = subprocess.run([BIN / "cox-gateway", "--model", "null", "--insecure", "--port", "0",
                               "--otlp-traces-endpoint", url], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and f"--otlp-traces-endpoint {url}: " in done.stderr and why in done.stderr
