"""Types the commands of the how-to pages, in their order, against clusters of the null device.

A command in a fence is typed here, or typed by another test (ELSEWHERE), or the table NOBODY has the reason why no test types it.
Ports come from the environment (every option is a COX_ variable), so that a line is typed unchanged except for the words of
SUBSTITUTIONS."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import findings
import pytest
from cluster import BIN, ROOT, SANITIZED, SLOW, free_ports, get, wait_for

sys.path.append(str(ROOT / "tests/walk"))
from pages import read_page  # noqa: E402

MODELS, TINY = ROOT / "bench/models", ROOT / "build/goldens/gemma3_tiny_gguf_q4_0/model.gguf"
SUBSTITUTIONS = [
    (r"\b(cox up|vllm serve) (demo|MODEL)\b", r"\1 null", "no model is here"),
    (r"^(vllm serve .*)$", r"\1 -d --host 127.0.0.1", "it goes on in the background, and on loopback alone"),
    (r"^cox plan (?:MODEL|ORG/NAME)\b", f"cox plan {MODELS}/gemma3_270m", "a config.json in place of a model of the hub"),
    (r"\b127\.0\.0\.1:8000\b", "127.0.0.1:{port}", "8000 may be somebody's here"),
    (r"\b127\.0\.0\.1:8265\b", "127.0.0.1:{admin}", "the same"),
    (r"\b127\.0\.0\.1:8266\b", "127.0.0.1:{other_worker}", "the port after the other admin port"),
    (r"\b(first|second|third)=demo\b", r"\1=null", "no model is here"),
    (r"^(cox up first=.*)$", r"env -u COX_SERVED_MODEL_NAME \1 --admin-port {other_admin}", "the second model has the next port, a worker's here"),
    (r"--port 11434\b", "", "the same"),
    (r"/srv/adapters\b", "adapters", "a folder of the test's"),
    (r"\bsha256-HEX\b", "sha256-00ff", "the blob has another name in each model"),
]
ELSEWHERE = {  # each row: (how a command begins, the file that types it, a word of that file)
    "keys-and-quotas.md": [("cox up demo -d --gateways 2", "tests/e2e/test_quotas.py", '"--redis"'),
                           ("kubectl create secret generic team-keys", "tests/k8s/test_chart.py", "existingSecret"),
                           ("kubectl create secret generic test-key", "tests/k8s/test_chart.py", "existingSecret"),
                           ("helm install demo deploy/helm/coxswain --set gateway.apiKeys.existingSecret", "tests/k8s/test_chart.py", "existingSecret")],
    "autoscale.md": [("helm upgrade demo deploy/helm/coxswain --reuse-values --set worker.replicas=8", "tests/walk/walks.py", 'w.run("helm upgrade'),
                     ("helm upgrade demo deploy/helm/coxswain --reuse-values --set autoscaling", "tests/k8s/live/test_dry_run.py", "autoscaling.enabled=true")],
    "upgrade.md": [("helm upgrade demo", "tests/k8s/live/test_release.py", '"upgrade"'), ("helm rollback demo", "tests/k8s/live/test_release.py", '"rollback"')],
    "monitor.md": [("prometheus --config.file", "tests/e2e/test_prometheus.py", "--config.file"),
                   ("helm upgrade demo", "tests/k8s/test_chart.py", '"serviceMonitor": True')],
    "debug.md": [("addr2line", "tests/e2e/test_crash.py", "crash_frame at=")],
    "bench.md": [("cox bench serve --base-url https://HOST", "tests/e2e/test_bench.py", "test_the_seeds_command_line"),
                 ("cox bench throughput", "tests/e2e/test_bench.py", '"throughput"'), ("cox bench latency", "tests/e2e/test_bench.py", '"latency"'),
                 ("cox bench startup", "tests/e2e/test_bench.py", '"startup"')],
}
NOBODY = {"migrate-from-ollama.md": [("ollama show", "no Ollama is here")]}


class Typist:
    """Types the page's commands like a reader, with an empty home folder and separate ports."""

    def __init__(self, page, folder):
        self.page, self.folder = page, folder
        self.commands = [c for c in read_page(f"docs/how-to/{page}")[0] if not c.inline]
        names = ("port", "head", "admin", "worker", "w2", "w3", "w4", "other", "other_head", "other_admin", "other_worker", "o2")
        self.ports = dict(zip(names, free_ports(len(names))))
        (folder / "home/.local/bin").mkdir(parents=True)
        (folder / "tmp").mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("COX_", "VLLM_", "OPENAI_", "XDG_"))}
        self.env = {**kept, "HOME": f"{folder}/home", "TMPDIR": f"{folder}/tmp", "PATH": f"{BIN}:{folder}/home/.local/bin:{os.environ['PATH']}",
                    "COX_PORT": str(self.ports["port"]), "COX_HEAD_PORT": str(self.ports["head"]), "COX_ADMIN_PORT": str(self.ports["admin"]),
                    "COX_WORKER_HTTP_PORT": str(self.ports["worker"]), "COX_ADDRESS": f"127.0.0.1:{self.ports['admin']}",
                    "COX_URL": self.url, "COX_SERVED_MODEL_NAME": "demo"}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.ports['port']}"

    def sh(self, text):
        # cox stop, scale, logs and models find the cluster themselves; --address only chooses one of several clusters.
        env = {k: v for k, v in self.env.items() if k != "COX_ADDRESS" or not re.match("cox (stop|scale|logs|models)", text)}
        done = subprocess.run(["bash", "-c", text], cwd=self.folder, env=env, capture_output=True, text=True, timeout=60 * SLOW)
        findings.look_at_log(done.stderr)
        assert done.returncode == 0, f"{self.page}: {text}\nended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def run(self, beginning, *wanted):
        """Types the next command of the page, which must have this beginning. Its output must match each pattern of `wanted`."""
        command = self.commands.pop(0)
        assert command.text.startswith(beginning), f"{command}: the test types {beginning!r} here"
        text = command.bare
        for pattern, to, _ in SUBSTITUTIONS:
            text = re.sub(pattern, to, text)
        said = self.sh(re.sub(r"\{(\w+)\}", lambda m: str(self.ports.get(m[1], m[0])), text))
        for words in wanted:
            assert re.search(words, said), f"{command}\nsays no {words!r}:\n{said}"
        return said

    def skip(self):
        """Skips a command that another test types, or that no test types."""
        command = self.commands.pop(0)
        rows = ELSEWHERE.get(self.page, []) + NOBODY.get(self.page, [])
        assert any(command.text.startswith(row[0]) for row in rows), f"nobody types {command}"

    def status(self):
        code, body = get(f"http://127.0.0.1:{self.ports['admin']}/api/status")
        return json.loads(body) if code == 200 else {}

    def serves(self, n=1):
        wait_for(f"{n} workers serve", lambda: self.status().get("healthy") and sum(w["state"] == "ready" for w in self.status()["workers"]) == n)

    def end(self):
        """Ends the page's clusters and checks that no process of them is left, however the test ended."""
        self.sh("cox stop --all")
        wait_for("all processes have ended", lambda: not self.left())

    def left(self):
        """Returns the programs that run in the page's folder."""
        found = []
        for p in Path("/proc").glob("[0-9]*"):
            try:
                if (p / "cwd").resolve() == self.folder and (p / "comm").read_text().startswith(("cox", "vllm")):
                    found.append(int(p.name))
            except OSError:  # the process has just ended, or belongs to another user
                continue
        return found


def ask(t, n=8, key=None):
    body = json.dumps({"model": "demo", "prompt": "a", "max_tokens": n})
    header = f"-H 'Authorization: Bearer {key}'" if key else ""
    return t.sh(f"curl -s -o answer -w '%{{http_code}}' {t.url}/v1/completions -H 'Content-Type: application/json' {header} -d '{body}'")


def serve_a_model(t):
    t.run("cox up demo -d", "ready after", "Chat page", "Dashboard")
    t.run("curl", '"completion_tokens":32')
    t.run("echo", r"\S")
    t.run("cox smoke", r"ok +stream")
    t.run("cox ps", r"demo +serving")
    t.run("cox logs -n 20", "head")
    t.run("cox status", "status: healthy")
    t.run("cox stop", "has stopped cleanly")


def several_models(t):
    for name in ("sql", "support"):
        (t.folder / "adapters" / name).mkdir(parents=True)
    t.run("cox up first=demo second=demo", "all models fit together", "ready after")
    t.run("cox ps", r"first .*first, second +serving")
    t.run("cox status --address", "status: healthy")
    t.run("cox models list", r"first +\S+ +on-demand", "second")
    t.run("cox models add third=", "was added")
    t.run("cox models alias third", "names were changed")
    t.run("cox models rm third", "was removed")
    t.run("cox stop first", "has stopped cleanly")
    t.run("cox up MODEL -d --enable-lora", "ready after")
    wait_for("sql is there", lambda: '"sql"' in get(t.url + "/v1/models")[1])
    t.run("cox lora load support=")
    t.run("cox lora list", "sql", "support")
    assert {m["id"] for m in json.loads(get(t.url + "/v1/models")[1])["data"]} == {"demo", "sql", "support"}
    t.run("cox lora unload support")


def keys_and_quotas(t):
    file = read_page("docs/how-to/keys-and-quotas.md")[1][0].text
    digest = t.run("printf", r"^[0-9a-f]{64} ").split()[0]
    (t.folder / "keys.txt").write_text(file.replace("HEX", digest))
    t.run("cox up demo -d --api-key-file keys.txt", "ready after")
    t.run("curl -s", '"id":"demo"')
    assert (ask(t), ask(t, key="key-of-batch"), ask(t, key="key-of-guest"), ask(t, key="key-of-guest")) == ("401", "200", "200", "429")
    assert json.loads((t.folder / "answer").read_text())["error"]["code"] == "rate_limit_exceeded"
    (t.folder / "keys.txt").write_text(file.replace("HEX", digest) + "key-of-new new\n")
    wait_for("the new key is taken", lambda: ask(t, key="key-of-new") == "200")
    for _ in range(4):
        t.skip()


def autoscale(t):
    t.sh("cox up null -d --workers 2 --tp 1")
    wait_for("the head says how many", lambda: get(f"http://127.0.0.1:{t.ports['admin']}/scale")[0] == 200)
    t.run("curl", '"desired_workers":2', '"reason":"')
    t.run("cox scale 4", "4 workers")
    t.run("cox status", "status: healthy")
    t.serves(4)
    t.skip()
    t.skip()


def upgrade(t):
    t.run("cox up demo -d --workers 2 --print-pids pids", "ready after")

    def replaced(name, n):
        was = re.search(rf"^{name} (\d+)", (t.folder / "pids").read_text(), re.M)[1]
        t.run("kill -TERM")
        wait_for(f"another {name}", lambda: (m := re.search(rf"^{name} (\d+)", (t.folder / "pids").read_text(), re.M)) and m[1] != was)
        wait_for("the head is here", lambda: t.status())
        t.serves(n)

    replaced("worker-0", 2)
    t.run("cox status", "status: healthy")
    replaced("worker-1", 2)
    replaced("head", 2)
    t.run("cox events", "worker_joined|worker_reconnected")
    assert ask(t) == "200"
    t.skip()
    t.skip()


def back_up(t):
    t.run("cox up demo -d --state-dir state --keys-dir keys", "ready after")
    line = {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {"model": "demo", "prompt": "a"}}
    (t.folder / "in.jsonl").write_text(json.dumps(line) + "\n")
    made = json.loads(t.sh(f"curl -s {t.url}/v1/files -F purpose=batch -F file=@in.jsonl"))
    t.run("cox stop", "has stopped cleanly")
    t.run("cp -a state")
    t.run("cp -a keys")
    t.sh("rm -r state keys")
    t.run("cox up demo -d --state-dir state.copy --keys-dir keys.copy", "ready after")
    t.run("cox status", "status: healthy")
    assert json.loads(get(f"{t.url}/v1/files/{made['id']}/content")[1]) == line


def rotate_keys(t):
    t.sh("cox up null -d --keys-dir keys --tp 2")
    old = {name: (t.folder / "keys" / name).read_text() for name in ("worker.pub", "head.pub")}
    t.run("cox keys --keys-dir keys --rotate worker", "admits the new key and the old one")
    wait_for("the head has read it", lambda: "authorized_read" in t.sh("cox logs head"))
    t.run("cox keys --keys-dir keys --retire worker", "retired")
    wait_for("the old sessions have ended", lambda: t.sh("cox events").count("peer_revoked") == 2)
    t.serves(2)
    t.run("cox keys --keys-dir keys --rotate head", "head.key is new")
    t.run("cox keys --reload", "uses its new key now")
    wait_for("all are back", lambda: t.sh("cox events").count("gateway_reconnected") > 0)
    t.serves(2)
    t.run("cox keys --keys-dir keys --retire head", "retired")
    assert all((t.folder / "keys" / name).read_text() != text for name, text in old.items()) and ask(t) == "200"


def monitor(t):
    t.sh("cox up null -d")
    t.run("cox status", "status: healthy")
    t.run("cox top --once", "model demo", "healthy")
    t.run("cox events", "group_ready")
    t.run("curl", "vllm:num_requests_running", "coxswain_gateway_head_link_up")
    for port, path in (("port", "/health"), ("port", "/accepting"), ("port", "/livez"), ("admin", "/readyz"), ("worker", "/readyz")):
        wait_for(f"{path} at the {port}", lambda: get(f"http://127.0.0.1:{t.ports[port]}{path}")[0] == 200)  # noqa: B023
    t.skip()
    t.skip()


def debug(t):
    t.sh("cox up null -d")
    t.run("cox status", "status: healthy")
    t.run("cox events", "group_ready")
    t.run("cox logs -n 100", "worker-0")
    t.skip()
    t.run("cox debug dump")
    assert json.loads((t.folder / "dump.json").read_text())["counts"]["groups_live"] == 1
    t.run("cox version", r"\d+\.\d+\.\d+")


def migrate_from_vllm(t):
    t.run("cox plan ORG/NAME --tp 2", "KV cache")
    t.run("cox plan ORG/NAME --gpu L4", "\nL4 ")
    t.run("ln -s")
    t.run("vllm serve demo", "disable-log-requests.*ignored|ignored.*disable-log-requests", "ready after")
    assert ask(t) == "200"


def migrate_from_djl(t):
    t.run("cox plan MODEL --instance", "ml.g5.12xlarge", "fits +yes")


def migrate_from_ollama(t):
    if not TINY.exists() or SANITIZED:
        pytest.skip("no tiny model here: scripts/build makes build/goldens")
    blobs = t.folder / "home/.ollama/models/blobs"
    blobs.mkdir(parents=True)
    (blobs / "sha256-00ff").symlink_to(TINY)
    t.skip()
    t.run("cox plan", "gemma3", "fits|most that fit")
    t.run("cox up", "ready after")
    assert '"id":"llama3.2"' in get(t.url + "/v1/models")[1]
    assert get(t.url + "/api/tags")[0] == 404


def plan(t):
    t.run("cox plan MODEL --tp 2", "KV cache", "weights")
    t.run("cox plan MODEL --gpu", "A10G", "4xL40S", "H100")
    t.run("cox plan MODEL --instance", "p4d.24xlarge")
    t.run("cox plan --params", r"26\.00 GB", "819200 bytes a token", r"13\.42 GB", r"\nA10G +\* +2 ")


def bench(t):
    t.sh("cox up null -d --null-step-us 100")
    t.run("cox bench serve --num-prompts 200", r"Successful requests: +200", r"Total generated tokens: +12800")
    for _ in range(4):
        t.skip()


def step_log(t):
    t.run("cox up MODEL -d --step-log steps.log", "ready after")
    assert ask(t, 130) == "200"
    t.run("cox stop", "has stopped cleanly")
    t.run("cox replay steps.log", "equal")
    t.run("cox replay steps.log --print", "119")
    t.run("cox replay steps.log --check")


WALKS = {f"{f.__name__.replace('_', '-')}.md": f for f in (serve_a_model, several_models, keys_and_quotas, autoscale, upgrade, back_up, rotate_keys, monitor,
                                                           debug, migrate_from_vllm, migrate_from_djl, migrate_from_ollama, plan, bench, step_log)}


@pytest.mark.parametrize("page", WALKS)
def test_the_page_works_as_it_stands(page, tmp_path):
    t = Typist(page, tmp_path)
    try:
        WALKS[page](t)
        assert not t.commands, f"nobody types {t.commands[0]}"
    finally:
        t.end()


def test_what_others_type_is_there():
    for rows in ELSEWHERE.values():
        for _, file, word in rows:
            assert word in (ROOT / file).read_text(), f"{file} has no {word}"
    for page, rows in [*ELSEWHERE.items(), *NOBODY.items()]:
        for beginning, *_ in rows:
            assert [c for c in read_page(f"docs/how-to/{page}")[0] if c.text.startswith(beginning)], f"{page} has no command {beginning}"


def test_every_page_is_walked_or_has_no_commands():
    """tests/walk and other tests type the pages of the deployment, and tests/e2e/test_clients.py types the page of clients."""
    others = {"clients.md", "deploy.md", "build-image.md", "custom-image.md", "examples.md"}
    for path in sorted((ROOT / "docs/how-to").glob("*.md")):
        commands = [c for c in read_page(f"docs/how-to/{path.name}")[0] if not c.inline]
        assert not commands or path.name in {*others, *WALKS}, f"nobody types {commands[0]}"
