"""Clients that nobody here wrote, as they are: tests/clients/ has what they do. scripts/setup --clients installs them."""
import json
import os
import re
import shutil
import socketserver
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import scripted_model
from cluster import BIN, ROOT, SLOW, Cluster, get
from findings import SANITIZED
from real_model import MODEL, cpu_cluster

CLIENTS = ROOT / "tests/clients"
PYTHON = ROOT / ".venv-clients/bin/python"
NODE = shutil.which("node") if (CLIENTS / "node_modules/openai").exists() else None
PATH = f"{BIN}:{ROOT}/.venv-clients/bin:{ROOT}/.deps/bin:{os.environ.get('PATH', '')}"
HEY = shutil.which("hey", path=PATH)
KEY, LIMITED = "sk-foreign", "sk-once-a-second"
SCRIPTS = {"langchain_client.py": PYTHON, "litellm_client.py": PYTHON, "openai_client.mjs": NODE}
SETUP = "scripts/setup --clients makes it"
sys.path.insert(0, str(CLIENTS))
import agents  # noqa: E402


def there(program):
    return program is not None and os.path.exists(program)


def scenarios():
    for script in SCRIPTS:
        for name in re.findall(r"^(?:async )?(?:def|function) (test_\w+)", (CLIENTS / script).read_text(), re.M):
            yield pytest.param(script, name, id=f"{script.split('_')[0]}-{name.removeprefix('test_')}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("clients")


@pytest.fixture(scope="module")
def cluster(folder):
    (folder / "keys").write_text(f"{KEY} alice\n{LIMITED} bob rate=1\n")
    with Cluster("--api-key-file", folder / "keys", "--state-dir", folder / "state", "--max-model-len", "4096", "--null-step-us", "5000") as c:
        yield c
        c.wait_idle()  # whatever clients broke off is over


@pytest.fixture(scope="module")
def demo_url():
    if not MODEL.exists() or SANITIZED:  # what a model computes with sanitizers is e2e_tiny_models'
        yield ""
        return
    # Gemma's own template knows no role but user and assistant, so that no tool's answer could go back.
    with cpu_cluster("--served-model-name", "demo", "--max-model-len", 2048, "--chat-template", "chatml",
                     "--enable-auto-tool-choice", "--tool-call-parser", "hermes") as c:
        yield c.url


@pytest.fixture(scope="module")
def play(cluster, demo_url):
    """Results of a script's functions; each script runs once."""
    known = {}

    def results(script):
        if script not in known:
            done = subprocess.run([str(SCRIPTS[script]), str(CLIENTS / script)], capture_output=True, text=True, timeout=600 * SLOW,
                                  env={**os.environ, "PYTHONPATH": str(CLIENTS), "COX_URL": cluster.url, "COX_DEMO_URL": demo_url,
                                       "COX_KEY": KEY, "COX_LIMITED_KEY": LIMITED, "COX_SLOW": str(SLOW)})
            assert done.returncode == 0, done.stdout + done.stderr
            known[script] = json.loads(done.stdout.splitlines()[-1])
        return known[script]

    return results


@pytest.mark.timeout(900 * SLOW)  # the first of a script runs all of it, and imports of these packages take long
@pytest.mark.parametrize("script,name", list(scenarios()))
def test_package(play, demo_url, script, name):
    if not there(SCRIPTS[script]):
        pytest.skip(f"nothing here runs {script}: {SETUP}")
    if name.startswith("test_demo_") and not demo_url:
        pytest.skip("no demo model (scripts/fetch-demo-model), or with sanitizers")
    results = play(script)
    assert results[name] is None, results[name]


DOC = (ROOT / "docs/clients.md").read_text()


def examples():
    found = [pytest.param(language, code, id=title.split("\n")[0].replace(" ", "_"))
             for title in DOC.split("\n## ")[1:] for language, code in re.findall(r"```(\w+)\n(.*?)```", title, re.S)]
    assert len(found) == 9
    return found


def example_command(language, code, folder):
    """How a reader would run it, or what is missing here."""
    if language == "javascript":
        (folder / "example.mjs").write_text(code)
        (folder / "node_modules").symlink_to(CLIENTS / "node_modules")
        return NODE, [str(NODE), "example.mjs"]
    if language == "python":
        python = Path(sys.executable) if "import anthropic" in code else PYTHON
        return python, [str(python), "-c", code]
    assert language == "sh"
    program = re.search(r"^(hey|guidellm|curl|cox) ", code, re.M)[1]
    return shutil.which(program, path=PATH), ["bash", "-euc", code]


@pytest.mark.timeout(400 * SLOW)
@pytest.mark.parametrize("language,code", examples())
def test_example(demo_url, tmp_path, language, code):
    """docs/clients.md as it stands, but for the port."""
    if not demo_url:
        pytest.skip("no demo model (scripts/fetch-demo-model), or with sanitizers")
    assert "http://127.0.0.1:8000" in code
    program, command = example_command(language, code.replace("http://127.0.0.1:8000", demo_url), tmp_path)
    if not there(program):
        pytest.skip(f"not here: {SETUP}")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=380 * SLOW,
                          env={**os.environ, "PATH": PATH, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() or "run-batch" in code
    if "hey " in code:
        assert "[200]\t50 responses" in done.stdout, done.stdout
    if "curl" in code:
        assert json.loads(done.stdout)["choices"][0]["message"]["content"]
    if "run-batch" in code:
        assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


SEED_BODY = {"model": "null", "prompt": "Singapore is a", "max_tokens": 64, "temperature": 0}


@pytest.mark.skipif(not there(HEY), reason=f"no hey: {SETUP}")
def test_hey(cluster):
    """As people measure with it: 5 at once, 50 in all."""
    done = subprocess.run([HEY, "-c", "5", "-m", "POST", "-n", "50", "-H", "Content-Type: application/json",
                           "-H", f"Authorization: Bearer {KEY}", "-d", json.dumps(SEED_BODY), cluster.url + "/v1/completions"],
                          capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == 0 and "[200]\t50 responses" in done.stdout and "Error distribution" not in done.stdout, done.stdout


@pytest.mark.skipif(not there(shutil.which("curl")), reason="no curl")
def test_curl(cluster):
    def curl(*args):
        done = subprocess.run(["curl", "-sS", "-H", f"Authorization: Bearer {KEY}", "-H", "Content-Type: application/json", *args],
                              capture_output=True, text=True, timeout=30 * SLOW)
        assert done.returncode == 0, done.stderr
        return done.stdout

    url = cluster.url + "/v1/completions"
    whole = json.loads(curl(url, "-d", json.dumps(SEED_BODY)))["choices"][0]["text"]
    events = curl("-N", url, "-d", json.dumps({**SEED_BODY, "stream": True})).split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert "".join(json.loads(e.removeprefix("data: "))["choices"][0]["text"] for e in events[:-2]) == whole and len(whole) == 64
    # -F, --http1.0, Expect: 100-continue (over a megabyte) and a HEAD are curl's own ways
    assert json.loads(curl("--http1.0", url, "-d", json.dumps(SEED_BODY)))["choices"][0]["text"] == whole
    long = curl("-w", "%{http_code}", "-H", "Expect: 100-continue", url, "-d", json.dumps({**SEED_BODY, "prompt": "x" * 2000}))
    assert long.endswith("200")


@pytest.mark.skipif(not there(PYTHON), reason=f"no .venv-clients: {SETUP}")
@pytest.mark.timeout(300 * SLOW)
def test_guidellm(cluster, folder):
    """The benchmark runs through, and what it counted is what it asked for."""
    data, out = folder / "prompts.jsonl", folder / "guide.json"
    data.write_text("".join(json.dumps({"prompt": f"Singapore is a {i}"}) + "\n" for i in range(20)))
    done = subprocess.run([str(PYTHON), "-m", "guidellm", "benchmark", "run", "--target", cluster.url, "--model", "null", "--data", str(data),
                           "--rate-type", "concurrent", "--rate", "4", "--max-requests", "20", "--output-path", str(out),
                           "--backend-args", json.dumps({"api_key": KEY, "max_output_tokens": 16}), "--disable-progress",
                           "--disable-console-outputs"],
                          capture_output=True, text=True, timeout=280 * SLOW, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    requests = json.loads(out.read_text())["benchmarks"][0]["requests"]
    assert (len(requests["successful"]), requests["errored"], requests["incomplete"]) == (20, [], [])
    assert {r["output_tokens"] for r in requests["successful"]} == {16}
    assert get(cluster.url + "/health")[0] == 200


# ---- coding agents, as their makers publish them ----

AGENTS = [pytest.param(name, marks=pytest.mark.skipif(not agents.program(name) or bool(SANITIZED), reason=f"no {name}, or with sanitizers: {SETUP}"))
          for name in ("claude", "codex", "qwen")]
CALLS = {"Bash": {"command": "cat note.txt", "description": "Read the note"}, "exec_command": {"cmd": "cat note.txt"},
         "run_shell_command": {"command": "cat note.txt", "is_background": False, "description": "Read the note"}}


@pytest.fixture
def away():
    """(address, hosts): a proxy that lets nobody through, and whom programs asked it for."""
    hosts = []

    class Refuse(socketserver.StreamRequestHandler):
        def handle(self):
            hosts.append(self.rfile.readline(1000).decode(errors="replace").strip())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", hosts
        server.shutdown()


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """A cluster whose model calls the tool that an agent has for commands, and says what it found."""
    model = scripted_model.write(tmp_path_factory.mktemp("caller") / "model", CALLS)
    with Cluster("--device", "cpu", "--served-model-name", "caller", "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
                 model=model, workers=1, tp=1) as c:
        yield c


@pytest.mark.timeout(150 * SLOW)
@pytest.mark.parametrize("name", AGENTS)
def test_agent_calls_a_tool(caller, away, tmp_path, name):
    """One turn: the model calls, the agent runs it, and the model's answer is about what came out. Each word is a note's once."""
    word = scripted_model.WORDS[["claude", "codex", "qwen"].index(name)]
    (tmp_path / "note.txt").write_text(f"On the note stands {word}, and no more.\n")
    done = agents.run(name, caller.url, "caller", tmp_path, proxy=away[0])
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert f"On the note stands {word}, and no more." in said, said  # the tool's result
    assert scripted_model.SAYS + word in done.stdout, said  # the answer
    assert not away[1], away[1]


@pytest.fixture(scope="module")
def letters():
    with Cluster("--null-step-us", "20", "--enable-auto-tool-choice", "--tool-call-parser", "hermes", workers=1, tp=1) as c:
        yield c


@pytest.mark.timeout(150 * SLOW)
@pytest.mark.parametrize("name", AGENTS)
def test_agent_shows_an_answer(letters, away, tmp_path, name):
    """`cox up null` knows no end: an agent says that an answer was cut off, and shows it."""
    done = agents.run(name, letters.url, "null", tmp_path, proxy=away[0], max_tokens=32)
    said = done.stdout + done.stderr
    assert re.search(r"\b[a-z]{32,}\b", said) and "API Error: 4" not in said and "BadRequest" not in said, said
    assert not away[1], away[1]
