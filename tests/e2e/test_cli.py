"""Tests the commands for a running cluster, as a user types them."""
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import null_oracle as oracle
import pytest
from cluster import Cluster, run_cox, wait_for
from sse import Collected, events

KEY = "sk-cli-test"


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--api-key", KEY) as c:
        yield c


def chat(c, said, *args, key=KEY, url=None):
    return run_cox("chat", "--url", url or c.url, "--api-key", key, "--max-tokens", 6, *args, input=said)


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_chat_takes_the_url_as_it_is_pasted(cluster, end):
    r = chat(cluster, "hi\n", "--completion", "--temperature", 0, url=cluster.url + end)
    assert (r.returncode, r.stdout.strip(), r.stderr) == (0, oracle.text("hi", 6, temperature=0), "")


def test_chat_names_what_is_wrong(cluster):
    r = run_cox("chat", "--url", cluster.url, input="hi\n")
    assert r.returncode == 1 and "COX_API_KEY" in r.stderr
    r = chat(cluster, "hi\n", "--model", "nope")
    assert r.returncode == 1 and "`nope` does not exist" in r.stderr
    r = chat(cluster, "hi\n", url=cluster.admin)
    assert r.returncode == 1 and "404" in r.stderr


def test_chat_keeps_its_conversation_past_a_bad_line(cluster):
    r = chat(cluster, "a\0b\nhi\n")
    assert r.returncode == 1 and "not UTF-8 text" in r.stderr
    assert re.fullmatch(r"[a-z]{6}\n", r.stdout)


def test_status_of_something_else(cluster):
    r = run_cox("status", "--address", cluster.url.removeprefix("http://"))
    assert r.returncode == 2 and "admin port" in r.stderr
    assert run_cox("status", "--address", ":0").returncode == 2
    r = run_cox("status", "--address", cluster.admin.removeprefix("http://"))
    assert r.returncode == 0 and "healthy" in r.stdout
    assert re.search(r"\n  [0-9.]+/[1-9][0-9]* CPUs, 0/0 GPUs, [0-9.]+/[1-9][0-9.]* GiB of memory\n", r.stdout)
    for w in cluster.status()["workers"]:
        assert w["host"]["threads"] >= 1 and 1 << 20 < w["host"]["resident_bytes"] < w["memory_bytes"]


def worker(c, ordinal):
    return next(w for w in c.status()["workers"] if w["ordinal"] == ordinal)


def test_drain_takes_a_worker_by_what_people_call_it():
    with Cluster(workers=2, tp=1) as c:
        def cox(*args):
            return run_cox(*args, "--address", c.admin.removeprefix("http://"))
        def both_serve():  # the cluster is healthy with one ready replica, and the test needs two
            return sum(g["state"] == "ready" for g in c.status()["groups"]) == 2
        wait_for("both serve", both_serve)
        first, node = worker(c, 0)["instance"], worker(c, 0)["node"]
        for name, how, on in ((first, ["drain"], True), ("worker-0", ["undrain"], False), ("0", ["drain"], True),
                              (first, ["drain", "--undo"], False)):
            done = cox(*how, name, "--json")
            assert (done.returncode, done.stderr) == (0, "")
            assert json.loads(done.stdout) == {"worker": first, "draining": on}
            assert worker(c, 0)["draining"] == on and not worker(c, 1)["draining"]
        for name, code, says in (("worker-9", 1, 'no connected worker matches "worker-9"'), ("0000000000000001", 1, "16 hex digits"),
                                 (node, 2, f"{first} (ordinal 0, {node})")):
            done = cox("drain", name)
            assert done.returncode == code and says in done.stderr and not done.stdout
            assert re.match(r"cox drain: [^h]", done.stderr), "what to do comes before the URL"
        for args in ([], [""]):
            done = cox("undrain", *args)
            assert done.returncode == 2 and "cox undrain: the worker is missing. Give its 16 hex digits" in done.stderr
        assert cox("drain", "a", "b").returncode == 2
        assert not any(w["draining"] for w in c.status()["workers"])
        wait_for("both serve again", both_serve)
        table = cox("status").stdout
        assert re.search(rf"^{first} +ready +\d+ +0 +0 +0 +null +{re.escape(node)}", table, re.M), table
        assert cox("drain", "all").returncode == 0 and c.status()["draining"]
        assert cox("undrain", "all").returncode == 0 and not c.status()["draining"]


def test_the_admin_key_is_asked_for(tmp_path):
    for name, text in (("right", "an-admin-key\n"), ("wrong", "another\n"), ("empty", "\n")):
        (tmp_path / name).write_text(text)
    with Cluster("--admin-key-file", tmp_path / "right", workers=1, tp=1) as c:
        at = ("status", "--address", c.admin.removeprefix("http://"))
        for args, env, says in (
                ([], {}, "requires the admin key. Give the head's key file with --admin-key-file FILE or COX_ADMIN_KEY_FILE"),
                (["--admin-key-file", tmp_path / "wrong"], {}, f"rejects the admin key in {tmp_path}/wrong"),
                ([], {"COX_ADMIN_KEY_FILE": f"{tmp_path}/wrong"}, f"rejects the admin key in {tmp_path}/wrong"),
                ([], {"COX_ADMIN_KEY": "another"}, "rejects this admin key (--admin-key, COX_ADMIN_KEY)"),
                (["--admin-key-file", tmp_path / "empty"], {}, "empty (--admin-key-file, COX_ADMIN_KEY_FILE) contains no key"),
                (["--admin-key-file", tmp_path / "none"], {}, "none: No such file or directory (--admin-key-file")):
            done = run_cox(*at, *args, env={**os.environ, **env})
            assert done.returncode == 2 and says in done.stderr and not done.stdout, done.stderr
        for env in ({"COX_ADMIN_KEY_FILE": f"{tmp_path}/right"}, {"COX_ADMIN_KEY": "an-admin-key"}):
            assert run_cox(*at, env={**os.environ, **env}).returncode == 0


@pytest.mark.parametrize("code, exit_code", [(400, 2), (403, 2), (404, 1), (409, 1), (500, 1)])
def test_an_answer_s_own_words_come_first(code, exit_code):
    class Head(BaseHTTPRequestHandler):
        def do_GET(self):  # answers the command's requests about standby and contents with 404
            self.send_error(404)

        def do_POST(self):
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps({"error": {"message": "do \x1b[2Jthis"}}).encode())

        def log_message(self, *_):
            pass
    with HTTPServer(("127.0.0.1", 0), Head) as head:
        answers = threading.Thread(target=lambda: [head.handle_request() for _ in range(3)])
        answers.start()
        at = f"127.0.0.1:{head.server_port}"
        done = run_cox("drain", "x", "--address", at)
        answers.join()
    assert done.returncode == exit_code
    assert done.stderr == f"cox drain: the request failed: do ?[2Jthis (http://{at}/api/drain answered with status {code})\n"


def test_a_list_of_no_adapters(cluster, tmp_path):
    done = run_cox("lora", "list", "--address", cluster.admin.removeprefix("http://"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "No adapter is loaded, and this cluster does not support adapters. Start it with --enable-lora.\n"
    with Cluster("--enable-lora", "--max-loras", 2, "--lora-root", tmp_path, workers=1, tp=1) as c:
        done = run_cox("lora", "list", "--address", c.admin.removeprefix("http://"))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "No adapter is loaded; there is room for 2 (--max-loras). `cox lora load NAME=FOLDER` loads one.\n"
        assert json.loads(run_cox("lora", "list", "--json", "--address", c.admin.removeprefix("http://")).stdout)["adapters"] == []


def test_events_have_a_time(cluster):
    address = cluster.admin.removeprefix("http://")
    lines = run_cox("events", "--address", address).stdout.splitlines()
    assert lines and all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z +\w", line) for line in lines)
    assert all(json.loads(line)["time"] > 0 for line in
               run_cox("events", "--json", "--address", address).stdout.splitlines())


@pytest.mark.parametrize("head, says", [("tcp://a:7000", '"a:7000"'), (",".join(["a:7000"] * 9), "8 addresses"), ("a", "HOST:PORT")])
def test_join_token_refuses_what_no_worker_takes(tmp_path, head, says):
    done = run_cox("join-token", "--keys-dir", tmp_path / "k", "--head", head)
    assert done.returncode == 2 and says in done.stderr and not done.stdout
    assert not (tmp_path / "k").exists()


def test_join_token_says_when_it_makes_keys(tmp_path):
    first = run_cox("join-token", "--keys-dir", tmp_path / "k", "--head", "a:1")
    again = run_cox("join-token", "--keys-dir", tmp_path / "k", "--head", "a:1")
    assert first.returncode == again.returncode == 0 and first.stdout == again.stdout
    assert "created new keys" in first.stderr and again.stderr == ""


def test_a_stop_may_wait_for_open_requests():
    """With --shutdown-timeout, an open stream gets all its tokens although `cox up` is stopping."""
    body = {"prompt": "hi", "max_tokens": 60, "temperature": 0, "stream": True}
    with Cluster("--shutdown-timeout", 60, "--null-step-us", 20000) as c:
        got = Collected()
        with httpx.stream("POST", c.url + "/v1/completions", json=body, timeout=60) as r:
            for i, event in enumerate(events(r.iter_lines())):
                if i == 0:
                    c.process.send_signal(signal.SIGTERM)
                got.add(event)
        assert (got.texts[0], got.finish[0]) == (oracle.text("hi", 60, temperature=0), "length")
        assert c.process.wait(30) == 0


@pytest.mark.parametrize("name", ["worker-1", "head"])
def test_who_dies_while_a_stop_waits_comes_back(name):
    """A process that dies while a stop waits is restarted, because the open stream cannot end without it."""
    body = {"prompt": "hi", "max_tokens": 60, "temperature": 0, "stream": True}
    with Cluster("--shutdown-timeout", 60, "--null-step-us", 20000) as c:
        got = Collected()
        with httpx.stream("POST", c.url + "/v1/completions", json=body, timeout=90) as r:
            for i, event in enumerate(events(r.iter_lines())):
                if i == 0:
                    c.process.send_signal(signal.SIGTERM)
                    wait_for("the gateway drains", lambda: " draining " in c.log())
                    os.kill(c.pid(name), signal.SIGKILL)
                got.add(event)
        assert (got.texts[0], got.finish[0]) == (oracle.text("hi", 60, temperature=0), "length")
        assert c.process.wait(30) == 0


def test_every_line_of_a_json_log_is_an_event():
    """With a JSON log, every line is an event, from the warnings of `cox up` to the workers' memory. Ids and epochs are strings,
    whatever they look like."""
    with Cluster("--log-format", "json", "--enable-dbo") as c:
        assert httpx.post(c.url + "/v1/completions", json={"prompt": "hi", "max_tokens": 2}).status_code == 200
        wait_for("cox up says that it is ready", lambda: "ready in" in c.log())
        c.stop()
        log = [json.loads(line) for line in c.log().splitlines()]
    assert all({"ts", "level", "process", "event"} <= e.keys() for e in log)
    events_of = {name: [e for e in log if e["event"] == name] for name in {e["event"] for e in log}}
    assert "--enable-dbo" in events_of["warning"][0]["text"]
    notes = [e["text"] for e in events_of["note"]]
    assert any("ready in" in text for text in notes) and f"chat page: {c.url}/" in notes
    for e in events_of["memory_plan"]:
        assert e["total_bytes"] == sum(e[k + "_bytes"] for k in ("weights", "activation", "comm", "kv"))
    assert len(events_of["memory_plan"]) == 2 and all(isinstance(e["epoch"], str) for e in log if "epoch" in e)
    assert {e["encrypted"] for e in log if "encrypted" in e} == {"true"}


COMPLETED = [("cox wo", {"worker", "workers"}), ("cox worker --device ", {"auto", "null", "cpu", "cuda"}),
             ("cox up --no-", {"--no-chat-page", "--no-enable-prefix-caching", "--no-async-scheduling", "--no-shared-memory",
                             "--no-early-launch", "--no-one-shot", "--no-enable-ssl-refresh"}),
             ("cox serve --tens", {"--tensor-parallel-size"}), ("cox head --conf", {"--config"}),
             ("cox gateway --log-format j", {"json"}), ("cox completion ", {"bash", "zsh", "fish"})]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_completion(shell, tmp_path):
    """The shell's own Tab completion offers commands, options by each of their names, and values."""
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    script = tmp_path / "completion"
    script.write_text(run_cox("completion", shell).stdout)
    for line, want in COMPLETED:
        words = " ".join(f"'{w}'" for w in line.split(" "))
        ask = {"bash": f"source {script}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _cox; "
                       "printf '%s\\n' \"${COMPREPLY[@]}\"",
               "fish": f"source {script}; complete -C '{line}'"}[shell]
        r = subprocess.run([shell, "-c", ask], capture_output=True, text=True, timeout=20)
        assert {x.split("\t")[0] for x in r.stdout.splitlines()} == want, (line, r.stdout, r.stderr)


def test_completion_of_zsh_is_a_script(tmp_path):
    if not shutil.which("zsh"):
        pytest.skip("no zsh here")
    (tmp_path / "_cox").write_text(run_cox("completion", "zsh").stdout)
    assert subprocess.run(["zsh", "-n", tmp_path / "_cox"], timeout=20).returncode == 0
