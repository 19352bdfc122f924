"""Tests the docs site, the dashboard and the chat page with axe-core in Chromium: axe-core has no finding of impact serious or
critical.

Each page is tested in light and dark, at 1200 and 390 pixels of width. scripts/setup --ui installs Chromium and axe-core.
"""
import functools
import http.server
import threading
from pathlib import Path

import pytest
from browser import MISSING, Browser
from chat_fixture import ChatFixture, Script, say
from cluster import SLOW, wait_for
from dashboard_fixture import Fixture, World
from site_build import NEEDS_MKDOCS

AXE = Path(__file__).parent / "node_modules/axe-core/axe.min.js"
ABSENT = MISSING or (None if AXE.exists() else "no axe-core here: scripts/setup --ui installs it, where npm is")
pytestmark = [pytest.mark.skipif(ABSENT is not None, reason=ABSENT or ""), pytest.mark.timeout(300 * SLOW)]
LOOKS = [(theme, width) for theme in ("light", "dark") for width in (1200, 390)]
# PAGES has the landing page, one page of each folder, and the page of a command.
PAGES = ["index.html", "start/laptop.html", "how-to/keys-and-quotas.html", "reference/models.html", "explain/architecture.html",
         "develop/docs.html", "reference/commands/up.html"]
LEVELS = ("serious", "critical")
RUN = """
    const done = arguments[0];
    axe.run(document, {resultTypes: ["violations"], elementRef: false, preload: false, iframes: false}).then(
        r => done(r.passes.length < 10 ? [["critical", "axe has hardly looked at anything", [], 1]] : r.violations.map(v => [v.impact, v.id, v.nodes.slice(0, 5).map(n => n.target.join(" ") + ": " + n.failureSummary.split("\\n").slice(1, 2).join(" ").trim()), v.nodes.length])),
        e => done([["critical", "axe failed: " + e, [], 1]]));
"""


def axe(b):
    """Returns [(impact, rule, examples, count)] of the page in its present state."""
    if not b.js("return typeof axe === 'object'"):
        b.devtools("Runtime.evaluate", expression=AXE.read_text())  # this call is not subject to the page's Content-Security-Policy
    return b.call("POST", "/execute/async", {"script": RUN, "args": []})


def look(b, name, found):
    """Adds the findings of a page in each theme and width to `found`."""
    for theme, width in LOOKS:
        b.theme(theme)
        b.resize(width, 844)
        b.js("return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        for impact, rule, examples, count in axe(b):
            if impact in LEVELS:
                found.append(f"{name}, {theme}, {width} px: {impact}: {rule} ({count}): " + "; ".join(examples))


@pytest.fixture(scope="module")
def window():
    with Browser() as b:
        yield b


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@NEEDS_MKDOCS
def test_docs_site(window, site):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = []
    try:
        for page in PAGES:
            window.open(f"http://127.0.0.1:{server.server_port}/{page}")
            look(window, page, found)
    finally:
        server.shutdown()
        server.server_close()
    assert not found, "\n".join(found)


def test_dashboard(window):
    found = []
    with Fixture(World(64, 600)) as f:
        window.open(f.url)
        wait_for("the dashboard is there", lambda: window.text("#requests-count") == "600")
        look(window, "dashboard", found)
    assert not found, "\n".join(found)


def test_chat_page(window):
    found = []
    with ChatFixture() as f:
        f.script = Script(models=["qwen3-8b"], steps=[say("Come in **slowly**:\n\n1. a line\n\n```python\nprint(1)\n```\n", reasoning="The person asks.")])
        window.open(f.url)
        wait_for("the page is ready", lambda: window.text("#state") == "ready")
        window.type("#prompt", "How do I moor a boat?\ue007")
        wait_for("the answer is there", lambda: window.js("return document.querySelector('.turn.model') && !document.querySelector('.working')"))
        look(window, "chat page", found)
    assert not found, "\n".join(found)
