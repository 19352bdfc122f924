"""Tests machines without a GPU, with and without CUDA in the build: --device cuda names the missing part and ends with 2. auto
computes on the CPU, and a build with CUDA warns once."""
import ctypes
import os
import subprocess

import pytest
from cluster import BIN, ROOT, SLOW, Cluster, free_ports, run_cox
from completions import body_of, ids, run

MODEL = ROOT / "build/goldens/llama_tiny"
CUDA_BUILD = os.environ.get("COX_CUDA", "").upper() in ("ON", "1", "TRUE")
HAS_NODE = os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")
SAID = "no CUDA device found" if CUDA_BUILD else "this build has no CUDA backend"


def has_device():
    """Returns true when the CUDA driver reports a device. Without the driver's library there is no device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    n = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(n)) == 0 and n.value > 0


pytestmark = [pytest.mark.skipif(not MODEL.exists(), reason=f"no tiny checkpoints in {MODEL.parent}: scripts/make-goldens"),
              pytest.mark.skipif(has_device(), reason="there is a device")]


def test_cuda_is_refused_by_cox_up():
    flags = [x for pair in zip(("--port", "--head-port", "--admin-port", "--worker-http-port"), free_ports(4)) for x in pair]
    r = run_cox("up", MODEL, *flags, "--device", "cuda", "--workers", 1)
    last = r.stderr.splitlines()[-1]
    assert "restarted" not in r.stderr and "process_ended" not in r.stderr, r.stderr  # `cox up` did not retry
    assert r.returncode == 2 and last.startswith("cox up: ") and "--device cuda: " in last and SAID in last, r.stderr


def test_cuda_is_refused_by_the_worker():
    r = subprocess.run([BIN / "cox-worker", "--model", MODEL, "--device", "cuda", "--insecure", "--head", "127.0.0.1:1",
                        "--http-port", "0"], capture_output=True, text=True, timeout=20 * SLOW)
    assert r.returncode == 2 and SAID in r.stderr, r.stderr
    assert "Sanitizer" not in r.stderr


def test_the_device_is_looked_for_before_keys():
    r = subprocess.run([BIN / "cox-worker", "--device", "cuda"], capture_output=True, text=True, timeout=20 * SLOW)
    assert r.returncode == 2 and SAID in r.stderr and "--device cuda" in r.stderr and "keys" not in r.stderr, r.stderr


def test_auto_computes_on_the_cpu():
    bodies, answers = [body_of(list(range(3, 30)), model="llama_tiny", max_tokens=8)], []
    for device in ("cpu", "auto"):
        with Cluster("--device", device, workers=1, tp=1, model=str(MODEL)) as c:
            answers.append(ids(run(c, bodies)[0]))
            warned = c.log().count("gpu_not_used")
        assert warned == (1 if (CUDA_BUILD or HAS_NODE) and device == "auto" else 0), device
    assert answers[0] == answers[1] and len(answers[0]) == 8
