"""Tests that a disk that is full, missing or foreign stops only requests that need it. The tests use a tmpfs of 6 MiB in the
cluster's own mount namespace where this user may make one. A vanished folder and a file that is no database need no tmpfs."""
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
import uuid

import pytest
from cluster import Cluster, get, wait_for

SIZE = 900_000


def may_mount():
    done = subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"], capture_output=True)
    return done.returncode == 0


class OnSmallDisk(Cluster):
    """`OnSmallDisk` is a cluster with its `disk` on a separate tmpfs. Its files are reached through /proc/PID/root."""

    def __init__(self, folder, *args):
        folder.mkdir(exist_ok=True)
        self.disk = folder
        super().__init__("--state-dir", folder / "state", "--access-log", folder / "access", "--step-log", folder / "steps", *args, workers=1, tp=1)
        self.command = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=6m tmpfs {folder} && exec \"$@\"", "sh", *self.command]

    def inside(self):
        return f"/proc/{self.process.pid}/root{self.disk}"

    def fill(self):
        with open(self.inside() + "/fill", "wb", buffering=0) as f:
            try:
                while f.write(b"x" * 65536):
                    pass
            except OSError:
                pass
            try:
                while f.write(b"x"):
                    pass
            except OSError:
                pass


def call(c, method, path, body=None, kind="application/json"):
    request = urllib.request.Request(c.url + path, body, {"Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


def upload(c, size=SIZE):
    edge = uuid.uuid4().hex
    body = (f'--{edge}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{edge}\r\nContent-Disposition: form-data; '
            f'name="file"; filename="x.jsonl"\r\n\r\n').encode() + b"x" * size + f"\r\n--{edge}--\r\n".encode()
    return call(c, "POST", "/v1/files", body, f"multipart/form-data; boundary={edge}")


def complete(c):
    return call(c, "POST", "/v1/completions", b'{"model":"null","prompt":"x","max_tokens":8}')[0]


def metric(c, name):
    return float(next(line.split()[-1] for line in get(c.url + "/metrics")[1].splitlines() if line.startswith(f"coxswain_gateway_state_{name} ")))


@pytest.mark.skipif(not may_mount(), reason="no mount namespace for this user")
def test_a_full_disk(tmp_path):
    with OnSmallDisk(tmp_path / "disk") as c:
        ids = []
        while (answer := upload(c))[0] == 200:
            ids.append(json.loads(answer[1])["id"])
        assert answer[0] == 507 and len(ids) >= 2, answer
        c.fill()
        assert complete(c) == 200
        assert call(c, "GET", "/v1/files")[0] == 200 and call(c, "GET", f"/v1/files/{ids[0]}/content")[1] == b"x" * SIZE
        assert upload(c)[0] == 507
        wait_for("the lost access log is told of", lambda: complete(c) == 200 and "access_log_lost" in c.log())
        assert c.log().count("access_log_lost") == 1

        gateway = c.pid("gateway-0")
        os.kill(gateway, 9)  # the gateway must restart on the full disk
        wait_for("another gateway", lambda: c.pids().get("gateway-0", gateway) != gateway and get(c.url + "/health")[0] == 200)
        assert complete(c) == 200 and metric(c, "up") == 1
        assert len(json.loads(call(c, "GET", "/v1/files")[1])["data"]) == len(ids)
        for i in ids:
            assert call(c, "DELETE", f"/v1/files/{i}")[0] == 200
        assert upload(c, 100_000)[0] == 200  # the disk space of the deleted files is free again
        c.fill()
        os.remove(c.inside() + "/fill")
        assert upload(c)[0] == 200
        assert metric(c, "lost_total") == 0


@pytest.mark.skipif(not may_mount(), reason="no mount namespace for this user")
def test_a_start_on_a_full_disk(tmp_path):
    """Not even an empty database fits. When disk space becomes free, the store works without a restart."""
    c = OnSmallDisk(tmp_path / "disk")
    c.command[4] = c.command[4].replace(" && exec", f" && dd if=/dev/zero of={c.disk}/fill bs=4k 2>/dev/null; exec")
    with c:
        assert complete(c) == 200
        assert upload(c, 10)[0] == 507 and metric(c, "up") == 0
        assert c.log().count("state_lost") == 1
        os.remove(c.inside() + "/fill")
        wait_for("the store is back", lambda: upload(c, 10)[0] == 200)
        wait_for("the metric says so", lambda: metric(c, "up") == 1)


def test_a_folder_that_vanishes(tmp_path):
    with Cluster("--state-dir", tmp_path / "state", workers=1, tp=1) as c:
        assert upload(c, 1000)[0] == 200
        shutil.rmtree(tmp_path / "state")
        assert upload(c, 1000)[0] == 503 and complete(c) == 200
        wait_for("the store is back, empty", lambda: upload(c, 1000)[0] == 200)
        assert len(json.loads(call(c, "GET", "/v1/files")[1])["data"]) == 1


def test_a_file_that_is_no_database(tmp_path):
    folder = tmp_path / "state/gateway-0"
    folder.mkdir(parents=True)
    (folder / "state.sqlite").write_bytes(b"this is no database\n" * 1000)
    with Cluster("--state-dir", tmp_path / "state", workers=1, tp=1) as c:
        assert complete(c) == 200 and call(c, "GET", "/v1/files")[0] == 503 and call(c, "GET", "/v1/batches")[0] == 503
        (folder / "state.sqlite").unlink()
        wait_for("the store is back", lambda: call(c, "GET", "/v1/files")[0] == 200)
        assert c.log().count("state_lost") == 1
