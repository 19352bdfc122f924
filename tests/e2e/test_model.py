"""A real model on the CPU, through the whole cluster. What a stream must be is what the same request
got alone on an idle cluster: batch, chunks, cache hits, preemption, replicas and lost workers may not
change one token (docs/runner.md, "Invariance"). Where reference tokens of another implementation are
at hand (COX_GOLDENS), they are compared too."""
import json
import math
import os
import signal
from pathlib import Path

import httpx
import pytest
from cluster import ROOT, SANITIZED, SLOW, Cluster, wait_for
from completions import N_TOKENS, body_of, complete, ids, run

CACHE = Path(os.environ.get("COX_CACHE") or Path.home() / ".cache/coxswain")
MODEL = CACHE / "models/demo/gemma-3-270m-q4_k_m.gguf"
GOLDENS = Path(os.environ.get("COX_GOLDENS") or ROOT.parent / "shared/goldens")
N_CROWD = 4 if SANITIZED else 100
WINDOW = 512  # of the demo model's sliding layers

needs_model = pytest.mark.skipif(not MODEL.exists(), reason=f"no demo model at {MODEL}: scripts/fetch-demo-model")

SENTENCES = ["The harbour was quiet that morning, and only one boat had left before the sun rose over the hills. ",
             "Nobody in the village remembered who had built the lighthouse, or why its lamp burned blue. ",
             "She counted 17 gulls, 4 nets and 1 very old anchor, and wrote all of it down. "]
OPENINGS = ["The capital of France is", "Once upon a time", "def fibonacci(n):\n", "Photosynthesis is",
            "Die Hauptstadt von Deutschland", "1, 2, 4, 8, 16,", "{\"name\": \"Alice\",", "Dear Sir or Madam,"]
PROMPTS = [(f"({i}) " + SENTENCES[i % 3] if i >= 8 else "") + OPENINGS[i % 8] for i in range(N_CROWD)]
LONG = "".join(f"{i}. " + SENTENCES[i % 3] for i in range(32)) + "In the end"  # more than the window


def cpu_cluster(*args, **kwargs):
    kwargs = {"workers": 1, "tp": 1, "model": "demo", **kwargs}
    length = [] if "--max-model-len" in args else ["--max-model-len", "2048"]
    return Cluster("--device", "cpu", "--served-model-name", "m", *length, *args, **kwargs)


@pytest.fixture(scope="module")
def cluster():
    with cpu_cluster() as c:
        yield c


class Alone:
    """The tokens of a request that ran by itself, asked for once."""

    def __init__(self, cluster):
        self.cluster, self.known = cluster, {}

    def __getitem__(self, body):
        key = json.dumps(body, sort_keys=True)
        if key not in self.known:
            got = run(self.cluster, [body])[0]
            assert all(len(got.ids[i]) == body["max_tokens"] for i in got.ids)
            self.known[key] = got.ids
        return self.known[key]


@pytest.fixture(scope="module")
def alone(cluster):
    return Alone(cluster)


GREEDY = [body_of(p) for p in PROMPTS]
DRAWN = [body_of(p, temperature=1, seed=100 + i, top_p=0.95 if i % 2 else 1) for i, p in enumerate(PROMPTS[:8])]


def check(cluster, bodies, alone, on_event=None):
    for body, got in zip(bodies, run(cluster, bodies, on_event)):
        assert got.ids == alone[body], body["prompt"][:60]


@needs_model
def test_the_reference_tokens(cluster):
    path = GOLDENS / "real/gemma3-270m/expected.json"
    if not path.exists():
        pytest.skip(f"no reference tokens: {path} is absent (COX_GOLDENS)")
    prompts = json.loads(path.read_text())["gguf_f32"]["prompts"]
    # up to the first step that the rounding of a float16 cache could decide
    clear = [p for p in prompts if p["stable_prefix_gap_0.05"] >= 10]
    assert len(clear) >= 6
    for p in clear[:2] if SANITIZED else clear:
        n = min(p["stable_prefix_gap_0.05"], N_TOKENS)
        prompt = p["ids"] if p["text"].startswith("<bos>") else p["text"]
        got = run(cluster, [body_of(prompt, max_tokens=n)])[0]
        assert ids(got) == p["greedy"][:n], p["text"]


@needs_model
def test_it_speaks(cluster):
    """Not gibberish, whatever the references are: the demo model knows this much."""
    got = complete(cluster, model="m", prompt="The Eiffel Tower is in the city of", max_tokens=4, temperature=0)
    assert got["choices"][0]["text"].startswith(" Paris")
    assert got["usage"]["prompt_tokens"] == 9 and got["usage"]["completion_tokens"] == 4
    got = complete(cluster, model="m", prompt="Monday, Tuesday, Wednesday,", max_tokens=4, temperature=0)
    assert got["choices"][0]["text"] == " Thursday, Friday,"


@needs_model
def test_a_crowd_gets_what_each_gets_alone(cluster, alone):
    check(cluster, GREEDY, alone)
    assert len({tuple(alone[b][0]) for b in GREEDY}) > len(GREEDY) / 4


@needs_model
def test_drawn_tokens_in_a_crowd(cluster, alone):
    check(cluster, DRAWN + GREEDY[8:], alone)
    again = {**DRAWN[0], "seed": 999}
    assert alone[again] != alone[DRAWN[0]] != alone[GREEDY[0]]


@needs_model
def test_n_choices_differ(cluster):
    got = run(cluster, [body_of("Once upon a time", temperature=1, seed=5, n=4)])[0]
    assert len({tuple(got.ids[i]) for i in range(4)}) == 4
    assert run(cluster, [body_of("Once upon a time", temperature=1, seed=5, n=4)])[0].ids == got.ids


@needs_model
def test_a_prefix_hit_changes_nothing(cluster):
    body = body_of("Of cached blocks. " + SENTENCES[0] * 4)
    first, second = (run(cluster, [{**body, "stream_options": {"include_usage": True}}])[0] for _ in range(2))
    assert ids(second) == ids(first)
    assert second.usage["prompt_tokens_details"]["cached_tokens"] >= 16
    # another end behind the same beginning
    other = body_of(body["prompt"] + "And then")
    shared = run(cluster, [other])[0]
    with cpu_cluster("--no-enable-prefix-caching") as fresh:
        assert run(fresh, [other])[0].ids == shared.ids and run(fresh, [body])[0].ids == first.ids


@needs_model
def test_beyond_the_window_whole_chunked_and_cached(cluster, alone):
    body = body_of(LONG)
    usage = run(cluster, [{**body, "stream_options": {"include_usage": True}}])[0].usage
    assert usage["prompt_tokens"] > WINDOW + 100
    want = alone[body]  # its prompt is in the cache by now
    with cpu_cluster("--long-prefill-token-threshold", "16", "--max-num-batched-tokens", "40", "--max-num-seqs", "16",
                     "--step-target-ms", "0") as chunked:
        check(chunked, [body] + ([] if SANITIZED else GREEDY[:8] + DRAWN), alone)
        assert run(chunked, [body])[0].ids == want


@needs_model
def test_preemption_changes_nothing(alone):
    """Blocks for all prompts, not for all that they grow to: some are thrown out and computed again."""
    n = 5 if SANITIZED else 8
    bodies = [body_of(SENTENCES[i % 3], max_tokens=36, temperature=i % 2, seed=i) for i in range(n)]
    with cpu_cluster("--num-gpu-blocks-override", 3 * n - 2, "--max-model-len", "96", "--no-enable-prefix-caching",
                     "--step-target-ms", "0") as tight:
        got = run(tight, bodies)
        preemptions = tight.status()["requests"]["preemptions"]
    assert preemptions > 0
    for body, g in zip(bodies, got):
        assert g.ids == alone[body]


@needs_model
def test_logprobs(cluster):
    got = complete(cluster, model="m", prompt="The capital of France is", max_tokens=6, temperature=0, logprobs=5,
                   ignore_eos=True)["choices"][0]["logprobs"]
    assert len(got["tokens"]) == len(got["token_logprobs"]) == len(got["top_logprobs"]) == 6
    for token, value, top in zip(got["tokens"], got["token_logprobs"], got["top_logprobs"]):
        assert value == max(top.values()) == top[token] <= 0  # greedy: the best one
        assert 5 <= len(top) <= 6 and 0.01 < sum(math.exp(v) for v in top.values()) <= 1.0001
    assert len({round(v, 3) for t in got["top_logprobs"] for v in t.values()}) > 10
    r = httpx.post(cluster.url + "/v1/completions", timeout=60 * SLOW,
                   json=body_of("The", temperature=2, seed=3, logprobs=3, max_tokens=12)).json()
    drawn = r["choices"][0]["logprobs"]
    for token, value, top in zip(drawn["tokens"], drawn["token_logprobs"], drawn["top_logprobs"]):
        assert top[token] == value <= max(top.values()) <= 0
    assert any(v < max(t.values()) for v, t in zip(drawn["token_logprobs"], drawn["top_logprobs"]))


@needs_model
def test_stop_strings_and_bias(cluster):
    whole = complete(cluster, model="m", prompt=SENTENCES[0], max_tokens=N_TOKENS, temperature=0)["choices"][0]["text"]
    stop = whole[len(whole) // 2:len(whole) // 2 + 3]
    cut = complete(cluster, model="m", prompt=SENTENCES[0], max_tokens=N_TOKENS, temperature=0, stop=[stop])
    assert cut["choices"][0]["text"] == whole[:whole.index(stop)]
    assert cut["choices"][0]["finish_reason"] == "stop" and cut["choices"][0]["stop_reason"] == stop
    free = ids(run(cluster, [body_of("Once upon a time", max_tokens=4)])[0])
    banned = ids(run(cluster, [body_of("Once upon a time", max_tokens=4, logit_bias={str(free[0]): -100})])[0])
    assert banned[0] != free[0]
    forced = ids(run(cluster, [body_of("Once upon a time", max_tokens=4, logit_bias={str(free[0]): 100})])[0])
    assert forced == [free[0]] * 4


@needs_model
def test_replicas_and_a_killed_worker(alone):
    """Two groups of one rank; one worker is killed while its streams run."""
    n = 1 if SANITIZED else 3
    bodies = [{**b, "max_tokens": 3 * N_TOKENS} for b in (GREEDY[:n] + DRAWN[:n])]
    with cpu_cluster("--dp", "2", workers=2) as pair:
        wait_for("both groups are ready", lambda: len(
            [g for g in pair.status()["groups"] if g["state"] == "ready"]) == 2)
        before, struck = pair.pid("worker-0"), []

        def strike(got):
            if not struck and got.n_chunks > 5:
                groups = pair.status()["groups"]
                struck.append([g["running"] for g in groups])
                os.kill(before, signal.SIGKILL)

        got = run(pair, bodies, strike)
        assert struck and all(n > 0 for n in struck[0]), f"both replicas work when one dies: {struck}"
        wait_for("worker-0 is back", lambda: pair.pids().get("worker-0", before) != before)
    for body, g in zip(bodies, got):
        assert g.ids == alone[body]
