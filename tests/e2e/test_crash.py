"""Tests that a program that crashes writes a last log line with all data that locates the line of code, and ends with the exit
status of the signal."""
import json
import re
import signal
import subprocess

import findings
import pytest
from cluster import BIN, SANITIZED, SLOW, Cluster, get, run_cox, wait_for
from test_bad_frames import Processes

pytestmark = pytest.mark.skipif(SANITIZED, reason="sanitizers' own handlers say more")


def build_id(program):
    data = (BIN / program).read_bytes()
    at = data.index(b"\x14\0\0\0\x03\0\0\0GNU\0")  # these bytes are the header of NT_GNU_BUILD_ID; the id's 20 bytes follow
    return data[at + 12:at + 32].hex()


def look(log, program, process, name):
    """Returns the crash line and the frames of a logfmt log."""
    said = re.findall(rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z error {process} crash (.*)$", log, re.M)
    assert len(said) == 1, log
    fields = dict(f.split("=", 1) for f in said[0].split())
    assert fields["signal"] == name and fields["build_id"] == build_id(program)
    assert fields["version"] == run_cox("--version").stdout.split()[1] and fields["address"] == "none"
    frames = re.findall(rf" error {process} crash_frame at=(\S+)\+0x([0-9a-f]+)$", log, re.M)
    assert len(frames) >= 3 and any(f == program for f, _ in frames), log
    return frames


def end(p, sig):
    findings.own.add(p.pid)
    p.send_signal(sig)
    return p.wait(10 * SLOW)


@pytest.mark.parametrize("sig", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE])
def test_every_program_says_its_last_words(tmp_path, sig):
    with Processes(tmp_path) as c:
        c.start_head(tp=1)
        c.start_worker("worker-0", c.head_port, tp=1)
        c.start_gateway(c.head_port)
        wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)
        for name, program in (("gateway", "cox-gateway"), ("worker-0", "cox-worker"), ("head", "cox-head")):
            assert end(c.started[name], sig) == -sig
            process = r"worker\S*" if program == "cox-worker" else name
            frames = look(c.log(name), program, process, sig.name)
            if program == "cox-head" and shows_lines():
                offsets = [o for f, o in frames if f == program]
                shown = subprocess.run(["addr2line", "-f", "-i", "-e", BIN / program, *offsets], capture_output=True, text=True)
                assert "main" in shown.stdout.split(), shown.stdout


def shows_lines():
    try:
        return subprocess.run(["addr2line", "--version"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def test_cox_up_too():
    c = Cluster()
    try:
        c.start()
        assert end(c.process, signal.SIGSEGV) == -signal.SIGSEGV
        wait_for("its last words are there", lambda: " crash_frame " in c.log())
        look(c.log(), "cox", "cox", "SIGSEGV")
    finally:
        c.kill()


def test_in_json(tmp_path):
    with Processes(tmp_path) as c:
        c.start("head", BIN / "cox-head", "--port", c.head_port, "--admin-port", c.admin_port, "--keys-dir", c.keys,
                "--log-format", "json")
        wait_for("the head answers", lambda: get(c.admin + "/livez")[0] == 200)
        end(c.started["head"], signal.SIGSEGV)
        lines = [json.loads(line) for line in c.log("head").splitlines()]
        crash, *frames = [line for line in lines if line["event"].startswith("crash")]
        assert crash["signal"] == "SIGSEGV" and crash["build_id"] == build_id("cox-head")
        assert len(frames) >= 3 and all(re.fullmatch(r"\S+\+0x[0-9a-f]+", f["at"]) for f in frames)
