"""Tests a real model on the CPU in a whole cluster. A stream must equal the same request alone on an idle cluster: batches, chunks,
cache hits, preemption, replicas and lost workers may not change one token (docs/develop/runner.md, "Invariance"). Reference
tokens of another implementation are compared where scripts/make-goldens has made them."""
import math

import httpx
import pytest
from cluster import SLOW, run_cox
from completions import N_TOKENS, body_of, complete, ids, run
from real_model import (DRAWN, EVERY, GOLDENS, GREEDY, LONG, N_CROWD, OPENINGS, SENTENCES, WINDOW, Alone, answer, check,
                        cpu_cluster, needs_model, reference_prompts, text_or_ids)


@pytest.fixture(scope="module", params=[1, 2], ids=lambda tp: f"tp{tp}")
def tp(request):
    return request.param


@pytest.fixture(scope="module")
def cluster(tp):
    with cpu_cluster(tp=tp) as c:
        yield c


@pytest.fixture(scope="module")
def alone(cluster):
    return Alone(cluster)


@needs_model
def test_its_shape(cluster, tp):
    """There are as many workers as ranks, each a process, in one replica."""
    status = cluster.status()
    group, = status["groups"]
    assert group["state"] == "ready" and group["tp"] == tp and len(group["workers"]) == tp
    assert sorted(w["rank"] for w in status["workers"]) == list(range(tp))
    assert {w["device"] for w in status["workers"]} == {"cpu"}
    pids = cluster.pids()
    assert len({pids[f"worker-{i}"] for i in range(tp)}) == tp
    shown = run_cox("status", "--address", f"127.0.0.1:{cluster.admin_port}")
    assert shown.returncode == 0 and f"{tp}/{tp} workers serve" in shown.stdout and f"{tp}x1" in shown.stdout


@pytest.fixture(scope="module")
def exact(tp):
    """Yields a cluster with float32 activations, even with quantised weights. Only with these activations are sums in another order
    nearly equal (docs/develop/decisions/0022)."""
    with cpu_cluster("--dtype", "float32", tp=tp) as c:
        yield c


@needs_model
def test_the_reference_tokens(exact):
    prompts = reference_prompts()
    if not prompts:
        pytest.skip(f"no reference tokens below {GOLDENS}: scripts/make-goldens")
    # Tokens are compared up to the first step that the rounding of a float16 cache could decide.
    clear = [p for p in prompts if p["stable_prefix_gap_0.05"] >= 10]
    assert len(clear) >= 6
    for p in clear:
        n = min(p["stable_prefix_gap_0.05"], N_TOKENS)
        got = run(exact, [body_of(text_or_ids(p), max_tokens=n)])[0]
        assert ids(got) == p["greedy"][:n], p["text"]


@needs_model
def test_it_speaks(cluster):
    """The demo model knows this fact. The test thus shows that its text is not random, even where references are missing."""
    got = complete(cluster, model="m", prompt="The Eiffel Tower is in the city of", max_tokens=4, temperature=0)
    assert got["choices"][0]["text"].startswith(" Paris")
    assert got["usage"]["prompt_tokens"] == 9 and got["usage"]["completion_tokens"] == 4
    got = complete(cluster, model="m", prompt="Monday, Tuesday, Wednesday,", max_tokens=4, temperature=0)
    assert got["choices"][0]["text"] == " Thursday, Friday,"


@needs_model
@pytest.mark.parametrize("n", [1, 16, N_CROWD])
def test_a_crowd_gets_what_each_gets_alone(cluster, alone, n):
    bodies = GREEDY[:n]
    every = EVERY if n > 16 else 1
    check(cluster, bodies, alone, every)
    assert len({alone[b][0][1] for b in bodies[::every]}) > n / every / 4
    cluster.wait_idle()


@needs_model
def test_drawn_tokens_in_a_crowd(cluster, alone):
    n = (len(DRAWN) + 1) // 2
    check(cluster, DRAWN[:n] + GREEDY[n:], alone, EVERY)
    again = {**DRAWN[0], "seed": 999}
    assert alone[again] != alone[DRAWN[0]] != alone[GREEDY[0]]


@needs_model
@pytest.mark.timeout(400 * SLOW)  # the test starts two clusters of a real model, one prompt after the other
def test_as_many_ranks_as_you_like(exact, tp):
    """Several ranks add in a different order than one rank. Only a step with two close best tokens may differ."""
    if tp == 1:
        pytest.skip("compared once, from the other side")
    prompts = [text_or_ids(p) for p in reference_prompts()] + OPENINGS + [LONG]
    with cpu_cluster("--dtype", "float32") as single:
        for prompt in prompts:
            one, several = (greedy_with_gaps(c, prompt) for c in (single, exact))
            for i, (a, b) in enumerate(zip(one, several)):
                if a[0] != b[0]:
                    assert max(a[1], b[1]) < 0.05, f"step {i} of {prompt!r}: {a} or {b}"
                    break


def greedy_with_gaps(cluster, prompt):
    """Returns (token, its lead over the second best) of each step."""
    choice = complete(cluster, **body_of(prompt, logprobs=2, max_tokens=2 * N_TOKENS))["choices"][0]
    best = [sorted(top.values(), reverse=True)[:2] for top in choice["logprobs"]["top_logprobs"]]
    assert len(choice["token_ids"]) == 2 * N_TOKENS
    # Two tokens with one spelling share an entry, so the lead is unknown and taken as 0.
    return [(token, b[0] - b[1] if len(b) > 1 else 0.0) for token, b in zip(choice["token_ids"], best)]


@needs_model
def test_n_choices_differ(cluster):
    got = run(cluster, [body_of("Once upon a time", temperature=1, seed=5, n=4)])[0]
    assert len({tuple(got.ids[i]) for i in range(4)}) == 4
    assert run(cluster, [body_of("Once upon a time", temperature=1, seed=5, n=4)])[0].ids == got.ids


@needs_model
def test_a_prefix_hit_changes_nothing(cluster, tp):
    body = body_of("Of cached blocks. " + SENTENCES[0] * 4)
    first, second = (run(cluster, [{**body, "stream_options": {"include_usage": True}}])[0] for _ in range(2))
    assert ids(second) == ids(first)
    assert second.usage["prompt_tokens_details"]["cached_tokens"] >= 16
    # This prompt has another end after the same prefix.
    other = body_of(body["prompt"] + "And then")
    shared = run(cluster, [other])[0]
    with cpu_cluster("--no-enable-prefix-caching", tp=tp) as fresh:
        assert run(fresh, [other])[0].ids == shared.ids and run(fresh, [body])[0].ids == first.ids


@needs_model
def test_beyond_the_window_whole_chunked_and_cached(cluster, alone, tp):
    body = body_of(LONG)
    usage = run(cluster, [{**body, "stream_options": {"include_usage": True}}])[0].usage
    assert usage["prompt_tokens"] > WINDOW + 100
    want = alone[body]  # the body's prompt is in the prefix cache now
    with cpu_cluster("--long-prefill-token-threshold", "16", "--max-num-batched-tokens", "40", "--max-num-seqs", "16",
                     "--step-target-ms", "0", tp=tp) as chunked:
        check(chunked, [body] + GREEDY[:8] + DRAWN[:8], alone)
        assert answer(run(chunked, [body])[0]) == want


@needs_model
def test_preemption_changes_nothing(alone, tp):
    """There are blocks for all prompts but not for all answers, so some sequences are preempted and computed again."""
    n = 8
    bodies = [body_of(SENTENCES[i % 3], max_tokens=36, temperature=i % 2, seed=i) for i in range(n)]
    with cpu_cluster("--num-gpu-blocks-override", 3 * n - 2, "--max-model-len", "96", "--no-enable-prefix-caching",
                     "--step-target-ms", "0", tp=tp) as tight:
        got = run(tight, bodies)
        preemptions = tight.status()["requests"]["preemptions"]
    assert preemptions > 0
    for body, g in zip(bodies, got):
        assert answer(g) == alone[body]


@needs_model
def test_logprobs(cluster):
    got = complete(cluster, model="m", prompt="The capital of France is", max_tokens=6, temperature=0, logprobs=5,
                   ignore_eos=True)["choices"][0]["logprobs"]
    assert len(got["tokens"]) == len(got["token_logprobs"]) == len(got["top_logprobs"]) == 6
    for token, value, top in zip(got["tokens"], got["token_logprobs"], got["top_logprobs"]):
        assert value == max(top.values()) == top[token] <= 0  # decoding is greedy, so the sampled token is the best one
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
def test_bad_words(cluster):
    """A bad word is banned at the start of a text and after a space."""
    asked = {"model": "m", "prompt": "The Eiffel Tower is in the city of", "max_tokens": 8, "temperature": 0}
    got = complete(cluster, **asked, bad_words=["Paris"])["choices"][0]
    assert "Paris" not in got["text"] and got["finish_reason"] == "length"
