"""Tests that a request's tokens do not depend on the scheduler: they equal those of the same request alone on an idle cluster. The
cases are: with many other requests, in chunks, preempted and recomputed, with blocks shared or copied, with or without draft
tokens, as one of several choices; greedy or sampled. Uses tiny checkpoints, or the demo model with COX_INVARIANCE_MODEL=demo
(scripts/acceptance b3)."""
import os

import pytest
from cluster import ROOT, SHORT, Cluster
from completions import body_of, run
from real_model import MODEL, OPENINGS, SENTENCES, Alone, answer

WANTED = os.environ.get("COX_INVARIANCE_MODEL", "tiny")
MODELS = {"demo": MODEL, "windows": ROOT / "build/goldens/gemma3_tiny_gguf_q4_0/model.gguf",
          "full": ROOT / "build/goldens/llama_tiny"}
SHAPES = {"demo": [("demo", 1), ("demo", 2)],
          "tiny": [("windows", 1), ("full", 2)]}
LENGTH, BLOCK = 320, 16

CHUNKS = ["--long-prefill-token-threshold", 16, "--max-num-batched-tokens", 48, "--max-num-seqs", 8,
          "--max-num-partial-prefills", 3, "--step-target-ms", 0]
TIGHT = ["--num-gpu-blocks-override", LENGTH // BLOCK + 2]
UNCACHED = ["--no-enable-prefix-caching"]
DRAFTS = ["--speculative-config", '{"method":"ngram","num_speculative_tokens":4}',
           "--speculative-disable-by-batch-size", 64]
SETTINGS = {"crowd": [], "chunks": CHUNKS, "preempted": TIGHT, "uncached": UNCACHED, "drafts": DRAFTS,
            "uncached and preempted": UNCACHED + TIGHT, "drafts, preempted": DRAFTS + TIGHT,
            "all of it": DRAFTS + TIGHT + CHUNKS}
if SHORT:
    SETTINGS = {name: SETTINGS[name] for name in ("crowd", "drafts, preempted", "all of it")}


def cluster_of(name, tp, *args):
    return Cluster("--device", "cpu", "--served-model-name", "m", "--max-model-len", LENGTH, "--block-size", BLOCK,
                   *args, model=str(MODELS[name]), workers=tp, tp=tp)


def bodies():
    """Returns bodies with common prefixes, equal prompts, repetitive texts for draft tokens, and several choices."""
    prefix = SENTENCES[0] + SENTENCES[1]
    prompts = [prefix + o for o in OPENINGS[:4]] + [SENTENCES[2] * 2 + SENTENCES[2][:30]] * 2 + ["1 2 3 4 " * 12, prefix]
    n = 36
    greedy = [body_of(p, max_tokens=n) for p in prompts]
    drawn = [body_of(p, max_tokens=n, temperature=1, seed=i) for i, p in enumerate(prompts[2:7])]
    return greedy + drawn + [body_of(prefix, max_tokens=n, n=3), body_of(prompts[0], max_tokens=n, n=3, temperature=1, seed=7)]


@pytest.fixture(scope="module", params=SHAPES[WANTED], ids=lambda p: f"{p[0]}-tp{p[1]}")
def shape(request):
    if not MODELS[request.param[0]].exists():
        pytest.skip(f"no {MODELS[request.param[0]]}: scripts/fetch-demo-model, scripts/make-goldens")
    return request.param


@pytest.fixture(scope="module")
def expected(shape):
    with cluster_of(*shape) as c:
        alone = Alone(c)
        found = [alone[b] for b in bodies()]
    assert len({str(a) for a in found}) > len(found) / 2
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_the_tokens_are_those_it_gets_alone(shape, expected, name):
    args = SETTINGS[name]
    with cluster_of(*shape, *args) as c:
        got = run(c, bodies() * 2)
        status = c.status()
        c.wait_idle()
    for body, want, one, other in zip(bodies(), expected, got, got[len(expected):]):
        assert answer(one) == want and answer(other) == want, (name, body)
    kv, speculation = status["kv"], status["speculation"]
    if "--num-gpu-blocks-override" in args:
        assert status["requests"]["preemptions"] > 0
    assert (kv["prefix_hit_rate"] > 0) == ("--no-enable-prefix-caching" not in args)
    assert (speculation["accepted_tokens"] > 0) == ("--speculative-config" in args)
