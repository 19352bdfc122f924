"""Tests that a named model is downloaded: `cox serve`, `cox up` and others fetch the files that the cache lacks, once per volume.
When offline, they refuse."""
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import httpx
import pytest
from cluster import BIN, SLOW, Cluster, end_all, free_ports, get, run_cox, wait_for
from hub_server import COMMIT, Hub, tiny_model
from test_pull import AT, NEVER_DONE, TOKEN, WEIGHTS, World, good, hub, world  # noqa: F401
from test_pull_hf_cache import WANTED, Shared, put
from test_pull_s3 import KEYS, Bucket, objects

LINE = '{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"org/tiny","prompt":"x","max_tokens":2}}\n'
NO = "is not in the cache"


class Container:
    """`Container` is `cox serve` as a SageMaker container starts it, on separate ports."""

    def __init__(self, world, tmp, i, *args, **env):  # noqa: F811
        self.port, head, admin, worker = free_ports(4)
        self.log = tmp / f"log{i}"
        store, own_tmp = tmp / f"store{i}", tmp / f"tmp{i}"
        store.mkdir(exist_ok=True)
        own_tmp.mkdir(exist_ok=True)
        command = [str(BIN / "cox"), "serve", "--device", "null", "--head-port", str(head), "--admin-port", str(admin), "--worker-http-port", str(worker), *args]
        env = world.env | {"SAGEMAKER_BIND_TO_PORT": str(self.port), "SERVING_MODEL_STORE": str(store), "TMPDIR": str(own_tmp)} | env
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=self.log.open("w"))

    def said(self):
        return self.log.read_text()

    def serves(self):
        assert self.process.poll() is None, self.said()
        return get(f"http://127.0.0.1:{self.port}/ping")[0] == 200


def ends(containers):
    end_all([c.process for c in containers])


def run(*args, hub=None, timeout=60, **env):  # noqa: F811
    return run_cox(*args, env=env["world"].env | ({"HF_ENDPOINT": hub.url} if hub else {}) | {k: v for k, v in env.items() if k != "world"}, timeout=timeout)


def test_four_containers_fetch_once_and_serve(world, hub, tmp_path):  # noqa: F811
    plain, go_on = hub.answer, threading.Event()

    def answer(h, path, action):
        if path.endswith(WEIGHTS):
            go_on.wait(60 * SLOW)
        return plain(h, path, action)

    hub.answer = answer
    four = []
    try:
        four = [Container(world, tmp_path, i, HF_MODEL_ID="org/tiny", HF_ENDPOINT=hub.url) for i in range(4)]
        wait_for("three wait", lambda: sum("waiting for it" in c.said() for c in four) == 3)
        go_on.set()
        wait_for("all serve", lambda: all(c.serves() for c in four))
        # All four together requested each file once.
        asked = [p for p, _ in hub.requests]
        assert len(asked) == len(set(asked)) == 4, asked
        assert httpx.get(f"http://127.0.0.1:{four[0].port}/v1/models", timeout=30).json()["data"][0]["id"] == "org_tiny"
    finally:
        go_on.set()
        ends(four)
    # A restart sends no request and needs no network.
    hub.requests.clear()
    again = Container(world, tmp_path, 0, OPTION_MODEL_ID="org/tiny", HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:1")
    try:
        wait_for("it serves", again.serves)
        assert not hub.requests and "fetching it" not in again.said() and "fetched" not in again.said()
    finally:
        ends([again])


@pytest.mark.parametrize("name", ["HF_MODEL_ID", "OPTION_MODEL_ID"])
def test_a_container_elsewhere_than_at_sagemaker(world, hub, tmp_path, name):  # noqa: F811
    """`docker run -e HF_MODEL_ID=… IMAGE serve` works without any variable of SageMaker. A MODEL on the command line overrides
    HF_MODEL_ID."""
    port, head, admin, worker = free_ports(4)
    ports = ["--port", str(port), "--head-port", str(head), "--admin-port", str(admin), "--worker-http-port", str(worker)]
    env = {k: v for k, v in world.env.items() if not k.startswith("SAGEMAKER_")} | {name: "org/tiny", "HF_ENDPOINT": hub.url, "TMPDIR": str(tmp_path)}
    for words, served in (([], "org_tiny"), (["--model", "null"], "null")):
        with (tmp_path / "log").open("w") as log:
            p = subprocess.Popen([str(BIN / "cox"), "serve", "--device", "null", *words, *ports], env=env, stdout=subprocess.DEVNULL, stderr=log)
        try:
            wait_for("it serves", lambda: p.poll() is not None or get(f"http://127.0.0.1:{port}/health")[0] == 200)
            assert p.poll() is None, (tmp_path / "log").read_text()
            assert httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=30).json()["data"][0]["id"] == served
            assert get(f"http://127.0.0.1:{port}/ping")[1].count("Healthy") == (not words)
        finally:
            end_all([p])


def test_killed_in_the_middle_and_resumed(world, hub, tmp_path):  # noqa: F811
    """The process that downloads is killed, then the server drops the connection. Downloaded bytes are not requested again."""
    hub.faults[AT] = [NEVER_DONE, ("cut", 50_000)]
    containers = [Container(world, tmp_path, i, HF_MODEL_ID="org/tiny", HF_ENDPOINT=hub.url, COX_RETRY_WAIT="0.01") for i in range(2)]
    try:
        wait_for("bytes", lambda: any(f.name == WEIGHTS + ".part" and f.stat().st_size >= 30_000 for f in world.parts()))
        wait_for("the other one waits", lambda: any("waiting for it" in c.said() for c in containers))
        fetcher = next(c for c in containers if "waiting for it" not in c.said())
        fetcher.process.send_signal(signal.SIGKILL)
        fetcher.process.wait()
        other = next(c for c in containers if c is not fetcher)
        wait_for("the other one serves", other.serves)
    finally:
        ends(containers)
    begins = [int(re.search(r"\d+", h.get("Range", "0"))[0]) for _, h in hub.asked(WEIGHTS)]
    assert len(begins) == 3 and begins[0] == 0 and 30_000 <= begins[1] < begins[2], begins
    assert all(len(hub.asked(n)) == 1 for n in ("config.json", "tokenizer.json"))


def test_a_bucket_of_serving_properties(world, tmp_path):  # noqa: F811
    with Bucket(objects(), {KEYS["AWS_ACCESS_KEY_ID"]: KEYS["AWS_SECRET_ACCESS_KEY"]}) as bucket:
        (tmp_path / "store0").mkdir()
        (tmp_path / "store0/serving.properties").write_text("engine=Python\noption.model_id=s3://models/llm/tiny model+ä/\n")
        aws = KEYS | {"AWS_ENDPOINT_URL": bucket.url}
        c = Container(world, tmp_path, 0, **aws)
        try:
            wait_for("it serves", c.serves)
        finally:
            ends([c])


OFFLINE = [("--offline", {}), (None, {"COX_OFFLINE": "true"}), (None, {"HF_HUB_OFFLINE": "1"}), (None, {"TRANSFORMERS_OFFLINE": "YES"})]


@pytest.mark.parametrize("flag, env", OFFLINE, ids=["flag", *(next(iter(e)) for _, e in OFFLINE[1:])])
def test_offline_says_no_in_one_sentence(world, hub, flag, env):  # noqa: F811
    commands = [["up", "org/tiny"], ["serve", "org/tiny", "--load-format", "stream"], ["pull", "org/tiny"], ["plan", "org/tiny"],
                ["worker", "--insecure", "--model", "org/tiny"], ["gateway", "--insecure", "--model", "org/tiny"], ["workers", "--ranks", "1", "--model", "org/tiny"]]
    if env:
        commands += [["bench", "latency", "--model", "org/tiny"], ["bench", "startup", "--model", "org/tiny"], ["up", "demo"], ["up", "s3://models/a"]]
    for command in commands:
        done = run(*command, *([flag] if flag else []), world=world, hub=hub, **env)
        model = next(w for w in command if w in ("org/tiny", "demo", "s3://models/a"))
        assert done.returncode == 2 and done.stderr.count("\n") == 1, (command, done.returncode, done.stderr)
        assert model in done.stderr and str(world.cache) in done.stderr and "cox pull " in done.stderr and "HF_HUB_OFFLINE" in done.stderr, done.stderr
    assert not hub.requests and not world.cache.exists()
    assert run("up", "org/none", "--no-offline", world=world, hub=hub, **env).returncode == 2 and hub.requests  # the command line overrides the environment


@pytest.mark.parametrize("value", ["", "0", "false"])
def test_variables_that_do_not_say_offline(world, hub, value):  # noqa: F811
    good(run("pull", "org/tiny", world=world, hub=hub, HF_HUB_OFFLINE=value))


def test_offline_from_pythons_cache(tmp_path):
    world = Shared(tmp_path)  # noqa: F811
    with Hub({"org/tiny": tiny_model()}) as hub:  # noqa: F811
        put(world, hub, WANTED)
        refs = world.repo / "refs"
        refs.mkdir()
        (refs / "main").write_text(COMMIT)
        link = world.repo / "snapshots" / COMMIT / WEIGHTS
        away = link.with_name("away")
        link.rename(away)
        done = run("up", "org/tiny", "--offline", world=world, hub=hub)
        assert done.returncode == 2 and "nor complete in huggingface_hub's" in done.stderr and not world.cache.exists(), done.stderr
        # The model has several files, and some of them are missing.
        part = link.with_name("model-00001-of-00002.safetensors")
        away.rename(part)
        done = run("up", "org/tiny", "--offline", world=world, hub=hub)
        assert done.returncode == 2 and f"of 2 files like {part.name} it has 1" in done.stderr, done.stderr
        part.rename(link)
        with Cluster("--device", "null", model="org/tiny", env=world.env | {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub.url}) as c:
            assert [m["id"] for m in httpx.get(f"{c.url}/v1/models", timeout=30).json()["data"]] == ["org/tiny"]
        folder = good(run("pull", "org/tiny", "--check", "--verify", world=world, hub=hub))
        assert os.path.samefile(folder / WEIGHTS, link) and not hub.requests
        good(run("pull", f"hf:org/tiny@{COMMIT}", "--offline", world=world, hub=hub))


def test_wrong_names_and_tokens(world, tmp_path):  # noqa: F811
    (tmp_path / "in.jsonl").write_text(LINE)
    with Hub({"org/tiny": tiny_model()}, token=TOKEN) as gated:
        for command in (["up", "org/tiny"], ["worker", "--insecure", "--model", "org/tiny"], ["gateway", "--insecure", "--model", "org/tiny"],
                        ["run-batch", "org/tiny", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out"], ["bench", "throughput", "--model", "org/tiny"]):
            done = run(*command, world=world, hub=gated)
            assert done.returncode == 2 and "For a private or gated model, set HF_TOKEN" in done.stderr, (command, done.returncode, done.stderr)
        done = run("up", "org/none", world=world, hub=gated, HUGGING_FACE_HUB_TOKEN=TOKEN)
        assert done.returncode == 2 and "does not have this file or model (404): check the name" in done.stderr, done.stderr
        assert TOKEN not in done.stderr


def test_a_file_of_requests_and_a_draft_model(world, hub, tmp_path):  # noqa: F811
    """`cox run-batch MODEL` downloads its model, and the model that `--speculative-config` names."""
    (tmp_path / "in.jsonl").write_text(LINE)
    ports = free_ports(3)
    done = run("run-batch", "org/tiny", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out", "--", "--device", "null", "--head-port", ports[0], "--admin-port",
               ports[1], "--worker-http-port", ports[2], world=world, hub=hub)
    assert done.returncode == 0 and "cox run-batch: fetched" in done.stderr, done.stderr
    assert done.stderr.count("fetching it") == 1 and len(hub.asked(WEIGHTS)) == 1
    done = run("up", "org/tiny", "--speculative-config", '{"model": "org/draft", "num_speculative_tokens": 2}', world=world, hub=hub)
    assert done.returncode == 2 and "org/draft: 127.0.0.1 does not have this file or model (404)" in done.stderr, done.stderr


def test_a_revision(world, hub, tmp_path):  # noqa: F811
    c = Container(world, tmp_path, 0, HF_MODEL_ID="org/tiny", OPTION_REVISION="v1", HF_ENDPOINT=hub.url)
    try:
        wait_for("it serves", c.serves)
    finally:
        ends([c])
    assert hub.asked("/revision/v1") and not hub.asked("/revision/main")
    for model, revision, says in (("org/tiny", "nope", "does not have this file or model (404)"), ("org/tiny@v1", "main", "differs from the revision in the model's name hf:org/tiny@v1. Give only one of the two"),
                                  ("null", "v1", "is not from a hub and has no revisions"), ("org/tiny", "../x", "a model on the hub has the form hf:ORG/NAME")):
        done = run("up", model, "--revision", revision, world=world, hub=hub)
        assert done.returncode == 2 and says in done.stderr, done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopped_while_it_fetches(world, hub, tmp_path, how):  # noqa: F811
    hub.faults[AT] = [NEVER_DONE]
    c = Container(world, tmp_path, 0, HF_MODEL_ID="org/tiny", HF_ENDPOINT=hub.url)
    try:
        wait_for("bytes", lambda: any(f.name == WEIGHTS + ".part" and f.stat().st_size >= 30_000 for f in world.parts()))
        c.process.send_signal(how)
        assert c.process.wait(20 * SLOW) == 1, c.said()
    finally:
        ends([c])
    assert "stopped while model hf:org/tiny@main was downloaded. The downloaded part is kept" in c.said() and not list((tmp_path / "tmp0").iterdir())
    hub.requests.clear()
    good(run("pull", "org/tiny", world=world, hub=hub))
    assert int(hub.asked(WEIGHTS)[0][1]["Range"].removeprefix("bytes=").rstrip("-")) >= 30_000 and not hub.asked("config.json")


def test_lines_and_events(world, hub):  # noqa: F811
    """Progress is printed as lines when the output is not a terminal. With a log of events, the lines are events too."""
    hub.faults[AT] = [("slow", 0.7, 20_000)]
    with Cluster("--device", "null", "--log-format", "json", model="org/tiny", env=world.env | {"HF_ENDPOINT": hub.url}) as c:
        lines = c.log().splitlines()
        assert all(line.startswith("{") for line in lines), lines
        events = [line for line in lines if '"event":"model_fetch"' in line]
        assert any("fetching it" in e for e in events) and any('"total":' in e and f'"file":"{WEIGHTS}"' in e for e in events) and any("fetched 1" in e for e in events), events


def test_it_serves_under_the_name_that_was_asked_for(world, hub):  # noqa: F811
    with Cluster("--device", "null", model="org/tiny", env=world.env | {"HF_ENDPOINT": hub.url}) as c:
        wait_for("ready", lambda: "dashboard:" in c.log())
        assert '"model":"org/tiny"' in c.log() and "fetched 1" in c.log(), c.log()
        answer = httpx.post(f"{c.url}/v1/completions", timeout=60, json={"model": "org/tiny", "prompt": "a", "max_tokens": 3})
        assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 3
    assert Path(world.cache / "models/pulled").is_dir()
