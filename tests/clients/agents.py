"""Runs a coding agent as its maker publishes it, for one question in a folder, without a terminal:

    python3 tests/clients/agents.py claude|codex|qwen URL MODEL FOLDER

The agent gets a separate home directory and the settings that its manual gives for another provider's server. Telemetry and
updates are switched off. `scripts/setup --clients` installs the agents."""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "agents/node_modules/.bin"
QUESTION = "What does note.txt say?"


def program(name):
    """Returns the path of the installed agent, or None when it cannot run here."""
    path = PROGRAMS / name
    if not path.exists() or (name != "claude" and not shutil.which("node")):
        return None
    return path


def claude(url, model, home, max_tokens):
    """Returns the arguments and environment of Claude Code. Every model that it may ask for is set to `model`."""
    names = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
             "ANTHROPIC_DEFAULT_OPUS_MODEL")
    env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
           "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(max_tokens), **{name: model for name in names}}
    return ["-p", QUESTION, "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash(cat note.txt)"], env


def codex(url, model, home, max_tokens):
    """Returns the arguments and environment of Codex CLI, which uses the Responses API."""
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
    """Returns the arguments and environment of Qwen Code, which uses OpenAI's Chat Completions API."""
    (home / ".qwen").mkdir()
    (home / ".qwen/settings.json").write_text('{"privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false, '
                                              '"disableAutoUpdate": true}, "telemetry": {"enabled": false}}')
    return (["-p", QUESTION, "--yolo", "--output-format", "stream-json", "--auth-type", "openai", "--system-prompt", "Answer with what the tools say."],
            {"OPENAI_BASE_URL": url + "/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": model, "QWEN_CODE_MAX_OUTPUT_TOKENS": str(max_tokens)})


def run(name, url, model, folder, proxy=None, max_tokens=1024, timeout=120):
    """Runs the agent `name` and returns subprocess's CompletedProcess, with its output as text.
    `proxy` is the HTTP proxy for hosts other than this machine."""
    with tempfile.TemporaryDirectory(prefix="cox-agent-") as home:
        args, env = {"claude": claude, "codex": codex, "qwen": qwen}[name](url, model, Path(home), max_tokens)
        # Qwen Code cannot exclude hosts from a proxy, so it would send requests for its own server to the proxy too.
        away = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy) if proxy and name != "qwen" else {}
        local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        return subprocess.run([str(program(name)), *args], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout, env={"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8", **away, **local, **env})


if __name__ == "__main__":
    done = run(*sys.argv[1:5])
    sys.stderr.write(done.stderr)
    print(done.stdout)
    sys.exit(done.returncode)
