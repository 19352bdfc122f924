"""Tests a gateway of several models: the file of --models, changes while it runs, and faults of one model."""
import gzip
import json
import re
import signal
import subprocess
import threading

import httpx
import pytest
from bad_models import FOLDER
from cluster import BIN, end_all, free_ports, get, run_cox, wait_for
from many_models import WEB, Gateway, Head


class Stream(threading.Thread):
    """Reads a stream of `n` tokens and keeps the model's name, the number of tokens and the end."""

    def __init__(self, gateway, model, n):
        super().__init__()
        self.gateway, self.model, self.n = gateway, model, n
        self.began, self.answered_by, self.tokens, self.finish = threading.Event(), None, 0, None
        self.start()

    def run(self):
        body = {"model": self.model, "prompt": [5, 6, 7], "max_tokens": self.n, "stream": True, "ignore_eos": True, "return_token_ids": True}
        with httpx.stream("POST", self.gateway.url + "/v1/completions", json=body, timeout=60) as r:
            assert r.status_code == 200, r.read()
            for line in r.iter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line[6:])
                self.answered_by = chunk["model"]
                for choice in chunk["choices"]:
                    self.tokens += len(choice.get("token_ids") or [])
                    self.finish = choice["finish_reason"] or self.finish
                self.began.set()

    def check(self, model=None):
        self.join(60)
        assert (self.answered_by, self.tokens, self.finish) == (model or self.model, self.n, "length")


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    made = [Head(folder), Head(folder), Head(folder)]
    yield made
    for head in made:
        head.end()


@pytest.fixture
def gateway(tmp_path):
    made = []

    def make(entries, *args):
        made.append(Gateway(tmp_path, entries, *args))
        return made[-1]
    yield make
    end_all([g.process for g in made])


def test_each_name_leads_to_its_model(heads, gateway):
    g = gateway([heads[0].entry("alpha", aliases=["gpt-4o"]), heads[1].entry("beta/chat")])
    g.wait_states(**{"alpha": "serving", "gpt-4o": "serving", "beta/chat": "serving"})
    assert get(g.url + "/health")[0] == 200
    for asked, answers in (("alpha", "alpha"), ("gpt-4o", "alpha"), ("beta/chat", "beta/chat")):
        done = g.ask(asked)
        assert done.status_code == 200 and done.json()["model"] == answers, done.text
    raw = WEB.post(g.url + "/v1/completions", content='{"prompt":"a \\"model\\": 1","max_tokens":2,"logit_bias":{},"stop":["model"],"mod\\u0065l":"\\u0062eta\\/chat"}')
    assert raw.json()["model"] == "beta/chat", raw.text
    assert WEB.post(g.url + "/tokenize", json={"model": "alpha", "prompt": "ab"}).json()["count"] == 2
    assert WEB.get(g.url + "/v1/models/beta%2Fchat").json()["state"] == "serving"
    assert get(g.url + "/health?model=beta%2Fchat")[0] == 200 and get(g.url + "/health?model=x")[0] == 404


def test_a_name_of_nobody(heads, gateway):
    g = gateway([heads[0].entry("llama-3"), heads[1].entry("qwen")])
    g.wait_states(**{"llama-3": "serving", "qwen": "serving"})
    wrong = g.ask("lama-3")
    assert wrong.status_code == 404 and wrong.json()["error"]["code"] == "model_not_found"
    assert wrong.json()["error"]["message"] == "The model `lama-3` does not exist. Did you mean `llama-3`?"
    assert "Did you mean" not in g.ask("completely-different").json()["error"]["message"]
    missing = g.ask(None)
    assert missing.status_code == 400 and missing.json()["error"]["param"] == "model"
    assert g.ask(7).status_code == 400
    assert WEB.post(g.url + "/v1/completions", content=b"{").status_code == 400
    assert WEB.post(g.url + "/v1/messages", json={"model": "x", "messages": [], "max_tokens": 1}).json()["type"] == "error"


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_large_body_leads_to_its_model(heads, gateway, is_packed):
    """A thread looks for the name in a body of more than 64 KiB."""
    g = gateway([heads[0].entry("a"), heads[1].entry("b")])
    g.wait_states(a="serving", b="serving")
    for model, code in (("a", 200), ("b", 200), ("c", 404)):
        body = b'{"prompt": [5, 6, 7],' + b" " * 100_000 + b'"max_tokens": 4, "model": "%s"}' % model.encode()
        if is_packed:
            body = gzip.compress(body)
        answer = WEB.post(g.url + "/v1/completions", content=body, headers={"Content-Encoding": "gzip"} if is_packed else {})
        assert answer.status_code == code, answer.text
        assert answer.json().get("model") == (model if code == 200 else None)


def test_models_come_and_go_while_others_stream(heads, gateway):
    a, b, c = heads
    g = gateway([a.entry("alpha"), b.entry("beta")])
    g.wait_states(alpha="serving", beta="serving")
    streams = [Stream(g, "alpha", 4000) for _ in range(8)]
    leaver = Stream(g, "beta", 4000)
    for s in [*streams, leaver]:
        assert s.began.wait(30)
    g.write([a.entry("alpha"), b.entry("beta"), c.entry("gamma")])
    g.wait_states(alpha="serving", beta="serving", gamma="serving")
    assert g.ask("gamma").json()["model"] == "gamma"
    g.write([a.entry("alpha", aliases=["first"]), c.entry("gamma")])
    g.wait_states(alpha="serving", first="serving", gamma="serving")
    assert g.ask("beta").status_code == 404 and g.ask("first").json()["model"] == "alpha"
    leaver.check()
    for s in streams:
        s.check()
    wait_for("the removed model's series have gone", lambda: 'model_name="beta"' not in get(g.url + "/metrics")[1])
    assert 'model_name="alpha"' in get(g.url + "/metrics")[1]


def test_a_changed_entry_moves_to_the_other_head(heads, gateway):
    g = gateway([heads[0].entry("alpha")])
    g.wait_states(alpha="serving")
    old = Stream(g, "alpha", 3000)
    assert old.began.wait(30)
    g.write([heads[1].entry("alpha")])
    wait_for("the names have moved", lambda: 'model_leaves model="alpha"' in g.log())
    assert g.ask("alpha").status_code == 200
    old.check()
    wait_for("the old link is closed", lambda: 'model_left model="alpha"' in g.log())
    assert g.ask("alpha").status_code == 200


def test_one_fault_hurts_no_neighbour(heads, gateway):
    (nobody,) = free_ports(1)
    good = heads[0].entry("good")
    g = gateway([good, {**good, "name": "no-files", "model": "/nowhere/model"}, {**good, "name": "no-parser", "tool_call_parser": "nonsense"},
                 {**good, "name": "no-head", "head": f"127.0.0.1:{nobody}", "head_timeout": 1},
                 {**good, "name": "marked", "state": "failed", "reason": "cox-worker: not enough memory"}])
    g.wait_states(**{"good": "serving", "no-files": "failed", "no-parser": "failed", "no-head": "failed", "marked": "failed"})
    assert g.ask("good").status_code == 200 and get(g.url + "/health")[0] == 200
    for name, reason in (("no-files", "/nowhere/model"), ("no-parser", "nonsense"), ("marked", "not enough memory")):
        done = g.ask(name)
        assert done.status_code == 503 and reason in done.json()["error"]["message"], done.text
        assert reason in WEB.get(f"{g.url}/v1/models/{name}").json()["reason"]
        assert get(f"{g.url}/health?model={name}")[0] == 503
    assert g.ask("no-head").status_code == 503
    g.write([good, {**good, "name": "marked"}])
    g.wait_states(good="serving", marked="serving")


def test_a_model_opens_when_its_files_have_come(heads, gateway, tmp_path):
    """On Kubernetes a model can be in the file before its download has ended."""
    if not FOLDER.exists():
        pytest.skip("no tiny model here: scripts/make-goldens makes it")
    late = tmp_path / "late"
    g = gateway([heads[0].entry("good"), heads[1].entry("late", model=str(late))])
    g.wait_states(good="serving", late="failed")
    late.symlink_to(FOLDER)
    wait_for("the model is open", lambda: 'model_opened model="late"' in g.log())
    assert g.log().count('model_failed model="late"') == 1
    reason = WEB.get(f"{g.url}/v1/models/late").json().get("reason", "")
    assert "not a file or folder" not in reason, reason


@pytest.mark.parametrize("text, why", [
    ('models: [{name: a}, {name: a}]', "also a name of the model of line 1"),
    ('models:\n- {name: a, aliases: [b]}\n- {name: b}', ":2: the name \"b\" is also a name of the model of line 3"),
    ('models:\n- {name: a, port: 1}', 'an entry of a model cannot have "port"'),
    ('models:\n- {model: "null"}', ":2: the model has no name"),
    ('models: [', "models.yaml:"),
    ('{}', 'must have the member "models"'),
    ('modles: []', 'must have the member "models"'),
])
def test_a_bad_file_is_refused_at_the_start(tmp_path, text, why):
    g = Gateway(tmp_path, text)
    code = g.process.wait(20)
    assert code == 2 and why in g.log(), g.log()


def test_a_bad_file_changes_nothing_later(heads, gateway):
    g = gateway([heads[0].entry("alpha")])
    g.wait_states(alpha="serving")
    for text in ("models: [", "models: [{name: alpha}, {name: alpha}]", "x" * 10, ""):
        before = g.log().count("models_not_read")
        g.write(text)
        wait_for("the gateway reports the error", lambda: g.log().count("models_not_read") == before + 1)
        assert g.ask("alpha").status_code == 200
    g.write([heads[0].entry("alpha"), {**heads[1].entry("odd"), "max_logprobs": "many"}])
    g.wait_states(alpha="serving", odd="failed")
    assert "max_logprobs" in g.ask("odd").json()["error"]["message"]


def test_keys_see_only_their_models(heads, gateway, tmp_path):
    (tmp_path / "keys").write_text("sk-all all\nsk-one one models=alpha\n")
    g = gateway([heads[0].entry("alpha"), heads[1].entry("beta")], "--api-key-file", tmp_path / "keys")
    wait_for("both serve", lambda: g.states("sk-all") == {"alpha": "serving", "beta": "serving"})
    assert g.states("sk-one") == {"alpha": "serving"}
    assert g.ask("alpha", key="sk-one").status_code == 200
    hidden, unknown = g.ask("beta", key="sk-one"), g.ask("betb", key="sk-one")
    assert hidden.status_code == unknown.status_code == 404
    assert hidden.json()["error"]["message"] == "The model `beta` does not exist."
    assert unknown.json()["error"]["message"] == "The model `betb` does not exist."
    assert WEB.get(g.url + "/metrics", headers={"Authorization": "Bearer sk-one"}).status_code == 403


def test_lines_of_a_batch_go_to_their_models(heads, gateway, tmp_path):
    g = gateway([heads[0].entry("alpha"), heads[1].entry("beta")], "--state-dir", tmp_path / "state")
    g.wait_states(alpha="serving", beta="serving")
    names = ["alpha", "beta", "gone"]
    lines = [{"custom_id": n, "method": "POST", "url": "/v1/completions", "body": {"model": n, "prompt": "a", "max_tokens": 2}} for n in names]
    file = WEB.post(g.url + "/v1/files", data={"purpose": "batch"}, files={"file": ("b.jsonl", "\n".join(map(json.dumps, lines)))}).json()
    batch = WEB.post(g.url + "/v1/batches", json={"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}).json()
    done = wait_for("the batch has ended", lambda: (b := WEB.get(f"{g.url}/v1/batches/{batch['id']}").json())["status"] == "completed" and b)
    rows = [json.loads(r) for name in ("output_file_id", "error_file_id") if done.get(name)
            for r in WEB.get(f"{g.url}/v1/files/{done[name]}/content").text.splitlines()]
    got = {r["custom_id"]: (r["response"]["status_code"], r["response"]["body"].get("model")) for r in rows}
    assert got == {"alpha": (200, "alpha"), "beta": (200, "beta"), "gone": (404, None)}


def test_a_head_that_restarts_loses_no_request(tmp_path, gateway):
    a, b = Head(tmp_path), Head(tmp_path)
    try:
        g = gateway([a.entry("alpha"), b.entry("beta")])
        g.wait_states(alpha="serving", beta="serving")
        streams = [Stream(g, "alpha", 2000), Stream(g, "beta", 2000)]
        for s in streams:
            assert s.began.wait(30)
        command = a.head.args
        a.head.send_signal(signal.SIGKILL)
        a.head.wait()
        a.head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for s in streams:
            s.check()
    finally:
        a.end()
        b.end()


def test_options_of_one_model_are_refused(tmp_path):
    for flag in ("--model", "--served-model-name"):
        done = subprocess.run([BIN / "cox-gateway", "--models", tmp_path / "none.yaml", flag, "x", "--insecure"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and f"{flag} cannot be used with --models" in done.stdout + done.stderr


def route(g, models, **routes):
    g.write(json.dumps({"models": models, "routes": [{"name": name, **r} for name, r in routes.items()]}))


def answered_by(g, n, model="chat", **headers):
    counts = {}
    for _ in range(n):
        done = WEB.post(g.url + "/v1/completions", json={"model": model, "prompt": [5], "max_tokens": 1}, headers=headers)
        assert done.status_code == 200, done.text
        counts[done.json()["model"]] = counts.get(done.json()["model"], 0) + 1
    return counts


def test_a_route_splits_and_rolls_back(heads, gateway):
    models = [heads[0].entry("v1"), heads[1].entry("v2")]
    g = gateway(models)
    g.wait_states(v1="serving", v2="serving")
    route(g, models, chat={"targets": [{"model": "v1", "weight": 90}, {"model": "v2", "weight": 10}]})
    wait_for("the route is listed", lambda: g.states().get("chat") == "serving")
    counts = answered_by(g, 300)
    assert 240 < counts["v1"] < 297, counts  # 270 is expected; 5.7 standard deviations
    assert answered_by(g, 5, **{"x-coxswain-model": "v2"}) == {"v2": 5}
    wrong = WEB.post(g.url + "/v1/completions", json={"model": "chat", "prompt": [5]}, headers={"x-coxswain-model": "v3"})
    assert wrong.status_code == 400 and "no target of the route `chat`" in wrong.text
    old = Stream(g, "v2", 2000)
    assert old.began.wait(30)
    route(g, models, v2={"targets": [{"model": "v1"}, {"model": "v2", "weight": 0}]})  # the name of a model may become a route
    wait_for("the route has changed", lambda: "chat" not in g.states())
    assert answered_by(g, 20, "v2") == {"v1": 20}
    old.check()


def test_a_target_that_has_failed_gets_no_share(heads, gateway):
    good, bad = heads[0].entry("good"), heads[1].entry("bad")
    g = gateway([good, bad])
    g.wait_states(good="serving", bad="serving")
    split = {"targets": [{"model": "good"}, {"model": "bad"}]}
    route(g, [good, {**bad, "state": "failed", "reason": "no memory"}], chat=split)
    wait_for("the model has failed", lambda: g.states().get("bad") == "failed")
    assert answered_by(g, 20) == {"good": 20}
    asked = WEB.post(g.url + "/v1/completions", json={"model": "chat", "prompt": [5]}, headers={"x-coxswain-model": "bad"})
    assert asked.status_code == 503 and "no memory" in asked.text
    route(g, [good, bad], chat=split)
    wait_for("the model serves again", lambda: g.states().get("bad") == "serving")
    assert set(answered_by(g, 40)) == {"good", "bad"}


def test_a_mirror_gets_copies(heads, gateway):
    models = [heads[0].entry("main"), heads[1].entry("shadow")]
    g = gateway(models)
    g.wait_states(main="serving", shadow="serving")
    route(g, models, chat={"targets": [{"model": "main"}], "mirror": "shadow"})
    wait_for("the route is listed", lambda: "chat" in g.states())
    assert answered_by(g, 10) == {"main": 10}
    Stream(g, "chat", 50).check("main")
    wait_for("the copies were answered", lambda: 'mirrored_total{outcome="answered"} 11' in get(g.url + "/metrics")[1])
    assert 'request_success_total{model_name="shadow",engine="0",finished_reason="length"} 11' in get(g.url + "/metrics")[1].replace(
        'engine="0",model_name="shadow"', 'model_name="shadow",engine="0"')


def test_fallbacks_and_limits(heads, gateway):
    good = heads[0].entry("good")
    g = gateway([good, {**good, "name": "broken", "model": "/nowhere", "fallback": "good"}, heads[1].entry("small", max_requests=1),
                 heads[2].entry("spilling", max_requests=1, fallback="good")])
    g.wait_states(good="serving", broken="failed", small="serving", spilling="serving")
    done = g.ask("broken")
    assert (done.status_code, done.json()["model"], done.headers["x-coxswain-fallback-of"]) == (200, "good", "broken")
    held = [Stream(g, "small", 3000), Stream(g, "spilling", 3000)]
    for s in held:
        assert s.began.wait(30)
    full, spilled = g.ask("small"), g.ask("spilling")
    assert full.status_code == 429 and full.headers["retry-after"] == "1" and "most open requests (1)" in full.text
    assert (spilled.status_code, spilled.json()["model"]) == (200, "good")
    for s in held:
        s.check()
    assert "x-coxswain-fallback-of" not in g.ask("spilling").headers


@pytest.mark.parametrize("routes, why", [
    ([{"name": "r", "targets": [{"model": "b"}]}], 'no model of the name "b"'),
    ([{"name": "r", "targets": []}], "needs a weight above 0"),
    ([{"name": "r", "targets": [{"model": "a", "weight": -1}]}], "whole number from 0"),
    ([{"name": "r", "targets": [{"model": "a", "wait": 1}]}], 'may have "weight"'),
    ([{"name": "r", "targets": [{"model": "a"}]}] * 2, "two routes of this name"),
    ([{"name": "r"}], "a name and targets"),
    ([{"name": "r", "targets": [{"model": "a"}], "mirror": "b"}], 'no model of the name "b"'),
    ("r", "routes must be a list"),
])
def test_a_bad_route_is_refused(tmp_path, routes, why):
    g = Gateway(tmp_path, json.dumps({"models": [{"name": "a"}], "routes": routes}))
    assert g.process.wait(20) == 2 and why in g.log(), g.log()


def test_the_admin_changes_models(heads, gateway, tmp_path):
    (tmp_path / "admin").write_text("sk-admin-key-1 ada\n")
    g = gateway([heads[0].entry("alpha")], "--admin-key-file", tmp_path / "admin")
    g.wait_states(alpha="serving")
    admin = {"Authorization": "Bearer sk-admin-key-1"}
    new = heads[1].entry("ignored", aliases=["b"])
    assert WEB.put(g.url + "/admin/models/org%2Fbeta", json=new).status_code == 401
    assert WEB.put(g.url + "/admin/models/org%2Fbeta", json=new, headers=admin).status_code == 200
    g.wait_states(**{"alpha": "serving", "org/beta": "serving", "b": "serving"})
    targets = {"targets": [{"model": "org/beta"}]}
    assert WEB.put(g.url + "/admin/routes/chat", json=targets, headers=admin).status_code == 200
    assert g.ask("chat").json()["model"] == "org/beta"
    for method, path, body, code, why in (
            ("PUT", "/admin/models/x", {"port": 1}, 400, 'cannot have \\"port\\"'), ("PUT", "/admin/models/x", [], 400, "must be a JSON object"),
            ("PUT", "/admin/models/x", {"aliases": ["alpha"]}, 400, "also a name of the model"),
            ("DELETE", "/admin/models/none", None, 404, "no such name"), ("DELETE", "/admin/models/org%2Fbeta", None, 400, "no model of the name"),
            ("PUT", "/admin/routes/r", {"targets": []}, 400, "weight above 0")):
        done = WEB.request(method, g.url + path, json=body, headers=admin)
        assert (done.status_code, why in done.text) == (code, True), done.text
    assert WEB.delete(g.url + "/admin/routes/chat", headers=admin).status_code == 200
    assert WEB.delete(g.url + "/admin/models/org%2Fbeta", headers=admin).status_code == 200
    assert g.states() == {"alpha": "serving"} and 'by="ada" list=models name="org/beta" removed=true ok=true' in g.log()
    g.write(json.dumps({"models": [heads[0].entry("alpha")], "managed_by": "cox up"}))
    owned = WEB.delete(g.url + "/admin/models/alpha", headers=admin)
    assert owned.status_code == 409 and "cox up owns the set of models" in owned.text


def test_cox_models_changes_the_file_of_a_gateway(heads, gateway, tmp_path):
    (tmp_path / "admin").write_text("sk-admin-key-1 ada\n")
    g = gateway([heads[0].entry("alpha")], "--admin-key-file", tmp_path / "admin")
    g.wait_states(alpha="serving")
    where = ["--gateway", g.url.removeprefix("http://")]
    key = ["--admin-key-file", tmp_path / "admin"]
    entry = heads[1].entry("x")
    words = ["be ta=" + entry["model"], "--alias", "b", *(w for k, v in entry.items() if k not in ("name", "model") for w in ("--set", f"{k}={v}"))]
    assert "rejects the admin key, or needs one" in run_cox("models", "add", *words, *where).stderr
    done = run_cox("models", "add", *words, *where, *key)
    assert done.returncode == 0, done.stderr
    g.wait_states(**{"alpha": "serving", "be ta": "serving", "b": "serving"})
    assert "rejects the admin key, or needs one" in run_cox("models", "list", *where).stderr
    listed = run_cox("models", "list", *where, *key).stdout.splitlines()
    assert [line.split()[:3] for line in listed] == [["alpha", "serving", heads[0].entry("x")["head"]], ["be", "ta", "serving"]], listed
    assert listed[1].endswith("  also b"), listed
    changed = run_cox("models", "alias", "be ta", "c", "d", "--remove", "b", *where, *key)
    assert changed.returncode == 0, changed.stderr
    g.wait_states(**{"alpha": "serving", "be ta": "serving", "c": "serving", "d": "serving"})
    for wrong, why in ((("be ta", "--remove", "b"), "be ta has no alias b"), (("c", "e"), "no such name"), (("be ta", "alpha"), "also a name of the model")):
        refused = run_cox("models", "alias", *wrong, *where, *key)
        assert refused.returncode == 1 and why in refused.stderr, refused.stderr
    admin = {"Authorization": "Bearer sk-admin-key-1"}
    assert WEB.put(g.url + "/admin/routes/r", json={"targets": [{"model": "alpha", "weight": 3}]}, headers=admin).status_code == 200
    told = json.loads(run_cox("models", "list", "--json", *where, *key).stdout)
    assert told["models"][1]["aliases"] == ["c", "d"] and told["routes"] == [{"name": "r", "targets": [{"model": "alpha", "weight": 3}]}]
    assert re.search(r"^r +route +alpha 3$", run_cox("models", "list", *where, *key).stdout, re.M)
    for body in ({}, {"aliases": []}, {"aliases": {}}, {"aliases": {"add": "c"}}, {"aliases": {"put": []}}, {"aliases": {}, "head": "x:1"}, {"aliases": {"add": [5]}}, []):
        assert WEB.patch(g.url + "/admin/models/be%20ta", json=body, headers=admin).status_code == 400, body
    assert WEB.patch(g.url + "/admin/models/be%20ta%00x", json={"aliases": {"add": ["y"]}}, headers=admin).status_code == 400
    broken = WEB.patch(g.url + "/admin/models/be%20ta", content=b'{"aliases": {"add": [}}', headers=admin)
    assert broken.status_code == 400 and "not valid JSON" in broken.text, broken.text
    assert WEB.delete(g.url + "/admin/routes/r", headers=admin).status_code == 200
    refused = run_cox("models", "add", *words, "--set", "port=1", *where, *key)
    assert refused.returncode == 1 and 'cannot have "port"' in refused.stderr, refused.stderr
    assert run_cox("models", "rm", "be ta", *where, *key).returncode == 0
    assert g.states() == {"alpha": "serving"}
    assert "no such name" in run_cox("models", "rm", "c", *where, *key).stderr


def test_open_answers_keep_their_name_while_the_file_changes(heads, gateway):
    """Open requests borrow the model's name, so it must outlive every change of the file."""
    g = gateway([heads[0].entry("a-long-name-for-malloc")])
    g.wait_states(**{"a-long-name-for-malloc": "serving"})
    answers = []
    asks = [threading.Thread(target=lambda: answers.append(g.ask("a-long-name-for-malloc", max_tokens=3000, ignore_eos=True).json()["model"])) for _ in range(4)]
    streams = [Stream(g, "a-long-name-for-malloc", 3000) for _ in range(4)]
    for t in asks:
        t.start()
    for s in streams:
        assert s.began.wait(30)
    for i in range(3):
        g.write([heads[0].entry("a-long-name-for-malloc", aliases=[f"alias-{i}-{'x' * i}"]), heads[1].entry(f"other-{i}")])
        wait_for("the change is read", lambda i=i: f"other-{i}" in g.states())
    for s in streams:
        s.check()
    for t in asks:
        t.join(60)
    assert answers == ["a-long-name-for-malloc"] * 4


def test_what_a_limited_key_gets_from_a_route(heads, gateway, tmp_path):
    (tmp_path / "keys").write_text("sk-all all\nsk-v1 one models=chat,v1\nsk-slow slow rate=1\n")
    models = [heads[0].entry("v1"), heads[1].entry("v2")]
    g = gateway(models, "--api-key-file", tmp_path / "keys")
    wait_for("both serve", lambda: g.states("sk-all") == {"v1": "serving", "v2": "serving"})
    route(g, models, chat={"targets": [{"model": "v1"}, {"model": "v2"}], "mirror": "v2"})
    wait_for("the route is listed", lambda: "chat" in g.states("sk-all"))
    for _ in range(10):
        assert g.ask("chat", key="sk-v1").json()["model"] == "v1"
    asked = WEB.post(g.url + "/v1/completions", json={"model": "chat", "prompt": [5]}, headers={"Authorization": "Bearer sk-v1", "x-coxswain-model": "v2"})
    assert asked.status_code == 400
    codes = [g.ask("chat", key="sk-slow").status_code for _ in range(10)]
    assert codes.count(429) >= 8
    sent = sum(int(float(line.split()[-1])) for line in get(g.url + "/metrics", headers={"Authorization": "Bearer sk-all"})[1].splitlines()
               if line.startswith("coxswain_gateway_mirrored_total"))
    assert sent <= 10 + codes.count(200), "a refused request is not mirrored"
    health = {key: [get(f"{g.url}/health?model={n}", headers={"Authorization": f"Bearer {key}"})[0] for n in ("v1", "v2", "nobody")]
              for key in ("sk-all", "sk-v1", "wrong")}
    assert health == {"sk-all": [200, 200, 404], "sk-v1": [200, 404, 404], "wrong": [404, 404, 404]}


def test_waiting_requests_learn_that_their_model_has_failed(heads, gateway, tmp_path):
    lonely = Head(tmp_path)
    end_all([lonely.worker])
    try:
        entry = lonely.entry("lonely")
        g = gateway([entry, heads[0].entry("good")])
        wait_for("the head is reached", lambda: g.states().get("good") == "serving" and "head_connected" in g.log())
        replies = []
        waiting = threading.Thread(target=lambda: replies.append(g.ask("lonely")))
        waiting.start()
        wait_for("the request waits", lambda: 'coxswain_gateway_requests_open{model_name="lonely",engine="0"} 1' in get(g.url + "/metrics")[1]
                 or 'requests_open{engine="0",model_name="lonely"} 1' in get(g.url + "/metrics")[1])
        g.write([{**entry, "state": "failed", "reason": "its worker crashed"}, heads[0].entry("good")])
        waiting.join(10)
        assert replies and replies[0].status_code == 503 and "its worker crashed" in replies[0].text
    finally:
        lonely.end()


def test_a_model_whose_keys_come_later(heads, gateway, tmp_path):
    entry = heads[0].entry("late")
    g = gateway([{**entry, "insecure": False, "keys_dir": str(tmp_path / "keys")}])
    g.wait_states(late="failed")
    subprocess.run([BIN / "cox", "keys", "--keys-dir", tmp_path / "keys"], check=True, capture_output=True)
    wait_for("the keys are read", lambda: "model_opened" in g.log(), 10)


def test_the_admin_s_changes_keep_names_as_they_are_written(heads, gateway, tmp_path):
    (tmp_path / "admin").write_text("sk-admin-key-1 ada\n")
    plain = "\n".join(f"- {{name: {n}, model: 'null', head: '127.0.0.1:{heads[0].port}', insecure: true}}" for n in ("1.10", "007", "1e3"))
    g = gateway(f"models:\n{plain}\nroutes:\n- {{name: r, targets: [{{model: 1.10, weight: 2}}]}}\n", "--admin-key-file", tmp_path / "admin")
    g.wait_states(**{"r": "serving", "1.10": "serving", "007": "serving", "1e3": "serving"})
    link = tmp_path / "link.yaml"
    g.file.rename(link)
    g.file.symlink_to(link)
    admin = {"Authorization": "Bearer sk-admin-key-1"}
    assert WEB.put(g.url + "/admin/models/new", json={**heads[1].entry("x"), "pooler_config": {"max_embed_len": 64}}, headers=admin).status_code == 200
    g.wait_states(**{"r": "serving", "1.10": "serving", "007": "serving", "1e3": "serving", "new": "serving"})
    assert g.file.is_symlink() and '"new"' in link.read_text()
    wrong = WEB.put(g.url + "/admin/models/new", json={"queue_timeout": "abc"}, headers=admin)
    assert wrong.status_code == 400 and "queue_timeout" in wrong.text and "abc" not in link.read_text()
    done = []
    threads = [threading.Thread(target=lambda i=i: done.append(WEB.put(f"{g.url}/admin/models/m{i}", json=heads[2].entry("x"), headers=admin).status_code)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert done == [200] * 8 and len(json.loads(link.read_text())["models"]) == 12
