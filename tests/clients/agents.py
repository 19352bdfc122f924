"""Coding agents as their makers publish them, each asked one thing in a folder, without a terminal:

    python3 tests/clients/agents.py claude|codex|qwen URL MODEL FOLDER

They get a home of their own, the switches that their manuals name for a server that is not their maker's, and none of what they
would say to anybody else. scripts/setup --clients installs them."""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "agents/node_modules/.bin"
QUESTION = "What does note.txt say?"


def program(name):
    """The installed program that runs here, or None."""
    path = PROGRAMS / name
    if not path.exists() or (name != "claude" and not shutil.which("node")):
        return None
    return path


def claude(url, model, home, max_tokens):
    """Claude Code. Every model that it may want is the one that there is."""
    names = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
             "ANTHROPIC_DEFAULT_OPUS_MODEL")
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
           "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(max_tokens), **{name: model for name in names}}
    return ["-p", QUESTION, "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash(cat note.txt)"], env


def codex(url, model, home, max_tokens):
    """Codex CLI, by its responses."""
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(f'''model = "{model}"
model_provider = "cox"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
apps = false
plugins = false
remote_plugin = false
[model_providers.cox]
name = "Coxswain"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
''')
    return ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", QUESTION], {}


def qwen(url, model, home, max_tokens):
    """Qwen Code, by OpenAI's chat."""
    (home / ".qwen").mkdir()
    (home / ".qwen/settings.json").write_text('{"privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false, '
                                              '"disableAutoUpdate": true}, "telemetry": {"enabled": false}}')
    return (["-p", QUESTION, "--yolo", "--output-format", "stream-json", "--auth-type", "openai", "--system-prompt", "Answer with what the tools say."],
            {"OPENAI_BASE_URL": url + "/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": model, "QWEN_CODE_MAX_OUTPUT_TOKENS": str(max_tokens)})


def run(name, url, model, folder, proxy=None, max_tokens=1024, timeout=120):
    """What the program `name` did: subprocess's CompletedProcess, with its output as text. proxy: where it is to go for whatever
    is not on this machine."""
    with tempfile.TemporaryDirectory(prefix="cox-agent-") as home:
        args, env = {"claude": claude, "codex": codex, "qwen": qwen}[name](url, model, Path(home), max_tokens)
        # Qwen Code takes its server's requests to a proxy as well, and knows no exception.
        away = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy) if proxy and name != "qwen" else {}
        local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        return subprocess.run([str(program(name)), *args], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout, env={"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8", **away, **local, **env})


if __name__ == "__main__":
    done = run(*sys.argv[1:5])
    sys.stderr.write(done.stderr)
    print(done.stdout)
    sys.exit(done.returncode)
