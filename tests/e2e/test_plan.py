"""Compares `cox plan` with the memory tables of real workers, for models without weights. For unsupported models, every command
names the reason before a weight is read."""
import json
import os
import shutil
import subprocess

import pytest
from cluster import BIN, ROOT, Cluster, run_cox
from completions import body_of, ids, run
from hub_server import COMMIT, Hub, tiny_model
from real_model import GOLDENS

OWN = ROOT / "build/goldens"
# config.json alone does not show which matrices a publisher left unquantised, or the order of desc_act.
IN_THE_FILES = ("_kv_b_", "_act_order")
MODELS = sorted([p for p in OWN.glob("*") if (p / "expected.json").exists() and not any(t in p.name for t in IN_THE_FILES)] +
                [p for p in (GOLDENS / "models").glob("*") if (p / "config.json").exists()])
SIZES = ["--num-gpu-blocks-override", "64", "--threads", "2"]

pytestmark = pytest.mark.skipif(not OWN.exists(), reason=f"no tiny checkpoints in {OWN}: scripts/make-goldens")


def table_of(model, tp, rank, pp=1, more=()):
    """Returns the worker's memory table before it loads, or None when it refuses the split."""
    command = [BIN / "cox-worker", "--model", model, "--device", "cpu", "--tp", tp, "--pp", pp, "--ordinal", rank, *SIZES, *more, "--insecure",
               "--head", "127.0.0.1:1", "--http-port", "0", "--log-format", "json"]
    with subprocess.Popen([str(a) for a in command], stderr=subprocess.PIPE, text=True) as p:
        for line in p.stderr:
            event = json.loads(line)
            if event["event"] in ("memory_plan", "start_failed"):
                p.kill()
                return event if event["event"] == "memory_plan" else None
    raise AssertionError(f"{command}: no table")


@pytest.mark.parametrize("tp,pp", [(2, 1), (1, 2)])
@pytest.mark.parametrize("folder", MODELS, ids=lambda p: p.name)
def test_the_table_of_its_workers(folder, tp, pp):
    model = folder / "model.gguf" if (folder / "model.gguf").exists() else folder
    done, table = run_cox("plan", model, "--tp", tp, "--pp", pp, "--json", *SIZES), table_of(model, tp, 1, pp)
    if table is None:
        assert done.returncode == 2, done.stdout
        return
    want = {name: table[name] for name in ("weights_bytes", "activation_bytes", "comm_bytes", "kv_bytes", "total_bytes")}
    planned = json.loads(done.stdout)["ranks"][1]
    assert {name: planned[name] for name in want} == want


@pytest.mark.parametrize("name,tp,pp", [("llama_tiny", 2, 2), ("gemma3_tiny", 1, 3)])
def test_the_tables_of_stages(name, tp, pp):
    done = run_cox("plan", OWN / name, "--tp", tp, "--pp", pp, "--json", *SIZES)
    for i, planned in enumerate(json.loads(done.stdout)["ranks"]):
        table = table_of(OWN / name, tp, i, pp)
        assert (planned["stage"], planned["rank"]) == divmod(i, tp)
        for key in ("weights_bytes", "activation_bytes", "comm_bytes", "kv_bytes", "total_bytes"):
            assert planned[key] == table[key], (i, key)


@pytest.mark.parametrize("more", [["--kv-cache-dtype", "int8"], ["--kv-cache-dtype", "float32", "--block-size", "32"],
                                  ["--quantization", "int4"], ["--enable-lora", "--max-loras", "3", "--max-lora-rank", "8"]],
                         ids=lambda words: words[0] + words[1])
def test_the_same_options(more):
    planned = json.loads(run_cox("plan", OWN / "llama_tiny", "--tp", 2, "--json", *SIZES, *more).stdout)["ranks"][0]
    table = table_of(OWN / "llama_tiny", 2, 0, more=more + ["--lora-root", OWN] * ("--enable-lora" in more))
    for key in ("weights_bytes", "lora_bytes", "kv_bytes", "total_bytes"):
        assert planned[key] == table[key], key
    assert planned["kv_bytes"] == 64 * planned["kv_groups"][0]["bytes_per_block"]
    assert (planned["lora_bytes"] > 0) == ("--enable-lora" in more)


def without_weights(tmp_path, name="llama_tiny", **changed):
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(OWN / name / file, tmp_path)
    config = json.loads((OWN / name / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changed}))
    return tmp_path


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}


@pytest.mark.parametrize("quantised", [None, AWQ], ids=["plain", "awq"])
def test_random_weights_are_served(tmp_path, quantised):
    model = without_weights(tmp_path, quantization_config=quantised)
    assert "--load-format" not in run_cox("plan", model).stderr
    answers = []
    for tp in (1, 2):
        with Cluster("--device", "cpu", "--load-format", "dummy", "--served-model-name", "m", "--max-model-len", "128",
                     model=str(model), tp=tp, workers=tp) as c:
            answers.append([ids(got) for got in run(c, [body_of([5 + i, 6, 7]) for i in range(3)])])
    assert answers[0] == answers[1]  # the model is the same, however it is split
    assert len({tuple(a) for a in answers[0]}) == 3


def test_no_weights_no_worker(tmp_path):
    done = run_cox("worker", "--model", without_weights(tmp_path), "--device", "cpu", "--insecure")
    assert done.returncode == 2 and "model.safetensors" in done.stderr and "--load-format dummy" in done.stderr


@pytest.mark.parametrize("changed,words", [
    ({"model_type": "foo", "architectures": ["FooForCausalLM"]}, "architecture FooForCausalLM is not supported. Supported architectures: llama"),
    ({"quantization_config": {"quant_method": "bar"}}, 'quant_method "bar"'),
], ids=["architecture", "quant_method"])
@pytest.mark.parametrize("command", [("plan",), ("up", "--device", "cpu"), ("worker", "--device", "cpu", "--insecure", "--model")],
                         ids=["plan", "up", "worker"])
def test_what_is_not_supported_is_named(tmp_path, command, changed, words):
    done = run_cox(*command, without_weights(tmp_path, **changed))
    said = done.stderr.replace('\\"', '"')
    assert done.returncode == 2 and words in said, said
    assert command[0] == "worker" or "start_failed" not in said  # cox reports the error before it starts a process


def test_too_large_is_said(tmp_path):
    done = run_cox("plan", without_weights(tmp_path), "--memory-bytes", 1 << 20)
    assert done.returncode == 1 and "fits         no" in done.stdout and "are free" in done.stdout
    assert run_cox("plan", "null").returncode == run_cox("plan").returncode == run_cox("plan", "/nowhere").returncode == 2


def plan_of(tmp_path, hub, model, *args, **env):
    env = {"COX_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path), "HF_ENDPOINT": hub.url, "COX_HF_CACHE": "off"} | env
    return run_cox("plan", model, *args, env={k: v for k, v in os.environ.items() if k != "HF_TOKEN"} | env, timeout=60)


def nothing_left(tmp_path):
    return not (tmp_path / "cache").exists() and not [p for p in tmp_path.iterdir() if p.name.startswith("cox-")]


@pytest.mark.parametrize("model, more", [("hf:org/tiny", []), ("org/tiny", []), ("hf:org/tiny", ["--gpu", "L4"]),
                                         ("org/tiny", ["--served-model-name", "org/tiny"])])
def test_a_model_of_a_hub(tmp_path, model, more):
    """A hub's model is planned from its config.json. No weight is requested, no file is kept, and the figures equal those of a
    folder."""
    with Hub({"org/tiny": tiny_model()}, token="hf_T") as hub:
        done = plan_of(tmp_path, hub, model, "--json", "--max-model-len", "256", *more, HF_TOKEN="hf_T")
        assert done.returncode == 0, done.stderr
        assert [p for p, _ in hub.requests] == ["/api/models/org/tiny/revision/main?blobs=true",
                                               f"/org/tiny/resolve/{COMMIT}/config.json"]
        assert nothing_left(tmp_path)
        folder = tmp_path / "by hand"
        folder.mkdir()
        (folder / "config.json").write_bytes(hub.models["org/tiny"]["config.json"])
        hub.requests.clear()
        want = plan_of(tmp_path, hub, folder, "--json", "--max-model-len", "256", *more)
        here, there = json.loads(done.stdout), json.loads(want.stdout)
        assert here.pop("model") == model and there.pop("model") in (str(folder), model) and not hub.requests
        assert here["weights_bytes"] == there["weights_bytes"] and here.keys() == there.keys()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_gguf_of_a_hub(tmp_path, ranges):
    """A GGUF is planned from the first bytes of the file."""
    gguf = OWN / "llama_tiny_gguf_q8_0/model.gguf"
    gguf = gguf if gguf.exists() else next(OWN.glob("*/model.gguf"))
    body = gguf.read_bytes() + bytes(40 << 20)
    with Hub({"org/tiny": {"q/m.gguf": body}}) as hub:
        if not ranges:
            hub.faults["*"] = [(), ("norange",)]
        done = plan_of(tmp_path, hub, "hf:org/tiny/q/m.gguf", "--json")
        assert done.returncode == 0, done.stderr
        (path, headers), = hub.asked("m.gguf")
        assert headers["Range"] == "bytes=0-8388607" and nothing_left(tmp_path), path
        want = json.loads(run_cox("plan", gguf, "--json").stdout)
        assert json.loads(done.stdout)["weights_bytes"] == want["weights_bytes"]


def test_a_hub_that_does_not_help(tmp_path):
    """Every case ends with exit code 2, because 1 says that the model does not fit. The error contains advice."""
    with Hub({"org/tiny": tiny_model(), "org/none": {"config.json": b"{}", "model.safetensors": b"x"}}, token="hf_T") as hub:
        done = plan_of(tmp_path, hub, "hf:org/tiny")
        assert done.returncode == 2 and "HF_TOKEN" in done.stderr and "give a folder that contains the model's config.json" in done.stderr, done.stderr
        done = plan_of(tmp_path, hub, "hf:org/none", HF_TOKEN="hf_T")
        assert done.returncode == 2 and not hub.asked(".safetensors") and nothing_left(tmp_path), done.stderr
        hub.requests.clear()
        done = plan_of(tmp_path, hub, "hf:org/tiny", "--tp", "none")
        assert done.returncode == 2 and "--tp" in done.stderr and not hub.requests
    done = plan_of(tmp_path, hub, "hf:org/tiny", COX_RETRY_WAIT="0.01")  # no process listens at the hub's address now
    assert done.returncode == 2 and "give a folder that contains the model's config.json" in done.stderr and nothing_left(tmp_path), done.stderr
