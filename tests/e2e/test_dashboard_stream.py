"""Tests GET /api/stream and the dashboard's files from a real head: the rights of listeners, the contents, and the bounds."""
import http.client
import json
import re
import socket
import threading
import time
import urllib.request

import pytest
from cluster import ROOT, SLOW, Cluster, get, wait_for

KEY = "admin-e2e"
LISTENERS = int(re.search(r"#define STREAM_LISTENERS\s+(\d+)u", (ROOT / "head/admin/stream.h").read_text())[1])
FILES = {"/": "text/html"} | {f"/dashboard/{p.name}": "text/css" if p.suffix == ".css" else "text/javascript"
                              for p in [*(ROOT / "head/admin/dashboard").iterdir(), *(ROOT / "common/pages").iterdir()] if p.suffix not in (".html", ".md")}


@pytest.fixture(scope="module")
def cluster():
    with Cluster("--null-step-us", 20000, "--max-num-seqs", 4) as c:
        yield c


class Listener:
    """`Listener` uses a raw connection, so that it can stop reading."""

    def __init__(self, port, query="", headers=""):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.sendall(f"GET /api/stream?{query} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = dict(line.decode().strip().split(": ", 1) for line in iter(self.file.readline, b"\r\n"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def body(self):
        return self.file.read(int(self.headers["Content-Length"]))

    def updates(self):
        """Yields each update as {event: data}."""
        text, parts = b"", {}
        while size := int(self.file.readline(), 16):
            text += self.file.read(size)
            assert self.file.readline() == b"\r\n"
            while b"\n\n" in text:
                event, text = text.split(b"\n\n", 1)
                name, data = event.removeprefix(b"event: ").split(b"\ndata: ")
                parts[name.decode()] = json.loads(data)
                if name == b"done":
                    yield parts
                    parts = {}


def begin_requests(c, n, tokens):
    """Starts n streams of this many tokens. Returns a function that ends them."""
    def one(i):
        body = {"prompt": f"{i} and some words more", "max_tokens": tokens, "stream": True, "ignore_eos": True}
        r = urllib.request.Request(c.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(r, timeout=100 * SLOW) as answer:
            while answer.read1(4096) and not ended.is_set():
                pass

    ended = threading.Event()
    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(n)]
    for t in threads:
        t.start()

    def end():
        ended.set()
        for t in threads:
            t.join(20)

    return end


def test_an_update_says_what_the_status_says(cluster):
    end = begin_requests(cluster, 6, 2000)
    try:
        wait_for("four run and two wait", lambda: cluster.status()["requests"]["running"] == 4 and cluster.running() == 6)
        with Listener(cluster.admin_port, "limit=3&sort=arrival&kv=0") as listener:
            assert listener.status == 200 and listener.headers["Content-Type"] == "text/event-stream"
            assert listener.headers["Cache-Control"] == "no-store"
            first, second, third = next(updates := listener.updates()), next(updates), next(updates)
        said, status = first["summary"], cluster.status()
        for name in ("model", "version", "tp", "pp", "role", "term"):
            assert said[name] == status[name]
        assert said["requests"] == status["requests"]
        assert said["kv"]["blocks_total"] == status["kv"]["blocks_total"]
        assert [w[0] for w in first["workers"]["rows"]] == [w["instance"] for w in status["workers"]]
        assert [(g[0], g[1], g[3], g[10]) for g in first["groups"]["rows"]] == \
               [(g["id"], g["state"], g["epoch"], g["kv_blocks_total"]) for g in status["groups"]]
        requests = third["requests"]  # the third update comes one second after the second, which may follow the first at once
        assert (requests["here"], requests["matching"], len(requests["rows"])) == (6, 6, 3)
        assert all(r[1] == "running" and r[9] > 0 for r in requests["rows"])
        kv = first["kv"]
        assert kv["shared"] + kv["owned"] + kv["cached"] + kv["empty"] == kv["blocks"] == status["kv"]["blocks_total"]
        # the second update continues where the first ended
        assert second["samples"]["rows"]
        assert len(second["samples"]["rows"]) == second["samples"]["next"] - first["samples"]["next"]
        assert first["events"]["rows"] and all(e[0] >= first["events"]["next"] for e in second["events"]["rows"])
        assert second["done"]["number"] == first["done"]["number"] + 1
        with Listener(cluster.admin_port, f"show=waiting&limit=10&walk={third['done']['walk']}") as listener:
            more = next(listener.updates())  # the update arrives at once, without the samples that the page already has
        assert len(more["requests"]["rows"]) == 2 and all(r[1] == "queued" for r in more["requests"]["rows"])
        assert ("workers" in more) == (more["done"]["walk"] != third["done"]["walk"])
    finally:
        end()
    cluster.wait_idle()
    with Listener(cluster.admin_port, "show=ended&sort=arrival&desc=1&limit=200") as listener:
        rows = next(listener.updates())["requests"]["rows"]
    assert len(rows) >= 6 and {r[1] for r in rows} <= {"finished", "cancelled"}
    assert [r[3] for r in rows] == sorted((r[3] for r in rows), reverse=True)


def test_what_cannot_be_answered_is_refused(cluster):
    for query, text in (("limit=201", "limit must be a number of at most 200"), ("sort=x", "sort must be arrival"), ("show=all", "show must be live")):
        with Listener(cluster.admin_port, query) as listener:
            assert listener.status == 400
            assert text in json.loads(listener.body())["error"]["message"]
    assert get(cluster.admin + "/api/stream?limit=1", headers={"Host": "dash.example"})[0] == 403


def test_listeners_are_bounded_and_places_come_back(cluster):
    listeners = [Listener(cluster.admin_port) for _ in range(LISTENERS)]
    try:
        for listener in listeners:
            assert next(listener.updates())["done"]["listeners"] <= LISTENERS
        with Listener(cluster.admin_port) as one_more:
            assert one_more.status == 503
            assert f"{LISTENERS} dashboards are open, the most that one head serves" in json.loads(one_more.body())["error"]["message"]
    finally:
        for listener in listeners:
            listener.__exit__()

    def admitted():
        with Listener(cluster.admin_port) as again:
            return again.status == 200

    wait_for("a place is free again", admitted)


def test_one_that_does_not_read_holds_up_nobody(cluster):
    with Listener(cluster.admin_port, "limit=200&kv=0") as silent, Listener(cluster.admin_port) as other:
        assert silent.status == 200
        updates = other.updates()
        begin = next(updates)["done"]["number"]
        time.sleep(2)  # the silent listener's updates wait in its socket
        numbers = [next(updates)["done"]["number"] for _ in range(2)]
        assert numbers == [begin + 1, begin + 2]
        assert cluster.status()["healthy"]


def test_files_come_with_their_type_and_a_strict_policy(cluster):
    for path, kind in FILES.items():
        with urllib.request.urlopen(cluster.admin + path, timeout=10) as r:
            name = "index.html" if path == "/" else path.rsplit("/", 1)[1]
            file = next(f for f in (ROOT / "head/admin/dashboard" / name, ROOT / "common/pages" / name) if f.is_file())
            assert r.read() == file.read_bytes(), path
            assert r.headers["Content-Type"] == kind + "; charset=utf-8"
            policy = r.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert r.headers["X-Content-Type-Options"] == "nosniff"
        with urllib.request.urlopen(urllib.request.Request(cluster.admin + path, method="HEAD"), timeout=10) as r:
            assert (r.status, r.read(), r.headers["Content-Length"]) == (200, b"", str(file.stat().st_size)), path
    for path, to in (("/dashboard", "./"), ("/dashboard/", "../")):  # a relative address works behind a proxy's prefix too
        connection = http.client.HTTPConnection("127.0.0.1", cluster.admin_port, timeout=10)
        connection.request("GET", path)
        r = connection.getresponse()
        assert (r.status, r.headers["Location"]) == (308, to), path
        connection.close()
        with urllib.request.urlopen(cluster.admin + path, timeout=10) as r:
            assert r.url == cluster.admin + "/" and r.headers["Content-Type"].startswith("text/html")
    page = (ROOT / "head/admin/dashboard/index.html").read_text()
    assert not re.search(r"\son\w+=|\sstyle=|<script(?![^>]*\ssrc=)|https?://", page), "the policy would refuse it"


def test_the_key_guards_the_stream_and_not_the_page(tmp_path):
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    key_file.chmod(0o600)
    with Cluster("--admin-key-file", key_file) as c:
        for path in FILES:
            assert get(c.admin + path)[0] == 200, path
        for headers in ("", "Authorization: Bearer wrong\r\n"):
            with Listener(c.admin_port, headers=headers) as listener:
                assert listener.status == 401
        with Listener(c.admin_port, headers=f"Authorization: Bearer {KEY}\r\n") as listener:
            assert listener.status == 200 and next(listener.updates())["summary"]["healthy"]
        with Listener(c.admin_port, f"key={KEY}") as listener:  # a key in an address is never accepted
            assert listener.status == 401
