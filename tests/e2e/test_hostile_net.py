"""Tests that a gateway holds at most a fixed share of memory for one client, and that other sites' web pages cannot use a gateway
without keys. These tests count and measure memory. tests/unit/common/http/server/http_bounds_test.c tests the minimum rate and
the stall."""
import json
import os
import re
import signal
import socket
import threading
import time

import httpx
import pytest
from cluster import SANITIZED, SLOW, Cluster, wait_for

ALICE, BOB = "sk-net-alice", "sk-net-bob"
MIB = 1 << 20
WEB = httpx.Client(timeout=30 * SLOW)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("net")
    (folder / "keys").write_text(f"{ALICE} alice\n{BOB} bob\nsk-net-other carol models=some-adapter\n")
    with Cluster("--api-key-file", folder / "keys", "--state-dir", folder / "state",
                 "--max-body-bytes", 4 * MIB, "--max-body-bytes-total", 32 * MIB, "--max-answer-bytes-total", 40 * MIB,
                 workers=1, tp=1) as c:
        yield c


@pytest.fixture(scope="module")
def keyless():
    with Cluster("--allowed-hosts", "llm.internal,other.internal", "--allowed-origins", "https://app.example", workers=1, tp=1) as c:
        yield c


def call(c, method, path, key=ALICE, **kwargs):
    headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **kwargs.pop("headers", {})}
    return WEB.request(method, c.url + path, headers=headers, **kwargs)


def upload(c, size, key=ALICE, name="x.jsonl"):
    r = call(c, "POST", "/v1/files", key, data={"purpose": "batch"}, files={"file": (name, b"0123456789abcdef" * (size // 16))})
    assert r.status_code == 200, r.text
    return r.json()["id"]


def ask(c, head, receive=65536):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    s.settimeout(30 * SLOW)
    s.connect(("127.0.0.1", c.ports[0]))
    s.sendall(head)
    return s


def get(path, key):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


def rss(c):
    with open(f"/proc/{c.pid('gateway-0')}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) << 10


def metric(c, name, key=ALICE):
    r = call(c, "GET", "/metrics", key)
    assert r.status_code == 200, r.text
    return float(re.search(rf"^{re.escape(name)} (\S+)$", r.text, re.M)[1])


# ---- answers that no client reads ----

def test_a_file_comes_whole_and_in_slices(cluster):
    size = 3 * MIB + 16
    file = upload(cluster, size)
    r = call(cluster, "GET", f"/v1/files/{file}/content")
    assert r.status_code == 200 and r.content == b"0123456789abcdef" * (size // 16)
    assert r.headers["content-length"] == str(size) and "transfer-encoding" not in r.headers
    r = call(cluster, "HEAD", f"/v1/files/{file}/content")
    assert (r.status_code, r.headers["content-length"], r.content) == (200, str(size), b"")
    with ask(cluster, get(f"/v1/files/{file}/content", ALICE) + get("/v1/models", ALICE)) as s:  # the connection stays open
        got = b""
        while b'"object":"list"' not in got[size:]:
            got += s.recv(65536)
    assert call(cluster, "GET", f"/v1/files/{file}/content", BOB).status_code == 404
    assert call(cluster, "DELETE", f"/v1/files/{file}").status_code == 200
    assert call(cluster, "GET", f"/v1/files/{file}/content").status_code == 404


def test_readers_of_a_file_who_do_not_read(cluster):
    """60 readers of 3 MiB do not need 180 MiB, as in an earlier version. Each reader costs little, and other clients are served."""
    file = upload(cluster, 3 * MIB)
    before = rss(cluster)
    readers = [ask(cluster, get(f"/v1/files/{file}/content", ALICE), 4096) for _ in range(60)]
    for s in readers:
        assert s.recv(12) == b"HTTP/1.1 200"
    wait_for("they wait", lambda: metric(cluster, 'coxswain_gateway_http_held_bytes{what="answers"}') > MIB)
    # A tenant has at most half of the memory, and a reader 256 KiB of that half, so all readers are accepted.
    assert metric(cluster, 'coxswain_gateway_http_held_bytes{what="answers"}') <= 20 * MIB
    if not SANITIZED:
        assert rss(cluster) - before < 40 * MIB
    theirs = upload(cluster, 2 * MIB, BOB)
    assert len(call(cluster, "GET", f"/v1/files/{theirs}/content", BOB).content) == 2 * MIB
    for s in readers:
        s.close()
    wait_for("nothing waits", lambda: metric(cluster, 'coxswain_gateway_http_held_bytes{what="answers"}') == 0)
    assert call(cluster, "GET", f"/v1/files/{file}/content").content == b"0123456789abcdef" * (3 * MIB // 16)


def test_a_file_deleted_while_it_is_read(cluster):
    """The reader of a deleted file receives a truncated answer, never other bytes."""
    file = upload(cluster, 4 * MIB - 4096)
    with ask(cluster, get(f"/v1/files/{file}/content", ALICE), 4096) as s:
        got = s.recv(4096)
        assert call(cluster, "DELETE", f"/v1/files/{file}").status_code == 200
        while more := s.recv(65536):
            got += more
    body = got.split(b"\r\n\r\n", 1)[1]
    assert len(body) < 4 * MIB - 4096 and body == (b"0123456789abcdef" * (len(body) // 16 + 1))[:len(body)]


# ---- bodies that do not end ----

def test_room_for_bodies_is_shared(cluster):
    """Alice's stalled uploads use half of the memory. Her next upload is refused after its headers, and Bob is served."""
    size = 4 * MIB
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ALICE}\r\nContent-Length: {size}\r\n\r\n"
    held = [ask(cluster, head.encode() + b"x" * 1000) for _ in range(4)]
    wait_for("they are held", lambda: metric(cluster, 'coxswain_gateway_http_held_bytes{what="bodies"}') == 4 * size)
    prompt = {"model": "null", "prompt": "word " * 15000, "max_tokens": 1}
    with ask(cluster, head.encode()) as late:
        answer = late.recv(65536)
    assert answer.startswith(b"HTTP/1.1 503") and b"Retry-After: 1" in answer and b"use all the memory for requests" in answer, answer
    assert call(cluster, "POST", "/v1/completions", BOB, json=prompt).status_code != 503
    assert call(cluster, "POST", "/v1/completions", BOB, json={**prompt, "prompt": "hi"}).status_code == 200
    assert call(cluster, "POST", "/v1/completions", json={**prompt, "prompt": "hi"}).status_code == 200  # small bodies need no reserved memory
    assert metric(cluster, 'coxswain_gateway_http_no_room_total{what="bodies"}') >= 1
    for s in held:
        s.close()
    wait_for("the room is free", lambda: metric(cluster, 'coxswain_gateway_http_held_bytes{what="bodies"}') == 0)


def test_a_body_that_was_read_holds_no_room(cluster):
    """Bodies of open streams add up to twice a tenant's memory, and reserve none of it."""
    body = {"model": "null", "prompt": "hi", "max_tokens": 20000, "ignore_eos": True, "stream": True, "metadata": {"x": "a" * (4 * MIB - 1000)}}
    raw = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ALICE}\r\nContent-Length: {len(raw)}\r\n\r\n"
    streams = []
    for _ in range(8):
        streams.append(ask(cluster, head.encode() + raw))
        answer = streams[-1].recv(4096)
        assert answer.startswith(b"HTTP/1.1 200"), answer
    assert metric(cluster, 'coxswain_gateway_http_held_bytes{what="bodies"}') == 0
    for s in streams:
        s.close()


@pytest.mark.parametrize("size", [4 * MIB, 65000, 1])
def test_without_a_key_no_body_is_held(cluster, size):
    """The answer arrives before the body is sent, and the client can read the answer while it sends."""
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
    with ask(cluster, head.encode()) as s:
        assert s.recv(12) == b"HTTP/1.1 401"
    with ask(cluster, head.encode() + b"x" * (size - 1)) as s:
        assert s.recv(12) == b"HTTP/1.1 401"
    assert metric(cluster, 'coxswain_gateway_http_held_bytes{what="bodies"}') == 0


def test_a_gateway_that_stood_still_blames_nobody(tmp_path):
    """The gateway is stopped for longer than a body may stall. When it continues, it reads the rest of the body and accepts the
    request."""
    with Cluster("--transfer-timeout", "0.5", "--state-dir", tmp_path, workers=1, tp=1) as c:
        body = json.dumps({"model": "null", "prompt": "x", "max_tokens": 1, "user": "u" * 60000}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        uploads = [ask(c, head + body[:30000]) for _ in range(3)]
        file = upload(c, 4 * MIB, None)
        reader = ask(c, f"GET /v1/files/{file}/content HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(), 4096)
        got = []
        reading = threading.Thread(target=lambda: got.extend(iter(lambda: reader.recv(65536), b"")))
        reading.start()
        os.kill(c.pid("gateway-0"), signal.SIGSTOP)
        try:
            for s in uploads:
                s.sendall(body[30000:])
            time.sleep(1.5)
        finally:
            os.kill(c.pid("gateway-0"), signal.SIGCONT)
        for s in uploads:
            assert s.recv(12) == b"HTTP/1.1 200"
            s.close()
        reading.join()
        reader.close()
        assert len(b"".join(got).split(b"\r\n\r\n", 1)[1]) == 4 * MIB


# ---- the view of a key ----

def test_lists_are_by_key(cluster):
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "null", "prompt": "x", "max_tokens": 1}}
    r = call(cluster, "POST", "/v1/files", data={"purpose": "batch"}, files={"file": ("b.jsonl", json.dumps(line).encode())})
    file = r.json()["id"]
    r = call(cluster, "POST", "/v1/batches", json={"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"})
    assert r.status_code == 200, r.text
    batch = r.json()["id"]

    def ids(path, key):
        return {e["id"] for e in call(cluster, "GET", path, key).json()["data"]}

    assert file in ids("/v1/files", ALICE) and file not in ids("/v1/files", BOB)
    assert ids("/v1/batches", ALICE) == {batch} and ids("/v1/batches", BOB) == set()
    assert call(cluster, "GET", f"/v1/batches/{batch}", BOB).status_code == 404
    assert call(cluster, "POST", f"/v1/batches/{batch}/cancel", BOB).status_code == 404
    assert ids("/v1/models", ALICE) == {"null"} and ids("/v1/models", "sk-net-other") == set()


def test_metrics_are_by_key(cluster):
    text = call(cluster, "GET", "/metrics").text
    assert 'model_name="null"' in text and not re.search("alice|bob|carol", text)
    r = call(cluster, "GET", "/metrics", "sk-net-other")
    assert r.status_code == 403 and "model_name" not in r.text and "admin key" in r.text
    assert call(cluster, "GET", "/metrics", None).status_code == 401


# ---- loopback without keys ----

FOREIGN = ["attacker.example", "attacker.example:8000", "127.0.0.1.attacker.example", "localhost.attacker.example", "10.0.0.1", "0.0.0.0",
           "llm.internal.attacker.example", "[::2]:80"]
OURS = ["localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:8000", "[::1]:80", "llm.internal", "other.internal:8443"]


def test_foreign_hosts_are_refused(keyless):
    worker = f"http://127.0.0.1:{keyless.worker_http_port}"
    body = {"model": "null", "prompt": "x", "max_tokens": 1}
    for host in FOREIGN:
        for path in ("/v1/models", "/v1/files", "/metrics", "/nothing", "/health"):
            r = call(keyless, "GET", path, None, headers={"Host": host})
            assert r.status_code == 403 and "--allowed-hosts" in r.text, (host, path, r.text)
        assert call(keyless, "POST", "/v1/completions", None, headers={"Host": host}, json=body).status_code == 403
        for path in ("/metrics", "/livez", "/readyz"):
            assert WEB.get(worker + path, headers={"Host": host}).status_code == 403, (host, path)
        assert WEB.get(keyless.admin + "/metrics", headers={"Host": host}).status_code == 403
    for host in OURS:
        assert call(keyless, "POST", "/v1/completions", None, headers={"Host": host}, json=body).status_code == 200, host
    assert WEB.get(worker + "/metrics").status_code == 200
    with ask(keyless, b"GET /v1/models HTTP/1.0\r\n\r\n") as s:
        assert s.recv(12) == b"HTTP/1.1 200"
    with ask(keyless, b"GET http://attacker.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n") as s:
        assert s.recv(12) == b"HTTP/1.1 403"


def test_forms_of_foreign_pages_are_refused(keyless):
    """A page may post text/plain without a preflight request, so the gateway checks its Origin."""
    text = '{"model": "null", "prompt": "x", "max_tokens": 1}'
    for origin, status in (("http://attacker.example", 403), ("https://attacker.example:8000", 403), ("null", 403),
                           ("http://localhost.attacker.example", 403), ("http://localhost:3000", 200), ("https://127.0.0.1", 200),
                           ("http://[::1]:5173", 200), ("https://app.example", 200), ("https://llm.internal", 200),
                           ("chrome-extension://abcdef", 200), ("tauri://localhost", 200)):
        r = call(keyless, "POST", "/v1/completions", None, headers={"Origin": origin, "Content-Type": "text/plain"}, content=text)
        assert r.status_code == status and (status == 200 or "--allowed-origins" in r.text), (origin, r.text)
    r = WEB.post(keyless.admin + "/api/drain", headers={"Origin": "http://attacker.example"}, json={"worker": "all", "on": True})
    assert r.status_code == 403
    assert not keyless.status()["draining"]


def test_with_keys_any_host_is_fine(cluster):
    for host in FOREIGN:
        assert call(cluster, "GET", "/v1/models", headers={"Host": host, "Origin": "http://attacker.example"}).status_code == 200
        assert call(cluster, "GET", "/health", None, headers={"Host": host}).status_code == 200
