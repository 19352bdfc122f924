"""Another implementation's greedy tokens through the whole cluster, for models small enough to be made
here (scripts/make-goldens): in safetensors and GGUF, from their text and from ids."""
import json

import pytest
from cluster import ROOT, Cluster
from completions import body_of, ids, run

OWN_GOLDENS = ROOT / "build/goldens"
TINY = ["llama_tiny", "gemma3_tiny", "llama_tiny_gguf_q4_k", "gemma3_tiny_gguf_q8_0"]


@pytest.mark.skipif(not OWN_GOLDENS.exists(), reason=f"no tiny checkpoints in {OWN_GOLDENS}: scripts/make-goldens")
@pytest.mark.parametrize("name", TINY)
def test_tiny_checkpoints(name):
    folder = OWN_GOLDENS / name
    gguf = folder / "model.gguf"
    with Cluster("--device", "cpu", "--kv-cache-dtype", "float32", "--served-model-name", "m", workers=1, tp=1,
                 model=str(gguf if gguf.exists() else folder)) as c:
        prompts = json.loads((folder / "expected.json").read_text())["prompts"]
        bodies = [body_of(p["text"] or p["ids"], max_tokens=len(p["greedy"])) for p in prompts]
        for p, got in zip(prompts, run(c, bodies)):
            assert ids(got) == p["greedy"], p["name"]
        assert any(p["text"] for p in prompts)
