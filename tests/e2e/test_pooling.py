"""Tests prompts as vectors through head and workers, requested by a minimal gateway (embed_client.c)."""
import json
import math
import struct
import subprocess

import pytest
from cluster import BIN, ROOT, SLOW, Cluster

CLIENT = BIN.parent / "tests/embed_client"
OWN_GOLDENS = ROOT / "build/goldens"
needs_goldens = pytest.mark.skipif(not OWN_GOLDENS.exists(), reason=f"no tiny checkpoints in {OWN_GOLDENS}: scripts/make-goldens")


class PoolingCluster(Cluster):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.keys = f"{self.folder.name}/keys"
        self.command += ["--keys-dir", self.keys]

    def embed(self, *requests):
        """Sends requests of (kind, normalised, ids). Returns their answers."""
        lines = "".join(f"{kind} {int(norm)} {' '.join(map(str, ids))}\n" for kind, norm, ids in requests)
        done = subprocess.run([str(CLIENT), f"tcp://127.0.0.1:{self.head_port}", self.keys], input=lines, text=True,
                              capture_output=True, timeout=70 * SLOW)
        assert done.returncode == 0, done.stderr + self.log()
        return [json.loads(line) for line in done.stdout.splitlines()]


def expected(name):
    """Returns [(ids, {"last": vector, "mean": vector})] of one of our own goldens."""
    folder = OWN_GOLDENS / name
    data = (folder / "expected.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + n]), data[8 + n:]

    def tensor(key):
        begin, end = header[key]["data_offsets"]
        return struct.unpack(f"<{(end - begin) // 4}f", body[begin:end])

    prompts = json.loads((folder / "expected.json").read_text())["prompts"]
    return [(p["ids"], {kind: tensor(f"{p['name']}.hidden_{kind}") for kind in ("last", "mean")}) for p in prompts]


def unit(v):
    length = math.sqrt(sum(x * x for x in v))
    return [x / length for x in v]


@needs_goldens
@pytest.mark.parametrize("name,tp,pp", [("llama_tiny", 1, 1), ("gemma3_caps", 2, 1), ("llama_bias", 1, 2), ("deepseek_v2_lite", 2, 1), ("qwen2_moe", 1, 1)])
def test_vectors_are_the_models(name, tp, pp):
    """Vectors equal the float64 reference within float32's accuracy. They are equal bit by bit whole or in chunks, alone or
    together, and with cached prefixes."""
    known = expected(name)
    requests = [(kind, norm, ids) for ids, _ in known for kind in ("last", "mean") for norm in (False, True)]
    wants = [unit(v[kind]) if norm else v[kind] for _, v in known for kind in ("last", "mean") for norm in (False, True)]
    answers = []
    for chunk in (16, 512):
        with PoolingCluster("--device", "cpu", "--kv-cache-dtype", "float32", "--dtype", "float32", "--served-model-name", "m", "--pp", pp,
                            "--long-prefill-token-threshold", chunk, model=str(OWN_GOLDENS / name), workers=tp * pp, tp=tp) as c:
            answers.append(c.embed(*requests))
            answers.append(c.embed(*requests))
            answers.append([c.embed(r)[0] for r in requests[::5]])
    for got, want in zip(answers[0], wants):
        assert (got["finish"], got["n_ids"], len(got["vector"])) == ("stop", 0, len(want))
        scale = max(map(abs, want))
        assert max(abs(a - b) for a, b in zip(got["vector"], want)) < 1e-4 * scale
    vectors = [[a["vector"] for a in some] for some in answers]
    assert vectors[1] == vectors[3] == vectors[4] == vectors[0]
    assert vectors[2] == vectors[5] == vectors[0][::5]
    assert all(a["n_cached"] == 0 for (kind, _, _), some in zip(requests, zip(*answers[:2])) for a in some if kind == "mean")
    assert any(a["n_cached"] > 0 for a in answers[1])


def test_beside_tokens():
    """Vectors follow the null device's rule for the eight components: the bits of the last id, or for each bit the share of the ids
    that have it."""
    with PoolingCluster() as c:
        last, mean, text = c.embed(("last", False, [3, 5]), ("mean", False, [3, 5, 1, 0]), ("none", False, [3, 5]))
        assert last["vector"] == [1, 0, 1, 0, 0, 0, 0, 0] and mean["vector"] == [0.75, 0.25, 0.25, 0, 0, 0, 0, 0]
        assert (text["n_ids"], text["vector"]) == (4, []) and (last["n_ids"], mean["n_ids"]) == (0, 0)
        assert c.status()["requests"]["running"] == 0


def test_bad_prompts():
    with PoolingCluster("--max-model-len", 64) as c:
        long, fine = c.embed(("mean", False, [1] * 65), ("mean", False, [1] * 64))
        assert long["finish"] == "error" and "maximum context length is 64 tokens" in long["text"] and not long["vector"]
        assert fine["vector"] == [1, 0, 0, 0, 0, 0, 0, 0]
