"""Tests that a newcomer can follow docs/start/laptop.md: quickstart, chat, status, bench, a killed worker, and the dashboard in a
browser.

The test prints the seconds of each step (pytest -s, scripts/acceptance h1). It uses free ports, set by the environment variables
that a user would set. The commands and the expected output are those of the page.
"""
import os
import re
import signal
import subprocess
import time

import pytest
from browser import MISSING, Browser
from cluster import ROOT, SLOW, free_ports, wait_for
from readme import Page
from real_model import CACHE, needs_demo

pytestmark = [needs_demo, pytest.mark.timeout(900 * SLOW)]  # the time-out suffices for a checkout in which nothing is built yet
STARTING_TO_END = 20


class Newcomer:
    """`Newcomer` types the page's blocks in the repository's folder, as a user does. It measures the time of each step."""

    def __init__(self, folder):
        self.page = Page(ROOT / "docs/start/laptop.md")
        self.port, self.admin_port, head, self.worker_port, _ = free_ports(5)  # the two workers use `worker_port` and the next port
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("COX_")}
        self.env |= {"COX_CACHE": str(CACHE), "COX_PORT": str(self.port), "COX_ADMIN_PORT": str(self.admin_port), "COX_HEAD_PORT": str(head),
                     "COX_WORKER_HTTP_PORT": str(self.worker_port), "COX_ADDRESS": f"127.0.0.1:{self.admin_port}",
                     "COX_URL": f"http://127.0.0.1:{self.port}", "TMPDIR": str(folder), "COX_PRINT_PIDS": str(folder / "pids")}
        self.folder = folder
        self.log = folder / "quickstart.log"
        self.times = []

    def took(self, step, began):
        self.times.append(step)
        print(f"newcomer: {step}: {time.monotonic() - began:.1f} s", flush=True)

    def quickstart(self):
        began = time.monotonic()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(["bash", "-c", "exec " + self.page.typed("quickstart")], cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

        def stands():
            said = self.log.read_text(errors="replace")
            assert self.process.poll() is None, f"quickstart ended:\n{said[-3000:]}"
            return self.page.lacks("quickstart", said) is None

        wait_for(f"quickstart said what the page shows (its log: {self.log})", stands, 600)
        self.took("quickstart", began)

    def kill(self):
        """Types the block "kill". This test kills a worker of its own cluster, while the page kills the oldest worker of the
        machine. The files with the answers are in the test's folder."""
        text = self.page.commands["kill"]
        for was, now in (("127.0.0.1:8000/", f"127.0.0.1:{self.port}/"), ("$(pgrep -o cox-worker)", f"$(awk '/^worker/ {{print $2; exit}}' {self.folder}/pids)"),
                         ("before", f"{self.folder}/before"), ("after", f"{self.folder}/after")):
            assert was in text, was
            text = text.replace(was, now)
        self.page.commands["kill"] = text
        self.type("kill")

    def type(self, block):
        began = time.monotonic()
        done = subprocess.run(["bash", "-c", self.page.typed(block)], cwd=ROOT, env=self.env, text=True, timeout=120 * SLOW,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, f"{block} ended with {done.returncode}:\n{done.stdout}"
        self.page.saw(block, done.stdout)
        self.took(block, began)

    def look(self, picture):
        """The dashboard shows the finished requests: one of the quickstart, one of the chat, and all requests of the benchmark."""
        address, = set(re.findall(r"dashboard\S* at <(http://127\.0\.0\.1:\d+/)>", self.page.text))
        began = time.monotonic()
        with Browser() as b:
            b.open(address.replace("8265", str(self.admin_port)))
            wait_for("the dashboard has what was asked", lambda: int((b.text("#tile-finished") or "0").replace(",", "").replace("–", "0")) >= 10)
            assert b.text("#fact-model") == "demo" and b.text("#health") == "serving"
            b.screenshot(picture)
            assert not b.log()
        assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000
        self.took("dashboard", began)

    def end(self):
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(STARTING_TO_END * SLOW) == 0, self.log.read_text(errors="replace")[-2000:]
        self.took("Ctrl-C", began)

    def leave(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(60)


def test_the_readme_leads_to_this_page():
    readme = (ROOT / "README.md").read_text()
    page = Page(ROOT / "docs/start/laptop.md")
    first = re.search(r"^```\n(\S.*?)(?:  |$)", readme.split("## Install")[1], re.M)[1]
    assert first == page.commands["quickstart"].strip()
    assert "(docs/start/laptop.md)" in readme
    assert list(page.commands) == ["quickstart", "chat", "status", "bench", "kill"] == list(page.shown)


def test_the_path(tmp_path):
    n = Newcomer(tmp_path)
    try:
        n.quickstart()
        for block in ("chat", "status", "bench"):
            n.type(block)
        if MISSING:
            print(f"newcomer: dashboard: SKIPPED: {MISSING}")
        else:
            n.look(tmp_path / "dashboard.png")
        n.kill()
        n.end()
    finally:
        n.leave()
    n.page.all_were_tried()
