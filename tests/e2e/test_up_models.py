"""Tests `cox up` with several models: one address, memory that holds two of three models, requests that wait while a model starts, models that
fail, and what is refused before anything starts."""
import json
import os
import resource
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import httpx
import pytest
from cluster import BIN, ROOT, SLOW, alive, end_all, free_ports, get, run_cox, wait_for

LLAMA = ROOT / "build/goldens/llama_tiny"
TWO_FIT = "22Mi"  # each model needs 10.2 MiB
needs_goldens = pytest.mark.skipif(not LLAMA.exists(), reason=f"no {LLAMA}: scripts/make-goldens")
WEB = httpx.Client(timeout=60 * SLOW)


class Up:
    """Runs `cox up` with the given models."""

    def __init__(self, folder, *args, **env):
        self.folder = Path(folder)
        self.tmp = self.folder / "tmp"
        self.tmp.mkdir(exist_ok=True)
        base = free_ports(130)[0]  # ten models: an admin port for each, and ten ports for each head and its workers
        self.url, self.head_port, self.admin_port = f"http://127.0.0.1:{base}", base + 20, base + 1
        self.pids_file, self.env = self.folder / "pids", {**os.environ, "TMPDIR": str(self.tmp), **env}
        self.command = [BIN / "cox", "up", *map(str, args), "--port", base, "--admin-port", base + 1, "--head-port", base + 20,
                        "--worker-http-port", base + 21, "--print-pids", self.pids_file]
        self.log_path = self.folder / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(list(map(str, self.command)), stderr=log, stdout=log, env=self.env)

    def __enter__(self):
        return self

    def __exit__(self, fault, *_):
        end_all([self.process])
        if not fault and self.process.returncode >= 0:
            assert list(self.tmp.glob("**/*")) == [], self.log()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_ready(self):
        wait_for("the cluster is ready", lambda: " ready in " in self.log() or self.process.poll() is not None, 30)
        assert self.process.poll() is None, self.log()

    def pids(self):
        try:
            return {k: int(v) for k, v in (line.split() for line in self.pids_file.read_text().splitlines())}
        except FileNotFoundError:
            return {}

    def workers(self):
        return sorted(name.split("-")[1] for name in self.pids() if name.startswith("worker-"))

    def ask(self, model, n=4):
        return WEB.post(self.url + "/v1/completions", json={"model": model, "prompt": [5, 6, 7], "max_tokens": n, "ignore_eos": True})

    def states(self):
        code, body = get(self.url + "/v1/models")
        return {m["id"]: m["state"] for m in json.loads(body)["data"]} if code == 200 else {}


def test_several_models_behind_one_address(tmp_path):
    with Up(tmp_path, "null", "second=null", "third=null") as c:
        c.wait_ready()
        for model in ("null", "second", "third"):
            reply = c.ask(model)
            assert (reply.status_code, reply.json()["model"]) == (200, model), reply.text
        assert c.ask("fourth").status_code == 404
        assert {"head-null", "head-second", "worker-third-0", "gateway-0"} <= set(c.pids())
        listed = run_cox("ps", "--json", env=c.env)
        assert [one["model"] for one in json.loads(listed.stdout)] == ["null, second, third"], listed.stdout
        assert run_cox("status", "--address", f"127.0.0.1:{c.admin_port + 2}", env=c.env).returncode == 0
        scaled = run_cox("scale", "2", env=c.env)
        assert scaled.returncode != 0 and "several models" in scaled.stderr, scaled.stderr
        pids = c.pids().values()
        assert run_cox("stop", "null", env=c.env).returncode == 0
        assert c.process.wait(20 * SLOW) == 0 and not any(alive(pid) for pid in pids)


def test_one_model_may_have_a_name(tmp_path):
    with Up(tmp_path, "chat=null") as c:
        c.wait_ready()
        assert c.ask("chat").json()["model"] == "chat" and c.ask("null").status_code == 404


@needs_goldens
def test_models_start_on_demand_where_two_of_three_fit(tmp_path):
    with Up(tmp_path, *(f"{name}={LLAMA}" for name in "abc"), "--on-demand", "--models-memory", TWO_FIT, "--idle-timeout", 2) as c:
        c.wait_ready()
        assert "2 of 3 models fit together" in c.log()
        most, over = [0], threading.Event()

        def look():
            while not over.wait(0.01):
                most[0] = max(most[0], len(c.workers()))

        watcher = threading.Thread(target=look)
        watcher.start()
        for model in "cabcbac":
            assert c.ask(model).status_code == 200
        replies = []
        threads = [threading.Thread(target=lambda m=m: replies.append(c.ask(m, 200).status_code)) for m in "abcabc"]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        over.set()
        watcher.join()
        assert replies == [200] * 6 and most[0] == 2, (replies, most)
        wait_for("idle models end", lambda: not c.workers())
        assert c.ask("b").status_code == 200 and c.workers() == ["b"]


@needs_goldens
def test_a_model_that_cannot_start_fails_alone(tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(LLAMA, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:20000])
    file = tmp_path / "models.yaml"
    file.write_text(f"models:\n- name: good\n  aliases: [gpt-4o]\n  model: 'null'\n- name: bad\n  model: {broken}\n"
                    f"- {{name: lazy, model: {LLAMA}, start: asleep, max_model_len: 256}}\n")
    with Up(tmp_path, "--models", file) as c:
        c.wait_ready()
        assert "the model bad has failed" in c.log() and c.workers() == ["good"]
        wait_for("the gateway knows", lambda: c.states().get("bad") == "failed")
        reply = c.ask("bad")
        assert reply.status_code == 503 and "ends after the end of the file" in reply.json()["error"]["message"], reply.text
        assert c.ask("gpt-4o").status_code == c.ask("lazy").status_code == 200
        assert c.workers() == ["good", "lazy"] and "head-bad" not in c.pids()


def test_a_model_that_has_served_is_started_again(tmp_path):
    with Up(tmp_path, "null", "other=null") as c:
        c.wait_ready()
        os.kill(c.pids()["head-null"], signal.SIGKILL)  # a model that has served is started again
        wait_for("the model serves again", lambda: c.ask("null").status_code == 200)
        assert c.ask("other").status_code == 200 and "has failed" not in c.log()


def test_three_ends_before_a_model_serves_are_a_failure(tmp_path):
    with Up(tmp_path, "null", "other=null", COX_NULL_LOAD_MS="600000") as c:
        killed = set()
        while len(killed) < 3:
            pid = wait_for("the worker runs", lambda: next((p for n, p in c.pids().items() if n == "worker-null-0" and p not in killed), None))
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        wait_for("the model has failed", lambda: "the model null has failed" in c.log() and "head-null" not in c.pids())
        assert "worker-null-0 ended with signal 9" in c.log() and {"head-other", "worker-other-0"} <= set(c.pids())
        wait_for("the gateway knows", lambda: c.states().get("null") == "failed")


@needs_goldens
def test_refused_before_anything_starts(tmp_path):
    twice = tmp_path / "twice.yaml"
    twice.write_text("models:\n- {name: a, model: 'null'}\n- name: b\n  aliases: [a]\n  model: 'null'\n")
    unknown = tmp_path / "unknown.yaml"
    unknown.write_text("models:\n- name: a\n  model: 'null'\n  max_num_seq: 4\n- {name: b, model: 'null', port: 4}\n")
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("models:\n- name: a\n  model: 'null'\n  gateways: 4\n")
    cases = [(("null", "null"), "two models have the name null"),
             (("--models", twice), "twice.yaml:4: two models have the name a"),
             (("--models", unknown), "unknown.yaml:4: `max_num_seq` is not an option of `cox up`; the nearest one is max-num-seqs"),
             (("--models", cluster), "cluster.yaml:4: `gateways` is not an option of one model"),
             (("--models", tmp_path / "none.yaml"), "No such file"),
             ((f"a={LLAMA}", f"b={LLAMA}", "--models-memory", "15Mi"), "the model b does not fit"),
             (("null", "b=null", "--standby", "--redis", "redis://127.0.0.1"), "--standby cannot be used")]
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    for args, words in cases:
        done = run_cox("up", *args, env={**os.environ, "TMPDIR": str(tmp)})
        assert done.returncode == 2 and words in done.stderr, (args, done.stderr)
        assert "head_started" not in done.stderr and list(tmp.iterdir()) == []


def table(text):
    """Returns the lines of the table of memory in a text, without what stands before each line."""
    lines = [line.removeprefix("cox        | ") for line in text.splitlines()]
    first = next(i for i, line in enumerate(lines) if line.startswith("model  start"))
    return lines[first:next(i for i, line in enumerate(lines) if line.startswith("memory: ")) + 1]


@needs_goldens
def test_a_plan_of_several_models_is_the_table_of_a_start(tmp_path):
    models = ["a=" + str(LLAMA), "b=" + str(LLAMA), "none=null", "--models-memory", "18Mi"]
    planned = run_cox("plan", *models)
    with Up(tmp_path, *models) as c:
        c.wait_ready()
        assert planned.returncode == 0 and table(planned.stdout) == table(c.log()), planned
    plan = json.loads(run_cox("plan", "--json", *models).stdout)
    assert (plan["memory_bytes"], plan["fit_together"], plan["refusal"], plan["gpus"]) == (18 << 20, 3, None, 0)
    assert [(m["name"], m["start"], m["workers"]) for m in plan["models"]] == [("a", "always", 1), ("b", "always", 1), ("none", "always", 0)]
    assert sum(m["total_bytes"] for m in plan["models"]) <= 18 << 20 and plan["models"][0]["kv_bytes"] > 0


@needs_goldens
def test_a_plan_counts_the_weights_of_each_worker_that_cannot_share(tmp_path):
    models = [f"a={LLAMA}", "none=null", "--workers", 2, "--weights-share", tmp_path]

    def weights():
        return json.loads(run_cox("plan", "--json", *models).stdout)["models"][0]["weights_bytes"]

    whole, (soft, hard) = weights(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))  # the weights have 1.7 MiB
    try:
        assert weights() == 2 * whole
        with Up(tmp_path, *models) as c:
            c.wait_ready()
            assert c.log().count("weights_not_shared") == 2 and "ulimit -f" in c.log()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@needs_goldens
def test_a_plan_of_several_models_names_what_does_not_fit(tmp_path):
    file = tmp_path / "models.yaml"
    file.write_text(f"models:\n- {{name: small, model: {LLAMA}}}\n- {{name: large, model: {LLAMA}, kv_cache_memory_bytes: 20Mi}}\n")
    plans = [run_cox("plan", "--models", file, "--models-memory", "24Mi", *more) for more in ([], ["--json"])]
    assert [p.returncode for p in plans] == [1, 1] and all("the model large does not fit: it needs at least" in p.stderr for p in plans), plans
    assert "1 of 2 models fit together" in plans[0].stdout
    assert json.loads(plans[1].stdout)["refusal"] in plans[1].stderr
    lazy = run_cox("plan", "--models", file, "--models-memory", "30Mi", "--on-demand")
    assert lazy.returncode == 0 and "large  on-demand" in lazy.stdout, lazy
    wrong = [run_cox("plan", f"a={LLAMA}", "b=/nowhere"), run_cox("plan", "a", "b", "--gpu", "L4"), run_cox("plan", "--models", tmp_path / "no"),
             run_cox("plan", f"a={LLAMA}", f"a={LLAMA}")]
    assert [p.returncode for p in wrong] == [2] * 4 and "the model b cannot be planned" in wrong[0].stderr, wrong
