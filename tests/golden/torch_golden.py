#!/usr/bin/env python3
"""Tests that a model in PyTorch's form gives the same results. The test rewrites llama2_mha of the reference models (COX_GOLDENS,
else build/goldens/reference) in the form in which Vicuna and open_llama were published: pytorch_model-*.bin shards with an index,
a tokenizer.model and no tokenizer.json. The original and the new form must give the same output of model_golden, at 1, 2 and 4
ranks, and the same ids for every text.
  torch_golden.py MODEL_GOLDEN LIBCOXTEXT
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import text_golden

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts", "goldens"))
import spm  # noqa: E402
import torch_files  # noqa: E402

SOURCE = os.path.join(text_golden.GOLDENS, "models", "llama2_mha")


def says(program, folder, tp):
    done = subprocess.run([program, "--tp", str(tp), folder], capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="", end="")
    if done.returncode != 0:
        sys.exit(f"torch_golden: {folder} at {tp} ranks: exit status {done.returncode}")
    assert "4 of 4 continuations the same" in done.stdout
    return re.sub(r"[0-9.]+ s$", "", done.stdout.replace(folder, ""), flags=re.M)


def check_texts(archive, folder):
    """Compares the ids of every text, and the texts of the continuations, as a whole and piece by piece."""
    lib = text_golden.Lib(archive)
    one, other = text_golden.Tokenizer(lib, SOURCE), text_golden.Tokenizer(lib, folder)
    with open(os.path.join(SOURCE, "expected.json"), encoding="utf-8") as f:
        prompts = json.load(f)["prompts"]
    texts = [row["text"] for row in text_golden.read_rows("llama2") if row["text"] is not None]
    texts += [p["text"] for p in prompts if p["text"] is not None]
    for text in texts:
        ids = other.encode(text, True)
        assert ids == one.encode(text, True), text
        assert other.decode(ids, True) == one.decode(ids, True), text
    for ids in [p[part] for p in prompts for part in ("ids", "greedy")]:
        assert other.decode(ids, True) == one.decode(ids, True), ids
        assert other.stream(ids, False) == one.stream(ids, False), ids
    print(f"tokenizer.model: {len(texts)} texts have the same ids, {2 * len(prompts)} continuations the same text")


def main():
    if not os.path.exists(SOURCE):
        print(f"SKIPPED: there is no {SOURCE}: scripts/make-goldens, COX_GOLDENS")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="cox-torch-golden-") as temporary:
        folder = os.path.join(temporary, "llama2_mha")
        torch_files.rewrite_folder(SOURCE, folder, 3)
        spm.replace_tokenizer(folder)
        assert not any(name.endswith(".safetensors") and name != "expected.safetensors" for name in os.listdir(folder))
        check_texts(sys.argv[2], folder)
        for tp in (1, 2, 4):
            if says(sys.argv[1], folder, tp) != says(sys.argv[1], SOURCE, tp):
                sys.exit(f"torch_golden: at {tp} ranks the two differ")


if __name__ == "__main__":
    main()
