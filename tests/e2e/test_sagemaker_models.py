"""Tests statement 61 of docs/develop/gateway.md: SageMaker's multi-model containers load and unload models by request
(docs/reference/sagemaker.md)."""
import json
import os
import signal
import socket

import httpx
import null_oracle as oracle
import pytest
from cluster import ROOT, SLOW, Cluster, free_ports, get, wait_for

PROMPT = "The meaning of life is"
KEY = "an-admin-key-of-the-tests"


class Models(Cluster):
    """Runs `cox serve` without a model, and has a store with folders of models."""

    def __init__(self, *args, n_models=3, **variables):
        super().__init__()
        self.store = self.tmp / "models"
        self.store.mkdir()
        own, *self.range = free_ports(1 + 32 * n_models)
        self.ports = [own]
        begin = self.command.index("--print-pids")
        self.command = [self.command[0], "serve", *self.command[begin:], *map(str, args)]
        self.env.update({"SAGEMAKER_MULTI_MODEL": "true", "SERVING_MODEL_STORE": str(self.store),
                         "SAGEMAKER_BIND_TO_PORT": str(self.ports[0]), "OPTION_ROLLING_BATCH": "vllm",
                         "SAGEMAKER_SAFE_PORT_RANGE": f"{self.range[0]}-{self.range[-1]}", **variables})

    def start(self, wait=True):
        super().start(wait=False)
        wait_for("/ping is 200", lambda: get(self.url + "/ping")[0] == 200)
        return self

    def model_folder(self, name, *properties):
        """Makes a folder with a model that needs no weights."""
        made = self.store / name / "model"
        made.mkdir(parents=True, exist_ok=True)
        (made / "serving.properties").write_text("\n".join(("option.model_id=null", *properties)) + "\n")
        return str(made)


@pytest.fixture
def models():
    with Models() as c, httpx.Client(base_url=c.url, timeout=60 * SLOW) as client:
        c.http = client
        yield c


def load(c, name, *properties, **kwargs):
    return c.http.post("/models", json={"model_name": name, "url": c.model_folder(name, *properties)}, **kwargs)


def ask(c, path, status=200, headers=None, **body):
    got = c.http.post(path, json={"inputs": PROMPT, "parameters": {"max_new_tokens": 9}, **body}, headers=headers)
    assert got.status_code == status, got.text
    return got


def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # with this option a port of a closed connection counts as free
        return s.connect_ex(("127.0.0.1", port)) != 0


SAID = oracle.text(PROMPT, 9, temperature=0)


def test_61_load_ask_unload(models):
    assert models.http.get("/ping").json() == {} and models.http.get("/models").json() == {"models": []}
    assert load(models, "a").status_code == 200
    assert ask(models, "/models/a/invoke").json() == {"generated_text": SAID}
    assert ask(models, "/invocations").json() == {"generated_text": SAID}, "the only one"
    described = {"modelName": "a", "modelUrl": models.model_folder("a"), "status": "Healthy"}
    assert models.http.get("/models/a").json() == described
    assert models.http.get("/models").json() == {"models": [described]}
    assert models.http.get("/ping").json() == {"a": {"status": "Healthy"}}

    twice = load(models, "a")
    assert twice.status_code == 409 and twice.json()["code"] == 409
    unknown = models.http.delete("/models/b")
    assert unknown.status_code == 404 and set(unknown.json()) == {"code", "type", "message"}
    assert models.http.get("/models/b").status_code == ask(models, "/models/b/invoke", 404).status_code == 404

    assert models.http.delete("/models/a").status_code == 200
    ask(models, "/models/a/invoke", 404)
    assert is_free(models.range[0]), "its processes are gone"
    assert load(models, "a").status_code == 200, "and it can come back"


def test_61_two_models_and_which(models):
    for name in ("a", "b"):
        assert load(models, name).status_code == 200
    assert "model_name" in ask(models, "/invocations", 400).json()["message"]
    for name in ("a", "b", "a.tar.gz", "/b.tar.gz"):
        assert ask(models, "/invocations", headers={"X-Amzn-SageMaker-Target-Model": name}).json()["generated_text"] == SAID
    endpoint = ask(models, "/endpoints/e/invocations", headers={"X-Amzn-SageMaker-Target-Model": "b.tar.gz"})
    assert endpoint.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
    assert ask(models, "/predictions/b").json() == {"generated_text": SAID}
    first = models.http.get("/models?limit=1").json()
    rest = models.http.get("/models", params={"next_page_token": first["nextPageToken"]}).json()
    assert [m["modelName"] for m in first["models"] + rest["models"]] == ["a", "b"] and "nextPageToken" not in rest


def test_61_streams_and_errors_come_through(models):
    assert load(models, "a").status_code == 200
    with models.http.stream("POST", "/models/a/invoke", json={
            "inputs": PROMPT, "parameters": {"max_new_tokens": 2000}, "stream": True}) as r:
        assert r.headers["content-type"] == "application/jsonlines" and "content-length" not in r.headers
        assert set(json.loads(next(r.iter_lines()))) == {"token"}
    got = ask(models, "/models/a/invoke", stream=True)
    texts = [json.loads(line)["token"]["text"] for line in got.text.splitlines()]
    assert "".join(texts) == SAID and got.text.endswith("\n")
    refused = ask(models, "/models/a/invoke", 424, inputs=5, headers={"X-Amzn-SageMaker-Inference-Id": "mine"})
    assert refused.json()["code"] == 424 and refused.headers["x-request-id"] == "mine"


@pytest.mark.parametrize("properties, status", [
    (["required_memory_mb=900000000"], 507),  # 507 means no memory: the platform unloads another model and retries
    (["option.dtype=fp17"], 400),
    (["option.max_model_len=nonsense"], 500),  # the model's own process reports this error
])
def test_61_what_cannot_be_loaded(models, properties, status):
    got = load(models, "a", *properties)
    assert got.status_code == status, got.text
    assert models.http.get("/models").json() == {"models": []}
    assert load(models, "a").status_code == 200, "the name is free again"


def test_61_no_room_for_another(models):
    for name in ("a", "b", "c"):
        assert load(models, name).status_code == 200
    full = load(models, "d")  # this fails, because the ports suffice for three models only
    assert full.status_code == 507 and full.json()["code"] == 507
    assert models.http.delete("/models/b").status_code == 200
    assert load(models, "d").status_code == 200


def test_61_only_below_the_store(models, tmp_path):
    (models.store / "out").symlink_to(tmp_path)
    for url, status in ((str(tmp_path), 400), (f"{models.store}/../x", 400), ("s3://bucket/x", 400),
                        (f"{models.store}/out/", 400), (f"{models.store}/nowhere", 404)):
        got = models.http.post("/models", json={"model_name": "a", "url": url})
        assert got.status_code == status, (url, got.text)
    for body in ("{", "[]", "", '{"model_name": "a"}', '{"model_name": 5, "url": "x"}', "[" * 9000):
        assert models.http.post("/models", content=body).status_code == 400
    for method, path, status in (("PUT", "/models/a", 405), ("GET", "/nowhere", 404), ("DELETE", "/models", 405)):
        assert models.http.request(method, path).status_code == status


def test_61_the_admin_key(tmp_path):
    (tmp_path / "admin").write_text(KEY + "\n")
    (tmp_path / "users").write_text("user-key\n")
    with Models("--admin-key-file", tmp_path / "admin", "--api-key-file", tmp_path / "users") as c, \
            httpx.Client(base_url=c.url, timeout=60 * SLOW) as c.http:
        admin, user = ({"Authorization": f"Bearer {key}"} for key in (KEY, "user-key"))
        assert load(c, "a").status_code == load(c, "a", headers=user).status_code == 401
        assert c.http.get("/models").status_code == 401
        assert load(c, "a", headers=admin).status_code == 200
        ask(c, "/models/a/invoke", 401)
        ask(c, "/models/a/invoke", headers=user)
        assert c.http.delete("/models/a", headers=user).status_code == 401
        assert c.http.delete("/models/a", headers=admin).status_code == 200


def test_61_users_change_no_models(tmp_path):
    (tmp_path / "users").write_text("user-key\n")
    with Models("--api-key-file", tmp_path / "users") as c, httpx.Client(base_url=c.url, timeout=60 * SLOW) as c.http:
        assert load(c, "a", headers={"Authorization": "Bearer user-key"}).status_code == 403


@pytest.mark.parametrize("with_admin", [True, False])
def test_61_a_stranger_cannot_tell_what_there_is(tmp_path, with_admin):
    (tmp_path / "admin").write_text(KEY + "\n")
    (tmp_path / "users").write_text("user-key\n")
    admin = ["--admin-key-file", tmp_path / "admin"] if with_admin else []
    with Models(*admin, "--api-key-file", tmp_path / "users") as c, \
            httpx.Client(base_url=c.url, timeout=60 * SLOW) as c.http:
        user = {"Authorization": "Bearer user-key"}
        if with_admin:
            assert load(c, "a", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200
        assert c.http.get("/ping").status_code == 200
        for method, path in (("POST", "/models/a/invoke"), ("POST", "/models/b/invoke"), ("POST", "/predictions/b"),
                             ("POST", "/invocations"), ("POST", "/v1/chat/completions"), ("GET", "/nowhere"),
                             ("PUT", "/models/a"), ("GET", "/models"), ("DELETE", "/models/b")):
            for headers in ({}, {"Authorization": "Bearer user-kez"}, {"x-api-key": ""}):
                got = c.http.request(method, path, headers=headers)
                assert got.status_code == 401, (method, path, got.text)
                assert got.json()["type"] == "UnauthorizedException" and got.headers["www-authenticate"] == "Bearer"
        endpoint = c.http.post("/endpoints/e/invocations", headers={"X-Amzn-SageMaker-Target-Model": "b"})
        assert endpoint.status_code == 401 and endpoint.headers["x-amzn-errortype"] == "AccessDeniedException"
        ask(c, "/models/b/invoke", 404, headers=user)
        ask(c, "/models/b/invoke", 404, headers={"x-api-key": "user-key"})
        assert c.http.get("/nowhere", headers=user).status_code == 404
        if with_admin:
            ask(c, "/models/a/invoke", 401, headers={"Authorization": f"Bearer {KEY}"})  # no user has this key
        (tmp_path / "users").write_text("user-key-2\n")
        wait_for("the new key is known", lambda: c.http.get("/nowhere", headers={"x-api-key": "user-key-2"}).status_code == 404)
        assert c.http.get("/nowhere", headers=user).status_code == 401


def test_61_a_model_that_dies(models):
    assert load(models, "a").status_code == 200
    pid = int(next(line.rsplit("=", 1)[1] for line in models.log().splitlines() if "model_started name=a" in line))
    os.kill(pid, signal.SIGKILL)
    wait_for("/ping is 500", lambda: get(models.url + "/ping")[0] == 500)
    ask(models, "/models/a/invoke", 503)
    assert models.http.delete("/models/a").status_code == 200
    assert get(models.url + "/ping")[0] == 200


def test_61_a_stream_that_breaks_off_is_no_whole_one(models):
    assert load(models, "a").status_code == 200
    pid = int(next(line.rsplit("=", 1)[1] for line in models.log().splitlines() if "model_started name=a" in line))
    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": 30000}, "stream": True}
    with models.http.stream("POST", "/models/a/invoke", json=body) as r, pytest.raises(httpx.RemoteProtocolError):
        for i, _ in enumerate(r.iter_lines()):
            if i == 10:
                os.kill(pid, signal.SIGKILL)


def test_61_sigterm_ends_all(models):
    assert load(models, "a").status_code == 200
    code, _ = models.stop(signal.SIGTERM, seconds=30)
    assert code == 0
    assert is_free(models.range[0])


TINY = ROOT / "build/goldens/llama_tiny"


@pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens")
def test_61_weights_of_a_folder(models):
    (models.store / "tiny").mkdir()
    for f in TINY.iterdir():
        if f.is_file():
            (models.store / "tiny" / f.name).write_bytes(f.read_bytes())
    url = str(models.store / "tiny")
    assert models.http.post("/models", json={"model_name": "tiny", "url": url}).status_code == 200
    assert len(ask(models, "/models/tiny/invoke", parameters={"details": True}).json()["details"]["tokens"]) <= 30
