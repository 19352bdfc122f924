"""Tests `cox chat` on a pseudo-terminal, and `cox complete` in pipes, with a gateway that repeats the request."""
import codecs
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess

import pytest
from cluster import BIN, SLOW, Cluster, run_cox, wait_for
from hub_server import Server, tiny_model

UP, PASTE, PASTED = "\x1b[A", "\x1b[200~", "\x1b[201~"


class Gateway(Server):
    """Answers "<n> of <the last message>" in four tokens, where n is the number of messages in the request."""

    def __init__(self):
        super().__init__()
        self.bodies, self.reasons, self.fails, self.holds, self.is_base = [], False, False, False, False
        self.root = "m1"

    def answer(self, h, path, action):
        return h.say(200, json.dumps({"data": [{"id": "m1", "root": self.root}, {"id": "other"}]}).encode())

    def post(self, h, path, body):
        asked = json.loads(body)
        self.bodies.append(asked)
        if self.fails:
            return h.say(400, b'{"error": {"message": "not today"}}')
        if self.is_base and asked["model"] == "m1" and path.endswith("/chat/completions"):
            return h.say(400, b'{"error": {"message": "This model has no chat template: use /v1/completions."}}')
        h.send_response(200)
        h.send_header("Content-Type", "text/event-stream")
        h.end_headers()
        h.close_connection = True
        if path.endswith("/chat/completions"):
            text = f"{len(asked['messages'])} of <{asked['messages'][-1]['content']}>"
            pieces = [{"delta": {"reasoning_content": "let me see"}}] * self.reasons + [
                {"delta": {"content": t}} for t in (text[:1], text[1:])]
        else:
            pieces = [{"text": " and"}, {"text": " on"}]
        for i, piece in enumerate(pieces):
            h.wfile.write(b"data: " + json.dumps({"choices": [piece]}).encode() + b"\n\n")
            h.wfile.flush()
            while self.holds and i == len(pieces) - 1:
                h.wfile.write(b": still there\n\n")
                h.wfile.flush()
                self.ending.wait(0.05)
        h.wfile.write(b'data: {"choices": [{"delta": {}, "text": "", "finish_reason": "stop"}]}\n\n'
                      b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}\n\ndata: [DONE]\n\n')
        return None


class Terminal:
    def __init__(self, *command, env, columns=100):
        self.fd, end = pty.openpty()
        os.set_blocking(self.fd, False)
        subprocess.run(["stty", "cols", str(columns), "rows", "30"], stdin=end, check=True)
        # The terminal becomes the controlling one, so that Ctrl-C arrives as a signal.
        self.process = subprocess.Popen(["setsid", "--ctty", BIN / "cox", *map(str, command)], stdin=end, stdout=end, stderr=end, env=env)
        os.close(end)
        self.raw, self.seen = "", 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self):
        if select.select([self.fd], [], [], 0.02)[0]:
            try:
                self.raw += self.decoder.decode(os.read(self.fd, 65536))
            except OSError:  # the command has ended
                pass
        return self.raw[self.seen:]

    def until(self, words):
        """Waits for `words` and returns the text up to them. The next call searches behind these words."""
        wait_for(words, lambda: words in self.read(), 20 * SLOW)
        at = self.raw.index(words, self.seen) + len(words)
        new, self.seen = self.raw[self.seen:at], at
        return new

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def ask(self, keys):
        """Types when the prompt is ready. Returns the text up to the line about the answer."""
        self.until("\x1b[?2004h")
        self.type(keys)

    def end(self):
        self.ask("\x04")
        code = self.process.wait(20 * SLOW)
        self.read()
        os.close(self.fd)
        return code


@pytest.fixture
def gateway():
    with Gateway() as g:
        yield g


@pytest.fixture
def env(tmp_path):
    return {k: v for k, v in os.environ.items() if not k.startswith(("COX_", "XDG_", "NO_COLOR"))} | {
        "TERM": "xterm", "HOME": str(tmp_path)}


def contents(gateway):
    return [m["content"] for m in gateway.bodies[-1]["messages"]]


def test_a_conversation(gateway, env, tmp_path):
    gateway.reasons = True
    t = Terminal("chat", "--url", gateway.url, "--system", "be short", env=env)
    t.ask("hello\r")
    said = t.until("the first after")
    assert "\x1b[2mlet me see\x1b[0m" in said and "2 of <hello>" in said and re.search(r"\x1b\[2m4 tokens, [\d.]+ tokens/s", said)
    t.ask("wrld\x1b[D\x1b[D\x1b[Do\r")  # the keys move the cursor to the left and insert a letter
    t.until("4 of <world>")
    assert contents(gateway) == ["be short", "hello", "2 of <hello>", "world"]
    t.ask("/retry\r")
    t.until("4 of <world>")
    t.ask("/system\r")
    t.until("the system message is removed")
    t.ask("/system be long\r")
    t.until("is set")
    t.ask("/clear\r")
    t.until("a new conversation")
    t.ask(UP + UP + UP + UP + UP + "\r")  # the keys go back in the history, past /clear, two of /system, and /retry
    t.until("2 of <world>")
    assert contents(gateway) == ["be long", "world"]
    t.ask("/model other\r")
    t.until("other")
    t.ask("//not a command\r")
    t.until("of </not a command>")
    assert gateway.bodies[-1]["model"] == "other" and gateway.bodies[0]["model"] == "m1"
    t.ask("/nothing\r")
    t.until("unknown command /nothing. /help")
    t.ask("/help\r")
    t.until("/load FILE")
    assert t.end() == 0
    # The typed lines are kept for the next time, readable by the owner only.
    history = tmp_path / ".local/state/coxswain/chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600 and json.loads(history.read_text().splitlines()[0]) == "hello"
    t = Terminal("chat", "--url", gateway.url, env=env | {"NO_COLOR": "1"})
    t.ask(UP * 3 + "\r")  # the keys go back in the history, past /help and /nothing
    said = t.until("the first after")
    assert "of </not a command>" in said and "\x1b[2m" not in said and "let me see" not in said
    t.ask("/quit\r")
    assert t.process.wait(20 * SLOW) == 0
    os.close(t.fd)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_model_that_is_not_served(gateway, env, columns):
    t = Terminal("chat", "--url", gateway.url, env=env, columns=columns)
    t.ask("/model foo\r")
    t.until('cox chat: /model: the model "foo" is not served here. The gateway serves: m1, other.')
    t.ask("hello\r")
    t.until("1 of <hello>")
    assert gateway.bodies[-1]["model"] == "m1"
    assert t.end() == 0


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_base_model_continues_text(gateway, env, columns):
    gateway.is_base = True
    t = Terminal("chat", "--url", gateway.url, "--system", "be short", env=env, columns=columns)
    t.ask("once\r")
    t.until("cox chat: m1 is a base model: it has no chat template. It continues your text instead, as with --completion; it sees no")
    t.until("the first after")
    t.ask("twice\r")
    assert "base model" not in t.until("the first after")
    assert [b.get("prompt") for b in gateway.bodies] == [None, "once", "twice"]
    t.ask("/model other\r")  # this model has a template
    t.ask("hello\r")
    t.until("2 of <hello>")
    assert t.end() == 0
    done = run_cox("chat", "--url", gateway.url, env=env, input="a\nb\n")
    assert (done.returncode, done.stdout) == (0, " and on\n and on\n") and done.stderr.count("is a base model") == 1


def test_the_base_demo_model_does_not_answer(gateway, env):
    """`cox chat` says once that demo-base is a base model, although it has a chat template. The model demo answers, so nothing is said."""
    gateway.root = "demo-base"
    done = run_cox("chat", "--url", gateway.url, env=env, input="a\nb\n")
    assert done.returncode == 0 and done.stderr.count("demo-base is a base model: it continues text") == 1 and "`cox up demo`" in done.stderr
    done = run_cox("chat", "--url", gateway.url, "--completion", env=env, input="a\n")
    assert (done.returncode, done.stderr) == (0, "")
    gateway.root = "demo"
    done = run_cox("chat", "--url", gateway.url, env=env, input="a\n")
    assert (done.returncode, done.stderr) == (0, "")


def test_one_message(gateway, env):
    for args in (["-q", "hello", "--model-name", "other", "--system-prompt", "be short"], ["--quick=hello", "--model", "other", "--system", "be short"]):
        done = run_cox("chat", "--url", gateway.url, *args, env=env, input="not read")
        assert (done.returncode, done.stdout, done.stderr) == (0, "2 of <hello>\n", "")
        assert gateway.bodies[-1]["model"] == "other"
    gateway.fails = True
    assert run_cox("chat", "--url", gateway.url, "-q", "hello", env=env).returncode == 1


def test_several_lines(gateway, env):
    t = Terminal("chat", "--url", gateway.url, "--history", "off", env=env)
    t.ask('"""\r')
    t.ask("one\r")
    t.ask('two"""\r')
    t.until("1 of <one")
    assert contents(gateway) == ["one\ntwo"]
    t.ask(f"{PASTE}three\rfour\n\x1b[A/five{PASTED}!\r")
    t.until("3 of <three")
    assert contents(gateway)[-1] == "three\nfour\n[A/five!"
    t.ask("six\nseven\x1b\reight\r")
    t.until("5 of <six")
    assert contents(gateway)[-1] == "six\nseven\neight"
    assert t.end() == 0 and not os.path.exists(f"{env['HOME']}/.local")


def test_ctrl_c(gateway, env):
    t = Terminal("chat", "--url", gateway.url, env=env)
    t.ask("never sent\x03")
    gateway.holds = True
    t.ask("stop me\r")
    t.until("1 of <stop me>")
    t.type("\x03")
    t.ask("")  # the program continues after the interrupt
    gateway.holds = False
    t.type("again\r")
    t.until("3 of <again>")
    assert contents(gateway) == ["stop me", "1 of <stop me>", "again"]
    assert t.end() == 0


def test_save_and_load(gateway, env, tmp_path):
    t = Terminal("chat", "--url", gateway.url, env=env)
    t.ask("hello\r")
    t.until("1 of <hello>")
    file = tmp_path / "c.json"
    for _ in range(2):  # the second time overwrites the saved conversation, which is allowed
        t.ask(f"/save {file}\r")
        t.until("saved")
    assert [m["content"] for m in json.loads(file.read_text())["messages"]] == ["hello", "1 of <hello>"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    other = tmp_path / "other"
    other.write_text("precious")
    t.ask(f"/save {other}\r")
    t.until("exists already and is not a conversation")
    assert other.read_text() == "precious"
    t.ask("/clear\r")
    for bad in ("{", '{"messages": 7}', '{"messages": [{"role": "root", "content": "x"}]}', '{"messages": [{"role": "user"}]}'):
        other.write_text(bad)
        t.ask(f"/load {other}\r")
        t.until("is not a conversation")
    t.ask("/load /not/here\r")
    t.until("No such file")
    t.ask("/save\r")
    t.until("the file name is missing")
    t.ask(f"/load {file}\r")
    t.until("2 messages")
    t.ask("more\r")
    t.until("3 of <more>")
    gateway.fails = True
    t.ask("refused\r")
    t.until("400: not today")
    gateway.fails = False
    t.ask("fine\r")
    t.until("5 of <fine>")  # the conversation does not contain the refused message
    assert t.end() == 0


def test_pipes_have_no_commands_and_no_colours(gateway, env):
    gateway.reasons = True
    done = run_cox("chat", "--url", gateway.url, env=env, input='/help\n"""\na\nb\n"""\n')
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 of </help>\n3 of <a\nb>\n", "")


@pytest.mark.parametrize("args, said", [(["one text"], ""), ([], "one text\n"), ([], "one text"), (["--text", "one text"], "not read"),
                                        (["-q", "one text", "--model-name", "m1"], "not read")])
def test_complete(gateway, env, args, said):
    done = run_cox("complete", *args, "--url", gateway.url, "--max-tokens", "7", "--temperature", "0", env=env, input=said)
    assert (done.returncode, done.stdout, done.stderr) == (0, " and on\n", "")
    asked, = gateway.bodies
    assert asked["prompt"] == "one text" and asked["max_tokens"] == 7 and asked["temperature"] == 0 and "messages" not in asked


def test_complete_as_json(gateway, env):
    done = run_cox("complete", "x\ny", "--json", "--url", gateway.url, env=env)
    got = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1 and gateway.bodies[0]["prompt"] == "x\ny"
    assert {k: got[k] for k in ("model", "text", "finish_reason", "usage")} == {
        "model": "m1", "text": " and on", "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    assert 0 < got["ttft_seconds"] <= got["seconds"]


def test_complete_says_what_is_wrong(gateway, env):
    for said, words in ((b"", "empty"), (b"\n", "empty"), (b"\xff\xfe", "not UTF-8"), (b"a\0b", "not UTF-8")):
        done = subprocess.run([BIN / "cox", "complete", "--url", gateway.url], env=env, input=said, capture_output=True, timeout=30 * SLOW)
        assert done.returncode == 2 and words in done.stderr.decode() and done.stdout == b""
    ours, theirs = pty.openpty()
    done = subprocess.run([BIN / "cox", "complete"], env=env, stdin=theirs, capture_output=True, text=True, timeout=30 * SLOW)
    assert done.returncode == 2 and "the text is missing: run" in done.stderr
    os.close(ours)
    os.close(theirs)
    gateway.fails = True
    for extra in ([], ["--json"]):
        done = run_cox("complete", "x", *extra, "--url", gateway.url, env=env)
        assert done.returncode == 1 and "400: not today" in done.stderr and done.stdout.strip() == ""


def test_complete_is_interrupted(gateway, env):
    gateway.holds = True
    p = subprocess.Popen([BIN / "cox", "complete", "x", "--url", gateway.url], env=env, stdout=subprocess.PIPE, text=True)
    assert p.stdout.read(7) == " and on"
    p.send_signal(signal.SIGINT)
    assert p.wait(20 * SLOW) == 1
    p.stdout.close()


def test_with_a_real_gateway(env):
    with Cluster("--null-step-us", 2000) as c:
        done = run_cox("complete", "--max-tokens", "5", "--json", "--url", c.url, env=env, input="hi")
        assert json.loads(done.stdout)["usage"]["completion_tokens"] == 5, done.stderr
        t = Terminal("chat", "--url", c.url, "--max-tokens", "5", env=env)
        t.ask("hi\r")
        assert "5 tokens, " in t.until("the first after")
        assert t.end() == 0


def test_a_base_model_at_a_real_gateway(env, tmp_path):
    (tmp_path / "base").mkdir()
    for name, content in tiny_model().items():
        (tmp_path / "base" / name).write_bytes(content)
    with Cluster("--device", "null", workers=1, tp=1, model=str(tmp_path / "base")) as c:
        done = run_cox("chat", "--url", c.url, "--max-tokens", "5", "-q", "hi", env=env)
        assert done.returncode == 0 and len(done.stdout) > 1, done.stderr
        assert done.stderr == "cox chat: base is a base model: it has no chat template. It continues your text instead, as with --completion.\n"
