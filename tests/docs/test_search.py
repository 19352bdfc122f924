"""Tests the site's search in Chromium: a query that a user types finds the page that answers it, as the first result.

QUERIES has the query and its page. Where several pages would be right, it gives all of them.
"""
import functools
import http.server
import threading

import pytest
from browser import MISSING, Browser
from cluster import ROOT, SLOW
from site_build import NEEDS_MKDOCS

pytestmark = [NEEDS_MKDOCS, pytest.mark.skipif(MISSING is not None, reason=MISSING or ""), pytest.mark.timeout(300 * SLOW)]
QUERIES = [
    ("install", "start/install"),
    ("docker", "start/server how-to/build-image start/laptop"),
    ("helm install", "start/kubernetes"),
    ("api key", "how-to/keys-and-quotas"),
    ("rate limit", "how-to/keys-and-quotas"),
    ("autoscale", "how-to/autoscale"),
    ("upgrade", "how-to/upgrade"),
    ("gpu", "start/gpu"),
    ("openshift", "start/openshift"),
    ("sagemaker", "start/sagemaker reference/sagemaker"),
    ("out of memory", "how-to/debug how-to/plan how-to/runbook"),
    ("metrics", "reference/metrics how-to/monitor"),
    ("grafana", "how-to/monitor"),
    ("tool calling", "reference/openai how-to/clients reference/api how-to/serve-a-model"),
    ("json schema", "reference/structured-outputs"),
    ("lora", "how-to/several-models how-to/serve-a-model reference/api"),
    ("quantization", "reference/models how-to/serve-a-model"),
    ("gguf", "reference/models how-to/serve-a-model"),
    ("ollama", "how-to/migrate-from-ollama"),
    ("vllm serve", "how-to/migrate-from-vllm"),
    ("ray", "how-to/migrate-from-vllm-on-ray"),
    ("claude code", "how-to/clients"),
    ("benchmark", "how-to/bench"),
    ("dashboard", "how-to/dashboard"),
    ("worker died", "how-to/debug how-to/runbook explain/recovery"),
    ("backup", "how-to/back-up"),
    ("air gapped", "how-to/deploy"),
    ("deterministic", "explain/exactness"),
    ("license", "how-to/build-image"),
    ("getting started", "start/laptop"),
    ("https", "start/server how-to/serve-a-model"),
    ("tls certificate", "start/server"),
    ("streaming", "reference/api"),
    ("djl", "how-to/migrate-from-djl"),
    ("what happens when a worker crashes", "explain/recovery"),
    ("high availability", "explain/recovery"),
    ("speculative decoding", "explain/concepts"),
    ("reproducible output", "explain/exactness"),
    ("web ui", "how-to/chat-page"),
    ("batch api", "reference/api"),
    ("how much vram do i need", "how-to/plan"),
    ("uninstall", "start/kubernetes reference/chart"),
    ("logs", "how-to/debug how-to/monitor"),
    ("docker image", "how-to/build-image"),
    ("rollback", "how-to/upgrade"),
    ("cuda", "start/gpu"),
    ("huggingface token", "reference/environment"),
    ("prometheus", "how-to/monitor"),
    ("embeddings", "reference/api"),
    ("function calling", "reference/openai reference/api"),
    ("json mode", "reference/structured-outputs"),
    ("langchain", "how-to/clients"),
    ("cursor", "how-to/clients"),
    ("systemd", "start/server"),
    ("offline", "how-to/deploy"),
    ("proxy", "start/server"),
    ("slow", "how-to/debug"),
    ("503", "reference/errors how-to/debug"),
    ("port in use", "reference/errors start/laptop"),
    ("windows", "start/laptop"),
    ("multi gpu", "start/gpu"),
    ("tensor parallel", "explain/concepts"),
    ("context length", "reference/flags"),
    ("authentication", "how-to/keys-and-quotas"),
    ("open webui", "how-to/clients"),
    ("vision", "reference/models"),
    ("prefix caching", "explain/concepts"),
    ("How do I install it?", "start/install"),
    ("install on kubernetes", "start/kubernetes"),
    ("model not found", "reference/errors how-to/debug"),
]
# ASK empties the search field, types the query like a user, and waits for the list of results.
ASK = """
    const [query, done] = arguments, input = document.querySelector("input.md-search__input");
    const items = () => [...document.querySelectorAll(".md-search-result__list > li > a")].map(a => a.getAttribute("href"));
    const put = text => { input.value = text; input.dispatchEvent(new Event("input", {bubbles: true})); input.dispatchEvent(new Event("keyup", {bubbles: true})); };
    const until = (holds, then, left) => holds() || left === 0 ? then() : setTimeout(() => until(holds, then, left - 1), 20);
    put("");
    until(() => !items().length, () => { put(query); until(() => items().length, () => done(items().slice(0, 5)), 500); }, 100);
"""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def first_pages(site, queries):
    """Returns query -> the pages of the first results, as "folder/name"."""
    server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with Browser() as b:
            root = f"http://127.0.0.1:{server.server_port}/"
            b.open(root + "index.html")
            b.click("input.md-search__input")
            found = {}
            for query in queries:
                hrefs = b.call("POST", "/execute/async", {"script": ASK, "args": [query]})
                found[query] = [h.removeprefix(root).partition("#")[0].partition("?")[0].removesuffix(".html") for h in hrefs]
            return found
    finally:
        server.shutdown()
        server.server_close()


def test_queries_find_the_right_page_first(site):
    assert len(QUERIES) == 70
    for query, pages in QUERIES:
        for page in pages.split():
            assert (ROOT / "docs" / f"{page}.md").is_file(), f"{query}: no page {page}"
    found = first_pages(site, [q for q, _ in QUERIES])
    missed = [f"{query!r}: wanted {' or '.join(pages.split())}; found {', '.join(found[query]) or 'nothing'}"
              for query, pages in QUERIES if not found[query] or found[query][0] not in pages.split()]
    assert not missed, "\n".join(missed)
    assert not [p for pages in found.values() for p in pages if p.startswith(("develop/", "files/"))]
