"""Tests the gateway's chat page in headless Chromium: a conversation with a real cluster by keyboard alone, hostile answers, light
and dark mode, and the width of a phone. Tests of the page's files and headers use HTTP without a browser."""
import contextlib
import itertools
import json
import re
import subprocess
import threading

import httpx
import pytest
from browser import MISSING, Browser
from chat_fixture import CHAT, SERVED, ChatFixture, Script, cut_after, error_after, refuse, say, token
from cluster import BIN, ROOT, SLOW, Cluster, free_ports, get, wait_for
from dashboard_fixture import POLICY

needs_browser = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
pytestmark = pytest.mark.timeout(400 * SLOW)  # Chromium may take a minute to start
KEY = "sk-chat-page"
TAB, ENTER, ESCAPE, SHIFT, CONTROL = "\ue004", "\ue007", "\ue00c", "\ue008", "\ue009"
LEFT, RIGHT, END = "\ue012", "\ue014", "\ue010"
FOCUSED = """const e = document.activeElement, s = getComputedStyle(e);
    return [e.id || e.className || e.tagName, e === document.body || s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1.5]"""


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--null-step-us", 20_000, "--api-key", KEY, workers=1, tp=1) as c:
        yield c


@pytest.fixture(scope="module")
def window():
    with Browser(1300, 850) as b:
        yield b


@pytest.fixture(scope="module")
def server():
    with ChatFixture() as f:
        yield f


@pytest.fixture
def browser(window):
    window.resize_back()
    window.theme("light")
    point(window, 1, 1)  # moves the pointer away from the tokens of the next page
    window.open("about:blank")
    window.log()
    return window


def point(b, x, y):
    b.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"},
                                             "actions": [{"type": "pointerMove", "x": x, "y": y}]}]})


def begin(b, url, state="ready"):
    b.open(url)
    wait_for(f"the page says {state}", lambda: b.text("#state") == state)


def ask(b, text):
    """Types a message and sends it. Returns the answer's text after it has ended."""
    n = b.js("return document.querySelectorAll('.turn.model').length")
    b.type("#prompt", text + ENTER)
    return ended(b, n + 1)


def ended(b, n=1):
    wait_for("the answer has ended", lambda: b.js("""const all = document.querySelectorAll('.turn.model');
        return all.length === arguments[0] && !document.querySelector('.working')""", n))
    return last(b, ".body")


def last(b, selector):
    return b.js("return [...document.querySelectorAll('.turn.model')].at(-1).querySelector(arguments[0]).innerText", selector)


# ---- files and headers ----

def test_the_page_is_open_small_and_may_ask_its_own_origin_alone(cluster):
    page = httpx.get(cluster.url + "/")
    files = re.findall(r'(?:href|src)="(chat/[\w.]+)"', page.text)
    assert page.status_code == 200 and len(files) == 3
    for p in SERVED:
        path = "/" if p.name == "index.html" else f"/chat/{p.name}"
        r = httpx.get(cluster.url + path)
        assert (r.status_code, r.text, r.headers["content-security-policy"]) == (200, p.read_text(), POLICY), p
        assert r.headers["content-type"] == {"html": "text/html", "css": "text/css", "js": "text/javascript"}[p.suffix[1:]] + "; charset=utf-8"
        assert r.headers["x-content-type-options"] == "nosniff" and r.headers["referrer-policy"] == "no-referrer"
        head = httpx.head(cluster.url + path)
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(r.content)))
    assert httpx.get(cluster.url + "/chat/nothing.js").status_code == 404
    assert httpx.post(cluster.url + "/", json={}, headers={"x-api-key": KEY}).status_code == 405
    assert sum(p.stat().st_size for p in SERVED) < 60_000
    assert not re.search(r"\son\w+=|\sstyle=|<script(?![^>]*\ssrc=)|https?://", page.text), "the policy would refuse it"
    for p in CHAT.glob("*.js"):  # the model's text never becomes HTML
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc", p.read_text()), p


@contextlib.contextmanager
def gateway(*options):
    """Starts a gateway without a head."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([str(BIN / "cox-gateway"), "--model", "null", "--head", "127.0.0.1:1", "--insecure", "--port", str(port), *options],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for("the gateway listens", lambda: get(url + "/livez")[0] == 200)
        yield url
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("option", ["--no-chat-page", "--sagemaker"])
def test_a_gateway_without_the_page_does_not_know_its_paths(option):
    with gateway(option) as url:
        for path in ("/", "/chat/main.js"):
            r, unknown = httpx.get(url + path), httpx.get(url + "/nothing")
            assert (r.status_code, r.text) == (404, unknown.text) and "content-security-policy" not in r.headers
            assert httpx.post(url + path).status_code == 404


def test_behind_a_prefix_the_page_asks_below_it():
    for p in SERVED:  # the page has relative addresses, so --root-path needs nothing else
        assert not re.search(r'(?:href|src)="/|fetch\("/|"/v1/', p.read_text()), p
    with gateway("--root-path", "/llm") as url:
        assert [httpx.get(url + path).status_code for path in ("/llm/", "/llm/chat/main.js", "/", "/llm/nothing")] == [200, 200, 200, 404]


# ---- a conversation ----

@needs_browser
def test_a_conversation_with_a_cluster(browser, cluster):
    b = browser
    begin(b, cluster.url + "/", "key wanted")
    assert b.js("return document.activeElement.id") == "key" and "requires an API key" in b.text("#notice")
    b.type("#key", "sk-wrong\t")
    wait_for("a wrong key is refused", lambda: "does not accept" in b.text("#notice"))
    b.js("document.querySelector('#key').value = ''")
    b.type("#key", KEY + ENTER)
    wait_for("the right one is taken", lambda: b.text("#state") == "ready")
    assert b.text("#model") == "null" and b.text("#empty-model") == "null"
    assert all("401" in line for line in b.log())
    b.js("window.asked = []; const was = fetch; window.fetch = (a, o) => { asked.push([a, o]); return was(a, o); }")
    b.js("for (const [id, v] of Object.entries(arguments[0])) document.getElementById(id).value = v",
         {"system": "Be brief.", "max_tokens": "12", "temperature": "0.5", "seed": "7"})
    first = ask(b, "Hello")
    assert len(first) == 12 and b.js("return document.querySelectorAll('.turn .t').length") == 12
    assert re.fullmatch(r"null · 12 tokens · [\d.,]+ tokens/s · first after [\d.]+ m?s · cut at the limit of tokens", last(b, ".foot span"))
    path, options = b.js("return [asked[0][0], asked[0][1].body]")
    body = json.loads(options)
    assert path == "v1/chat/completions" and body["seed"] == 7 and body["logprobs"] and "top_p" not in body
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    b.js("for (const [id, v] of Object.entries(arguments[0])) document.getElementById(id).value = v",
         {"top_p": "0.9", "top_k": "3", "presence_penalty": "0.5", "frequency_penalty": "-0.5", "stop": "@@\n##"})
    second = ask(b, "And more")
    body = json.loads(b.js("return asked.at(-1)[1].body"))
    assert (body["top_p"], body["top_k"], body["presence_penalty"], body["frequency_penalty"], body["stop"]) == (0.9, 3, 0.5, -0.5, ["@@", "##"])
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"] and second
    # The same seed gives the same answer again.
    b.click(".turn.model:last-child .foot button:nth-child(2)")
    assert ended(b, 2) == second
    # After a stop the received text stays, and the cluster stops computing.
    b.js("document.querySelector('#max_tokens').value = 2000")
    b.type("#prompt", "On and on" + ENTER)
    wait_for("it comes", lambda: len(b.js("return [...document.querySelectorAll('.body')].at(-1).innerText")) > 3)
    assert cluster.running() == 1
    b.click("#halt")
    assert "stopped" in (ended(b, 3), last(b, ".foot span"))[1] and len(last(b, ".body")) > 3
    cluster.wait_idle()
    b.click("#clear")
    assert b.js("return [document.querySelectorAll('.turn').length, document.querySelector('#empty').hidden]") == [0, False]
    # The key is only in the page's memory.
    kept = b.js("""return [JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie, location.href,
        ...performance.getEntriesByType('resource').map(e => e.name), ...asked.map(a => String(a[0]))].join(' ')""")
    assert KEY not in kept and b.js("return asked.at(-1)[1].headers.Authorization") == "Bearer " + KEY
    b.call("POST", "/refresh", {})
    wait_for("a new page asks for it anew", lambda: b.text("#state") == "key wanted")
    assert all("401" in line for line in b.log())


@needs_browser
def test_the_keyboard_alone(browser, server):
    b, server.script = browser, Script(models=["one", "two"], steps=[say("The harbour is calm. " * 3)])
    begin(b, server.url)
    assert b.js("return document.activeElement.id") == "prompt"
    b.press(*"Hello", ENTER)
    assert ended(b).startswith("The harbour")
    assert b.js("return document.activeElement.id") == "prompt"
    way = []
    for _ in range(60):  # TAB visits every element once: each element gets the focus, is visible, and loses the focus
        b.press(TAB)
        name, is_seen = b.js(FOCUSED)
        assert is_seen, name
        way.append(name)
        if name == "prompt":
            break
    assert way[-1] == "prompt" and len(set(way)) >= 18
    for name in ("skip", "model", "clear", "theme", "SUMMARY", "key", "system", "temperature", "stop", "probabilities", "talk", "body"):
        assert name in way, (name, way)
    order = [way.index(n) for n in ("skip", "model", "clear", "SUMMARY", "key", "probabilities", "talk", "body")]
    assert order == sorted(order)
    # Shift and TAB visit them backwards from the message field: Retry, Copy, the answer. Arrow keys move between the answer's tokens.
    chord = [{"type": "keyDown", "value": SHIFT}, *itertools.chain(*[[{"type": k, "value": TAB} for k in ("keyDown", "keyUp")]] * 3), {"type": "keyUp", "value": SHIFT}]
    b.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": chord}]})
    assert b.js("return document.activeElement.className") == "body"
    b.press(RIGHT, RIGHT)
    assert b.js("return document.querySelector('.picked').innerText").strip() == "harbour"
    assert "harbour" in b.text("#peek .chosen") and "%" in b.text("#peek .chosen")
    assert re.match(r"␣harbour: [\d.]+ %; ␣a: ", b.js("return document.querySelector('#said').textContent"))
    b.press(END)
    assert b.js("return [...document.querySelectorAll('.t')].at(-1).classList.contains('picked')")
    b.press(ESCAPE)
    assert b.js("return document.querySelector('#peek').hidden")
    # Escape stops the answer.
    server.script = Script(steps=[say("word " * 200, delay=0.02)])
    b.js("document.querySelector('#prompt').focus()")
    b.press(*"Go", ENTER)
    wait_for("it comes", lambda: b.js("return [...document.querySelectorAll('.body')].at(-1).innerText.length > 10"))
    b.press(ESCAPE)
    ended(b, 2)
    assert "stopped" in last(b, ".foot span")
    assert b.log() == []


@needs_browser
def test_the_pointer_sees_what_else_was_likely(browser, server):
    b, server.script = browser, Script(steps=[say("Calm sea")])
    begin(b, server.url)
    ask(b, "Hello")
    at = b.js("const r = document.querySelectorAll('.t')[1].getBoundingClientRect(); return [Math.round(r.x + r.width / 2), Math.round(r.y + r.height / 2)]")
    point(b, *at)
    rows = b.js("return [...document.querySelectorAll('#peek div')].map(d => d.innerText.split('\\n')[0])")
    assert "␣sea" in rows and "␣the" in rows and len(rows) == 4
    box = b.js("const r = document.querySelector('#peek').getBoundingClientRect(); return [r.left >= 0, r.right <= innerWidth, r.bottom <= innerHeight]")
    assert box == [True] * 3
    # Without the setting, no probabilities are requested.
    b.click("#probabilities")
    ask(b, "Again")
    assert "logprobs" in server.script.asked[0][1] and "logprobs" not in server.script.asked[1][1]


def half(text, *tokens):
    """Returns a chunk with `text`, which may be empty, and the probabilities of the given tokens."""
    return {"choices": [{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": None, "logprobs": {"content": [token(t) for t in tokens]}}]}


@needs_browser
def test_tokens_that_come_ahead_of_their_text_are_kept(browser, server):
    """The tokens of a multi-byte character have no text, except for the last token. Combining marks and control characters are
    visible."""
    def step(h, body):
        h.begin_stream()
        for chunk in (half("", "bytes:\\xf0"), half("", "bytes:\\x9f", "bytes:\\x98"), half("😀 so", "bytes:\\x80", " so"),
                      half("\x0b\u200b", "\x0b", "\u200b"), half("", "<mark>"), half("end", "end")):
            h.event(chunk)
        h.end_stream()
    b, server.script = browser, Script(steps=[step])
    begin(b, server.url)
    ask(b, "Hello")
    assert b.js("return [...document.querySelectorAll('.t')].map(e => e.textContent)") == ["😀", " so", "\x0b", "\u200b", "end"]
    b.js("document.querySelector('.turn.model .body').focus()")
    seen = []
    for _ in range(5):
        b.press(RIGHT)
        seen.append(b.js("return [...document.querySelectorAll('#peek .chosen code')].map(e => e.textContent)"))
    assert seen == [["\\xf0", "\\x9f", "\\x98", "\\x80"], ["␣so"], ["\\x0b"], ["\\u200b"], ["end"]]
    assert b.js("const r = document.querySelector('#peek').getBoundingClientRect(); return r.top >= 0 && r.bottom <= innerHeight")


@needs_browser
def test_an_answer_is_copied_as_the_model_wrote_it(browser, server):
    text = "Use **two** `lines`.\n\n```\nx = 1\n```"
    b, server.script = browser, Script(steps=[say(text)])
    begin(b, server.url)
    ask(b, "Hello")
    paste = [{"type": "keyDown", "value": CONTROL}, *({"type": k, "value": "v"} for k in ("keyDown", "keyUp")), {"type": "keyUp", "value": CONTROL}]
    for is_secure in (True, False):  # without HTTPS the clipboard interface exists only on this machine
        b.js("Object.defineProperty(window, 'isSecureContext', {value: arguments[0], configurable: true})", is_secure)
        b.js("document.querySelector('.turn.model .foot button').textContent = 'Copy'")
        b.click(".turn.model .foot button")
        wait_for("it is copied", lambda: last(b, ".foot button") == "Copied")
        b.js("const p = document.querySelector('#prompt'); p.value = ''; p.focus()")
        b.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": paste}]})
        assert wait_for("it is pasted", lambda: b.js("return document.querySelector('#prompt').value")) == text, is_secure
    assert b.log() == []


# ---- hostile models and gateways ----

HOSTILE = """<img src=x onerror="document.title='gone'"> <script>document.title='gone'</script>
[a](javascript:document.title='gone') **bold <b>not</b>** `<svg onload=1>`

```html
<script>alert(1)</script>
```
- item <iframe srcdoc="x">
# <h1>head</h1>"""


@needs_browser
def test_hostile_texts_stay_text(browser, server):
    b = browser
    names = ["<img src=x onerror=alert(1)>", "\"><script>alert(2)</script>", {"id": "__proto__", "parent": "<b>x</b>"}]
    server.script = Script(models=names, steps=[say(HOSTILE, reasoning="<u>think</u> <img src=y onerror=alert(3)>"), refuse(400, "<img src=x onerror=alert(4)>")])
    begin(b, server.url)
    assert b.js("return [...document.querySelectorAll('#model option')].map(o => o.textContent)") == [*names[:2], "__proto__ (adapter of <b>x</b>)"]
    shown = ask(b, "<script>alert(5)</script><b>me</b>")
    assert "<img src=x onerror=" in shown and "bold <b>not</b>" in shown and "**" not in shown and "<h1>head</h1>" in shown
    assert b.text(".body pre") == "<script>alert(1)</script>"
    assert b.text(".turn.user .body") == "<script>alert(5)</script><b>me</b>"
    assert b.js("return [document.querySelector('.thought').open, document.querySelector('.thought div').textContent]") == [False, "<u>think</u> <img src=y onerror=alert(3)>"]
    ask(b, "again")
    assert last(b, ".error") == "<img src=x onerror=alert(4)>"
    made = b.js("return document.querySelectorAll('#turns :is(img, script, iframe, svg, b, h1, u, a), #model *:not(option), .pill *').length")
    assert made == 0 and b.js("return document.title") == "Chat · Coxswain"
    assert [line for line in b.log() if "400" not in line] == []


@needs_browser
def test_what_goes_wrong_is_said_in_sentences(browser, server):
    b = browser
    server.script = Script(steps=[refuse(503, "No group serves now.", Retry_After=1), refuse(429, "Too many requests.", Retry_After=1), say("Here at last")])
    begin(b, server.url)
    b.js("""window.said = []; new MutationObserver(() => said.push(document.querySelector('.foot span')?.textContent))
        .observe(document.querySelector('#turns'), {subtree: true, childList: true, characterData: true})""")
    assert ask(b, "Hello") == "Here at last" and len(server.script.asked) == 3
    said = b.js("return said")
    assert "No group serves now. Trying again in 1 s." in said and "Too many requests. Trying again in 1 s." in said
    # Without Retry-After the page leaves the retry to the user.
    server.script = Script(steps=[refuse(503, "The gateway is shutting down."), say("Back")])
    assert ask(b, "Two") == "" and last(b, ".error") == "The gateway is shutting down."
    b.click(".turn.model:last-child .foot button:nth-child(2)")
    assert ended(b, 2) == "Back" and [m["content"] for m in server.script.asked[-1][1]["messages"]] == ["Hello", "Here at last", "Two"]
    # After an error event or a broken stream the received text stays.
    server.script = Script(steps=[error_after("Half ", "The worker was lost.")])
    assert (ask(b, "Go"), last(b, ".error")) == ("Half ", "The worker was lost.")
    server.script = Script(steps=[cut_after("Half ", seen := threading.Event())])
    b.type("#prompt", "Go" + ENTER)
    wait_for("it comes", lambda: last(b, ".body") == "Half " and b.js("return document.querySelectorAll('.turn.model').length") == 4)
    seen.set()
    assert ended(b, 4) == "Half " and last(b, ".error").startswith("The connection broke before the answer ended")
    # This answer has an event that the API does not have.
    def odd(h, body):
        h.begin_stream()
        h.event(None)
        h.end_stream()
    server.script = Script(steps=[odd])
    ask(b, "Odd")
    assert last(b, ".error").startswith("An event of the answer is not a JSON object")
    # A malformed number is reported before any request.
    server.script = Script(steps=[say("no")])
    b.js("document.querySelector('#temperature').value = 9")
    ask(b, "Hot")
    assert last(b, ".error").startswith("Temperature: ") and server.script.asked == []
    b.js("document.querySelector('#temperature').value = ''")
    # A key is requested in the middle of a conversation.
    server.script = Script(steps=[say("Open")], key="k")
    ask(b, "Locked")
    assert "requires an API key" in last(b, ".error") and b.js("return document.activeElement.id") == "key" and b.text("#state") == "key wanted"
    # A key that was copied with an invisible character cannot be in a header.
    b.type("#key", "k\u200b\t")
    wait_for("it is said", lambda: b.text("#notice").startswith("This key has a character that no key has"))
    assert b.text("#state") == "key wanted"
    b.log()


@needs_browser
def test_a_base_model_continues_the_text(browser, server):
    refused = re.search(r'"(This model has no chat template: use )', (ROOT / "gateway/dialects/openai_chat.c").read_text())[1] + "/v1/completions."
    b, server.script = browser, Script(models=["base"], steps=[refuse(400, refused), say(" and then it sank")])
    begin(b, server.url)
    b.type("#system", "Be brief.")
    assert ask(b, "The ship sailed") == " and then it sank"
    (_, first, _), (path, body, _) = server.script.asked
    assert "messages" in first and path == "/v1/completions" and body["prompt"] == "The ship sailed" and body["logprobs"] == 5
    assert "base has no chat template: it is a base model" in b.text("#notice")
    b.js("document.querySelector('.turn.model .body').focus()")
    b.press(RIGHT)
    assert "and" in b.text("#peek .chosen")
    ask(b, "Next")
    assert len(server.script.asked) == 3 and server.script.asked[2][0] == "/v1/completions"
    assert all("400" in line for line in b.log())


@needs_browser
def test_a_model_is_continued_where_the_person_says_so(browser, server):
    """The user chooses to continue the text, because a base model may have a template too."""
    b, server.script = browser, Script(models=["demo"], steps=[say(" there was")])
    begin(b, server.url)
    b.click("#plain")
    assert ask(b, "Once upon a time") == " there was"
    b.click("#plain")
    ask(b, "Hello")
    (path, body, _), (then, _, _) = server.script.asked
    assert (path, body["prompt"], then) == ("/v1/completions", "Once upon a time", "/v1/chat/completions")


@needs_browser
def test_a_browser_that_blocks_storage(browser, server):
    b, server.script = browser, Script(steps=[say("Calm")])
    with b.without_storage():
        begin(b, server.url)
        b.js("const t = document.querySelector('#theme'); t.value = 'dark'; t.dispatchEvent(new Event('change'))")
        assert b.js("return document.documentElement.dataset.theme") == "dark"
        assert ask(b, "Hello") == "Calm" and b.log() == []


# ---- appearance ----

LONG = """Here is **how** to moor, in `three` steps:

1. Approach slowly, against the wind.
2. Make the bow line fast.

```python
for line in lines: print("a line of code that is much longer than a phone is wide", line, "and goes on and on")
```
averyveryveryveryveryveryveryveryveryveryveryverylongwordwithoutanyspaceatallthatgoesonandonandonandon"""


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width, height", [(1300, 850), (390, 844), (320, 568)])
def test_light_dark_and_a_phone(browser, server, theme, width, height):
    b, server.script = browser, Script(models=["a-model-with-a-name-that-is-longer-than-a-phone-is-wide/and-more-of-it"], steps=[say(LONG, reasoning="Thinking about it.")])
    b.theme(theme)
    b.resize(width, height)
    begin(b, server.url)
    assert b.js("return document.documentElement.dataset.theme") == theme
    assert b.js("return document.querySelector('#settings').open") == (width > 600)
    assert b.wide() == [] and b.pale() == []
    ask(b, "A long question about mooring a rather large ship? " * 3)
    b.js("document.querySelector('.thought').open = true; document.querySelector('.body[tabindex]').focus()")
    b.press(RIGHT)
    assert b.wide() == [] and b.pale() == []
    seen = b.js("return ['#prompt', '#send', '#model'].map(s => { const r = document.querySelector(s).getBoundingClientRect(); return r.top >= 0 && r.bottom <= innerHeight; })")
    assert seen == [True] * 3
    b.js("document.querySelector('#settings').open = true")
    assert b.wide() == [] and b.pale() == []
    assert b.js("return getComputedStyle(document.querySelector('.body pre')).overflowX") == "auto"
    assert b.log() == []


@needs_browser
def test_settings_that_were_opened_for_the_key_make_room_again(browser, server):
    b, server.script = browser, Script(steps=[say(LONG)], key="k")
    b.resize(320, 568)
    begin(b, server.url, "key wanted")
    assert b.js("return [document.activeElement.id, document.querySelector('#settings').open]") == ["key", True]
    assert b.wide() == []
    b.type("#key", "k" + ENTER)
    wait_for("the key is taken", lambda: b.text("#state") == "ready")
    assert b.js("return [document.activeElement.id, document.querySelector('#settings').open]") == ["prompt", False]
    ask(b, "Hello")
    assert b.wide() == [] and b.js("return document.querySelector('#talk').clientHeight") > 300
