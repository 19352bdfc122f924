"""Tests that the image of a CUDA build has NVIDIA's libraries by the names that a worker loads, and needs nothing from the build
folder."""
import json
import os
import re
import subprocess
import sys

import pytest
from cluster import BIN, ROOT
from unpacked import ENVIRONMENT, Pod, needed, size, why_not, why_not_inside

CUDA_BUILD = os.environ.get("COX_CUDA", "").upper() in ("ON", "1", "TRUE")
pytestmark = [pytest.mark.skipif(why_not() is not None, reason=f"SKIPPED: {why_not()}"),
              pytest.mark.skipif(not CUDA_BUILD, reason="SKIPPED: a build without CUDA"), pytest.mark.timeout(600)]
LOADED = ("libcublasLt.so.13", "libnccl.so.2")
LIMIT = 1.6e9


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory):
    at = tmp_path_factory.mktemp("cuda")
    for folder in (at, *at.parents[:2]):
        folder.chmod(0o755)
    done = subprocess.run([sys.executable, ROOT / "deploy/image/rootfs", "cuda", at / "rootfs", "--build", BIN.parent],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return at / "rootfs"


def test_libraries_and_size(rootfs):
    inside = {p.name: p for p in rootfs.glob("usr/lib/*-linux-gnu/*")}
    assert set(LOADED) <= set(inside)
    for path in [*inside.values(), *(rootfs / "usr/bin").iterdir()]:
        assert needed(path)[0] <= set(inside), path
    for program in (rootfs / "usr/bin").iterdir():
        said = subprocess.run(["readelf", "-dW", program], capture_output=True, text=True).stdout
        assert not re.search(r"R(UN)?PATH", said), program
    assert size(rootfs) <= LIMIT
    assert not any(name.startswith("libcuda.so") for name in inside)  # libcuda.so comes with the node's driver


def test_what_is_nvidias_is_listed_and_has_its_licence(rootfs):
    listed = {p["name"]: p for p in json.loads((rootfs / "usr/share/coxswain/sbom.spdx.json").read_text())["packages"]}
    pinned = dict(re.findall(r"^(nvidia-[\w-]+)==(\S+)", (ROOT / "scripts/cuda-requirements.txt").read_text(), re.M))
    for name in ("nvidia-cublas", "nvidia-nccl-cu13", "nvidia-cuda-runtime"):
        assert listed[name]["versionInfo"] == pinned[name]
        assert (rootfs / f"usr/share/doc/{name}/copyright").stat().st_size > 1000


@pytest.mark.skipif(why_not_inside() is not None, reason=f"SKIPPED: {why_not_inside()}")
def test_it_starts_and_finds_them(rootfs, tmp_path):
    with Pod(rootfs, ENVIRONMENT["cuda"], tmp_path) as pod:
        assert pod.run("/usr/bin/cox-worker", "--version").returncode == 0
        loader = next(p for p in rootfs.glob("usr/lib/*-linux-gnu/ld-linux*"))
        for library in LOADED:
            done = pod.run(f"/{loader.relative_to(rootfs)}", "--list", f"/{loader.parent.relative_to(rootfs)}/{library}")
            assert done.returncode == 0 and "not found" not in done.stdout, done.stdout + done.stderr
        done = pod.run("/usr/bin/cox", "worker", "--model", "null", "--device", "cuda", "--insecure", "--head", "127.0.0.1:1")
        assert done.returncode == 2 and "cuda" in done.stderr.lower(), done.stderr
