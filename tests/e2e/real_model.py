"""Provides the demo models, prompts, and the answer to each request alone, for tests of a real model."""
import json
import os
from pathlib import Path

import pytest
from cluster import ROOT, Cluster
from completions import body_of, run

CACHE = Path(os.environ.get("COX_CACHE") or Path.home() / ".cache/coxswain")
MODEL = CACHE / "models/demo/gemma-3-270m-q4_k_m.gguf"  # the model demo-base, whose tokens are known
DEMO = CACHE / "models/demo-instruct/SmolLM2-135M-Instruct.Q4_1.gguf"  # the model demo, which answers questions
GOLDENS = Path(os.environ.get("COX_GOLDENS") or ROOT / "build/goldens/reference")
N_CROWD = 100
EVERY = 1 if os.environ.get("COX_WHOLE") else 5  # one answer of this many is compared where many requests run at once, since 100 take minutes
WINDOW = 512  # window of demo-base's sliding layers, in tokens

needs_model = pytest.mark.skipif(not MODEL.exists(), reason=f"no model demo-base at {MODEL}: scripts/fetch-demo-model")
needs_demo = pytest.mark.skipif(not DEMO.exists(), reason=f"no demo model at {DEMO}: scripts/fetch-demo-model")

SENTENCES = ["The harbour was quiet that morning, and only one boat had left before the sun rose over the hills. ",
             "Nobody in the village remembered who had built the lighthouse, or why its lamp burned blue. ",
             "She counted 17 gulls, 4 nets and 1 very old anchor, and wrote all of it down. "]
OPENINGS = ["The capital of France is", "Once upon a time", "def fibonacci(n):\n", "Photosynthesis is",
            "Die Hauptstadt von Deutschland", "1, 2, 4, 8, 16,", "{\"name\": \"Alice\",", "Dear Sir or Madam,"]
PROMPTS = [(f"({i}) " + SENTENCES[i % 3] if i >= 8 else "") + OPENINGS[i % 8] for i in range(N_CROWD)]
LONG = "".join(f"{i}. " + SENTENCES[i % 3] for i in range(32)) + "In the end"  # this prompt is longer than the window

GREEDY = [body_of(p) for p in PROMPTS]
DRAWN = [body_of(p, temperature=1, seed=100 + i, top_p=0.95 if i % 2 else 1) for i, p in enumerate(PROMPTS)]


def cpu_cluster(*args, tp=1, workers=None, **kwargs):
    length = [] if "--max-model-len" in args else ["--max-model-len", "2048"]
    return Cluster("--device", "cpu", "--served-model-name", "m", *length, *args, tp=tp, workers=workers or tp,
                   **{"model": "demo-base", **kwargs})


def answer(got):
    """Returns {choice: (ids, text)}."""
    return {i: (got.ids[i], got.texts[i]) for i in got.ids}


class Alone:
    """Keeps the answer to a request that runs alone. Each answer is requested once and kept."""

    def __init__(self, cluster):
        self.cluster, self.known = cluster, {}

    def __getitem__(self, body):
        key = json.dumps(body, sort_keys=True)
        if key not in self.known:
            got = run(self.cluster, [body])[0]
            assert all(len(got.ids[i]) == body["max_tokens"] for i in got.ids)
            self.known[key] = answer(got)
        return self.known[key]


def check(cluster, bodies, alone, every=1):
    """Sends all bodies at once and compares every `every`-th answer with the answer to the same request alone."""
    for body, got in list(zip(bodies, run(cluster, bodies)))[::every]:
        assert answer(got) == alone[body], body["prompt"][:60]


def reference_prompts():
    """Returns prompts with greedy tokens of another implementation. The list is empty when scripts/make-goldens has not made them."""
    path = GOLDENS / "real/gemma3-270m/expected.json"
    return json.loads(path.read_text())["gguf_f32"]["prompts"] if path.exists() else []


def text_or_ids(p):
    return p["ids"] if p["text"].startswith("<bos>") else p["text"]
