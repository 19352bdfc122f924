"""Tests that grammars and requests' own chat templates are compiled in separate processes with limits. Whatever happens to such a
process, the gateway answers all other clients, and this client receives the result. A compile process that is stopped by a signal
simulates one that never ends, so the tests do not depend on time."""
import contextlib
import http.client
import json
import os
import re
import select
import signal
import threading
import time
from pathlib import Path

import openai
import pytest
from cluster import SANITIZED, Cluster, alive, get, wait_for

KEYS = ["alpha-key", "beta-key"]
MEMORY_MIB = 640  # value of --grammar-memory in MiB


def children(pid):
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found.update(int(n) for n in task.read_text().split())
        except OSError:
            pass  # the thread has just ended
    return found


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


def rss_mib(pid):
    try:
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024
    except (OSError, TypeError):
        return 0


def post(c, body, key=KEYS[0], path="/v1/completions", raw=None):
    connection = http.client.HTTPConnection("127.0.0.1", c.ports[0], timeout=120)
    try:
        whole = {"model": "null", "max_tokens": 1, **body}
        connection.request("POST", path, raw or json.dumps(whole), {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        r = connection.getresponse()
        return r.status, r.read().decode()
    finally:
        connection.close()


def grammar(n):
    return {"prompt": "hi", "structured_outputs": {"grammar": f'start: "a{n}"'}}


class Asked(threading.Thread):
    def __init__(self, c, body, **more):
        super().__init__(daemon=True)
        self.c, self.body, self.more, self.said = c, body, more, None
        self.start()

    def run(self):
        with contextlib.suppress(OSError, http.client.HTTPException):  # a test may kill the gateway
            self.said = post(self.c, self.body, **self.more)

    def answer(self):
        self.join(60)
        assert not self.is_alive(), "no answer"
        return self.said


class Compiles:
    """Finds the compile processes of a cluster's gateway."""

    def __init__(self, c):
        self.c = c

    def parent(self):
        return wait_for("the parent of compiles", lambda: next(iter(children(self.c.pid("gateway-0"))), None))

    def running(self):
        """Returns the processes that have finished their start. A child stopped right after its fork has no limits yet."""
        return {p for p in children(self.parent()) if name_of(p) == "cox-compile" and alive(p)}

    def hold(self, ask):
        """Sends a request and stops the process that compiles it before it can answer. Returns (the result of `ask`, the process)."""
        known = self.running()
        for n in range(100):
            asked, found = ask(slow(n)), set()
            while not found and asked.is_alive():
                found = self.running() - known
            for p in found:
                os.kill(p, signal.SIGSTOP)
            wait_until = time.monotonic() + 0.5  # an answer that was sent before the stop may arrive later
            while asked.is_alive() and time.monotonic() < wait_until:
                time.sleep(0.02)
            if found and asked.is_alive():
                return asked, found.pop()
            for p in found & self.running():
                os.kill(p, signal.SIGKILL)
        raise AssertionError("no compile was slow enough to be seen")

    def metric(self, outcome):
        text = get(self.c.url + "/metrics", headers={"Authorization": f"Bearer {KEYS[0]}"})[1]
        return float(re.search(rf'compiles_total{{outcome="{outcome}"}} (\S+)', text)[1])


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--api-key", KEYS[0], "--api-key", KEYS[1], "--trust-request-chat-template", "--chat-template", "chatml", workers=1,
                 tp=1) as c:
        yield c


@pytest.fixture
def compiles(cluster):
    yield Compiles(cluster)
    for p in Compiles(cluster).running():  # these processes are left from a failed test
        os.kill(p, signal.SIGKILL)


def slow(n):
    """Returns a schema that is refused after 100 ms or more. Each n gives another source."""
    return schema({"type": "string", "minLength": 10**6 + n, "pattern": "(.*a.{10})"})


def rules_that_fan_out():
    return "start: a0\n" + "".join(f"a{i}: a{i + 1} a{i + 1} a{i + 1} a{i + 1}\n" for i in range(400)) + 'a400: "x"?\n'


def fan_out(leaf, join):
    defs = {f"a{i}": join(i) for i in range(30)} | {"a30": leaf}
    return {"$defs": defs, "$ref": "#/$defs/a0"}


def to(i):
    return {"$ref": f"#/$defs/a{i + 1}"}


def schema(s):
    return {"prompt": "hi", "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": s}}}


def outputs(**said):
    return {"prompt": "hi", "structured_outputs": said}


def chat(template):
    return {"messages": [{"role": "user", "content": "hi"}], "chat_template": template}


PATTERNS = {"allOf": [{"type": "string", "pattern": f"(.*[a-z]{i}.{{5}})"} for i in range(16)]}
BOMBS = {
    "allOf": schema(PATTERNS),
    "allOf fans out": schema(fan_out({"type": "string", "pattern": "(.*[a-z].{5})"}, lambda i: {"allOf": [to(i)] * 8})),
    "anyOf of allOf fans out": schema(fan_out({"type": "string"}, lambda i: {"anyOf": [{"allOf": [to(i), {"minLength": k}]}
                                                                                       for k in range(8)]})),
    "a bound beside a pattern": schema({"type": "string", "minLength": 1000000, "pattern": "(.*a.{10})"}),
    "patterns of properties": schema({"type": "object", "patternProperties": {f"^a.*{i}.{{{i}}}$": {} for i in range(60)}}),
    "a long enum": schema({"enum": [f"{i * 7919}word{i}" for i in range(20000)]}),
    "and of expressions": outputs(grammar="start: A\nA: " + " & ".join(f"/(.*{x}.{{14}})/" for x in "abcd") + "\n"),
    "rules that fan out": outputs(grammar=rules_that_fan_out()),
    "items": schema({"type": "array", "minItems": 10**5, "items": {"type": "array", "minItems": 10**5, "items": {"type": "string"}}}),
}


def test_bombs_hurt_nobody(cluster, compiles):
    """Each costly source is refused by name or compiled. While that happens the gateway answers, and its memory does not grow."""
    gateway = cluster.pid("gateway-0")
    assert post(cluster, grammar(0))[0] == 200
    before = rss_mib(gateway)
    for name, body in BOMBS.items():
        asked, most, n_answered = Asked(cluster, body), 0, 0
        while asked.is_alive() or n_answered == 0:
            assert get(cluster.url + "/health")[0] == 200
            n_answered += 1
            most = max(most, sum(rss_mib(p) for p in compiles.running()))
        status, said = asked.answer()
        field = "response_format" if "response_format" in body else "structured_outputs"
        assert status == 200 or (status in (400, 503) and field in said), (name, status, said)
        if not SANITIZED:
            assert most < MEMORY_MIB + rss_mib(compiles.parent()), (name, most)
            assert rss_mib(gateway) < before + 100, name
    assert post(cluster, grammar(0))[0] == 200
    wait_for("no compile is left", lambda: not compiles.running())


@pytest.mark.parametrize("name", ["response_format", "\\u0072esponse_format", "response\\u005fformat"])
def test_spelling_changes_nothing(cluster, compiles, name):
    """A request with an escaped key was once compiled on the event loop. Its compile process can now stall without harm."""
    body = '{"model":"null","prompt":"hi","max_tokens":1,"%s":{"type":"json_schema","json_schema":%s}}'
    inner = json.dumps({"name": "x", "schema": PATTERNS}).replace("pattern", "p\\u0061ttern")
    status, said = post(cluster, {}, raw=body % (name, inner))
    assert status == 400 and "response_format" in said, said


def test_tenants_beside_a_compile_that_never_ends(cluster, compiles):
    """One compile process is stopped. Plain requests continue, and so do another tenant's grammars. The grammars of this tenant may
    wait."""
    asked, held = compiles.hold(lambda body: Asked(cluster, body))
    waiting = Asked(cluster, grammar(2))
    for n in range(3):
        assert get(cluster.url + "/health")[0] == 200
        assert post(cluster, {"prompt": "hi"})[0] == 200
        assert post(cluster, grammar(10 + n), KEYS[1])[0] == 200
        assert post(cluster, grammar(0))[0] == 200  # a known grammar needs no compile
        assert post(cluster, {"prompt": "long " * 2000, "max_tokens": 1})[0] == 200  # this prompt uses the threads for long prompts
    assert waiting.is_alive() and compiles.running() == {held}
    os.kill(held, signal.SIGKILL)  # the grammar is then compiled again in another process
    assert asked.answer()[0] in (200, 400)
    assert waiting.answer()[0] == 200


def test_killed_twice(cluster, compiles):
    """A request whose process dies twice gets an error about that, and no result is stored for the grammar."""
    lost = compiles.metric("lost")
    asked, held = compiles.hold(lambda body: Asked(cluster, body))
    killed = {held}
    os.kill(held, signal.SIGKILL)

    def kill_next():
        for p in compiles.running() - killed:
            killed.add(p)
            os.kill(p, signal.SIGKILL)
        return not asked.is_alive()

    wait_for("an answer", kill_next)
    status, said = asked.answer()
    assert status in (200, 400) or (status == 503 and "response_format could not be compiled" in said), said
    assert compiles.metric("lost") == lost + (status == 503)
    assert post(cluster, grammar(4))[0] == 200


def test_all_killed(cluster, compiles):
    """Plain requests are not affected, and the next grammar starts new processes."""
    parent = compiles.parent()
    os.kill(parent, signal.SIGKILL)
    for _ in range(3):
        assert post(cluster, {"prompt": "hi"})[0] == 200
        assert post(cluster, grammar(0))[0] == 200  # a known grammar needs no compile
    assert post(cluster, grammar(5))[0] == 200
    assert compiles.parent() != parent


class Leaver:
    """`Leaver` is a client that can hang up."""

    def __init__(self, c, body):
        self.connection = http.client.HTTPConnection("127.0.0.1", c.ports[0], timeout=60)
        self.connection.request("POST", "/v1/completions", json.dumps({"model": "null", "max_tokens": 1, **body}),
                                {"Content-Type": "application/json", "Authorization": f"Bearer {KEYS[0]}"})

    def is_alive(self):
        return not select.select([self.connection.sock], [], [], 0)[0]


def test_client_leaves(cluster, compiles):
    """When the client leaves, its compile process is killed."""
    cancelled = compiles.metric("cancelled")
    client, held = compiles.hold(lambda body: Leaver(cluster, body))
    client.connection.close()
    wait_for("it is killed", lambda: not alive(held))
    wait_for("it is counted", lambda: compiles.metric("cancelled") == cancelled + 1)


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's allocator says null in place of an abort")
def test_own_templates(cluster, compiles):
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    path = "/v1/chat/completions"
    assert post(cluster, chat(template), path=path)[0] == 200
    for bad, field in (("{% for %}", "chat_template"), ("{{ '%2000000000d' | format(1) | length }}", "messages"),
                       ("{%- for i in range(400) -%}{%- set q = range(99999)|list|sort -%}{%- endfor -%}x", "messages")):
        asked = Asked(cluster, chat(bad), path=path)
        while asked.is_alive():
            assert get(cluster.url + "/health")[0] == 200
        status, said = asked.answer()
        assert status == 400 and json.loads(said)["error"]["param"] == field, said
    assert post(cluster, chat(template), path=path)[0] == 200


def test_memory_is_limited_and_processes_end_with_the_gateway():
    """A process at its memory limit gives a 503 with a reason. A killed gateway leaves no process behind."""
    with Cluster("--trust-request-chat-template", "--chat-template", "chatml", "--grammar-memory", "64Mi", workers=1, tp=1) as c:
        compiles = Compiles(c)
        if not SANITIZED:
            status, said = post(c, chat("{% set x = 'a' * 100000000 %}{{ x | length }}"), path="/v1/chat/completions")
            assert status == 503 and "chat_template could not be rendered: the compile process reached its memory limit and was ended" in said, said
            assert compiles.metric("over_memory") == 1
        assert post(c, grammar(1))[0] == 200
        parent = compiles.parent()
        asked, held = compiles.hold(lambda body: Asked(c, body))
        os.kill(c.pid("gateway-0"), signal.SIGKILL)
        wait_for("no process is left", lambda: not alive(parent) and not alive(held))
        asked.answer()


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's allocator has no such limit")
def test_batch_with_a_bomb(tmp_path):
    """A line that exceeds a limit is answered with an error. It is not repeated and does not delay other lines."""
    lines = [{"custom_id": n, "method": "POST", "url": "/v1/chat/completions", "body": {"model": "null", "max_tokens": 1, **body}}
             for n, body in (("bomb", chat("{% set x = 'a' * 100000000 %}{{ x | length }}")), ("good", chat("{{ messages }}")))]
    with Cluster("--state-dir", tmp_path, "--trust-request-chat-template", "--chat-template", "chatml", "--grammar-memory", "64Mi",
                 "--api-key", KEYS[0], workers=1, tp=1) as c:
        ai = openai.OpenAI(base_url=c.url + "/v1", api_key=KEYS[0], max_retries=0)
        f = ai.files.create(file=("in.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode()), purpose="batch")
        b = ai.batches.create(input_file_id=f.id, endpoint="/v1/chat/completions", completion_window="24h")
        got = wait_for("its end", lambda: (lambda b: b.status == "completed" and b)(ai.batches.retrieve(b.id)), 60)
        assert (got.request_counts.completed, got.request_counts.failed) == (1, 1)
        failed = json.loads(ai.files.content(got.error_file_id).text)
        assert failed["custom_id"] == "bomb" and failed["response"]["body"]["error"]["code"] == "compile_limit"


def test_sigterm_waits_for_no_compile():
    with Cluster("--shutdown-timeout", "1", workers=1, tp=1) as c:
        compiles = Compiles(c)
        assert post(c, grammar(1))[0] == 200
        asked, held = compiles.hold(lambda body: Asked(c, body))
        parent = compiles.parent()
        os.kill(c.pid("gateway-0"), signal.SIGTERM)
        assert asked.answer()[0] == 503
        wait_for("its processes are gone", lambda: not alive(parent) and not alive(held))


def test_in_the_gateway_itself():
    """With --grammar-processes 0 no process is started, and grammars are still compiled."""
    with Cluster("--grammar-processes", "0", workers=1, tp=1) as c:
        assert post(c, grammar(1))[0] == 200
        assert post(c, outputs(grammar="start: /(/"))[0] == 400
        assert not children(c.pid("gateway-0"))
