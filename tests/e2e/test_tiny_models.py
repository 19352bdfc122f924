"""Another implementation's greedy tokens through the whole cluster, for models small enough to be made
here (scripts/make-goldens): in safetensors and GGUF, from their text and from ids, on one rank and on
several."""
import json

import pytest
from cluster import ROOT, Cluster, free_ports, run_cox
from completions import body_of, ids, run

OWN_GOLDENS = ROOT / "build/goldens"
TINY = [("llama_tiny", 1), ("gemma3_tiny", 1), ("llama_tiny_gguf_q4_k", 1), ("gemma3_tiny_gguf_q8_0", 1),
        ("llama_tiny", 2),              # 8 heads over 2 of keys
        ("llama_tiny_gguf_q8_0", 2),
        ("llama_bias", 2),              # biases, a tied head, 6 heads over 2 of keys
        ("gemma3_tiny_gguf_q4_0", 2),   # windows, one head of keys: both ranks hold it
        ("gemma3_caps", 2),
        ("llama_tiny", 4)]              # two ranks for each head of keys


pytestmark = pytest.mark.skipif(not OWN_GOLDENS.exists(),
                                reason=f"no tiny checkpoints in {OWN_GOLDENS}: scripts/make-goldens")


def start(name, tp, *args):
    folder = OWN_GOLDENS / name
    gguf = folder / "model.gguf"
    return Cluster("--device", "cpu", "--kv-cache-dtype", "float32", "--served-model-name", "m", *args, workers=tp, tp=tp,
                   model=str(gguf if gguf.exists() else folder))


def prompts_of(name):
    """Each with the request whose answer is known."""
    prompts = json.loads((OWN_GOLDENS / name / "expected.json").read_text())["prompts"]
    return [(p, body_of(p["text"] or p["ids"], max_tokens=len(p["greedy"]))) for p in prompts]


@pytest.mark.parametrize("name,tp", TINY, ids=[f"{name}-tp{tp}" for name, tp in TINY])
def test_tiny_checkpoints(name, tp):
    known = prompts_of(name)
    with start(name, tp) as c:
        for (p, _), got in zip(known, run(c, [body for _, body in known])):
            assert ids(got) == p["greedy"], p["name"]
    assert any(p["text"] for p, _ in known)


@pytest.mark.parametrize("name", ["llama_tiny", "gemma3_caps"])
def test_two_ranks_in_small_chunks(name):
    known = prompts_of(name) * 3
    with start(name, 2, "--max-num-batched-tokens", 48, "--max-num-seqs", 16, "--long-prefill-token-threshold",
               16, "--step-target-ms", 0) as c:
        for (p, _), got in zip(known, run(c, [body for _, body in known])):
            assert ids(got) == p["greedy"], p["name"]


def test_two_ranks_out_of_blocks():
    """Blocks for all prompts, not for all that they grow to: some are thrown out and computed again."""
    p, body = next((p, body) for p, body in prompts_of("llama_tiny") if p["name"] == "p7")
    with start("llama_tiny", 2, "--max-model-len", 256, "--num-gpu-blocks-override", 16, "--step-target-ms", 0) as c:
        for got in run(c, [body] * 12):
            assert ids(got) == p["greedy"]
        assert c.status()["requests"]["preemptions"] > 0


@pytest.mark.parametrize("name,words", [("llama_tiny", "8 heads, 2 KV heads and 256 inner dimensions"),
                                        ("llama_tiny_gguf_q4_k/model.gguf", "no whole number")])
def test_a_model_that_cannot_be_cut_so(name, words):
    """One sentence and an end: what does not work today does not work after a restart either."""
    tp = 3 if "gguf" not in name else 2
    ports = free_ports(3 + tp)
    r = run_cox("up", OWN_GOLDENS / name, "--tp", tp, "--port", ports[0], "--head-port", ports[1], "--admin-port",
                ports[2], "--worker-http-port", ports[3])
    assert r.returncode == 2
    last = r.stderr.splitlines()[-1]
    assert last.startswith("cox up: worker-") and words in last and f"--tp {tp}" in last, r.stderr
