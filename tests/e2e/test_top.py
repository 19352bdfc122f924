"""Tests `cox top` and the colours of `cox status`, on a pseudo-terminal and without one."""
import os
import re
import signal
import subprocess

import httpx
import pytest
from cluster import BIN, SLOW, Cluster, run_cox, wait_for
from terminal import ENV, Terminal


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--null-step-us", 20000) as c:
        wait_for("the gateway is known", lambda: c.status()["gateways"])
        yield c


def at(cluster):
    return "--address", f"127.0.0.1:{cluster.admin_port}"


def test_once_is_plain_text(cluster):
    done = run_cox("top", "--once", *at(cluster))
    assert (done.returncode, done.stderr) == (0, "") and "\033" not in done.stdout
    want = ["cox top   model null   healthy", "tokens/s  ", "so far    ", "KV        [", "replica state", "0       ready", "worker  "]
    assert [w for w in want if w in done.stdout] == want, done.stdout
    workers = [w["instance"] for w in cluster.status()["workers"]]
    assert all(f"{w} ready" in done.stdout for w in workers)


def test_without_a_terminal_it_goes_on_in_plain_text(cluster):
    p = subprocess.Popen([BIN / "cox", "top", "--interval", "0.1", *at(cluster)], stdout=subprocess.PIPE, text=True)
    seen = 0
    for line in p.stdout:
        assert "\033" not in line
        seen += line.startswith("cox top   model null")
        if seen == 3:
            break
    p.terminate()
    p.stdout.close()
    p.wait(10 * SLOW)


def test_live_it_shows_what_runs(cluster):
    t = Terminal("top", "--interval", 0.1, *at(cluster), columns=90, rows=24)
    try:
        t.until("a first screen", lambda s: "0 running" in s)
        with httpx.Client(timeout=30 * SLOW) as http, http.stream("POST", cluster.url + "/v1/completions", json={
                "prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": True}) as r:
            assert r.status_code == 200
            t.until("a sequence, tokens, KV blocks and the curve", lambda s: re.search(
                r"tokens/s  [1-9][\d.]* generated.*sequences  1 running[^\n]*\n +[▁▂▃▄▅▆▇█]+", s) and "█" in s and "░" in s)
        t.until("it has ended", lambda s: "0 running" in s[s.rfind("cox top   model"):])
        screens = [s for s in t.text.split("\033[H")[1:-1]]
        assert len(screens) > 3 and all(s.count("\n") < 24 and s.endswith("\033[J") for s in screens)
        width = max(len(re.sub("\033\\[.", "", line)) for s in screens for line in s.split("\n"))
        assert width <= 90
    finally:
        t.end()


def test_a_head_that_goes_is_said_and_comes_back():
    with Cluster() as c:
        t = Terminal("top", "--interval", 0.1, *at(c))
        try:
            t.until("a first screen", lambda s: "healthy" in s)
            head = c.pid("head")
            c.process.send_signal(signal.SIGSTOP)  # `cox up` is stopped, so that it does not restart the head before the test reads the screen
            os.kill(head, signal.SIGKILL)
            t.until("nobody answers", lambda s: "cannot connect" in s)
            c.process.send_signal(signal.SIGCONT)
            t.until("it is there again", lambda s: "healthy" in s[s.rfind("cannot connect"):])
            assert t.process.poll() is None
        finally:
            t.end()


@pytest.mark.parametrize("more, colored", [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_status_has_colours_on_a_terminal(cluster, more, colored):
    t = Terminal("status", *at(cluster), columns=200, rows=60, env={**ENV, **more})
    t.until("all of it", lambda s: re.search(r"Throughput.*\n.*generated tokens/s", s))
    t.process.wait(10 * SLOW)
    os.close(t.fd)
    assert ("\033[1;32m======== Cluster status: healthy ========\033[0m" in t.text, "\033[" in t.text) == (colored, colored)
    plain = run_cox("status", *at(cluster)).stdout
    titles = ["Node status", "Active:", "Pending:", "Recent failures:", "Usage", "Demands", "Throughput"]
    assert [w for w in titles if w in plain] == titles and "\033" not in plain
    without = re.sub("\033\\[[0-9;]*m", "", t.text)
    firsts = [[re.sub(r"[\d.]+", "0", line.split()[0]) for line in text.splitlines() if line.strip()] for text in (without, plain)]
    assert firsts[0] == firsts[1]  # numbers are left out, because rates change between the two
