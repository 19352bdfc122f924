"""Tests /metrics of every process, read by Prometheus' own parser and compared with docs/reference/metrics.md and vLLM's names."""
import json
import re
import urllib.error
import urllib.request

import httpx
import pytest
from cluster import ROOT, Cluster, get, wait_for
from prometheus_client.parser import text_string_to_metric_families

NAME = 'a "name" \\ of two\nlines é'  # a name with every character that a label has to escape
GAUGES = """num_requests_running num_requests_waiting num_requests_waiting_by_reason num_requests_kv_fetch_by_stage
            kv_cache_usage_perc engine_sleep_state lora_requests_info cache_config_info websocket_connections_active"""
COUNTERS = """prompt_tokens generation_tokens prompt_tokens_by_source prompt_tokens_cached prompt_tokens_cached_by_source
              prefix_cache_queries prefix_cache_hits external_prefix_cache_queries external_prefix_cache_hits
              mm_cache_queries mm_cache_hits num_preemptions request_success admission_rejections corrupted_requests
              spec_decode_num_drafts spec_decode_num_draft_tokens spec_decode_num_accepted_tokens
              spec_decode_num_accepted_tokens_per_pos"""
HISTOGRAMS = """time_to_first_token_seconds inter_token_latency_seconds request_time_per_output_token_seconds
                e2e_request_latency_seconds request_queue_time_seconds request_inference_time_seconds
                request_prefill_time_seconds request_decode_time_seconds request_prompt_tokens request_generation_tokens
                iteration_tokens_total request_max_num_generation_tokens request_params_n request_params_max_tokens
                request_num_preemptions request_prefill_kv_computed_tokens kv_block_lifetime_seconds
                kv_block_idle_before_evict_seconds kv_block_reuse_gap_seconds nixl_xfer_time_seconds"""
VLLM = ({f"vllm:{n}": "gauge" for n in GAUGES.split()} | {f"vllm:{n}_total": "counter" for n in COUNTERS.split()} |
        {f"vllm:{n}": "histogram" for n in HISTOGRAMS.split()})
LATENCY = [.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]
TTFT = [.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]


def families(url):
    """Returns {name: family}. The parser removes a counter's _total."""
    status, text = get(url + "/metrics")
    assert status == 200 and text.endswith("\n")
    found = list(text_string_to_metric_families(text))
    assert len({f.name for f in found}) == len(found), "a family is there twice"
    return {f.name + ("_total" if f.type == "counter" else ""): f for f in found}


def value(page, name, suffix="", **labels):
    family = page[name]
    want = family.name + ("_total" if family.type == "counter" else suffix)
    return sum(s.value for s in family.samples if s.name == want and labels.items() <= s.labels.items())


def labels_of(family):
    return {frozenset(s.labels) - {"le"} for s in family.samples}


def documented():
    """Returns the rows of docs/reference/metrics.md as {name: (type, labels, where, whether always)}, and vLLM's names that do not
    exist here."""
    text = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9_:]+)` \| (counter|gauge|histogram) \| ([a-z_, ]*) \| ([a-z, ]+) \| (.*) \|$",
                      text, re.M)
    absent = text.split("These metrics do not exist:", 1)[1].split("\n## ", 1)[0]
    assert "*model* stands for the labels `model_name` and `engine`" in text
    return ({name: (kind, frozenset(re.sub(r"\bmodel\b", "model_name engine", labels).replace(",", " ").split()), set(where.split(", ")),
                    not re.search(r"With --|Only where|Once the", meaning))
             for name, kind, labels, where, meaning in rows}, set(re.findall(r"`(vllm:[a-z0-9_]+)`", absent)))


@pytest.fixture(scope="module")
def pages():
    """Returns the metrics of the three kinds of processes after four choices and some invalid requests."""
    # With steps of 10 ms, a busy machine's gateway rarely gets the tokens of two steps together.
    with Cluster("--null-step-us", 10000, "--num-speculative-tokens", 2, "--served-model-name", NAME,
                 "--max-num-seqs", 4, "--redis", "unix:///nowhere/redis") as c:  # metrics of quotas exist without a reachable Redis
        for i in range(2):
            r = httpx.post(c.url + "/v1/completions",
                           json={"prompt": "the same words again and again, as many as fill a block", "max_tokens": 20,
                                 "n": 2, "seed": i}, timeout=20)
            assert r.status_code == 200 and r.json()["model"] == NAME
        for method, path in (("GET", "/nowhere"), ("POST", "/v1/models"), ("GET", "/health"), ("BREW", "/v1/models")):
            try:
                urllib.request.urlopen(urllib.request.Request(c.url + path, method=method), timeout=20)
            except urllib.error.HTTPError as e:
                assert e.code in (400, 404, 405), (method, path, e.code)
        c.wait_idle()
        def told():  # the values are updated once a second
            page = families(c.url)
            return "vllm:cache_config_info" in page and value(page, "vllm:spec_decode_num_drafts_total") > 0 and \
                value(page, "vllm:num_requests_running") == value(page, "vllm:kv_cache_usage_perc") == 0

        wait_for("the gateway has heard of the cluster", told)
        yield {"gateway": families(c.url), "head": families(c.admin),
               "worker": families(f"http://127.0.0.1:{c.worker_http_port}")}


def test_what_is_there_is_documented(pages):
    there, _ = documented()
    have = {name: set() for page in pages.values() for name in page}
    for where, page in pages.items():
        for name, family in page.items():
            have[name].add(where)
            kind, labels, _, _ = there.get(name, ("", (), (), False))
            assert family.type == kind, f"{name} is a {family.type}: docs/reference/metrics.md"
            assert labels_of(family) <= {labels}, f"{name} has the labels {labels_of(family)}: docs/reference/metrics.md"
    assert have == {name: where for name, (_, _, where, always) in there.items() if always or name in have}


def test_what_some_processes_have_is_documented():
    """The test finds metrics that only some processes have by their names in the source."""
    there, _ = documented()
    for folder in ("gateway", "head", "worker"):
        for source in (ROOT / folder).glob("*.c"):
            names = set(re.findall(r'"((?:coxswain_|vllm:|http_re)[a-z0-9_]+)"', source.read_text()))
            assert names <= there.keys(), f"{source.name}: docs/reference/metrics.md lacks {names - there.keys()}"


def test_every_name_of_vllm_is_there_or_said_not_to_be():
    there, absent = documented()
    ours = {name: kind for name, (kind, *_) in there.items() if name.startswith("vllm:")}
    assert ours.keys() & absent == set()
    assert {n: k for n, k in VLLM.items() if n not in absent} == ours
    assert absent <= VLLM.keys()


def test_labels_and_buckets_are_vllms(pages):
    for page in (pages["gateway"], pages["head"]):
        for name, family in page.items():
            if name.startswith("vllm:") and name != "vllm:cache_config_info":
                for s in family.samples:
                    assert s.labels["model_name"] == NAME and s.labels["engine"] == "0"
    for name, want in (("e2e_request_latency", LATENCY), ("request_queue_time", LATENCY), ("time_to_first_token", TTFT)):
        samples = pages["gateway"][f"vllm:{name}_seconds"].samples
        assert [float(s.labels["le"]) for s in samples if "le" in s.labels] == want + [float("inf")]


def test_four_choices_are_counted(pages):
    page = pages["gateway"]
    n_prompt = value(page, "vllm:request_prompt_tokens", "_sum") / 4
    cached = value(page, "vllm:prompt_tokens_cached_total")
    assert n_prompt > 16 and cached > 0
    wants = {"vllm:request_success_total": 4, "vllm:generation_tokens_total": 80, "vllm:prompt_tokens_total": 4 * n_prompt,
             "vllm:prefix_cache_queries_total": 4 * n_prompt, "vllm:prefix_cache_hits_total": cached,
             "vllm:prompt_tokens_cached_by_source_total": cached, "vllm:prompt_tokens_by_source_total": 4 * n_prompt}
    assert {name: value(page, name) for name in wants} == wants
    assert value(page, "vllm:request_success_total", finished_reason="length") == 4
    assert value(page, "vllm:prompt_tokens_by_source_total", source="local_cache_hit") == cached
    sums = {"generation_tokens": 80, "max_num_generation_tokens": 40, "params_n": 4, "params_max_tokens": 40,
            "prefill_kv_computed_tokens": 4 * n_prompt - cached}
    assert {name: value(page, f"vllm:request_{name}", "_sum") for name in sums} == sums
    counts = {"time_to_first_token_seconds": 4, "e2e_request_latency_seconds": 4,
              "request_time_per_output_token_seconds": 4, "request_params_n": 2} | \
        {f"request_{phase}_time_seconds": 4 for phase in ("queue", "prefill", "decode", "inference")}
    assert {name: value(page, "vllm:" + name, "_count") for name in counts} == counts
    # Tokens that arrive together have no time between them.
    assert 40 < value(page, "vllm:inter_token_latency_seconds", "_count") <= 76
    assert value(pages["head"], "vllm:generation_tokens_total") == 80
    assert value(pages["head"], "vllm:iteration_tokens_total", "_sum") >= 4 * n_prompt - cached + 76


def test_phases_add_up(pages):
    def seconds(name):
        return value(pages["gateway"], f"vllm:{name}_seconds", "_sum")

    queue, prefill, decode = (seconds(f"request_{phase}_time") for phase in ("queue", "prefill", "decode"))
    assert queue > 0 and prefill > 0 and decode > 0
    assert abs(seconds("request_inference_time") - prefill - decode) < 1e-6
    assert queue + prefill + decode <= seconds("e2e_request_latency")
    assert queue + prefill <= seconds("time_to_first_token")
    assert decode == pytest.approx(seconds("inter_token_latency"), abs=1e-6)


def test_requests_are_counted_by_handler(pages):
    got = {tuple(s.labels.values()): s.value for s in pages["gateway"]["http_requests_total"].samples}
    assert {k: v for k, v in got.items() if k[0] != "/v1/completions"} == {
        ("none", "GET", "4xx"): 1, ("none", "POST", "4xx"): 1}
    assert got[("/v1/completions", "POST", "2xx")] == 2
    assert value(pages["gateway"], "http_request_duration_seconds", "_count", handler="/v1/completions") == 2
    assert value(pages["gateway"], "http_response_size_bytes", "_sum", handler="/v1/completions") > 0
    info = json.dumps(pages["gateway"]["vllm:cache_config_info"].samples[0].labels)
    assert re.search(r'"block_size": "16", "num_gpu_blocks": "\d+", "enable_prefix_caching": "True"', info)


def test_gateways_add_up_and_agree_on_the_cluster():
    """A request is counted at its own gateway. Values from the head are the same at every gateway."""
    with Cluster("--null-step-us", 1000, gateways=2) as c:
        for i, port in enumerate(c.ports * 2):
            r = httpx.post(f"http://127.0.0.1:{port}/v1/completions", timeout=20,
                           json={"prompt": "some words", "max_tokens": 5 + i, "temperature": 0, "ignore_eos": True})
            assert r.status_code == 200
        c.wait_idle()
        wait_for("both have heard of the cluster", lambda: all(
            "vllm:cache_config_info" in families(f"http://127.0.0.1:{p}") for p in c.ports))
        one, two = (families(f"http://127.0.0.1:{p}") for p in c.ports)
        head = families(c.admin)
    tokens = [value(page, "vllm:generation_tokens_total") for page in (one, two, head)]
    assert tokens == [5 + 7, 6 + 8, 26]
    prompts = [value(page, "vllm:prefix_cache_queries_total") for page in (one, two)]
    assert prompts[0] == prompts[1] > 0
    assert one["vllm:cache_config_info"].samples == two["vllm:cache_config_info"].samples
