"""Tests that scripts/docs builds the docs site strictly, completely, and without anything from another host (scripts/setup --docs)."""
import re
import shutil
import subprocess
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

import pytest
from browser import MISSING, Browser
from cluster import BIN, ROOT, SLOW, wait_for
from site_build import NEEDS_MKDOCS, build

pytestmark = [NEEDS_MKDOCS, pytest.mark.timeout(300 * SLOW)]
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("source", "src"), ("object", "data"), ("use", "href")}


class Page(HTMLParser):
    """`Page` holds the URLs that an HTML page of the site links to and loads, its anchors, and the links of its sidebar."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.ids, self.nav, self.classes = [], [], set(), [], set()
        self.article, self.text, self.open = False, [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        classes = set((a.get("class") or "").split())
        self.classes |= classes
        if "id" in a:
            self.ids.add(a["id"])
        for kind, name in LOADED:
            if tag == kind and a.get(name) and not (tag == "link" and a.get("rel") in ("canonical", "prev", "next")):
                self.loaded.append(a[name])
        if tag == "a" and a.get("href") is not None:
            self.links.append(a["href"])
            if "md-nav__link" in classes:
                self.nav.append(a["href"])
        if tag in ("article", "pre", "code"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data):
        if self.open == ["article"]:
            self.text.append(data)


@pytest.fixture(scope="module")
def pages(site):
    return {p.relative_to(site).as_posix(): Page(p) for p in site.rglob("*.html") if p.name != "404.html"}


def resolved(site, page, url):
    path, anchor = urldefrag(url)
    to = (site / page).parent / unquote(path) if path else site / page
    return to.resolve(), unquote(anchor)


def test_every_link_and_anchor_leads_somewhere(site, pages):
    wrong = []
    for name, page in pages.items():
        for url in page.links + page.loaded:
            if re.match(r"[a-z]+:", url):
                continue
            to, anchor = resolved(site, name, url)
            there = to.is_file() and to.is_relative_to(site.resolve())
            if there and anchor and to.suffix == ".html" and to.name != "404.html":
                there = anchor in pages[to.relative_to(site.resolve()).as_posix()].ids
            if not there:
                wrong.append(f"{name}: {url}")
    assert not wrong, "\n".join(wrong[:40])
    assert sum(len(p.links) for p in pages.values()) > 1000


def test_every_page_is_in_the_navigation(site, pages):
    named = {resolved(site, "index.html", url)[0] for url in pages["index.html"].nav}
    assert not [name for name in pages if (site / name).resolve() not in named]
    markdown = {p.relative_to(ROOT / "docs").with_suffix(".html").as_posix().replace("README", "index") for p in (ROOT / "docs").rglob("*.md")}
    assert not markdown - set(pages), "pages of docs/ that the site lacks"


def test_nothing_comes_from_another_host(site, pages):
    for name, page in pages.items():
        assert not [u for u in page.loaded if re.match(r"([a-z]+:)?//", u)], name
        assert "mermaid" not in page.classes, f"{name}: the theme would fetch what draws it"
    for sheet in site.rglob("*.css"):
        found = re.findall(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)", sheet.read_text())
        assert not found, (sheet.name, found)


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_the_search_finds_things_from_a_folder_too(site):
    with Browser() as b:
        b.open(f"file://{site}/index.html")
        b.type("input.md-search__input", "elastic")
        found = wait_for("results", lambda: b.text(".md-search-result__list") or None, 60)
        assert "elastic" in found.lower() and not b.log()


def test_every_command_has_its_page(pages):
    """Every command has its page, also those of `cox bench`. The list is the program's own."""
    def listed(*words):
        said = subprocess.run([BIN / "cox", *words], capture_output=True, text=True, timeout=30 * SLOW, check=True).stdout
        return re.findall(r"^  ([a-z-]+)  ", said, re.M)

    commands = listed("help")
    assert "up" in commands and len(commands) > 20
    wanted = {f"reference/commands/{c}.html" for c in commands} | {f"reference/commands/bench-{c}.html" for c in listed("bench", "--help")}
    of_run = subprocess.run([BIN / "cox", "run", "--help"], capture_output=True, text=True, timeout=30 * SLOW, check=True).stdout
    wanted |= {f"reference/commands/run-{c}.html" for c in re.search(r"cox run ([a-z|]+)$", of_run, re.M)[1].split("|")}
    assert "reference/commands/run-create.html" in wanted
    assert wanted == {name for name in pages if name.startswith("reference/commands/")}


def test_a_command_s_page_says_what_its_help_says(site):
    help_text = subprocess.run([BIN / "cox", "bench", "serve", "--help"], capture_output=True, text=True, timeout=30 * SLOW, check=True).stdout
    text = (site / "reference/commands/bench-serve.html").read_text()
    for flag in re.findall(r"^  (--[a-z-]+)", help_text, re.M):
        assert flag in text
    assert "../flags.html#cox-bench-serve" in text


def test_pages_read_as_on_a_git_host(pages):
    """No list item, table row, fence or link is left as text, as Python-Markdown would leave it."""
    for name, page in pages.items():
        text = "".join(page.text)
        for sign in (r"^\s*- \S", r"^\|.*\|$", r"```", r"\]\([^)\s]+\)"):
            found = re.search(sign, text, re.M)
            assert not found, f"{name}: {text[max(0, found.start() - 100):found.end() + 100]!r}"


def test_a_link_to_nowhere_and_a_page_outside_the_navigation_fail(tmp_path):
    root = tmp_path / "tree"
    for part in ("docs", "scripts/site", "deploy"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("mkdocs.yml", "README.md", "LICENSE", "THIRD_PARTY_NOTICES.md"):
        shutil.copy(ROOT / file, root / file)
    with open(root / "docs/reference/cli.md", "a") as f:
        f.write("\n[nowhere](nowhere.md), [no anchor](cli.md#no-such-section), [no file](../../deploy/none.yaml)\n")
    (root / "docs/orphan.md").write_text("# An orphan\n")
    done = build(tmp_path / "site", root)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    for text in ("nowhere.md", "no-such-section", "deploy/none.yaml", "orphan.md"):
        assert text in said, said


def test_without_the_programs_it_says_what_to_do(tmp_path):
    done = build(tmp_path / "site", COX_BIN=str(tmp_path))
    assert done.returncode != 0 and "scripts/build first, or COX_BIN" in done.stdout + done.stderr

GENERATED = {"reference/flags.md", "reference/openai.md", "reference/environment.md", "reference/events.md", "reference/errors.md", "status.md"}


def test_the_users_part_stays_small():
    """Users read docs/ without docs/develop/ and the developers' record of GPUs; generated pages do not count."""
    pages = {p.relative_to(ROOT / "docs").as_posix(): p.stat().st_size for p in (ROOT / "docs").rglob("*.md")}
    users = {n: size for n, size in pages.items() if not n.startswith("develop/") and n not in GENERATED | {"gpu-status.md"}}
    assert sum(users.values()) < 300_000, sorted(users.items(), key=lambda item: -item[1])[:10]
