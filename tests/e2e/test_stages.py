"""Tests a model in stages (--pp), with real processes: known tokens, in chunks and with cached prefixes; ranks that die within a
stage; and models that cannot be split into stages."""
import json
import os
import signal

import pytest
from cluster import ROOT, Cluster, free_ports, get, run_cox, wait_for
from completions import body_of, ids, run, run_under_strike
from real_model import GOLDENS, Alone, answer

OWN_GOLDENS = ROOT / "build/goldens"
pytestmark = pytest.mark.skipif(not OWN_GOLDENS.exists(),
                                reason=f"no tiny checkpoints in {OWN_GOLDENS}: scripts/make-goldens")


def start(folder, tp, pp, *args, workers=None):
    gguf = folder / "model.gguf"
    return Cluster("--device", "cpu", "--served-model-name", "m", "--pp", pp, *args, tp=tp, workers=workers or tp * pp,
                   model=str(gguf if gguf.exists() else folder))


@pytest.mark.parametrize("folder,tp,pp", [(OWN_GOLDENS / "llama_tiny_gguf_q8_0", 2, 2),
                                          (OWN_GOLDENS / "gemma3_tiny", 1, 3),
                                          (GOLDENS / "models/mixtral", 2, 2),
                                          (GOLDENS / "models/deepseek_v2_lite", 1, 2)],
                         ids=lambda x: getattr(x, "name", None))
def test_known_tokens(folder, tp, pp):
    """Prompts run in chunks and with draft tokens, twice. The second time the prefixes are cached."""
    if not (folder / "expected.json").exists():
        pytest.skip(f"no {folder}")
    prompts = json.loads((folder / "expected.json").read_text())["prompts"]
    bodies = [body_of(p["ids"], max_tokens=len(p["greedy"])) for p in prompts]
    with start(folder, tp, pp, "--kv-cache-dtype", "float32", "--dtype", "float32", "--max-num-batched-tokens", 48,
               "--max-num-seqs", 16, "--long-prefill-token-threshold", 16, "--step-target-ms", 0, "--spec-tokens", 2) as c:
        for got, p in list(zip(run(c, bodies), prompts)) + list(zip(run(c, bodies), prompts)):
            assert ids(got) == p["greedy"], p["name"]
        status = c.status()
        assert status["kv"]["prefix_hit_rate"] > 0
        assert sorted((w["stage"], w["rank"]) for w in status["workers"]) == [(s, r) for s in range(pp)
                                                                              for r in range(tp)]


def healthy(c, n_workers):
    code, body = get(c.admin + "/api/status")
    status = json.loads(body) if code == 200 else {"healthy": False}
    return status["healthy"] and len([w for w in status["workers"] if w["state"] in ("ready", "free")]) == n_workers


BODIES = [body_of(p, max_tokens=900) for p in ("Once upon a time", "The capital of France is")]
BODIES += [body_of("Dear Sir or Madam,", max_tokens=900, temperature=1, seed=5)]


@pytest.fixture(scope="module")
def alone():
    with start(OWN_GOLDENS / "gemma3_tiny_gguf_q4_0", 1, 1, "--max-model-len", 1024) as c:
        yield Alone(c)


@pytest.mark.parametrize("n_spares,stages,also", [(0, (0,), ()), (0, (1,), ()), (0, (0, 1), ()), (1, (1,), ()),
                                                  (0, (), ("head",))],
                         ids=["first", "last", "both", "a_spare_takes_the_place", "head"])
def test_killed(alone, n_spares, stages, also):
    """The streams continue with the tokens of a model in one stage. A new head adopts the replica unchanged, with ids in transit to
    the first stage. It forms the replica anew when a plan had reached only one of the two stages."""
    want = [alone[b] for b in BODIES]
    with start(OWN_GOLDENS / "gemma3_tiny_gguf_q4_0", 1, 2, "--max-model-len", 1024, workers=2 + n_spares) as c:
        wait_for("healthy", lambda: healthy(c, 2 + n_spares))

        def strike(status):
            workers = [w for w in status["workers"] if w["group"] is not None and w["stage"] in stages]
            for name in [f"worker-{w['ordinal']}" for w in workers] + list(also):
                os.kill(c.pid(name), signal.SIGKILL)

        results = run_under_strike(c, BODIES, lambda status: status["requests"]["running"] >= 2, strike)
        for body, of_body, expected in zip(BODIES, results, want):
            assert all(answer(got) == expected for got in of_body), body["prompt"]
        # The streams may have ended before the strike; then only the head's own check detects the loss.
        wait_for("the group is dissolved", lambda: not stages or "group_dissolved" in c.log(), 30)
        wait_for("healthy again", lambda: healthy(c, 2 + n_spares), 30)


def test_more_stages_than_layers():
    ports = free_ports(6)
    r = run_cox("up", OWN_GOLDENS / "llama_tiny", "--pp", 3, "--port", ports[0], "--head-port", ports[1], "--admin-port",
                ports[2], "--worker-http-port", ports[3])
    assert r.returncode == 2
    assert "--pp 3 is too large: the model has 2 layers" in r.stderr.splitlines()[-1], r.stderr
