"""Tests that the programs run on a host with minimal rights: no root, no capability, and only a scratch folder and /dev writable. No
program listens beyond this machine unless its options ask for that."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import findings
import httpx
import null_oracle as oracle
import pytest
from cluster import BIN, ROOT, SLOW, Cluster, free_ports, get, wait_for
from test_bad_frames import Processes

TINY = ROOT / "build/goldens/llama_tiny"
NOBODY = 65534
# LOCK makes every mount read-only separately (bind mounts), because the file systems belong to the whole machine.
LOCK = r"""
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=1777 scratch "$SCRATCH"
while read -r what at rest; do
    case $at in "$SCRATCH" | /proc | /proc/* | /sys | /sys/* | /dev | /dev/*) ;;
    *) mount -o remount,bind,ro "$at" 2>/dev/null || true ;;
    esac
done </proc/self/mounts
if touch "$PROBE" 2>/dev/null; then echo "still writable: $PROBE" >&2; exit 9; fi
exec setpriv --reuid "$ID" --regid "$ID" --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
"""


def why_not():
    if os.geteuid() != 0:
        return "another user and read-only mounts need root"
    if not shutil.which("setpriv") or not shutil.which("unshare"):
        return "no setpriv or unshare: apt-get install util-linux"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        return "no right to make a mount namespace (CAP_SYS_ADMIN)"
    if subprocess.run(["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", BIN / "cox", "--version"],
                      capture_output=True).returncode != 0:
        return f"nobody may not run {BIN}/cox"
    return None


def status_of(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(why_not() is not None, reason=f"SKIPPED: {why_not()}")
@pytest.mark.parametrize("model", ["null", pytest.param(str(TINY), marks=pytest.mark.skipif(
    not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens"))], ids=["null", "tiny"])
def test_no_root_and_nothing_to_write_to(model):
    with tempfile.TemporaryDirectory(prefix="coxtest-locked-") as folder, tempfile.TemporaryFile() as log:
        os.chmod(folder, 0o755)
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        port, head, admin, *workers = free_ports(5)
        env = {**os.environ, "SCRATCH": str(scratch), "PROBE": f"{folder}/probe", "ID": str(NOBODY), "TMPDIR": str(scratch),
               "HOME": "/nonexistent"}
        device = [] if model == "null" else ["--device", "cpu", "--threads", "1"]
        p = subprocess.Popen(["unshare", "--mount", "sh", "-c", LOCK, "lock", BIN / "cox", "up", model, "--workers", "2", "--tp",
                              "2", "--port", str(port), "--head-port", str(head), "--admin-port", str(admin),
                              "--worker-http-port", str(workers[0]), *device],
                             stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env, cwd="/")
        said = ""
        try:
            wait_for("/health is 200", lambda: p.poll() is not None or get(f"http://127.0.0.1:{port}/health")[0] == 200, 60)
            assert p.poll() is None, "it ended"
            pids = [p.pid, *children(p.pid)]
            assert len(pids) == 5
            for s in map(status_of, pids):
                assert s["Uid"].split() == [str(NOBODY)] * 4 and s["NoNewPrivs"] == "1"
                assert int(s["CapEff"], 16) == int(s["CapBnd"], 16) == 0
            r = httpx.post(f"http://127.0.0.1:{port}/v1/completions", timeout=60 * SLOW, json={
                "prompt": "a", "max_tokens": 5, "temperature": 0, "ignore_eos": True})
            assert r.status_code == 200 and r.json()["usage"]["completion_tokens"] == 5
            if model == "null":
                assert r.json()["choices"][0]["text"] == oracle.text("a", 5, temperature=0)
            p.send_signal(signal.SIGTERM)
            assert p.wait(20 * SLOW) == 0
        finally:
            if p.poll() is None:
                p.kill()
                p.wait()
            log.seek(0)
            said = log.read().decode(errors="replace")
            findings.look_at_log(said)
            print(said)


def listening(pids):
    """Returns {(address, port)} of the TCP sockets on which the processes listen, in the format of /proc."""
    inodes, found = {}, set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                inodes[words[9]] = tuple(words[1].split(":"))
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(fd)
            except FileNotFoundError:
                continue
            if target.startswith("socket:[") and target[8:-1] in inodes:
                found.add(inodes[target[8:-1]])
    return found


LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


def test_nothing_listens_beyond_this_machine_unasked():
    with Cluster() as c:
        found = listening([*c.pids().values(), c.process.pid])
        assert len(found) >= 5 and all(address in LOOPBACK for address, _ in found), found


def test_what_is_asked_for_opens_that_alone(tmp_path):
    """With keys, the head's port is open to workers of other hosts, and no other port opens with it. A gateway logs a warning when
    it is open to other hosts without API keys."""
    with Processes(tmp_path) as c:
        c.start("head", BIN / "cox-head", "--host", "0.0.0.0", "--port", c.head_port, "--admin-port", c.admin_port,
                "--keys-dir", c.keys, "--tp", 1)
        wait_for("the head answers", lambda: get(c.admin + "/livez")[0] == 200)
        c.start_worker("worker-0", c.head_port, tp=1)
        c.start("gateway", BIN / "cox-gateway", "--model", "null", "--head", f"127.0.0.1:{c.head_port}", "--host", "0.0.0.0",
                "--port", c.port, "--keys-dir", c.keys)
        wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)
        beyond = {int(port, 16) for address, port in listening([p.pid for p in c.started.values()])
                  if address not in LOOPBACK}
        assert beyond == {c.head_port, c.port}
        assert "open_to_everybody" in c.log("gateway")
        assert json.loads(get(c.admin + "/api/status")[1])["healthy"]
