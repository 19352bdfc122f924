"""Tests that a gateway whose vocabulary differs from the workers' model is refused by name, whichever connects first. The gateway is
accepted as soon as the workers have its model. A gateway with the same model in another file is accepted."""
import json

import httpx
import pytest
from cluster import BIN, ROOT, free_ports, get, wait_for
from test_bad_frames import Processes

GOLDENS = ROOT / "build/goldens"
LLAMA, GEMMA = GOLDENS / "llama_tiny", GOLDENS / "gemma3_tiny"
LLAMA_GGUF = GOLDENS / "llama_tiny_gguf_q8_0/model.gguf"

pytestmark = pytest.mark.skipif(not GOLDENS.exists(), reason=f"no tiny checkpoints in {GOLDENS}: scripts/make-goldens")


class Models(Processes):
    def worker(self, name, model, *args, tp=1):
        self.start(name, BIN / "cox-worker", "--model", model, "--device", "cpu", "--head", f"127.0.0.1:{self.head_port}",
                   "--keys-dir", self.keys, "--tp", tp, "--http-port", 0, "--max-model-len", 256, *args)

    def gateway(self, name, model):
        port, = free_ports(1)
        self.start(name, BIN / "cox-gateway", "--model", model, "--head", f"127.0.0.1:{self.head_port}", "--port", port,
                   "--keys-dir", self.keys)
        return f"http://127.0.0.1:{port}"

    def serving(self, n=1):
        return sum(g["state"] == "ready" for g in self.status()["groups"]) == n

    def events(self):
        return [e["event"] for e in json.loads(get(self.admin + "/api/events?since=1")[1])["events"]]

    def warnings(self):
        return [w for w in self.status()["warnings"] if "vocabulary" in w]

    def is_refused(self, url, name):
        wait_for(f"{name} is refused", lambda: "has another vocabulary than the workers'" in get(url + "/readyz")[1])
        r = httpx.post(url + "/v1/completions", json={"model": "gemma3_tiny", "prompt": "once", "max_tokens": 4}, timeout=10)
        assert r.status_code == 503 and "has another vocabulary than the workers'" in r.json()["error"]["message"], r.text
        assert get(url + "/health")[0] == get(url + "/accepting")[0] == 503
        assert "has another model's vocabulary: gemma3_tiny with 384 tokens, but the workers serve llama_tiny with 320 tokens" in \
            self.log(name)
        assert self.warnings(), self.status()["warnings"]


def answers(url, model="llama_tiny"):
    r = httpx.post(url + "/v1/completions", json={"model": model, "prompt": "once", "max_tokens": 4}, timeout=20)
    assert r.status_code == 200, r.text


def test_gateways_of_other_models(tmp_path):
    with Models(tmp_path) as c:
        c.start_head(tp=1)
        early = c.gateway("early", GEMMA)  # the gateway is accepted until a worker has reported its vocabulary
        wait_for("it has joined", lambda: "gateway_joined" in c.events())
        assert "vocabulary" not in get(early + "/readyz")[1]
        c.worker("worker-0", LLAMA)
        wait_for("a group serves", c.serving)
        c.is_refused(early, "early")
        assert "gateway_refused" in c.events()
        late = c.gateway("late", GEMMA)
        c.is_refused(late, "late")
        for name, model in ("same", LLAMA), ("gguf", LLAMA_GGUF):
            url = c.gateway(name, model)
            wait_for(f"{name} is taken", lambda: get(url + "/readyz")[0] == 200)
            answers(url, "llama_tiny" if model == LLAMA else json.loads(get(url + "/v1/models")[1])["data"][0]["id"])


def test_workers_that_change(tmp_path):
    """A refused gateway retries. It serves when workers with its model have replaced the old workers."""
    with Models(tmp_path) as c:
        c.start("head", BIN / "cox-head", "--port", c.head_port, "--admin-port", c.admin_port, "--keys-dir", c.keys, "--tp", 2)
        wait_for("the head answers", lambda: get(c.admin + "/livez")[0] == 200)
        for i in range(2):
            c.worker(f"worker-{i}", LLAMA_GGUF, "--ordinal", i, tp=2)
        wait_for("a group serves", c.serving)
        url = c.gateway("gemma", GEMMA)
        wait_for("it is refused", lambda: "has another vocabulary than the workers'" in get(url + "/readyz")[1])
        same = c.gateway("llama", LLAMA)  # this gateway has safetensors, and the workers have a GGUF
        wait_for("it is taken", lambda: get(same + "/readyz")[0] == 200)
        # A restarted head has no vocabulary and gets it from the workers that it adopts.
        c.started["head"].kill()
        c.started["head"].wait()
        c.start("head-2", BIN / "cox-head", "--port", c.head_port, "--admin-port", c.admin_port, "--keys-dir", c.keys, "--tp", 2)
        wait_for("the head answers", lambda: get(c.admin + "/livez")[0] == 200)
        wait_for("a group serves", c.serving)
        wait_for("it is refused again", lambda: c.warnings() and "has another vocabulary" in get(url + "/readyz")[1])
        wait_for("the other one is taken", lambda: get(same + "/readyz")[0] == 200)
        c.started["head-2"].kill()  # a head keeps a vocabulary for 30 s after its last worker, so a new head is started
        c.started["head-2"].wait()
        for i in range(2):
            c.started[f"worker-{i}"].kill()
        c.start("head-3", BIN / "cox-head", "--port", c.head_port, "--admin-port", c.admin_port, "--keys-dir", c.keys, "--tp", 2)
        for i in range(2):
            c.worker(f"new-{i}", GEMMA, "--ordinal", i, tp=2)
        wait_for("the gateway is taken", lambda: get(url + "/readyz")[0] == 200, 30)
        answers(url, "gemma3_tiny")
        null = c.gateway("null", "null")  # the null model's bytes are a vocabulary too
        wait_for("it is refused", lambda: "has another vocabulary than the workers'" in get(null + "/readyz")[1])
        wait_for("the other one is not", lambda: "has another vocabulary than the workers'" in get(same + "/readyz")[1])
