"""Tests real client programs and packages, unmodified. tests/clients/ has their scripts, and scripts/setup --clients installs them."""
import json
import os
import re
import shutil
import socketserver
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import anthropic
import openai
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
import agent_bodies  # noqa: E402
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
        c.wait_idle()  # requests that clients aborted must have ended


@pytest.fixture(scope="module")
def demo_url():
    if not MODEL.exists() or SANITIZED:  # e2e_tiny_models tests real models with sanitizers
        yield ""
        return
    # Gemma's own template knows only the roles user and assistant, so a tool's result could not be sent back.
    with cpu_cluster("--served-model-name", "demo", "--max-model-len", 2048, "--chat-template", "chatml",
                     "--enable-auto-tool-choice", "--tool-call-parser", "hermes") as c:
        yield c.url


@pytest.fixture(scope="module")
def play(cluster, demo_url):
    """Returns a function that gives a script's results. Each script runs once."""
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


@pytest.mark.timeout(900 * SLOW)  # the first test of a script runs all of the script, and importing these packages takes long
@pytest.mark.parametrize("script,name", list(scenarios()))
def test_package(play, demo_url, script, name):
    if not there(SCRIPTS[script]):
        pytest.skip(f"nothing here runs {script}: {SETUP}")
    if name.startswith("test_demo_") and not demo_url:
        pytest.skip("no demo model (scripts/fetch-demo-model), or with sanitizers")
    results = play(script)
    assert results[name] is None, results[name]


DOC, DOC_OF_AGENTS = (ROOT / "docs/how-to/clients.md").read_text().split("\n## Coding agents\n")


def examples():
    found = [pytest.param(language, code, id=title.split("\n")[0].replace(" ", "_"))
             for title in DOC.split("\n## ")[1:] for language, code in re.findall(r"```(\w+)\n(.*?)```", title, re.S)]
    assert len(found) == 9
    return found


def example_command(language, code, folder):
    """Returns the command with which a reader would run the example, or skips the test and names the missing part."""
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
    """An example of docs/how-to/clients.md works, unchanged except for the port."""
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
    """A typical measurement with hey works: 50 requests, 5 at once."""
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
    # curl's -F, --http1.0, Expect: 100-continue (over a megabyte) and HEAD work.
    assert json.loads(curl("--http1.0", url, "-d", json.dumps(SEED_BODY)))["choices"][0]["text"] == whole
    long = curl("-w", "%{http_code}", "-H", "Expect: 100-continue", url, "-d", json.dumps({**SEED_BODY, "prompt": "x" * 2000}))
    assert long.endswith("200")


@pytest.mark.skipif(not there(PYTHON), reason=f"no .venv-clients: {SETUP}")
@pytest.mark.timeout(300 * SLOW)
def test_guidellm(cluster, folder):
    """The benchmark completes, and its counts equal its requests."""
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


# ---- coding agents, as published ----

AGENTS = [pytest.param(name, marks=pytest.mark.skipif(not agents.program(name) or bool(SANITIZED), reason=f"no {name}, or with sanitizers: {SETUP}"))
          for name in ("claude", "codex", "qwen")]
CALLS = {"Bash": {"command": "cat note.txt", "description": "Read the note"}, "exec_command": {"cmd": "cat note.txt"},
         "run_shell_command": {"command": "cat note.txt", "is_background": False, "description": "Read the note"},
         "patch": {"input": "*** Begin Patch\n"}, "files__read": {"path": "note.txt"}, "spare": {}}


def test_the_manual_says_what_agents_are_given():
    """docs/how-to/clients.md names the installed versions and the switches in agents.py."""
    pinned = json.loads((CLIENTS / "agents/package.json").read_text())["dependencies"]
    given = (CLIENTS / "agents.py").read_text()
    assert all(version in DOC_OF_AGENTS for version in pinned.values()) and len(pinned) == 3
    switches = re.findall(r"\b([A-Z]+_[A-Z_]+)=", DOC_OF_AGENTS)
    lines = re.search(r"```text\n(model = .*?)```", DOC_OF_AGENTS, re.S)[1].replace("http://127.0.0.1:8000", "{url}").replace('"demo"', '"{model}"')
    assert len(switches) >= 9 and all(s in given for s in switches), switches
    assert all(line in given for line in lines.splitlines()), lines


@pytest.fixture
def away():
    """Yields (address, hosts): a proxy that refuses every connection, and the hosts that programs requested."""
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
    """Yields a cluster whose model calls an agent's command tool and repeats its result."""
    model = scripted_model.write(tmp_path_factory.mktemp("caller") / "model", CALLS)
    with Cluster("--device", "cpu", "--served-model-name", "caller", "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
                 model=model, workers=1, tp=1) as c:
        yield c


@pytest.mark.timeout(150 * SLOW)
@pytest.mark.parametrize("name", AGENTS)
def test_agent_calls_a_tool(caller, away, tmp_path, name):
    """In one turn the model calls the tool, the agent runs it, and the model's answer contains the result. Each test has its own
    word."""
    word = scripted_model.WORDS[["claude", "codex", "qwen"].index(name)]
    (tmp_path / "note.txt").write_text(f"On the note stands {word}, and no more.\n")
    done = agents.run(name, caller.url, "caller", tmp_path, proxy=away[0])
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert f"On the note stands {word}, and no more." in said, said  # the agent's output contains the tool's result
    assert scripted_model.SAYS + word in done.stdout, said  # the agent's output contains the model's answer
    assert not away[1], away[1]


def chunks_of(url, body):
    """Returns the deltas of a chat stream as (content, the calls by their index, usage)."""
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60 * SLOW) as r:
        events = r.read().decode()
    content, calls, usage = "", {}, None
    assert events.rstrip().endswith("data: [DONE]")
    for event in events.split("\n\n")[:-2]:
        chunk = json.loads(event.removeprefix("data: "))
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            content += choice["delta"].get("content") or ""
            for c in choice["delta"].get("tool_calls", ()):
                call = calls.setdefault(c["index"], {"id": c.get("id"), "type": "function", "function": {"name": c["function"].get("name"), "arguments": ""}})
                call["function"]["arguments"] += c["function"].get("arguments") or ""
    return content, calls, usage


@pytest.mark.parametrize("name", agent_bodies.BODIES)
def test_client_s_body(caller, name):
    """Bodies of clients that are not installed here are answered: a turn with a call, and a turn with its result."""
    body, word = agent_bodies.BODIES[name], scripted_model.WORDS[3]
    wants_usage = "stream_options" in body([])
    content, calls, usage = chunks_of(caller.url, body([]))
    if "tools" not in body([]):
        assert (content, calls) == (scripted_model.HELLO, {})
        assert chunks_of(caller.url, body([(None, f"It says {word}.")]))[0] == scripted_model.HELLO
        return
    assert list(calls) == [0] and not content.strip() and bool(usage) == wants_usage
    assert calls[0]["function"]["name"] == "Bash" and json.loads(calls[0]["function"]["arguments"]) == CALLS["Bash"]
    content, more, usage = chunks_of(caller.url, body([(calls[0], f"It says {word}.")]))
    assert content == scripted_model.SAYS + word and not more


# ---- tools that are not functions, with the official packages ----

CUSTOM = {"type": "custom", "name": "patch", "description": "Changes files."}
SPACE = {"type": "namespace", "name": "files", "description": "Files.",
         "tools": [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]}
FUNCTIONS = [{"type": "function", "name": n, "parameters": {"type": "object", "properties": {}}} for n in ("Bash", "spare")]


@pytest.fixture(scope="module")
def official(caller):
    return openai.OpenAI(base_url=caller.url + "/v1", api_key="none", max_retries=0, timeout=60 * SLOW)


def test_custom_tool_of_responses(official):
    """A custom tool's call works in a stream and whole, and it can be sent back."""
    ask = {"model": "caller", "input": "Mend it.", "tools": [CUSTOM], "temperature": 0}
    events = list(official.responses.create(**ask, stream=True))
    pieces = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
    done = [e.input for e in events if e.type == "response.custom_tool_call_input.done"]
    assert "".join(pieces) == done[0] == CALLS["patch"]["input"] and len(done) == 1
    item = official.responses.create(**ask).output[0]
    assert (item.type, item.name, item.input) == ("custom_tool_call", "patch", CALLS["patch"]["input"])
    result = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": f"found {scripted_model.WORDS[0]}"}
    got = official.responses.create(**{**ask, "input": [{"role": "user", "content": "Mend it."}, item.to_dict(), result]})
    assert got.output_text == scripted_model.SAYS + scripted_model.WORDS[0]


@pytest.mark.parametrize("syntax,definition,pattern", [("lark", "start: /[0-9]{3}-/ \"x\"", r"[0-9]{3}-x"), ("regex", "[a-c]{2}7", r"[a-c]{2}7"),
                                                       ("regex", r"^(?P<m>Jan|Feb)-\d$", r"(Jan|Feb)-[0-9]")])
def test_custom_tool_holds_to_its_grammar(official, syntax, definition, pattern):
    tool = {**CUSTOM, "format": {"type": "grammar", "syntax": syntax, "definition": definition}}
    got = official.responses.create(model="caller", input="Mend it.", tools=[tool], tool_choice={"type": "custom", "name": "patch"}, temperature=0,
                                    max_output_tokens=200)
    assert re.fullmatch(pattern, got.output[0].input), got.output
    chat = {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}}}
    got = official.chat.completions.create(model="caller", messages=[{"role": "user", "content": "Mend it."}], tools=[chat], temperature=0,
                                           tool_choice={"type": "custom", "custom": {"name": "patch"}}, max_tokens=200)
    assert re.fullmatch(pattern, got.choices[0].message.tool_calls[0].custom.input), got.choices


def test_custom_tool_of_chat(official):
    ask = {"model": "caller", "messages": [{"role": "user", "content": "Mend it."}], "temperature": 0,
           "tools": [{"type": "custom", "custom": {"name": "patch", "description": "Changes files."}}]}
    call = official.chat.completions.create(**ask).choices[0].message.tool_calls[0]
    assert (call.type, call.custom.name, call.custom.input) == ("custom", "patch", CALLS["patch"]["input"])
    # OpenAI's chat chunks know functions only, so the call is shown as a function call.
    given = [c for e in official.chat.completions.create(**ask, stream=True) if e.choices for c in e.choices[0].delta.tool_calls or ()]
    assert given[0].function.name == "patch" and json.loads("".join(c.function.arguments for c in given)) == CALLS["patch"]


def test_namespace(official):
    got = official.responses.create(model="caller", input="Read it.", tools=[SPACE], temperature=0)
    item = got.output[0]
    assert (item.type, item.name, item.to_dict()["namespace"], json.loads(item.arguments)) == ("function_call", "read", "files", CALLS["files__read"])
    result = {"type": "function_call_output", "call_id": item.call_id, "output": scripted_model.WORDS[1]}
    got = official.responses.create(model="caller", input=[{"role": "user", "content": "Read it."}, item.to_dict(), result], tools=[SPACE])
    assert got.output_text == scripted_model.SAYS + scripted_model.WORDS[1]


HOSTED = ["web_search", "image_generation", "code_interpreter", "mcp", "file_search", "computer_use_preview", "local_shell", "tool_search"]


def test_tools_that_a_server_runs(official, caller):
    """Tools that a server would run are removed from the request, with a header and a log line. Forcing such a tool is refused by
    name."""
    got = official.responses.with_raw_response.create(model="caller", input="Hi", tools=[{"type": t} for t in HOSTED], temperature=0)
    assert got.headers["x-coxswain-tools-left-out"] == ",".join(HOSTED) and got.parse().output_text == scripted_model.HELLO
    assert "tools_left_out" in caller.log() and ",".join(HOSTED) in caller.log()
    with pytest.raises(openai.BadRequestError, match="web_search"):
        official.responses.create(model="caller", input="Hi", tools=[{"type": "web_search"}], tool_choice={"type": "web_search"})
    for wrong in "functon", "a\r\nX-Evil: 1", "b" * 10000:
        with pytest.raises(openai.BadRequestError, match=r"tools\[0\] is of type") as refused:
            official.responses.create(model="caller", input="Hi", tools=[{"type": wrong, "name": "f"}])
        assert "x-evil" not in refused.value.response.headers


def test_tools_that_a_client_runs(caller):
    """Anthropic's models know the schemas of some tools, so requests do not contain them. The gateway therefore gives these schemas
    to our model. A tool with an unknown schema is left out."""
    client = anthropic.Anthropic(base_url=caller.url, api_key="none", max_retries=0, timeout=60 * SLOW)
    ask = {"model": "caller", "max_tokens": 200, "messages": [{"role": "user", "content": "Hi"}]}
    got = client.messages.create(tools=[{"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, {"type": "bash_20250124", "name": "Bash"}], **ask)
    assert [(b.type, b.name, b.input) for b in got.content] == [("tool_use", "Bash", CALLS["Bash"])]
    got = client.beta.messages.with_raw_response.create(tools=[{"type": "computer_20250124", "name": "computer", "display_width_px": 9,
                                                                "display_height_px": 9}], **ask)
    assert got.headers["x-coxswain-tools-left-out"] == "computer_20250124" and got.parse().content[0].text == scripted_model.HELLO


def chat_function(name, parameters):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def test_a_refused_tool_is_named(official):
    """When one of many tools is invalid, the error has its position and name, and positions within its schema."""
    fine = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    broken = {"type": "object", "properties": {"z": {"$ref": "#/$defs/Gone"}}, "required": ["z"]}
    unique = {"type": "object", "properties": {"z": {"type": "array", "uniqueItems": True}}, "required": ["z"]}

    def refused(tools, choice="required", param="tools"):
        with pytest.raises(openai.BadRequestError) as said:
            official.chat.completions.create(model="caller", messages=[{"role": "user", "content": "Hi"}], tools=tools, tool_choice=choice)
        assert said.value.body["param"] == param
        return said.value.body["message"]

    for n in 1, 2, 5:
        for at in {0, n // 2, n - 1}:
            tools = [chat_function(f"f{i}", broken if i == at else fine) for i in range(n)]
            text = refused(tools)
            assert f'tools[{at}], "f{at}": Pointer \'/$defs/Gone\'' in text and "/tool" not in text
            assert text == refused(tools, {"type": "function", "function": {"name": f"f{at}"}})
    assert 'tools[2], "odd": Unimplemented keys: ["uniqueItems"]' in refused([chat_function("a", fine), chat_function("b", fine), chat_function("odd", unique)])
    for root in {"type": "array"}, {"type": "string"}, {"type": ["null", "string"]}:
        assert 'tools[1], "b", does not have the type object' in refused([chat_function("a", fine), chat_function("b", root)])
    for parameters, kind in ("{}", "a string"), ([], "a list"), (7, "a number"), (False, "a boolean"):
        assert f"tools[0].function.parameters must be a JSON schema (an object), got {kind}" in refused([chat_function("a", parameters)])
    assert 'tools[0] is of type "tool"' in refused([{"type": "tool", "function": {"name": "f"}}])
    large = {"type": "object", "properties": {"z": {"enum": [str(i) for i in range(10000, 20000)]}}, "required": ["z"]}
    text = refused([chat_function(f"f{i}", large) for i in range(4)], param="tool_choice")
    assert "at most 262144 are allowed" in text and "None of the 4 tools is the cause by itself. Send fewer tools" in text
    lark = {"type": "custom", "custom": {"name": "c", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: gone"}}}}
    assert 'the grammar of tools[0], "c"' in refused([lark], {"type": "custom", "custom": {"name": "c"}})


def test_stream_helper_ends_a_call(official):
    """The package considers a call complete at the chunk after its last piece, not at a finish_reason in the same chunk."""
    with official.chat.completions.stream(model="caller", messages=[{"role": "user", "content": "Hi"}], temperature=0,
                                          tools=[chat_function("Bash", {"type": "object"})]) as stream:
        events = [e for e in stream]
    done = [e for e in events if e.type == "tool_calls.function.arguments.done"]
    assert [(e.name, json.loads(e.arguments)) for e in done] == [("Bash", CALLS["Bash"])]
    chunks = [e.chunk.choices[0] for e in events if e.type == "chunk" and e.chunk.choices]
    assert [c.finish_reason for c in chunks if c.delta.tool_calls] == [None] and chunks[-1].finish_reason == "tool_calls"


def test_allowed_tools(official):
    """The prompt has only the allowed tools, and the model calls only these."""
    for only in ("Bash", "spare"):
        choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": only}]}
        item = official.responses.create(model="caller", input="Hi", tools=FUNCTIONS, tool_choice=choice, temperature=0).output[0]
        assert item.name == only
        chat = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": only}}]}}
        got = official.chat.completions.create(model="caller", messages=[{"role": "user", "content": "Hi"}], tool_choice=chat, temperature=0,
                                               max_tokens=100, parallel_tool_calls=False,
                                               tools=[{"type": "function", "function": {k: v for k, v in f.items() if k != "type"}} for f in FUNCTIONS])
        assert got.choices[0].message.tool_calls[0].function.name == only
    with pytest.raises(openai.BadRequestError, match="which is not in tools"):
        official.responses.create(model="caller", input="Hi", tools=FUNCTIONS,
                                  tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "other"}]})


def test_claude_code_s_bookkeeping(caller):
    """The billing block differs each time, but the text behind it is found in the prefix cache."""
    client = anthropic.Anthropic(base_url=caller.url, api_key="none", max_retries=0, timeout=60 * SLOW)

    def cached(n):
        got = client.beta.messages.create(
            model="caller", max_tokens=50, messages=[{"role": "user", "content": "Hi"}], betas=["context-management-2025-06-27"],
            system=[{"type": "text", "text": f"x-anthropic-billing-header: cc_version={n}"}, {"type": "text", "text": "Be as kind as can be. " * 20}],
            thinking={"type": "adaptive"}, context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            tools=[{"name": "Bash", "input_schema": {"type": "object"}, "defer_loading": True, "eager_input_streaming": True},
                   {"type": "web_search_20250305", "name": "web_search"}])
        assert got.content[0].type == "tool_use" and got.content[0].input == CALLS["Bash"]
        return got.usage.cache_read_input_tokens, got.usage.input_tokens

    assert cached(1)[0] == 0
    read, rest = cached(2)
    assert read > 400 and rest <= 17


def test_no_field_of_the_packages_is_unknown():
    """Every field of the packages' newest request types has its effect, is harmless, or is refused by name."""
    from anthropic.types.beta import message_count_tokens_params, message_create_params
    from openai.types import completion_create_params as completions
    from openai.types import embedding_create_params as embeddings
    from openai.types.chat import completion_create_params as chat
    from openai.types.responses import response_create_params as responses
    said = subprocess.run([str(BIN / "cox-gateway"), "fields"], capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in said if line.startswith("| ")]
    known = {kind: {r[0].strip("`") for r in rows[1:] if r[rows[0].index(kind)] == "x"} for kind in rows[0][1:9]}
    asked = {"completions": completions.CompletionCreateParamsBase, "embeddings": embeddings.EmbeddingCreateParams,
             "chat": chat.CompletionCreateParamsBase, "responses": responses.ResponseCreateParamsBase,
             "messages": message_create_params.MessageCreateParamsBase, "count_tokens": message_count_tokens_params.MessageCountTokensParams}
    for kind, params in asked.items():
        fields = {name for t in params.__mro__ for name in getattr(t, "__annotations__", ())}
        assert len(fields) > 4 and not fields - known[kind], (kind, fields - known[kind])


@pytest.fixture(scope="module")
def letters():
    with Cluster("--null-step-us", "20", "--enable-auto-tool-choice", "--tool-call-parser", "hermes", workers=1, tp=1) as c:
        yield c


@pytest.mark.timeout(150 * SLOW)
@pytest.mark.parametrize("name", AGENTS)
def test_agent_shows_an_answer(letters, away, tmp_path, name):
    """The model of `cox up null` never ends an answer. An agent shows such an answer and reports that it was cut off."""
    done = agents.run(name, letters.url, "null", tmp_path, proxy=away[0], max_tokens=32)
    said = done.stdout + done.stderr
    assert re.search(r"\b[a-z]{32,}\b", said) and "API Error: 4" not in said and "BadRequest" not in said, said
    assert not away[1], away[1]
