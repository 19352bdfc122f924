#!/usr/bin/env python3
"""llama2_mha of $COX_GOLDENS (default ../shared/goldens), rewritten as pytorch_model-*.bin shards with
an index, says what its safetensors say, at 1, 2 and 4 ranks: the same words of model_golden about both.
  torch_golden.py MODEL_GOLDEN
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts", "goldens"))
import torch_files  # noqa: E402

SOURCE = os.path.join(os.environ.get("COX_GOLDENS") or os.path.join(ROOT, "..", "shared", "goldens"), "models", "llama2_mha")


def says(program, folder, tp):
    done = subprocess.run([program, "--tp", str(tp), folder], capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="", end="")
    if done.returncode != 0:
        sys.exit(f"torch_golden: {folder} at {tp} ranks: exit status {done.returncode}")
    assert "4 of 4 continuations the same" in done.stdout
    return re.sub(r"[0-9.]+ s$", "", done.stdout.replace(folder, ""), flags=re.M)


def main():
    if not os.path.exists(SOURCE):
        print(f"SKIPPED: there is no {SOURCE} (COX_GOLDENS)")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="cox-torch-golden-") as temporary:
        folder = os.path.join(temporary, "llama2_mha")
        torch_files.rewrite_folder(SOURCE, folder, 3)
        assert not any(name.endswith(".safetensors") and name != "expected.safetensors" for name in os.listdir(folder))
        for tp in (1, 2, 4):
            if says(sys.argv[1], folder, tp) != says(sys.argv[1], SOURCE, tp):
                sys.exit(f"torch_golden: at {tp} ranks the two differ")


main()
