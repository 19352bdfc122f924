"""Tests the stats line of a serving head, in the formats that users' scripts read."""
import json
import re

import httpx
from cluster import Cluster, get, wait_for
from completions import run

NUMBER = r"[\d.]+"
VLLM = re.compile(rf"Engine 000: Avg prompt throughput: ({NUMBER}) tokens/s, Avg generation throughput: ({NUMBER}) "
                  rf"tokens/s, Running: (\d+) reqs, Waiting: (\d+) reqs, GPU KV cache usage: ({NUMBER})%, "
                  rf"Prefix cache hit rate: ({NUMBER})%")
VLLM0 = re.compile(rf"Avg prompt throughput: ({NUMBER}) tokens/s, Avg generation throughput: ({NUMBER}) tokens/s, "
                   rf"Running: (\d+) reqs, Swapped: (\d+) reqs, Pending: (\d+) reqs, GPU KV cache usage: "
                   rf"({NUMBER})%, CPU KV cache usage: ({NUMBER})%")


def load(cluster):
    run(cluster, [{"prompt": f"{i} and some words of a prompt", "max_tokens": 150, "temperature": 0}
                  for i in range(4)])


def test_the_words_of_the_older_line():
    with Cluster("--null-step-us", "2000", "--stats-interval", "0.1", "--stats-format", "vllm0") as c:
        load(c)
        found = wait_for("a line", lambda: VLLM0.findall(c.log()))
    assert any(float(generated) > 0 and int(running) == 4 for _, generated, running, *_ in found), found


def test_the_line_as_json_and_its_silence():
    with Cluster("--null-step-us", "2000", "--stats-interval", "0.1", "--log-format", "json") as c:
        def lines():
            return [e for e in map(json.loads, c.log().splitlines()) if e["event"] == "stats"]

        load(c)
        wait_for("nothing runs", lambda: c.running() == 0)
        wait_for("lines", lambda: len(lines()) > 1)
        best = max(lines(), key=lambda e: e["generation_tokens_per_s"])
        text = VLLM.fullmatch(best["text"])
        assert text and float(text[2]) == best["generation_tokens_per_s"] > 0 and int(text[3]) == best["running"]
        assert best["process"] == "head" and isinstance(best["kv_usage"], float)
        httpx.post(c.url + "/v1/completions", json={"model": "null", "prompt": "x", "max_tokens": 1}, timeout=20)
        status, metrics = get(c.admin + "/metrics")
    # There is one wait for each step, except for steps that began after an idle time.
    waits = int(re.search(r"^coxswain_rank_wait_seconds_count (\d+)$", metrics, re.M)[1])
    steps = int(re.search(r"^coxswain_steps_total\{.*\} (\d+)$", metrics, re.M)[1])
    assert status == 200 and 0.8 * steps < waits < steps


def test_drafts_kept_by_their_place():
    """vLLM's counters of speculative decoding exist from the start. Each position has at most as many accepted tokens as the
    previous position."""
    def counts(cluster, name):
        pattern = rf'^vllm:spec_decode_num_{name}_total{{model_name="[^"]*",engine="0"(?:,position="(\d+)")?}} (\S+)$'
        return [(place, float(n)) for place, n in re.findall(pattern, get(cluster.admin + "/metrics")[1], re.M)]

    with Cluster("--num-speculative-tokens", "3") as c:
        assert counts(c, "accepted_tokens_per_pos") == [("0", 0), ("1", 0), ("2", 0)]
        load(c)
        wait_for("nothing runs", lambda: c.running() == 0)
        kept = [n for _, n in counts(c, "accepted_tokens_per_pos")]
        (_, drafts), (_, drafted), (_, accepted) = (counts(c, n)[0] for n in ("drafts", "draft_tokens", "accepted_tokens"))
    assert drafts >= kept[0] >= kept[1] >= kept[2] >= 0 and sum(kept) == accepted
    assert drafted >= accepted > 0
