"""Tests damaged HTTP against a running gateway. Whatever bytes arrive, the gateway answers in HTTP or hangs up, keeps running
without a sanitizer's report (findings.py) and serves the next client. COX_HTTP_BYTES is the number of connections (default 1500),
COX_HTTP_SEED the random seed."""
import json
import os
import random
import re
import socket

import httpx
import pytest
from cluster import SHORT, SLOW, Cluster, alive

N = int(os.environ.get("COX_HTTP_BYTES", "300" if SHORT else "1500"))
SEED = int(os.environ.get("COX_HTTP_SEED", "1"))
KEY = "sk-e2e-test"
BODIES = {
    "/v1/completions": {"prompt": "Once", "max_tokens": 4},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "stream": True},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 4, "stream": True},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4},
    "/v1/embeddings": {"input": ["Hi"], "encoding_format": "base64"},
    "/tokenize": {"prompt": "Hi"},
    "/invocations": {"inputs": "Hi", "parameters": {"max_new_tokens": 4}},
    "/v1/batches": {"input_file_id": "file-x", "endpoint": "/v1/completions", "completion_window": "24h"},
}
PATHS = ["/v1/models", "/v1/models/null", "/health", "/metrics", "/openapi.json", "/v1/files?limit=2", "/v1/responses/x"]
# PIECES confuse parsers: lengths, codings, line ends, repeated names.
PIECES = [b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"\t", b"0", b"-1", b"18446744073709551616", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n",
          b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"Host: x\r\n",
          b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"HTTP/2.0", b"HTTP/0.9", b"%00", b"%", b"..", b"\r\n folded", b"Content-Length : 5\r\n", b"Transfer-Encoding:\r\n\tchunked\r\n", b"0\r\nX: y\r\n\r\n",
          b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"A" * 9000, b"X: y\r\n" * 300, b'{"', b"[" * 200, b"\xff\xfe"]


def request(rng):
    """Returns a valid request with a body of known length, in chunks, or without one."""
    head = f"Host: x\r\nAuthorization: Bearer {KEY}\r\n"
    if rng.random() < 0.3:
        return f"{rng.choice(['GET', 'HEAD', 'DELETE', 'OPTIONS'])} {rng.choice(PATHS)} HTTP/1.1\r\n{head}\r\n".encode()
    path = rng.choice(list(BODIES))
    body = json.dumps(BODIES[path]).encode()
    head = f"POST {path} HTTP/1.1\r\n{head}Content-Type: application/json\r\n".encode()
    if rng.random() < 0.3:
        cut = rng.randrange(len(body))
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:cut], body[cut:]) if p)
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def damage(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 2, 4, 16])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del data[at:at + rng.choice([1, 2, 8, 64])]
        elif kind == 3:
            data[at:at] = rng.choice(PIECES)
        elif kind == 4:
            data[at:at] = data[at:at + rng.choice([4, 32, 200])]
        elif kind == 5:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice([1, 7])))
        if not data:
            break
    return bytes(data)


def converse(port, rng, data):
    """Sends `data` in pieces and returns the answer. Half of the clients hang up without reading."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30 * SLOW) as s:
        try:
            step = rng.choice([len(data) or 1, 1 + rng.randrange(200), 1 + rng.randrange(20)])
            for i in range(0, min(len(data), step * 60), step):
                s.sendall(data[i:i + step])
            s.sendall(data[step * 60:])
            if rng.random() < 0.5:
                return got
            s.shutdown(socket.SHUT_WR)
            while len(got) < 1 << 20:
                more = s.recv(65536)
                if not more:
                    break
                got += more
        except (ConnectionError, TimeoutError) as e:
            assert not isinstance(e, TimeoutError), f"neither an answer nor an end: {data!r} -> {got!r}"
    return got


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster("--api-key", KEY, "--served-model-name", "null", "--max-model-len", "256",
                 "--state-dir", tmp_path_factory.mktemp("state"), workers=1, tp=1) as c:
        yield c


def test_the_harness_gets_answers(cluster):
    """Every undamaged request gets a valid HTTP answer. Without this test, the test below would also pass with a client that sends
    nothing."""
    rng = random.Random(0)
    statuses = set()
    for _ in range(60):
        rng_of_one = random.Random(rng.random())
        got = b""
        while not got:
            got = converse(cluster.ports[0], rng_of_one, request(rng_of_one))
        statuses.add(int(got[9:12]))
    assert {200, 404} <= statuses and not any(s >= 500 for s in statuses), statuses


@pytest.mark.timeout(7200)
def test_damaged_requests(cluster, capsys):
    pid = cluster.pid("gateway-0")
    statuses = {}
    for i in range(N):
        rng = random.Random(f"{SEED}.{i}")
        data = b"".join(damage(rng, request(rng)) for _ in range(rng.choice([1, 1, 1, 2, 3])))
        got = converse(cluster.ports[0], rng, data)
        assert not got or re.match(rb"HTTP/1\.[01] [1-5]\d\d ", got), f"{SEED}.{i}: {data!r} -> {got[:200]!r}"
        for status in re.findall(rb"HTTP/1\.[01] (\d\d\d) ", got):
            statuses[int(status)] = statuses.get(int(status), 0) + 1
        assert not any(s in statuses for s in (500, 502)), f"{SEED}.{i}: {data!r} -> {got!r}"
    with capsys.disabled():
        print(f"{N} connections, statuses {dict(sorted(statuses.items()))}")
    assert {200, 400} <= set(statuses)
    assert alive(pid) and cluster.pid("gateway-0") == pid
    r = httpx.post(cluster.url + "/v1/completions", headers={"x-api-key": KEY}, json=BODIES["/v1/completions"], timeout=30 * SLOW)
    assert r.status_code == 200
    cluster.wait_idle(30)


# Headers and chunks that never end. The answer must be bounded, whatever follows.
FLOODS = {
    "a method": b"A",
    "a target": b"GET /" + b"a" * 4000,
    "a header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 4000,
    "headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n",
    "a chunk's extension": b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n1;" % KEY.encode(),
    "trailers": b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" % KEY.encode(),
    "expectations": b"",
}
PIECE = {"headers": b"X: y\r\n" * 700, "trailers": b"X: y\r\n" * 700, "a chunk's extension": b"a=b;" * 1000,
         "expectations": (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\n"
                          b"Content-Length: 2\r\n\r\n{}" % KEY.encode()) * 20}


@pytest.mark.parametrize("what", FLOODS)
def test_what_never_ends_is_refused(cluster, what):
    """The client sends 4 MiB and reads nothing until all of it is sent."""
    piece = PIECE.get(what, b"a" * 4096)
    with socket.create_connection(("127.0.0.1", cluster.ports[0]), timeout=30 * SLOW) as s:
        got = b""
        try:
            s.sendall(FLOODS[what])
            s.settimeout(2 * SLOW)
            for _ in range((4 << 20) // len(piece)):
                s.sendall(piece)
        except OSError:
            pass  # the gateway hung up, or stops reading until the client reads
        s.settimeout(5 * SLOW)
        try:
            while len(got) < 4096 and (more := s.recv(4096)):
                got += more
        except OSError:
            pass
    statuses = re.findall(rb"HTTP/1\.1 (\d\d\d) ", got)
    assert got == b"" or statuses[0] in (b"100", b"400", b"414", b"431"), got[:300]
    assert httpx.get(cluster.url + "/v1/models", headers={"x-api-key": KEY}, timeout=30 * SLOW).status_code == 200
    with open(f"/proc/{cluster.pid('gateway-0')}/status") as f:
        assert int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1]) < (1 << 20)  # the gateway's memory was never large
