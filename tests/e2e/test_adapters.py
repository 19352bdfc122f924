"""Tests LoRA adapters on a running cluster: every API, one batch with the base model, unloads during streams, lost ranks and heads,
and refusals. scripts/make-goldens makes the expected tokens."""
import json
import os
import shutil
import signal
from functools import partial

import httpx
import pytest
from cluster import ROOT, SLOW, Cluster, get, run_cox, wait_for
from completions import body_of, ids, run
from test_quotas import Redis, needs_redis
from test_standby import Pair

MODEL = ROOT / "build/goldens/llama_tiny"
NAMES = ("m", "every", "some")
KEY = "an-admin-key-of-the-tests"
pytestmark = pytest.mark.skipif(not (MODEL / "loras").exists(), reason=f"no {MODEL}/loras: scripts/make-goldens")


def expected(name):
    folder = MODEL if name == "m" else MODEL / "loras" / name
    return json.loads((folder / "expected.json").read_text())["prompts"]


def known(names=NAMES):
    """Returns (request, greedy tokens) for each name and prompt."""
    return [({**body_of(p["ids"], max_tokens=len(p["greedy"])), "model": n}, p["greedy"]) for n in names for p in expected(n)]


@pytest.fixture()
def root(tmp_path):
    """Makes a folder of adapters that the test may damage."""
    shutil.copytree(MODEL / "loras", tmp_path / "loras")
    (tmp_path / "key").write_text(KEY + "\n")
    return tmp_path / "loras"


def start(root, *args, kind=Cluster, **kwargs):
    return kind("--device", "cpu", "--kv-cache-dtype", "float32", "--dtype", "float32", "--served-model-name", "m", "--enable-lora",
                   "--max-loras", 2, "--lora-root", root, "--admin-key-file", root.parent / "key", *args,
                   model=str(MODEL), env={"COX_ADMIN_KEY": KEY}, **kwargs)


def lora(c, *args, code=0):
    done = run_cox("lora", *args, "--address", f"127.0.0.1:{c.admin_port}", env={**os.environ, "COX_ADMIN_KEY": KEY})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def status(c):
    return json.loads(run_cox("status", "--json", "--address", f"127.0.0.1:{c.admin_port}",
                              env={**os.environ, "COX_ADMIN_KEY": KEY}).stdout)


def has_head(c):
    return run_cox("lora", "list", "--address", f"127.0.0.1:{c.admin_port}",
                   env={**os.environ, "COX_ADMIN_KEY": KEY}).returncode == 0


def states(c):
    return {a["name"]: a["state"] for a in json.loads(lora(c, "list", "--json"))["adapters"]}


def call(c, name, body, key=KEY):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.post(f"{c.url}/v1/{name}_lora_adapter", json=body, headers=headers, timeout=30 * SLOW)


def ask(c, model):
    return httpx.post(c.url + "/v1/completions", json={"model": model, "prompt": [1, 2, 3], "max_tokens": 1}, timeout=30 * SLOW)


def check(c, names=NAMES):
    requests = known(names)
    for (body, want), got in zip(requests, run(c, [body for body, _ in requests])):
        assert ids(got) == want, (body["model"], len(body["prompt"]))


def test_every_door(root):
    with start(root, "--lora-modules", "every=every") as c:
        wait_for("the adapter of the start is there", lambda: states(c) == {"every": "ready"})
        assert call(c, "load", {"lora_name": "some", "lora_path": str(root / "some")}).text == \
            "Success: LoRA adapter 'some' added successfully."
        models = httpx.get(c.url + "/v1/models").json()["data"]
        assert [(m["id"], m["root"], m["parent"]) for m in models] == \
            [("m", str(MODEL), None), ("every", "every", "m"), ("some", str(root / "some"), "m")]
        assert all(m["permission"][0]["object"] == "model_permission" for m in models)
        assert httpx.get(c.url + "/v1/models/some").json()["parent"] == "m"
        check(c)  # all three run in one batch, and the second time each model finds its own blocks in the prefix cache
        check(c)
        assert status(c)["kv"]["prefix_hit_rate"] > 0
        # Another adapter under the same name must not use the cached blocks of the old adapter.
        assert call(c, "load", {"lora_name": "some", "lora_path": "every", "load_inplace": False}).status_code == 400
        for name, body in (("load", {"lora_name": "other", "lora_path": "every", "rank": 8}),
                           ("load", {"lora_name": "other", "lora_path": "every", "is_3d_lora_weight": True}),
                           ("unload", {"lora_name": "every", "force": True})):
            answer = call(c, name, body)
            assert answer.status_code == 400 and answer.json()["error"]["param"] == list(body)[-1], answer.text
        assert call(c, "unload", {"lora_name": "every", "lora_int_id": 7}).status_code == 200
        assert ask(c, "every").status_code == 404
        assert call(c, "load", {"lora_name": "some", "lora_path": "every", "load_inplace": True}).status_code == 200
        for (body, want), got in zip(known(["every"]), run(c, [{**b, "model": "some"} for b, _ in known(["every"])])):
            assert ids(got) == want
        assert "some is unloaded" in lora(c, "unload", "some")
        assert states(c) == {} and ask(c, "m").status_code == 200


def test_unloaded_under_its_streams(root):
    with start(root, "--lora-modules", "every=every", "some=some", tp=1, workers=1) as c:
        wait_for("both are there", lambda: states(c) == {"every": "ready", "some": "ready"})
        bodies = [{**body_of(expected(n)[0]["ids"], max_tokens=900), "model": n} for n in NAMES]
        alone = [ids(run(c, [b])[0]) for b in bodies]
        struck = []

        def unload(got):
            if not struck and got.n_chunks > 5:
                struck.append(lora(c, "unload", "every", "--timeout", 0))

        assert [ids(got) for got in run(c, bodies, unload)] == alone
        assert struck
        wait_for("it is gone", lambda: states(c) == {"some": "ready"})
        wait_for("nobody can ask for it", lambda: ask(c, "every").status_code == 404)
        check(c, ("m", "some"))


@pytest.mark.parametrize("victims", [("worker-1",), ("worker-0",), ("head",), ("head", "worker-1")], ids="+".join)
def test_what_dies_under_streams(root, victims):
    """A restarted worker gets the table of adapters before any step, and a new head receives it from the workers."""
    with start(root) as c:
        for name in NAMES[1:]:
            lora(c, "load", f"{name}={name}")
        bodies = [{**body_of(expected(n)[i]["ids"], max_tokens=300), "model": n} for n in NAMES for i in (0, 1)]
        alone = [ids(run(c, [b])[0]) for b in bodies]
        struck = []

        def strike(got):
            if not struck and got.n_chunks > 5:
                struck.extend(victims)
                for v in victims:
                    os.kill(c.pid(v), signal.SIGKILL)

        assert [ids(got) for got in run(c, bodies, strike)] == alone
        assert struck
        wait_for("the head is back", lambda: has_head(c), 30)  # the streams may have ended before the head is back
        wait_for("both are there", lambda: states(c) == {"every": "ready", "some": "ready"}, 30)
        check(c)


@needs_redis
def test_a_standby_takes_over_under_streams(root, tmp_path):
    """A standby that has no adapter in its table takes over during streams. It has waited for longer than the time in which a head
    counts as new."""
    with Redis(tmp_path) as redis, start(root, kind=partial(Pair, redis)) as c:
        headers, ports = {"Authorization": f"Bearer {KEY}"}, c.admin_ports()  # both are read before `c` switches to the other head

        def asked(name, path):
            code, body = get(f"http://127.0.0.1:{ports[name]}{path}", headers=headers)
            return json.loads(body) if code == 200 else None

        def roles():
            return {n: s["role"] for n, s in ((n, asked(n, "/api/status")) for n in ports) if s}

        wait_for("one serves and one waits", lambda: sorted(roles().values()) == ["serving", "standby"])
        old, new = sorted(roles(), key=roles().get)
        c.admin_port = ports[old]
        for name in NAMES[1:]:
            lora(c, "load", f"{name}={name}")
        held = states(c)
        bodies = [{**body_of(expected(n)[i]["ids"], max_tokens=900), "model": n} for n in NAMES for i in (0, 1)]
        alone = [ids(run(c, [b])[0]) for b in bodies]
        wait_for("it has waited", lambda: asked(new, "/api/status")["uptime_s"] > 11)
        struck = []

        def strike(got):
            if not struck and got.n_chunks > 5:
                struck.append(os.kill(pid, signal.SIGSTOP))  # SIGSTOP and not SIGKILL, because a killed head would be restarted at once

        pid = c.pid(old)
        try:
            assert [ids(got) for got in run(c, bodies, strike)] == alone
            assert struck
            wait_for("the other one serves", lambda: asked(new, "/api/status")["role"] == "serving")
            c.admin_port = ports[new]
            wait_for("it has them", lambda: states(c) == held == {"every": "ready", "some": "ready"})
            check(c)
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("now, words", [(None, "every does not exist"), ("some", "changed after it was loaded")],
                         ids=("gone", "changed"))
def test_a_folder_is_not_what_it_was(root, now, words):
    """A changed folder costs only its adapter, with an error. The base model and the other adapter still serve, and no rank of a
    replica runs another version than the others."""
    with start(root) as c:
        for name in NAMES[1:]:
            lora(c, "load", f"{name}={name}")
        shutil.rmtree(root / "every")
        if now:
            shutil.copytree(root / now, root / "every")
        os.kill(c.pid("worker-1"), signal.SIGKILL)
        wait_for("the loss is seen", lambda: status(c)["groups"][0]["state"] != "ready")
        said = ask(c, "every")
        assert said.status_code >= 400 and "`every` does not exist: " in said.text and (now or words in said.text), said.text
        wait_for("it has failed", lambda: states(c) == {"every": "failed", "some": "ready"})
        assert any(words in a["text"] for a in json.loads(lora(c, "list", "--json"))["adapters"])
        check(c, ("m", "some"))
        wait_for("nobody can ask for it", lambda: ask(c, "every").status_code == 404)
        shutil.copytree(MODEL / "loras" / "every", root / "again")
        lora(c, "load", "every=again")
        check(c)


def test_what_is_refused(root):
    config = root / "some" / "adapter_config.json"
    right = json.loads(config.read_text())
    tensors = (root / "some" / "adapter_model.safetensors").read_bytes()
    with start(root, "--max-lora-rank", 15, "--served-model-name", "m2") as c:
        def refused(*words, path="some", code=400):
            said = lora(c, "load", f"x={path}", code=1)
            assert all(w in said for w in words), said
            by_gateway = call(c, "load", {"lora_name": "x", "lora_path": path})
            assert by_gateway.status_code == code and all(w in by_gateway.text for w in words), by_gateway.text
            assert ask(c, "x").status_code == 404

        refused("some/adapter_config.json: rank 16", "above the limit, --max-lora-rank 15")
        config.write_text(json.dumps(right | {"use_dora": True}))
        refused("some/adapter_config.json: use_dora")
        config.write_text(json.dumps(right | {"r": 8}))
        refused("some/adapter_model.safetensors: tensor base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                "[16, 256]")
        (root / "some" / "adapter_model.safetensors").write_bytes(tensors[:-1])
        refused("adapter_model.safetensors")
        refused("the folder is not below --lora-root", path="/etc")
        refused("the folder is not below --lora-root", path="..")
        refused("cannot load the adapter: the folder nothing does not exist", path="nothing", code=404)
        assert call(c, "load", {"lora_name": "x", "lora_path": "every"}, key=None).status_code == 401
        assert call(c, "load", {"lora_name": "x", "lora_path": "every"}, key="wrong").status_code == 401
        assert call(c, "load", {"lora_name": "x"}).status_code == 400
        for name in ("m", "m2"):  # the base model has these two names
            assert "name of the model itself" in lora(c, "load", f"{name}=every", code=1)
            taken = call(c, "load", {"lora_name": name, "lora_path": "every"})
            assert taken.status_code == 400 and "already a name of the model itself" in taken.text
        assert call(c, "unload", {"lora_name": "x y"}).status_code == 404
        check(c, ("m",))
        assert status(c)["groups"][0]["recoveries"] == 0


def test_off_by_default():
    with Cluster("--served-model-name", "m", workers=1, tp=1) as c:
        assert "without --enable-lora" in lora(c, "load", "x=/tmp", code=1)
        answer = call(c, "load", {"lora_name": "x", "lora_path": "/tmp"})
        assert answer.status_code == 403 and "--admin-key-file" in answer.text
        assert answer.json()["error"]["type"] == "PermissionDeniedError"
