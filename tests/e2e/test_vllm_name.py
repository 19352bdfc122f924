"""Tests `cox` under the name vllm: vLLM's command lines, through a link as in the image."""
import json
import os
import re
import subprocess

import httpx
import null_oracle as oracle
import pytest
from cluster import BIN, SLOW, Cluster, end_all, free_ports, run_cox, wait_for

KEY = "sk-vllm"


@pytest.fixture(scope="module")
def vllm(tmp_path_factory):
    link = tmp_path_factory.mktemp("bin") / "vllm"
    link.symlink_to(BIN / "cox")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COX_", "VLLM_", "OPENAI_"))}

    def run(*args, variables=None, said="", timeout=30):
        return subprocess.run([str(link), *map(str, args)], capture_output=True, text=True, timeout=timeout * SLOW, input=said,
                              env={**env, **(variables or {})})
    run.link, run.env = link, env
    return run


@pytest.fixture(scope="module")
def cluster():
    with Cluster(env={"VLLM_API_KEY": KEY + " \n"}) as c:  # `echo` and a template write such white space into a Secret
        yield c


def test_the_commands_there_are(vllm):
    said = vllm("--version")
    assert said.returncode == 0 and re.fullmatch(r"cox \d+\.\d+\.\d+\S*\n", said.stdout)
    said = vllm("--help")
    assert said.returncode == 0 and all(f"  {name} " in said.stdout for name in ("serve", "chat", "complete", "bench", "run-batch"))
    said = vllm()
    assert said.returncode == 2 and "usage: vllm COMMAND" in said.stderr
    for name in ("collect-env", "launch", "head"):  # two of these commands are vLLM's, and one is cox's
        said = vllm(name)
        assert said.returncode == 2 and said.stdout == ""
        assert said.stderr.startswith(f'vllm: unknown command "{name}". This vllm is Coxswain and has the commands serve, chat, complete')
    said = vllm("bench", "sweep")
    assert said.returncode == 2 and 'unknown benchmark "sweep"' in said.stderr and "throughput" in said.stderr
    for words in (["serve", "--help"], ["serve", "-h"], ["serve", "--help=ModelConfig"], ["bench", "serve", "--help"], ["chat", "--help"],
                  ["complete", "--help"], ["complete", "-h"], ["run-batch", "--help"]):
        said = vllm(*words)
        assert said.returncode == 0 and "--model" in said.stdout, words
        assert said.stdout.startswith(f"Usage: vllm {' '.join(w for w in words if w[0] != '-')} "), said.stdout[:80]
    assert vllm("complete", "-h").stdout == vllm("complete", "--help").stdout


@pytest.mark.parametrize("words, says", [
    (["serve"], "the model is missing; usage: vllm serve MODEL [OPTION...]"),
    (["serve", "null", "another"], 'unexpected argument "another"; usage: vllm serve MODEL [OPTION...]'),
    (["serve", "null", "--tensor-parallel-size"], "--tensor-parallel-size needs a value"),
    (["serve", "null", "-tp", "x"], '-tp: "x" is not allowed'),
    (["complete", "--quick"], "--quick needs a value"),
    (["complete", "a text"], 'unexpected argument "a text"; usage: vllm complete [OPTION...]'),
    (["chat", "a text"], 'unexpected argument "a text"; usage: vllm chat [OPTION...]'),
    (["bench"], "usage: vllm bench BENCHMARK [OPTION...]"),
])
def test_wrong_usage_is_in_the_words_that_were_typed(vllm, words, says):
    said = vllm(*words)
    assert said.returncode == 2 and said.stdout == "" and says in said.stderr, said.stderr


def test_serve_has_vllms_defaults(vllm, tmp_path):
    help_text = vllm("serve", "--help").stdout
    assert re.search(r"--host TEXT .*\(default 0\.0\.0\.0\)", help_text) and re.search(r"--port N [^-]*\(default 8000;", help_text)
    port, head, admin, workers = free_ports(4)
    log = (tmp_path / "log").open("w")
    p = subprocess.Popen([vllm.link, "serve", "null", "--port", str(port), "--head-port", str(head), "--admin-port", str(admin),
                          "--worker-http-port", str(workers), "--disable-log-requests"], stderr=log, env=vllm.env)
    try:
        wait_for("it serves", lambda: "ready in" in (tmp_path / "log").read_text())
        with open("/proc/net/tcp") as f:
            assert f" 00000000:{port:04X} 00000000:0000 0A" in f.read(), "it listens on every address"
        assert httpx.get(f"http://127.0.0.1:{port}/v1/models").json()["data"][0]["id"] == "null"
    finally:
        end_all([p])
        log.close()


TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def test_adapters_and_a_template_on_the_command_line(tmp_path):
    """Adapters may be in JSON, and there may be more than the default --max-loras, which bounds a batch in vLLM. The template may be
    in one line or in several."""
    for name in "abc":
        (tmp_path / name).mkdir()
    modules = ["--lora-modules", '{"name": "a", "path": "a"}', '{"name": "b", "path": "b", "base_model_name": "null"}', "c=c"]
    with Cluster("--enable-lora", "--lora-root", tmp_path, *modules, "--chat-template", TEMPLATE.replace("{{ m.c", "\n{{ m.c"), workers=1, tp=1) as c:
        def served():
            return sorted(m["id"] for m in httpx.get(c.url + "/v1/models").json()["data"])
        wait_for("all are there", lambda: served() == ["a", "b", "c", "null"])
        for name in served():
            r = httpx.post(c.url + "/v1/chat/completions", json={"model": name, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})
            assert r.status_code == 200 and r.json()["usage"]["prompt_tokens"] == len("<user>\nhi"), r.text
        gateway = ["gateway", "--model", "null", "--insecure", "--head", "127.0.0.1:1", "--port", free_ports(1)[0], "--chat-template"]
        for broken in ("{{ x", "{% if %}", "a\n{% b"):  # the text is read as a template, not as a file name
            done = run_cox(*gateway, broken)
            assert done.returncode == 2 and "chat template of null" in done.stderr and "No such file" not in done.stderr, done.stderr


def test_chat_and_complete(vllm, cluster):
    at = ["--url", cluster.url + "/v1", "--model-name", "null"]
    for variables in ({"OPENAI_API_KEY": KEY}, {"VLLM_API_KEY": KEY + "\n", "OPENAI_API_KEY": "another"}, {"COX_API_KEY": KEY, "VLLM_API_KEY": "x"}):
        said = vllm("chat", *at, "-q", "hi", "--system-prompt", "be short", "--max-tokens", 5, variables=variables)
        assert (said.returncode, said.stderr) == (0, "") and len(said.stdout.strip()) == 5
    said = vllm("chat", *at, "-q", "hi")
    assert said.returncode == 1 and "wants a key" in said.stderr or "401" in said.stderr
    want = oracle.text("hi", 6, temperature=0)
    said = vllm("complete", *at, "--api-key", KEY, "-q", "hi", "--max-tokens", 6, "--temperature", 0)
    assert (said.returncode, said.stdout, said.stderr) == (0, want + "\n", "")
    said = vllm("complete", *at, "--api-key", KEY, "--max-tokens", 6, "--temperature", 0, said="hi\nhi\n")  # each line is one text
    assert (said.returncode, said.stdout, said.stderr) == (0, f"{want}\n{want}\n", "")


def test_bench_and_run_batch(vllm, cluster, tmp_path):
    said = vllm("bench", "serve", "--base-url", cluster.url, "--model", "null", "--num-prompts", 4, "--random-input-len", 8,
                "--random-output-len", 4, "--request-rate", "inf", variables={"VLLM_API_KEY": KEY})
    assert said.returncode == 0 and re.search(r"Successful requests: +4 *\n", said.stdout), said.stderr
    (tmp_path / "in").write_text(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions",
                                             "body": {"model": "null", "prompt": "hi", "max_tokens": 4}}) + "\n")
    said = vllm("run-batch", "-i", tmp_path / "in", "-o", tmp_path / "out", "--url", cluster.url, variables={"OPENAI_API_KEY": KEY})
    assert said.returncode == 0 and json.loads((tmp_path / "out").read_text())["response"]["status_code"] == 200, said.stderr
