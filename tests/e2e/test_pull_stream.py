"""Tests that `cox up s3://… --load-format stream` loads a model directly into memory, once for all processes, and that the model's
memory is freed with them."""
import os
import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from cluster import BIN, SLOW, Cluster, alive, run_cox, wait_for
from completions import ids, run
from hub_server import COMMIT, Hub, tiny_model
from test_pull import World
from test_pull_s3 import Bucket, objects
from test_tiny_models import OWN_GOLDENS, prompts_of

STREAM = ("--load-format", "stream")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def up(world, bucket, *args, model="s3://models/a", **kw):
    return Cluster(*args, model=model, env=world.env | {"AWS_ENDPOINT_URL": bucket.url}, **kw)


def in_memory(pid):
    """Returns the bytes of the memory files that a process has open."""
    at = [p for p in Path(f"/proc/{pid}/fd").iterdir() if "/memfd:" in (os.readlink(p) if p.is_symlink() else "")]
    return sum(p.stat().st_size for p in at)


def folders(c):
    return [p for p in c.tmp.iterdir() if "stream" in p.name]


@pytest.mark.parametrize("name", ["stream", "runai_streamer"])
def test_straight_into_memory(world, name):
    with Bucket(objects("a")) as s3, up(world, s3, "--load-format", name, "--device", "null") as c:
        model = tiny_model()
        assert [m["id"] for m in httpx.get(f"{c.url}/v1/models", timeout=30).json()["data"]] == ["a"]
        assert in_memory(c.process.pid) == sum(len(model[n]) for n in ("config.json", "tokenizer.json", "model.safetensors"))
        folder, = folders(c)
        assert all(p.is_symlink() for p in folder.iterdir() if p.name != "owner")
        with pytest.raises(PermissionError):  # the file is sealed
            os.pwrite(os.open(folder / "model.safetensors", os.O_RDWR), b"x", 0)
        assert "model_in_memory" in c.log() and len(s3.asked("model.safetensors")) == 1
        assert not world.cache.exists() or world.names() == []  # no file is on a disk
        assert c.stop()[0] == 0
        assert list(c.tmp.iterdir()) == []


def test_after_a_kill_nothing_is_left(world):
    with Bucket(objects("a")) as s3, up(world, s3, *STREAM, "--device", "null") as c:
        pids = list(c.pids().values())
        folder, = folders(c)
        c.process.kill()
        c.process.wait()
        wait_for("all are gone", lambda: not any(alive(p) for p in pids), 20 * SLOW)  # the memory is freed when the processes have ended
        assert all(not p.exists() for p in folder.iterdir() if p.is_symlink())
        os.utime(folder, (0, 0))  # the folder gets an old time, because a recent folder is not removed
        done = run_cox("up", "s3://models/absent", *STREAM, env=c.env, timeout=60)
        assert done.returncode == 2 and not folder.exists() and folders(c) == [], done.stderr


def test_what_is_in_the_cache_is_served_from_there(world):
    with Bucket(objects("a")) as s3:
        world.pull("s3://models/a", AWS_ENDPOINT_URL=s3.url)
        s3.requests.clear()
        with up(world, s3, *STREAM, "--device", "null") as c:
            assert s3.requests == [] and in_memory(c.process.pid) == 0 and folders(c) == []


@pytest.mark.parametrize("faults, code, words", [
    ({"/models/a/model.safetensors": [("status", 403)]}, 2, ["403"]),
    ({"/models/a/model.safetensors": [("status", 404)]}, 2, ["404"]),
    ({"/models": [("status", 403)]}, 2, ["the bucket is not public"]),
    ({"/models/a/model.safetensors": [("longer",)] * 9}, 1, ["200001 bytes", "the list of files says 200000"]),
])
def test_what_does_not_come(world, tmp_path, faults, code, words):
    with Bucket(objects("a")) as s3:
        s3.faults = {k: list(v) for k, v in faults.items()}
        done = run_cox("up", "s3://models/a", *STREAM, "--device", "null", timeout=60,
                       env=world.env | {"AWS_ENDPOINT_URL": s3.url, "TMPDIR": str(tmp_path)})
        assert done.returncode == code and all(w in done.stderr for w in words), done.stderr
        assert not [p for p in tmp_path.iterdir() if "cox-" in p.name]


def test_no_room(world, tmp_path):
    with Hub({"org/tiny": tiny_model()}) as hub:
        def larger(listing):
            listing["siblings"][2].update(size=1 << 41, lfs={"size": 1 << 41, "sha256": "0" * 64})
            return listing
        hub.change = larger
        done = run_cox("up", "hf:org/tiny", *STREAM, "--device", "null", timeout=60,
                       env=world.env | {"HF_ENDPOINT": hub.url, "TMPDIR": str(tmp_path)})
        assert done.returncode == 1 and "2.0 TiB of memory" in done.stderr, done.stderr  # a restart may find enough memory, so the status is 1
        assert not hub.asked("model.safetensors")


def test_other_bytes_than_the_hub_says(world, tmp_path):
    """Wrong bytes give exit code 1, as in `cox pull`, so systemd (RestartPreventExitStatus=2) restarts the service."""
    with Hub({"org/tiny": tiny_model()}) as hub:
        hub.faults[f"/org/tiny/resolve/{COMMIT}/model.safetensors"] = [("garbage",)] * 9
        done = run_cox("up", "hf:org/tiny", *STREAM, "--device", "null", timeout=60,
                       env=world.env | {"HF_ENDPOINT": hub.url, "TMPDIR": str(tmp_path)})
        assert done.returncode == 1 and "SHA-256" in done.stderr, done.stderr


@pytest.mark.skipif(not OWN_GOLDENS.exists(), reason=f"no tiny checkpoints in {OWN_GOLDENS}: scripts/make-goldens")
@pytest.mark.parametrize("name, tp", [("llama_tiny", 2), ("llama_tiny_gguf_split", 1)])
def test_the_same_tokens(world, name, tp):
    """Two ranks with real kernels run safetensors and a GGUF in parts from the same memory."""
    files = {f"m/{p.name}": p.read_bytes() for p in (OWN_GOLDENS / name).iterdir() if p.is_file()}
    gguf = sorted(k for k in files if re.search(r"-00001-of-\d+\.gguf$", k))
    with Bucket(files) as s3, up(world, s3, *STREAM, "--device", "cpu", "--kv-cache-dtype", "float32", "--dtype", "float32",
                                 "--served-model-name", "m",
                                 model=f"s3://models/{gguf[0] if gguf else 'm'}", workers=tp, tp=tp) as c:
        known = prompts_of(name)
        for (p, _), got in zip(known, run(c, [body for _, body in known])):
            assert ids(got) == p["greedy"], p["name"]


def test_a_signal_while_it_comes(world, tmp_path):
    with Bucket(objects("a")) as s3:
        s3.faults["/models/a/model.safetensors"] = [("stall",)]
        c = up(world, s3, *STREAM, "--device", "null")
        try:
            c.start(wait=False)
            wait_for("the weights are asked for", lambda: s3.asked("model.safetensors"), 20 * SLOW)
            c.process.send_signal(signal.SIGTERM)
            assert c.process.wait(20 * SLOW) == 1, c.log()  # the status is that of `cox pull`
            assert list(c.tmp.iterdir()) == []
        finally:
            c.kill()
            c.folder.cleanup()


@pytest.mark.parametrize("flags", [["--load-format", "stream", "--model", "s3://models/a"],
                                   ["--load-format=runai_streamer", "--model=s3://models/a"]])
def test_a_worker_of_another_machine(world, tmp_path, flags):
    """`cox worker` becomes the worker process, which keeps the files until it ends."""
    with Bucket(objects("a")) as s3, Cluster(*STREAM, "--device", "null", model="s3://models/a", spare=1,
                                             env=world.env | {"AWS_ENDPOINT_URL": s3.url}) as c:
        keys, = (p for p in c.tmp.iterdir() if "keys" in p.name)
        p = subprocess.Popen([BIN / "cox", "worker", *flags, "--keys-dir", str(keys), "--head", f"127.0.0.1:{c.head_port}",
                              "--device", "null", "--tp", "2", "--http-port", "0"], stderr=subprocess.PIPE, text=True,
                             env=world.env | {"AWS_ENDPOINT_URL": s3.url, "TMPDIR": str(tmp_path)})
        try:
            wait_for("three workers", lambda: len(c.status()["workers"]) == 3, 20 * SLOW)
            model = tiny_model()
            assert in_memory(p.pid) == sum(len(model[n]) for n in ("config.json", "tokenizer.json", "model.safetensors"))
        finally:
            p.terminate()
            _, err = p.communicate(timeout=20 * SLOW)
        folder, = (f for f in tmp_path.iterdir() if "stream" in f.name)
        assert not any(f.exists() for f in folder.iterdir() if f.is_symlink()), err  # the folder has only links without targets
    done = run_cox("worker", *flags, timeout=60, env=world.env | {"AWS_ENDPOINT_URL": s3.url, "COX_RETRIES": "0"})
    assert done.returncode == 1 and "cox worker: s3://models/a: " in done.stderr, done.stderr
