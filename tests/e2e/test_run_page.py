"""Tests the Runs page: the head's API for runs (docs/reference/admin-api.md), and the page in headless Chromium (scripts/setup
--ui)."""
import json

import httpx
import pytest
from browser import MISSING, Browser
from cluster import BIN, SLOW, Cluster, free_ports, get, wait_for
from runs import Runs

KEY = "the-key-of-an-admin-0123456789"
TAB, ENTER = "\ue004", "\ue007"
needs_browser = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")


@pytest.fixture
def runs(tmp_path):
    with Runs(tmp_path) as r:
        yield r


def cluster(runs, *args):
    return Cluster(*args, workers=1, tp=1, env={"COX_RUNS": str(BIN / "cox"), "COX_RUNS_DIR": str(runs.dir)})


def with_key(tmp_path):
    path = tmp_path / "key"
    path.write_text(KEY)
    path.chmod(0o600)
    return "--admin-key-file", path


def test_the_head_asks_the_program(runs, tmp_path):
    marker = tmp_path / "marker"
    run = runs.create(f"name: jobs\nrun: echo x >> {marker}; exec sleep 1000\nenv: {{A_TOKEN: abc123}}\n")
    with cluster(runs, *with_key(tmp_path)) as c, httpx.Client(base_url=c.admin, timeout=60 * SLOW) as http:
        at = "/api/runs"
        for answer in (http.get(at), http.post(at, json={"id": run, "action": "terminate"}), http.get(at, headers={"Authorization": "Bearer no"})):
            assert answer.status_code == 401
        assert runs.state(run)["status"] == "running"
        http.headers["Authorization"] = "Bearer " + KEY
        listed = http.get(at)
        assert listed.status_code == 200 and listed.headers["cache-control"] == "no-store" and "abc123" not in listed.text
        [shown] = listed.json()["runs"]
        assert shown["id"] == run and shown["status"] == "running" and "env" not in shown and "keeper" not in shown and listed.json()["total"] == 1
        for body in ({}, {"id": run}, {"id": run, "action": "delete"}, {"id": run[:11], "action": "terminate"}, {"id": "jobs", "action": "terminate"},
                     {"id": int(run), "action": "terminate"}, {"id": "--runs-dir=/", "action": "terminate"}, {"id": run + " ", "action": "reproduce"}, []):
            assert http.post(at, json=body).status_code == 400, body
        assert http.post(at, content=json.dumps({"id": run, "action": "terminate"})).status_code == 415, "no form of another page's"
        assert http.put(at).status_code == 405
        assert http.post(at, json={"id": "1" * 12, "action": "terminate"}).json()["error"]["message"].startswith("cox run terminate: there is no run")
        assert http.post(at, json={"id": run, "action": "terminate"}).json() == {"done": True}
        assert runs.state(run)["status"] == "terminated"
        answer = http.post(at, json={"id": run, "action": "terminate"})
        assert answer.status_code == 409 and "has already ended" in answer.text
        assert http.post(at, json={"id": run, "action": "reproduce"}).status_code == 200
        states = {r["id"]: r["status"] for r in http.get(at).json()["runs"]}
        assert len(states) == 2 and states[run] == "terminated"
        wait_for("it runs once more", lambda: marker.read_text() == "x\nx\n")
    [again] = states.keys() - {run}
    assert runs.state(again)["status"] == "running", "the head's end is not its end"


def test_a_head_without_it_says_so():
    with Cluster(workers=1, tp=1) as c:
        code, body = get(c.admin + "/api/runs")
        assert code == 404 and "--runs" in body


def test_a_run_started_from_a_run_has_nothing_of_it(runs):
    """A run started from the page of another run's cluster does not inherit its environment and does not end with it."""
    out = runs.folder / "out"
    other = runs.create(f"name: other\nrun: env > {out}; exec sleep 1000\nenv: {{TMP_TOKEN: TMP_TOKEN}}\n", TMP_TOKEN="own")
    wait_for("it has written", lambda: out.exists() and out.stat().st_size)
    assert runs.cox("terminate", other).returncode == 0
    out.unlink()
    api, head, admin, worker = free_ports(4)
    run = runs.create(f'name: nul\nmodel: "null"\noptions: {{head-port: {head}, admin-port: {admin}, worker-http-port: {worker}, api-key: of-the-first}}\n'
                      f"resources: {{workers: 1}}\nports: [{{name: api, port: {api}}}]\nenv: {{OF_THE_FIRST: x, COX_NULL_TOKEN_US: 5}}\n")
    url = f"http://127.0.0.1:{admin}"
    wait_for("it serves", lambda: get(url + "/readyz")[0] == 200)
    assert {r["id"] for r in json.loads(get(url + "/api/runs")[1])["runs"]} == {run, other}
    assert httpx.post(url + "/api/runs", json={"id": other, "action": "reproduce"}, timeout=60 * SLOW).status_code == 200
    wait_for("it has written", lambda: out.exists() and "COX_RUN_ID" in out.read_text())
    env = dict(line.split("=", 1) for line in out.read_text().splitlines() if "=" in line)
    assert env["TMP_TOKEN"] == "own" and "OF_THE_FIRST" not in env
    assert {k for k in env if k.startswith("COX_")} == {"COX_RUN_ID", "COX_RUN_ROOT", "COX_RUN_ENV", "COX_RUNS", "COX_RUNS_DIR"}
    again = env["COX_RUN_ID"]
    httpx_error = None
    try:  # this ends the run of the page itself, so the answer may not arrive
        httpx.post(url + "/api/runs", json={"id": run, "action": "terminate"}, timeout=60 * SLOW)
    except httpx.HTTPError as e:
        httpx_error = e
    runs.wait(run, "terminated")
    assert runs.state(again)["status"] == "running", httpx_error


@needs_browser
@pytest.mark.timeout(400 * SLOW)
def test_the_page(runs, tmp_path):
    done = runs.create("name: <b>first</b>\ndescription: one\nrun: exit 3\n")
    runs.wait(done, "failed")
    port = free_ports(1)[0]
    live = runs.create(f"name: second\nrun: exec sleep 1000\nports: [{{name: api, type: http, port: {port}}}, {{name: raw, type: tcp, port: 9}}]\n")
    rows = "return [...document.querySelectorAll('#rows tr')].map(tr => [...tr.cells].map(td => td.innerText.trim()))"
    with cluster(runs, *with_key(tmp_path)) as c, Browser() as b:
        b.open(c.admin + "/")
        wait_for("the key is asked for", lambda: b.js("return !document.getElementById('login').hidden"), 60)
        b.type("#key", KEY)
        b.press(ENTER)
        wait_for("there is a link", lambda: b.js("return !document.getElementById('runs-link').hidden"), 60)
        b.click("#runs-link")
        wait_for("both are there", lambda: len(b.js(rows)) == 2, 60)
        newest, first = b.js(rows)
        assert newest[:4] == [live, "second", "command", "running"] and first[:4] == [done, "<b>first</b>", "command", "failed"]
        assert "exit code 3" in first[5] and newest[6].split() == ["api", "raw", "127.0.0.1:9"]
        assert b.js("return document.querySelector('#rows a').href") == f"http://127.0.0.1:{port}/"
        assert b.js("return document.querySelectorAll('#rows tr button:disabled').length") == 1, "what has ended is not terminated"
        # The keyboard reaches Terminate from the top of the page, where the first Enter asks for confirmation.
        focused = "return document.activeElement?.getAttribute('aria-label') ?? ''"
        for _ in range(20):
            b.press(TAB)
            if b.js(focused) == f"Terminate second {live}":
                break
        else:
            raise AssertionError("Terminate is not reached by the keyboard")
        b.press(ENTER)
        assert b.text(f"#run-{live} button:last-child") == "Terminate: sure?" and runs.state(live)["status"] == "running"
        b.press(ENTER)
        wait_for("it has ended", lambda: b.js(rows)[0][3] == "terminated", 60)
        assert b.text("#said") == f"Terminated second ({live})."
        for _ in range(2):
            b.js("document.querySelector(arguments[0]).click()", f"#run-{live} button")
        wait_for("it is there once more", lambda: [r[1] for r in b.js(rows)] == ["second", "second", "<b>first</b>"] and b.js(rows)[0][3] == "running", 60)
        assert b.text("#said") == f"Started second ({live})."
        assert KEY not in b.js("return location.href")
        assert not [e for e in b.log() if "401" not in str(e)], "no script failed, nothing was refused"
        b.resize(390, 844)
        assert b.wide() == [] and b.pale() == [], "a phone's width"
        c.stop()
        wait_for("a head that is gone is said", lambda: b.text("#link").startswith("no answer since "))
        assert b.js("return document.querySelector('#main').className") == "stale"
