"""Tests `cox plan` for GPUs and machines by name, from a model's config.json or from a bare shape."""
import json
import os
import subprocess

import pytest
from cluster import BIN, ROOT, run_cox

MODELS = ROOT / "bench/models"
SHAPE = ["--params", "13e9", "--dtype", "fp16", "--layers", "40", "--hidden", "5120", "--batch", "4", "--max-model-len", "4096"]
FIGURES = ("weights_bytes", "kv_bytes_per_token", "kv_bytes_total", "activation_bytes", "overhead_bytes", "total_bytes", "tp", "gpus_idle",
           "max_batch", "max_model_len")


def planned(*args):
    done = run_cox("plan", *args, "--json")
    assert done.returncode in (0, 1), done.stderr
    plan = json.loads(done.stdout)
    assert all(type(plan[name]) is int for name in FIGURES) and plan["fits"] is (done.returncode == 0), plan
    assert plan["total_bytes"] == sum(plan[name] for name in ("weights_bytes", "kv_bytes_total", "activation_bytes", "overhead_bytes"))
    return plan


def test_a_shape_on_a_machine():
    plan = planned(*SHAPE, "--instance", "ml.g5.12xlarge")
    assert (plan["weights_bytes"], plan["kv_bytes_per_token"], plan["kv_bytes_total"]) == (26_000_000_000, 819_200, 13_421_772_800)
    assert (plan["target"], plan["tp"], plan["gpus_idle"], plan["fits"], plan["max_batch"]) == ("ml.g5.12xlarge", 2, 2, True, 4)
    one, two, four = plan["targets"][0]["degrees"]
    assert [one["fits"], two["fits"], four["fits"]] == [False, True, True]
    for degree in (two, four):
        parts = [degree[name] for name in ("weights_bytes", "activation_bytes", "overhead_bytes", "kv_bytes")]
        assert sum(parts) == degree["total_bytes"] <= degree["budget_bytes"]
    assert 4 <= two["max_batch"] < four["max_batch"] and 4096 <= two["max_context"] < four["max_context"]
    assert two["decode_tokens_per_s"] < four["decode_tokens_per_s"] and two["prefill_tokens_per_s"] < four["prefill_tokens_per_s"]
    assert two["decode_bound"] == "memory"


def test_degrees_are_what_the_machine_allows():
    of = {t["name"]: [d["tp"] for d in t["degrees"]] for t in planned(*SHAPE, "--gpu", "L40S,6xL40S", "--instance", "p4d,g5.xlarge")["targets"]}
    assert of == {"L40S": [1, 2, 4, 8], "6xL40S": [1, 2, 4, 6], "p4d": [1, 2, 4, 8], "g5.xlarge": [1]}


def test_a_shape_without_a_length():
    """Without a length the plan has only the figures that do not depend on it: the weights and the KV cache of a token."""
    shape = SHAPE[:SHAPE.index("--batch")]
    done = run_cox("plan", *shape)
    assert done.returncode == 0 and not done.stderr
    assert "weights      26.00 GB (24.21 GiB)\n" in done.stdout and "819200 bytes a token\n--max-model-len N also gives" in done.stdout
    got = json.loads(run_cox("plan", *shape, "--json").stdout)
    assert (got["weights_bytes"], got["kv_bytes_per_token"], got["max_model_len"]) == (26_000_000_000, 819_200, None)
    assert "3276800 bytes for a token of each of 4 sequences" in run_cox("plan", *shape, "--batch", 4).stdout


def test_a_shape_on_all_gpus():
    text = run_cox("plan", *SHAPE).stdout
    for name in ("A10G", "L4", "L40S", "A100-40", "A100-80", "H100", "H200", "B200", "V100-16", "T4", "26.00 GB", "13.42 GB", "39.42 GB",
                 "fits         yes: L40S with --tp 1"):
        assert name in text, name
    text = run_cox("plan", *SHAPE, "--instance", "ml.g5.12xlarge").stdout
    assert "--tp 2, which leaves 2 of its 4 GPUs idle (--dp 2 has copies on all of them)" in text


def test_no_kernels_for_it():
    done = run_cox("plan", *SHAPE, "--instance", "g4dn.12xlarge", "--json")
    plan = json.loads(done.stdout)
    assert (plan["fits"], plan["supported"], plan["tp"], done.returncode) == (True, False, 4, 1)
    assert planned(*SHAPE, "--gpu", "T4,A10G")["target"] == "A10G"
    assert "no kernels" in run_cox("plan", *SHAPE, "--gpu", "T4").stdout


def test_a_model_of_a_hub_that_is_not_reached():
    away = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:1", "COX_RETRIES": "0"}
    done = run_cox("plan", "hf:some-org/some-model", "--gpu", "L4", env=away)
    assert done.returncode == 2 and "cannot reach 127.0.0.1" in done.stderr and "give a folder that contains the model's config.json" in done.stderr


def test_the_dtype_of_a_model_is_its_own():
    done, plain = (run_cox("plan", MODELS / "tinyllama_1b", "--gpu", "L4", "--json", *more) for more in (["--dtype", "fp8"], []))
    assert done.stdout == plain.stdout and "--dtype has no effect: it applies only to shapes" in done.stderr and not plain.stderr
    assert planned(*SHAPE, "--gpu", "L4", "--dtype", "fp8")["weights_bytes"] == 13_000_000_000


def test_a_model_here_has_the_same_names():
    plan = planned(MODELS / "tinyllama_1b", "--tp", 2, "--max-model-len", 64, "--memory-bytes", 4 << 30)
    assert plan["weights_bytes"] == sum(r["weights_bytes"] for r in plan["ranks"]) and plan["tp"] == len(plan["ranks"]) == 2
    assert plan["max_batch"] == min(r["kv_groups"][0]["most_blocks"] // 4 for r in plan["ranks"])


@pytest.mark.parametrize("name", ["llama31_8b", "phi3_mini_4k", "deepseek_coder_v2_lite"])
def test_estimates_are_near_what_a_gpu_worker_counts(name):
    """The plan of a build without CUDA equals that of the emulated worker, which runs the kernels' own functions."""
    emulated = BIN.parent / "tests/cox-worker-emulated"
    args = [MODELS / name, "--gpu", "A10G,H100", "--max-model-len", "2048", "--json"]
    counted = json.loads(subprocess.run([emulated, "plan", *map(str, args)], capture_output=True, text=True, check=False).stdout)
    guessed = json.loads(run_cox("plan", *args).stdout)
    assert counted["activations"] == "counted"
    for of_gpu, guess in zip(counted["targets"], guessed["targets"]):
        for a, b in zip(of_gpu["degrees"], guess["degrees"]):
            assert (a["weights_bytes"], a["kv_bytes"], a["overhead_bytes"]) == (b["weights_bytes"], b["kv_bytes"], b["overhead_bytes"])
            assert abs(a["activation_bytes"] / b["activation_bytes"] - 1) < 0.06, (of_gpu["name"], a["tp"])
            assert abs(a["total_bytes"] / b["total_bytes"] - 1) < 0.02, (of_gpu["name"], a["tp"])


@pytest.mark.parametrize("args,words", [
    (["--gpu", "A100", *SHAPE], "similar names: A100-40, A100-80"), (["--gpu", "H20", *SHAPE], "similar names: H200"),
    (["--instance", "ml.g5.3xlarge", *SHAPE], "g5.2xlarge"), ([*SHAPE, "--kv-heads", "7"], "--kv-heads 7"),
    ([*SHAPE, "--params", "13e6"], "--params 13e6"), ([*SHAPE, "--pp", "2"], "--pp"), ([*SHAPE[2:], "--gpu", "T4"], "--params is missing"),
    ([*SHAPE, "--device", "cuda"], "--device cuda"), ([MODELS / "tinyllama_1b", "--batch", "4"], "--gpu or --instance"),
    ([*SHAPE, "--block-size", "17"], "multiple of 16")], ids=lambda x: x if isinstance(x, str) else None)
def test_nonsense_is_one_line(args, words):
    done = run_cox("plan", *args)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, done.stderr
