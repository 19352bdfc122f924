"""Tests the dashboard in headless Chromium (scripts/setup --ui): its figures under load equal `cox status --json`; the admin key;
the keyboard; 500 workers and 5,000 requests in few elements. bench/dashboard measures frames and memory."""
import json
import os
import re
import signal
from collections import Counter

import pytest
from browser import MISSING, Browser
from cluster import SLOW, Cluster, run_cox, wait_for
from dashboard_fixture import Fixture, World
from test_dashboard_stream import KEY, begin_requests

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=MISSING or ""), pytest.mark.timeout(400 * SLOW)]  # Chromium may take a minute to start
TAB, RIGHT, ENTER = "\ue004", "\ue014", "\ue007"
ROWS = """return [...document.querySelectorAll(`#${arguments[0]}-table tbody tr`)].map(tr => [...tr.cells].map(td => td.innerText))"""


@pytest.fixture(scope="module")
def window():
    with Browser() as b:
        yield b


@pytest.fixture
def browser(window):
    window.resize_back()
    window.theme("light")
    window.open("about:blank")  # closes the previous test's page, which would log errors about its missing head
    window.log()
    return window


def number(text):
    found = re.search(r"[\d,]+(\.\d+)?", text)
    return float(found[0].replace(",", "")) if found else None  # the page shows "–" when there is no value yet


def shown(b):
    """Returns the page's figures as numbers."""
    names = ("tile-running", "tile-waiting", "tile-finished", "tile-kv", "fact-workers", "fact-context", "fact-term", "fact-gateways")
    texts = b.js("return Object.fromEntries(arguments[0].map(id => [id, document.getElementById(id).innerText]))",  # one script reads all figures, so they come from one moment
                 [*names, "tile-kv-sub", "tile-finished-sub", "health", "fact-model", "fact-groups"])
    used, total = (number(part) for part in texts["tile-kv-sub"].split(" of "))
    failed, cancelled = (number(part) for part in texts["tile-finished-sub"].split(","))
    return {**{name: number(texts[name]) for name in names}, "kv-used": used, "kv-total": total, "failed": failed, "cancelled": cancelled,
            "health": texts["health"], "model": texts["fact-model"], "groups-ready": [number(part) for part in texts["fact-groups"].split(" of ")]}


def told(c):
    """Returns the same figures from `cox status --json`."""
    done = run_cox("status", "--address", f"127.0.0.1:{c.admin_port}", "--json")
    s = json.loads(done.stdout)
    return {"tile-running": s["requests"]["running"], "tile-waiting": s["requests"]["waiting"], "tile-finished": s["requests"]["finished"],
            "tile-kv": round(100 * s["kv"]["usage"], 1), "fact-workers": len(s["workers"]), "fact-context": s["model"]["max_model_len"],
            "fact-term": s["term"], "fact-gateways": len(s["gateways"]), "kv-used": s["kv"]["blocks_used"], "kv-total": s["kv"]["blocks_total"],
            "failed": s["requests"]["failed"], "cancelled": s["requests"]["cancelled"], "health": "serving" if s["healthy"] else "not serving",
            "model": s["model"]["name"], "groups-ready": [sum(g["state"] == "ready" for g in s["groups"]), len(s["groups"])]}, s


def test_under_load_it_shows_what_the_status_says(browser):
    # With steps of 0.4 s blocks fill slowly, so that the page and `cox status` can be read at the same moment.
    with Cluster("--null-step-us", 400_000, "--max-num-seqs", 3, workers=4, tp=2) as c:
        wait_for("both groups serve", lambda: [g["state"] for g in c.status()["groups"]] == ["ready"] * 2)
        end = begin_requests(c, 8, 5000)
        try:
            wait_for("all are here, and some wait", lambda: c.running() == 8 and c.status()["requests"]["waiting"] > 0)
            browser.open(c.admin + "/")

            def agree():
                before, status = told(c)
                return shown(browser) == before and status

            wait_for("the page shows what the status says", lambda: (number(browser.text("#tile-running")) or 0) > 0)
            status = wait_for("all figures agree", agree)
            groups = browser.js(ROWS, "groups")
            assert [[g[0], g[1], g[2], number(g[5]), number(g[6])] for g in groups] == \
                   [[str(g["id"]), g["state"], g["epoch"], g["running"], g["waiting"]] for g in sorted(status["groups"], key=lambda g: g["id"])]
            workers = browser.js(ROWS, "workers")
            assert [[w[0], w[1], w[2], w[3]] for w in workers] == \
                   [[f"{w['node']} #{w['ordinal']}", w["state"], str(w["group"]), f"{w['stage']}.{w['rank']}"]
                    for w in sorted(status["workers"], key=lambda w: w["ordinal"])]
            # Each process reports its cores, and its part of the machine's memory. There is no GPU.
            wait_for("each has said what it takes", lambda: all(
                re.fullmatch(r"\d+\.\d / \d+", w[4]) and re.fullmatch(r"[\d.]+ [KMG]iB / [\d.]+ [MGT]iB", w[5]) and w[6:9] == ["–"] * 3
                for w in browser.js(ROWS, "workers")))
            rows = browser.js(ROWS, "requests")
            n_waiting = status["requests"]["waiting"]
            assert sorted(r[1] for r in rows) == ["queued"] * n_waiting + ["running"] * (8 - n_waiting)
            assert any(e[1] == "group_ready" for e in browser.js(ROWS, "events"))
            browser.js("const s = document.querySelector('#requests-show'); s.value = 'waiting'; s.dispatchEvent(new Event('change'))")
            wait_for("those that wait are shown alone", lambda: [r[1] for r in browser.js(ROWS, "requests")] == ["queued"] * n_waiting)
        finally:
            end()
        wait_for("the page sees them end", lambda: browser.text("#tile-running") == "0")
        wait_for("and keeps in step", agree)
        assert browser.log() == []  # the console has no failure, and no refusal by the policy


def test_the_key_is_asked_for_and_stays_in_the_tab(browser, tmp_path):
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    key_file.chmod(0o600)
    with Cluster("--admin-key-file", key_file) as c:
        browser.open(c.admin + "/")
        wait_for("the key is asked for", lambda: browser.js("return document.activeElement.id") == "key")
        assert not browser.js("return document.querySelector('#main').checkVisibility()")
        browser.type("#key", "wrong")
        browser.click("#key-form button")
        wait_for("a wrong one is refused", lambda: browser.text("#key-error") == "That is not the key of this head.")
        browser.type("#key", KEY + "\u200b")
        browser.click("#key-form button")
        wait_for("one that no header can have", lambda: browser.text("#key-error").startswith("This key has a character that no key has"))
        browser.type("#key", KEY)
        browser.click("#key-form button")
        wait_for("the right one shows the page", lambda: browser.text("#fact-workers") == "2")
        browser.call("POST", "/refresh", {})
        wait_for("and is known after a reload", lambda: browser.text("#fact-workers") == "2")
        browser.js("window.asked = []; const was = fetch; window.fetch = (a, o) => { asked.push([a, o.headers.Authorization]); return was(a, o); }")
        browser.click("#pause")
        browser.click("#pause")
        address, header = wait_for("the stream is asked for anew", lambda: browser.js("return window.asked[0]"))
        assert address.startswith("api/stream?") and KEY not in address and header == "Bearer " + KEY
        assert KEY not in browser.js("return location.href")
        assert browser.js("return [JSON.stringify(localStorage), document.cookie]") == ["{}", ""]
        browser.js("sessionStorage.clear()")
        assert all("401" in line for line in browser.log())


def test_a_browser_that_blocks_storage_keeps_the_key_in_the_page(browser, tmp_path):
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    key_file.chmod(0o600)
    with browser.without_storage(), Cluster("--admin-key-file", key_file, workers=1, tp=1) as c:
        browser.open(c.admin + "/")
        wait_for("the key is asked for", lambda: browser.js("return document.activeElement.id") == "key")
        browser.type("#key", KEY)
        browser.click("#key-form button")
        wait_for("the page shows the cluster", lambda: browser.text("#fact-workers") == "1")
        browser.click("#pause")
        browser.click("#pause")
        wait_for("it asks anew with the key", lambda: browser.text("#health") == "serving")
        assert all("401" in line for line in browser.log())


def test_a_head_that_is_gone_is_said_and_found_again(browser):
    with Cluster() as c:
        browser.open(c.admin + "/")
        wait_for("it serves", lambda: browser.text("#health") == "serving")
        browser.click("#pause")
        assert re.fullmatch(r"paused since \d\d:\d\d:\d\d", browser.text("#health"))
        browser.click("#pause")
        wait_for("it goes on", lambda: browser.text("#health") == "serving")
        before = c.pid("head")
        os.kill(c.process.pid, signal.SIGSTOP)  # `cox up` is stopped so that no other head is started yet
        os.kill(before, signal.SIGKILL)
        since = wait_for("what is shown is said to be old", lambda: re.fullmatch(r"no answer since (\d\d:\d\d:\d\d)", browser.text("#health")))[1]
        assert browser.text("#away").startswith(f"The head has not answered since {since}: ") and browser.text("#fact-workers") == "2"
        assert "grayscale" in browser.js("return getComputedStyle(document.querySelector('#main')).filter") and browser.wide() == []
        os.kill(c.process.pid, signal.SIGCONT)
        wait_for("another head serves and is shown", lambda: c.pids().get("head", before) != before and browser.text("#fact-groups") == "1 of 1"
                 and browser.text("#health") == "serving")
        assert browser.js("return [getComputedStyle(document.querySelector('#main')).filter, document.querySelector('#away').hidden]") == ["none", True]
    wait_for("no answer is said", lambda: browser.text("#health").startswith("no answer since"))


def test_groups_that_are_gone_go(browser):
    with Cluster(workers=4, tp=2) as c:
        browser.open(c.admin + "/")
        wait_for("both groups are shown", lambda: browser.text("#fact-groups") == "2 of 2" and len(browser.js(ROWS, "workers")) == 4)
        options = "return [...document.querySelectorAll('#kv-group option')].map(o => o.value)"
        wait_for("and can be picked", lambda: browser.js(options) == ["0", "1"])
        browser.js("const s = document.querySelector('#kv-group'); s.value = '1'; s.dispatchEvent(new Event('change'))")
        wait_for("the other one is shown", lambda: (browser.js("return document.querySelector('#kv').getAttribute('aria-label')") or "").startswith("KV blocks of replica 1:"))
        done = run_cox("scale", "2", env=c.env)
        assert done.returncode == 0, done.stderr
        wait_for("one group is left", lambda: browser.text("#fact-groups") == "1 of 1" and browser.text("#fact-workers") == "2")
        (left,) = browser.js(ROWS, "groups")
        assert browser.js(options) == [left[0]] and browser.js("return document.querySelector('#kv-group').value") == left[0]
        assert "2 workers in 1 replica:" in browser.js("return document.querySelector('#topology').getAttribute('aria-label')")


def test_a_cluster_in_which_nothing_has_happened_says_what_to_do(browser):
    with Fixture(World(0, 0, is_new=True)) as f:
        browser.open(f.url)
        said = wait_for("the page is there", lambda: browser.text("#fact-workers") == "0" and browser.js(
            "return Object.fromEntries([...document.querySelectorAll('.empty')].filter(e => e.checkVisibility()).map(e => [e.closest('section').id || e.parentElement.id, e.innerText]))"))
        assert sorted(said) == ["events-table", "failures-table", "groups-table", "requests", "workers-table"]
        assert "A replica needs 4 workers; none is connected. Start more with: cox worker MODEL" in said["groups-table"]
        assert "cox worker MODEL --head HOST:7000" in said["workers-table"] and "cox chat" in said["requests"]
        assert all(text.endswith(".") for text in said.values())
        assert browser.text("#kv-detail").startswith("No replica serves yet") and browser.wide() == [] and browser.pale() == []
        assert browser.log() == []


HOSTILE = "<img src=x onerror=\"document.title='gone'\">{}".format


def test_workers_stand_in_the_order_of_their_names_and_sort(browser):
    with Fixture(World(24, 10, node="cox-worker-{}".format, per_node=1)) as f:
        browser.open(f.url)
        names = lambda: [row[0] for row in browser.js(ROWS, "workers")]  # noqa: E731
        wait_for("they are there", lambda: len(names()) > 12)
        assert names()[:12] == [f"cox-worker-{i}" for i in range(12)]  # the names end with the ordinal, and worker 2 is before worker 10
        row = browser.js(ROWS, "workers")[3]
        assert re.fullmatch(r"\d\.\d / 16", row[4]) and row[5].endswith(" / 512 GiB") and row[6].endswith(" %") and row[7].endswith(" / 80.0 GiB")
        browser.js("document.querySelector('#workers-table th:nth-child(5) button').click()")
        cpu = lambda: [float(row[4].split()[0]) for row in browser.js(ROWS, "workers")]  # noqa: E731
        wait_for("the busiest are first", lambda: cpu() == sorted(cpu(), reverse=True) and names()[0] != "cox-worker-0")
        assert browser.js("return document.querySelector('#workers-table th:nth-child(5)').getAttribute('aria-sort')") == "descending"


def test_hostile_names_stay_text(browser):
    with Fixture(World(16, 10, node=HOSTILE)) as f:
        f.world.events[-1][4].update(by="<b>mallory</b>", text="a reason of many words " * 8)
        browser.open(f.url)
        wait_for("they are there", lambda: browser.js(ROWS, "workers")[:1] and browser.js(ROWS, "events")[:1])
        assert browser.js(ROWS, "workers")[0][0] == HOSTILE(0) + " #0"
        assert "by=<b>mallory</b>" in browser.js("return document.querySelector('#events-table tbody td:nth-child(3)').title")
        whole = browser.js("const td = document.querySelector('#events-table tbody td:nth-child(3)'); return td.scrollWidth <= td.clientWidth && td.innerText.trim().endsWith('words')")
        assert whole, "all fields of an event can be scrolled to"
        browser.js("const s = document.querySelector('#topology-by'); s.value = 'node'; s.dispatchEvent(new Event('change'))")
        assert browser.js("return [document.querySelectorAll('main :is(img, b:not(figure b), script)').length, document.title]") == [0, "serving · Coxswain"]
        assert browser.log() == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_500_workers_in_light_and_dark_and_on_a_phone(browser, theme):
    with Fixture(World(500, 5000)) as f:
        browser.theme(theme)
        for width, height in ((1500, 1000), (390, 844)):
            browser.resize(width, height)
            browser.open(f.url)
            wait_for("the page is there", lambda: browser.text("#requests-count") == "5,000" and len(browser.js(ROWS, "workers")) > 10)
            assert browser.js("return document.documentElement.dataset.theme") == theme
            assert browser.wide() == [] and browser.pale() == []
        boxes = browser.js("return [...document.querySelectorAll('.scroll')].map(b => [b.clientWidth < innerWidth, b.scrollWidth > b.clientWidth])")
        assert len(boxes) == 5 and all(fits for fits, _ in boxes) and sum(scrolls for _, scrolls in boxes) >= 4
        browser.js("document.querySelector('#workers-table .scroll').scrollLeft = 400")
        first = browser.js("const td = document.querySelector('#workers-table tbody td').getBoundingClientRect(); return td.left >= 0")
        assert first, "a worker's name stays in view"
        assert browser.log() == []


def test_the_keyboard_reaches_everything_and_leaves_it(browser):
    with Fixture(World(16, 30)) as f:
        browser.open(f.url)
        wait_for("the page is there", lambda: len(browser.js(ROWS, "requests")) > 10)
        way = []
        for _ in range(80):
            browser.press(TAB)
            name, is_seen = browser.js("""const e = document.activeElement, s = getComputedStyle(e);
                return [e.id || e.getAttribute("aria-label") || e.innerText || e.tagName, s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1.5]""")
            if name in way[:1] or browser.js("return document.activeElement === document.body"):
                break
            assert is_seen, name
            way.append(name)
        missing = {"Skip to requests", "pause", "theme", "topology-by", "topology", "kv-group", "requests-show", "Requests, scrolls", "Replicas, scrolls",
                   "Workers, scrolls", "events-filter", "Events, newest first, scrolls", "Recent failures, newest first, scrolls"} - set(way)
        assert not missing and 20 < len(way) < 80, way


def test_the_keyboard_and_what_a_screen_reader_is_told(browser):
    with Fixture(World(48, 300)) as f:
        browser.open(f.url)
        wait_for("the page is there", lambda: len(browser.js(ROWS, "requests")) > 10)
        assert browser.js("return ['header', 'main', 'footer', 'h1'].map(t => document.querySelectorAll(t).length)") == [1, 1, 1, 1]
        unnamed = browser.js("""return [...document.querySelectorAll('section, table, canvas, button, select, input, [role=region], [role=img]')]
            .filter(e => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.labels?.length || e.innerText?.trim()))
            .map(e => e.outerHTML.slice(0, 80))""")
        assert unnamed == []
        table = browser.js("""const t = document.querySelector('#requests-table table'), r = t.querySelector('tbody tr');
            return [t.getAttribute('aria-rowcount'), r.getAttribute('aria-rowindex'), t.querySelectorAll('th[scope=col]').length, r.cells.length]""")
        assert table == ["301", "2", 11, 11]

        def tree_is_whole():  # elements with a block layout are still a table for screen readers
            heard = Counter(n["role"]["value"] for n in browser.devtools("Accessibility.getFullAXTree")["nodes"] if not n["ignored"])
            there = browser.js("return Object.fromEntries(['table', 'tr', 'th', 'td'].map(t => [t, document.querySelectorAll(t).length]))")
            return [heard[role] for role in ("table", "row", "columnheader", "cell")] == [there[tag] for tag in ("table", "tr", "th", "td")]

        wait_for("its tree has all that is there", tree_is_whole)  # the browser updates the tree some time after the page
        browser.press(TAB)
        assert browser.js("return document.activeElement.className") == "skip"
        browser.js("document.querySelector('#topology').focus()")
        browser.press(RIGHT, RIGHT)
        assert "replica 0, stage 0, rank 1" in browser.text("#topology-detail")
        outline = browser.js("const e = document.activeElement; return [e.id, getComputedStyle(e).outlineStyle]")
        assert outline == ["topology", "solid"]
        browser.js("document.querySelector('.chart canvas').focus()")
        browser.press(RIGHT)
        wait_for("the moment is said", lambda: " at " in browser.js("return document.activeElement.getAttribute('aria-label')"))
        browser.js("document.querySelector('#requests-table th[aria-sort] button').focus()")
        browser.press(ENTER)
        wait_for("the order is said", lambda: browser.js("return document.activeElement.parentElement.getAttribute('aria-sort')") == "ascending")


def test_thousands_of_rows_are_few_elements(browser):
    world = World(500, 5000)
    with Fixture(world) as f:
        browser.open(f.url)
        wait_for("the page is there", lambda: browser.text("#requests-count") == "5,000")
        assert browser.text("#workers-count") == "500" and browser.text("#groups-count") == "125"
        assert browser.js("return document.querySelectorAll('*').length") < 5000
        browser.js("const b = document.querySelector('#requests-table .scroll'); b.scrollTop = b.scrollHeight")

        def last():  # the rows in view change with the next frame
            at, row = browser.js("""const tr = [...document.querySelectorAll('#requests-table tbody tr')].at(-1);
                return [tr.getAttribute('aria-rowindex'), [...tr.cells].map(td => td.innerText)]""")
            return row if at == "5001" and "…" not in row[1:3] else None

        row = wait_for("the last rows have come", last)
        lowest = browser.js("return Number(document.querySelector('#requests-table tbody tr').ariaRowIndex)")
        browser.js("const b = document.querySelector('#requests-table .scroll'); b.scrollTop -= 600")
        in_order = """const at = [...document.querySelectorAll('#requests-table tbody tr')].map(r => r.getBoundingClientRect().top / 24);
            return document.querySelector(`#requests-table tr[aria-rowindex="${arguments[0]}"]`) !== null
                && at.every((y, i) => Math.abs(y - at[0] - i) < 1e-3)"""
        wait_for("rows that have moved stand in the order in which they are seen", lambda: browser.js(in_order, lowest - 10))
        youngest = max(world.requests, key=lambda r: -r["age"])
        assert row[0].startswith(youngest["id"][:8])
        assert browser.js("return document.querySelectorAll('*').length") < 5000
        for selector in ("#workers-table", "#groups-table"):
            browser.js("const b = document.querySelector(arguments[0] + ' .scroll'); b.scrollTop = b.scrollHeight", selector)
        wait_for("the last worker is there", lambda: browser.js(ROWS, "workers")[-1][0] == "node-062 #499")
        assert browser.log() == []
