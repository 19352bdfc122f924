"""Compares a whole cluster with the greedy tokens of another implementation, for models small enough to be made here
(scripts/make-goldens): safetensors and GGUF, text and ids, one rank and several."""
import json

import pytest
from cluster import ROOT, SHORT, Cluster, free_ports, run_cox
from completions import body_of, complete, ids, run
from real_model import GOLDENS

OWN_GOLDENS = ROOT / "build/goldens"


def whole(*values):
    """Returns a case that CI leaves out under sanitizers, which need each way of loading and splitting once. AddressSanitizer's golden tests
    read the other formats too. `scripts/test --long` runs all cases."""
    return pytest.param(*values, marks=pytest.mark.skipif(SHORT, reason="e2e_tiny_models_whole runs it"))


TINY = [whole("llama_tiny", 1), whole("gemma3_tiny", 1), ("llama_tiny_gguf_q4_k", 1), whole("gemma3_tiny_gguf_q8_0", 1),
        whole("llama_tiny", 2),         # this model has 8 query heads and 2 KV heads
        whole("llama_tiny_gguf_q8_0", 2),
        ("llama_tiny_torch", 2),        # this model has PyTorch's shards
        ("llama_tiny_gguf_split", 1),
        ("gemma3_tiny_published", 1),   # this model has PyTorch's shards and a tokenizer.model
        ("qwen2_moe", 2),
        ("llama_tiny_gptq4_act_order", 2),
        whole("llama_tiny_w8a8", 1),    # this model has integers of compressed-tensors
        whole("llama_bias", 2),         # this model has biases, tied embeddings, 6 query heads and 2 KV heads
        ("gemma3_tiny_gguf_q4_0", 2),   # this model has windows, and one KV head, which both ranks hold
        whole("gemma3_caps", 2),
        ("llama_tiny", 3),              # this model is split unevenly: 3, 3 and 2 query heads, and one KV head on two ranks
        ("llama_tiny", 4)]              # this model has two ranks for each KV head


pytestmark = pytest.mark.skipif(not OWN_GOLDENS.exists(),
                                reason=f"no tiny checkpoints in {OWN_GOLDENS}: scripts/make-goldens")


def start(name, tp, *args, kv="float32", dtype="float32"):
    """Starts a model with float activations by default, even with quantised weights, so that it is as exact as the references."""
    folder = OWN_GOLDENS / name
    gguf = folder / "model.gguf"
    return Cluster("--device", "cpu", "--kv-cache-dtype", kv, "--dtype", dtype, "--served-model-name", "m", *args, workers=tp, tp=tp,
                   model=str(gguf if gguf.exists() else folder))


def prompts_of(name):
    """Returns each prompt with a request whose answer is known."""
    prompts = json.loads((OWN_GOLDENS / name / "expected.json").read_text())["prompts"]
    return [(p, body_of(p["text"] or p["ids"], max_tokens=len(p["greedy"]))) for p in prompts]


@pytest.mark.parametrize("name,tp", TINY)
def test_tiny_checkpoints(name, tp):
    known = prompts_of(name)
    with start(name, tp) as c:
        for (p, _), got in zip(known, run(c, [body for _, body in known])):
            assert ids(got) == p["greedy"], p["name"]
    assert any(p["text"] for p, _ in known)


@pytest.mark.parametrize("name", [whole("llama_tiny"), "gemma3_caps"])
def test_two_ranks_in_small_chunks(name):
    known = prompts_of(name) * 3
    with start(name, 2, "--max-num-batched-tokens", 48, "--max-num-seqs", 16, "--long-prefill-token-threshold",
               16, "--step-target-ms", 0) as c:
        for (p, _), got in zip(known, run(c, [body for _, body in known])):
            assert ids(got) == p["greedy"], p["name"]


@pytest.mark.parametrize("name,tp", [whole("deepseek_v2_lite", 1), ("deepseek_v3", 2), ("gpt_oss_mxfp4", 2), whole("mixtral", 4),
                                     ("llama_awq", 2), whole("phi3", 2)])
def test_reference_checkpoints(name, tp):
    """Families and formats that are not made here run in chunks and twice. The second time the prefixes are cached."""
    folder = GOLDENS / "models" / name
    if not (folder / "expected.json").exists():
        pytest.skip(f"no {folder}: scripts/make-goldens")
    prompts = json.loads((folder / "expected.json").read_text())["prompts"]
    bodies = [body_of(p["ids"], max_tokens=len(p["greedy"])) for p in prompts]
    with Cluster("--device", "cpu", "--kv-cache-dtype", "float32", "--dtype", "float32", "--served-model-name", "m",
                 "--max-model-len", 512,
                 "--long-prefill-token-threshold", 48, model=str(folder), workers=tp, tp=tp) as c:
        for got, p in list(zip(run(c, bodies), prompts)) + list(zip(run(c, bodies), prompts)):
            assert ids(got) == p["greedy"], p["name"]
        assert c.status()["kv"]["prefix_hit_rate"] > 0


@pytest.mark.parametrize("how,tp", [("int8", 2), whole("int4", 1), whole("fp8", 1)])
def test_quantized_at_load(how, tp):
    """The answers equal those of the model with rounded weights. A model that is already quantised is refused."""
    known = prompts_of(f"at_load/llama_tiny_{how}")
    with start(f"at_load/llama_tiny_{how}", tp, "--quantization", how) as c:
        for (p, _), got in zip(known, run(c, [body for _, body in known])):
            assert ids(got) == p["greedy"], p["name"]
    refused = run_cox("plan", OWN_GOLDENS / "llama_tiny_gptq3", "--quantization", how)
    assert refused.returncode == 2 and "already quantised (gptq)" in refused.stderr


def answers_by_chunks(name, tp, **dtypes):
    """Returns answers with log-probabilities, which must be equal bit by bit: in small chunks and whole, with prefix hits and
    without."""
    bodies = [{**body, "logprobs": 2} for _, body in prompts_of(name)]
    answers = []
    for chunk in (16, 512):
        with start(name, tp, "--long-prefill-token-threshold", chunk, **dtypes) as c:
            for _ in range(2):
                answers.append([[complete(c, **body)["choices"][0][k] for k in ("token_ids", "logprobs")] for body in bodies])
            assert c.status()["kv"]["prefix_hit_rate"] > 0.4
    assert all(a == answers[0] for a in answers[1:])
    return answers[0]


@pytest.mark.parametrize("name,tp,dtype", [("llama_bias", 2, "int8"), whole("gemma3_caps", 1, "fp8"), whole("llama_tiny", 2, "bfloat16")])
def test_kv_cache_dtypes(name, tp, dtype):
    answers_by_chunks(name, tp, kv=dtype)


@pytest.mark.parametrize("name,tp", [whole("llama_tiny_gguf_q8_0", 2), whole("llama_tiny_gguf_q4_k", 1), ("llama_tiny_w4a16", 1)])
def test_activations_as_codes(name, tp):
    """By default a worker quantises activations when the weights are quantised. The answers differ from those with float
    activations, and are equal for all chunk sizes."""
    codes = answers_by_chunks(name, tp, kv="float16", dtype="auto")
    assert codes != answers_by_chunks(name, tp, kv="float16")


def test_two_ranks_out_of_blocks():
    """There are blocks for all prompts but not for all answers, so some sequences are preempted and computed again."""
    p, body = next((p, body) for p, body in prompts_of("llama_tiny") if p["name"] == "p7")
    with start("llama_tiny", 2, "--max-model-len", 256, "--num-gpu-blocks-override", 16, "--step-target-ms", 0) as c:
        for choice in complete(c, **body | {"n": 12})["choices"]:  # separate requests would arrive one by one on a busy machine
            assert choice["token_ids"] == p["greedy"]
        assert c.status()["requests"]["preemptions"] > 0


def path_of(name):
    gguf = OWN_GOLDENS / name / "model.gguf"
    return gguf if gguf.exists() else OWN_GOLDENS / name


@pytest.mark.parametrize("name,tp,draft", [whole("llama_tiny", 1, "llama_tiny"), ("llama_tiny", 2, "llama_tiny_gguf_q4_k"),
                                           whole("gemma3_tiny", 1, "gemma3_caps")])
def test_a_draft_model_changes_nothing(name, tp, draft):
    """A draft model changes no answer: greedy, sampled, several choices of a prompt, with log-probabilities, and with too few blocks
    for all sequences."""
    known = prompts_of(name)
    drawn = [body_of("Once upon a time", temperature=1, seed=5 + i, n=2, logprobs=2) for i in range(3)]
    bodies = [body for _, body in known] + drawn
    args = ("--max-model-len", 256, "--num-gpu-blocks-override", 32, "--step-target-ms", 0)
    with start(name, tp, *args) as c:
        want, want_whole = run(c, drawn), complete(c, **drawn[0])["choices"]
    with start(name, tp, *args, "--spec-model", path_of(draft), "--spec-tokens", 3,
               "--speculative-disable-by-batch-size", 64) as c:
        got = run(c, bodies * 2)
        got_whole, counts = complete(c, **drawn[0])["choices"], c.status()["speculation"]
    for half in got[:len(bodies)], got[len(bodies):]:
        for (p, _), g in zip(known, half):
            assert ids(g) == p["greedy"], p["name"]
        for w, g in zip(want, half[len(known):]):
            assert g.ids == w.ids
    assert got_whole == want_whole and len(got_whole) == 2 and got_whole[0]["logprobs"]["top_logprobs"]
    assert counts["draft_tokens"] > counts["accepted_tokens"] > 0  # a sampled token is not always the likeliest


def test_a_draft_model_of_other_tokens():
    ports = free_ports(4)
    r = run_cox("up", OWN_GOLDENS / "llama_tiny", "--spec-model", OWN_GOLDENS / "gemma3_tiny", "--port", ports[0],
                "--head-port", ports[1], "--admin-port", ports[2], "--worker-http-port", ports[3])
    assert r.returncode == 2
    assert "a vocabulary of 384 tokens, but llama_tiny has 320" in r.stderr.splitlines()[-1], r.stderr


@pytest.mark.parametrize("name,tp,words", [("llama_tiny", 21, "leaves none for rank 20"),
                                           ("llama_tiny_gguf_q4_k/model.gguf", 2, "do not divide into whole blocks")])
def test_a_model_that_cannot_be_cut_so(name, tp, words):
    """The program ends with one sentence, because a restart would not help."""
    ports = free_ports(3 + tp)
    r = run_cox("up", OWN_GOLDENS / name, "--tp", tp, "--port", ports[0], "--head-port", ports[1], "--admin-port",
                ports[2], "--worker-http-port", ports[3])
    assert r.returncode == 2
    last = r.stderr.splitlines()[-1]
    assert last.startswith("cox up: worker-") and words in last and f"--tp {tp}" in last, r.stderr
