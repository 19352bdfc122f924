"""Tests that `monitoring: true` starts Debian's Prometheus beside a run. Prometheus scrapes the run and ends with it."""
import json
import os
import shutil

import pytest
from cluster import ROOT, free_ports, get, wait_for
from runs import Runs

FOLDER = ROOT / ".deps/prometheus"  # scripts/setup --metrics makes this folder
PATH = f"{FOLDER}:{os.environ['PATH']}"


@pytest.fixture
def runs(tmp_path):
    with Runs(tmp_path, env={"PATH": PATH}) as r:
        yield r


def targets(port):
    code, body = get(f"http://127.0.0.1:{port}/api/v1/targets?state=active")
    found = json.loads(body)["data"]["activeTargets"] if code == 200 else []
    return {(t["labels"]["job"], t["scrapeUrl"].split("/")[2]): t["health"] for t in found}


needs = pytest.mark.skipif(not shutil.which("prometheus", path=PATH), reason="no prometheus here (scripts/setup --metrics)")


@needs
def test_of_a_model(runs):
    api, head, admin, w0, _, prometheus = free_ports(6)
    run = runs.create(f'name: watched\nmodel: "null"\nmonitoring: true\nresources: {{workers: 2, tp: 2}}\n'
                      f"options: {{head-port: {head}, admin-port: {admin}, worker-http-port: {w0}}}\n"
                      f"ports: [{{name: prometheus, port: {prometheus}}}, {{name: api, port: {api}}}]\n")
    want = {("coxswain-head", f"127.0.0.1:{admin}"), ("coxswain-gateway", f"127.0.0.1:{api}"),
            ("coxswain-worker", f"127.0.0.1:{w0}"), ("coxswain-worker", f"127.0.0.1:{w0 + 1}")}
    wait_for("all is scraped", lambda: targets(prometheus) == dict.fromkeys(want, "up"), 40)
    assert f"http://127.0.0.1:{prometheus}" in runs.cox("show", run).stdout
    assert runs.cox("terminate", run).returncode == 0
    assert get(f"http://127.0.0.1:{prometheus}/-/ready")[0] == 0, "it ends with the run"


@needs
def test_of_commands(runs):
    api, prometheus = free_ports(2)
    run = runs.create(f"name: watched\nmonitoring: true\nrun: exec sleep 1000\nports:\n  - {{name: vllm, type: http, port: {api}}}\n"
                      f"  - {{name: raw, type: tcp, port: 9}}\n  - {{name: prometheus, type: http, port: {prometheus}}}\n")
    wait_for("it is asked", lambda: targets(prometheus).keys() == {("vllm", f"127.0.0.1:{api}")})
    assert runs.cox("terminate", run).returncode == 0
    assert runs.state(run)["status"] == "terminated"


def test_without_prometheus(runs):
    empty = runs.folder / "bin"
    empty.mkdir()
    port = free_ports(1)[0]
    text = f"name: a\nmonitoring: true\nrun: 'true'\nports: [{{name: prometheus, port: {port}}}]\n"
    run = runs.create(text, PATH=str(empty))
    reason = runs.wait(run, "failed")["reason"]
    assert "apt-get install prometheus" in reason and "No such file" in reason
