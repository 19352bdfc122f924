"""Tests the step log of a head under load, and `cox replay` of that log."""
import os
import signal
import stat

import findings
import httpx
import null_oracle as oracle
import pytest
from cluster import Cluster, run_cox, wait_for
from completions import run

N = 40
PREFIX = "A beginning that all of them share, long enough for a few blocks of the cache. " * 2


def bodies():
    return [{"prompt": PREFIX + "more " * (i % 23), "max_tokens": 90 + i % 17, "temperature": 0, "priority": i % 3}
            for i in range(N)]


def cancel_some(cluster):
    """Sends requests for 500 tokens and hangs up after the first token. A client with a short time-out would be less reliable,
    because on a busy machine it may not run until the whole answer has arrived."""
    with httpx.Client(timeout=60) as client:
        for i in range(6):
            body = {"model": "null", "prompt": f"{PREFIX}{i}", "max_tokens": 500, "stream": True}
            with client.stream("POST", cluster.url + "/v1/completions", json=body) as answer:
                assert next(answer.iter_lines())


def load(cluster, strike=lambda: None):
    """Runs a load with cancels, a KV pool that is too small, and a strike in the middle."""
    struck = []

    def look(got):
        if not struck and got.n_chunks > 10:
            struck.append(True)
            strike()

    cancel_some(cluster)
    for body, got in zip(bodies(), run(cluster, bodies(), look)):
        assert got.texts == {0: oracle.text(body["prompt"], body["max_tokens"], temperature=0)}
    assert struck
    cancel_some(cluster)
    cluster.wait_idle()


def replay(path, *args):
    return run_cox("replay", path, *args, timeout=60)


def equal(path, *args):
    got = replay(path, *args)
    assert got.returncode == 0, got.stdout[-3000:] + got.stderr
    assert "all plans are equal" in got.stdout
    return got.stdout


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Makes the log of a cluster that lost a worker under load."""
    path = tmp_path_factory.mktemp("log") / "steps"
    with Cluster("--null-step-us", "1000", "--step-log", path, "--num-gpu-blocks-override", "48",
                 "--max-num-seqs", "12", "--scheduling-policy", "priority") as c:
        load(c, lambda: os.kill(c.pid("worker-1"), signal.SIGKILL))
        assert c.status()["requests"]["preemptions"] > 0
        assert c.stop()[0] == 0
    return path


def test_all_plans_are_equal(log):
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    said = equal(log, "--check")
    assert "2 replicas" in said and "all invariants hold" in said and "middle" not in said


def test_plans_are_printed(log):
    lines = equal(log, "--print", "--from", "2", "--to", "3").splitlines()
    steps = [line for line in lines if line.startswith("replica ")]
    assert [s.split(" step ")[1].split(":")[0] for s in steps] == ["2", "3"] * 2
    assert any(line.startswith("  run slot 0 [") and "sample" in line for line in lines)
    assert not [line for line in equal(log, "--print", "--group", "77").splitlines() if line.startswith("replica ")]


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_a_flipped_byte_is_found(log, tmp_path, at):
    bytes_ = bytearray(log.read_bytes())
    bytes_[int(len(bytes_) * at)] ^= 4
    bad = tmp_path / "bad"
    bad.write_bytes(bytes_)
    got = replay(bad)
    assert got.returncode == 1 and "damaged" in got.stderr


def ends_of_chunks(whole):
    """Returns the positions at which a log may end without an error (head/record/format.h)."""
    at = 8
    while at < len(whole):
        at += 12 + int.from_bytes(whole[at:at + 4], "little")
        yield at


@pytest.mark.parametrize("n", [1, 5, 1000])
def test_a_log_that_was_cut_off_is_fine(log, tmp_path, n):
    whole = log.read_bytes()
    n += len(whole) - n in ends_of_chunks(whole)  # the cut must not be at the boundary of a write
    cut = tmp_path / "cut"
    cut.write_bytes(whole[:-n])
    assert "in the middle of a write" in equal(cut)


def test_what_is_no_log(tmp_path):
    other = tmp_path / "other"
    other.write_text("something else, and longer than a magic")
    for path in (other, tmp_path / "nothing", tmp_path):
        got = replay(path)
        assert got.returncode == 2 and got.stderr.startswith("cox replay: ")
    assert run_cox("replay").returncode == 2


def test_a_head_that_dies(tmp_path):
    """The dead head's log is in FILE.1, and the next head has a new log."""
    path = tmp_path / "steps"
    with Cluster("--null-step-us", "1000", "--step-log", path, "--scheduling-policy", "priority") as c:
        before = c.pid("head")
        findings.own.add(before)
        load(c, lambda: os.kill(before, signal.SIGABRT))
        wait_for("the head is back", lambda: c.pid("head") != before)
    assert "middle" not in equal(tmp_path / "steps.1")
    equal(path)


def test_a_log_that_is_full(tmp_path):
    path = tmp_path / "steps"
    with Cluster("--null-step-us", "1000", "--step-log", path, "--scheduling-policy", "priority",
                 "--step-log-max-bytes", "20000") as c:
        load(c)
        assert c.log().count("step_log_stopped") == 1
    assert 0 < path.stat().st_size <= 20000
    equal(path)
