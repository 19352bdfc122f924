"""Tests access rights: every route of the gateway with every kind of key, over HTTP."""
import contextlib
import gzip
import hashlib
import json
import socket
import subprocess
import threading

import httpx
import pytest
from cluster import BIN, Cluster, free_ports, get, wait_for

KEY, ADMIN = "sk-user-key", "sk-admin-key-1"
WEB = httpx.Client(timeout=20)
OPEN = {"/health", "/ready", "/accepting", "/ping", "/", "/chat/*"}


def routes():
    said = subprocess.run([str(BIN / "cox-gateway"), "routes"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in said.splitlines()]
    assert len(rows) >= 14 and ["POST", "/v1/chat/completions", "key"] in rows
    return rows


def header(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def status(url, method, path, key):
    return WEB.request(method, url + path.replace("**", "null").replace("/chat/*", "/chat/main.js").replace("*", "null"), headers=header(key)).status_code


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys")
    (keys / "users").write_text(f"{KEY} acme\n")
    (keys / "admin").write_text(ADMIN + "\n")
    (port,) = free_ports(1)
    with Cluster("--api-key-file", keys / "users", "--enable-lora", "--lora-root", keys,
                 "--admin-key-file", keys / "admin",
                 workers=1, tp=1) as c:
        # This starts a second gateway of the same cluster, with a separate address for admin routes.
        (second,) = free_ports(1)
        command = [str(BIN / "cox-gateway"), "--model", "null", "--head", f"127.0.0.1:{c.head_port}", "--insecure",
                   "--port", str(second), "--api-key-file", str(keys / "users"), "--admin-key-file",
                   str(keys / "admin"), "--admin-port", str(port)]
        c.second, c.second_admin, c.second_command = f"http://127.0.0.1:{second}", f"http://127.0.0.1:{port}", command
        yield c


def test_every_route_with_every_key(cluster):
    for method, path, access in routes() + [["GET", "/nothing", "none"], ["POST", "/v1/nothing", "none"],
                                            ["PUT", "/v1/models", "none"]]:
        anonymous = status(cluster.url, method, path, None)
        if path in OPEN:
            assert anonymous == 200, path
            continue
        assert anonymous == 401, (method, path)
        assert status(cluster.url, method, path, "sk-wrong-key") == 401, (method, path)
        if method == "POST":  # the body of an unauthenticated client is not decompressed, so the gateway does not detect its error
            packed = {"Content-Encoding": "gzip", **header("sk-wrong-key")}
            reply = WEB.post(cluster.url + path.replace("*", "null"), headers=packed, content=b"no gzip")
            assert reply.status_code == 401, (method, path)
        user, admin = (status(cluster.url, method, path, key) for key in (KEY, ADMIN))
        if access == "admin":
            assert user == 401 and admin not in (401, 403), (method, path, user, admin)
        elif access == "key":
            assert user not in (401, 403) and admin == 401, (method, path, user, admin)
        else:
            assert user not in (401, 403) and admin == user, (method, path, user, admin)
        if access == "none":
            assert user in (404, 405), (method, path, user)


def test_keys_in_other_headers_and_shapes(cluster):
    def models(**headers):
        return httpx.get(cluster.url + "/v1/models", headers=headers).status_code

    assert models(Authorization=f"bearer  {KEY}") == 200
    assert models(Authorization=f"Basic {KEY}") == 401
    assert models(Authorization=KEY) == 401
    assert models(Authorization=f"Bearer {KEY}x") == 401
    assert models(Authorization=f"Bearer {KEY[:-1]}") == 401


def test_admin_routes_at_their_own_address(cluster):
    gateway = subprocess.Popen(cluster.second_command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        # the gateway needs no head here, because it checks rights first
        wait_for("the second gateway listens", lambda: get(cluster.second_admin + "/livez")[0] == 200, 20)
        for method, path, access in routes():
            here, there = cluster.second, cluster.second_admin
            if access == "admin":
                assert [status(here, method, path, k) for k in (None, KEY, ADMIN)] == [401, 404, 404], path
                assert [status(there, method, path, k) for k in (None, KEY)] == [401, 401], path
                assert status(there, method, path, ADMIN) not in (401, 404), path
            elif access == "key":
                assert [status(there, method, path, k) for k in (None, KEY, ADMIN)] == [401, 401, 404], path
        assert status(there, "GET", "/metrics", ADMIN) == 200
        assert [status(there, "GET", "/metrics", k) for k in (None, KEY)] == [401, 401]
        assert [status(url, "GET", "/", k) for url in (here, there) for k in (None, ADMIN)] == [200, 200, 401, 404]  # the path / is the chat page
        assert [status(there, "GET", "/livez", k) for k in (None, KEY)] == [200, 200]
        assert [status(here, "GET", "/metrics", k) for k in (None, KEY, ADMIN)] == [401, 200, 200]
    finally:
        gateway.terminate()
        gateway.wait(20)


def answer_of(port, head, body=b""):
    """Sends raw bytes. Returns (status, headers of the answer) when the server closes the connection or the answer is complete."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(f"{head}\r\nHost: a\r\n\r\n".encode() + body)
        got = b""
        while b"\r\n\r\n" not in got:
            piece = s.recv(1 << 16)
            assert piece, (head, got)
            got += piece
    return int(got.split()[1]), got.split(b"\r\n\r\n")[0].decode()


def test_the_key_comes_before_the_body(cluster):
    """An unauthenticated client gets the error about the key, whatever its body contains. A large body is neither awaited nor
    decompressed."""
    bomb = gzip.compress(bytes(64 << 20))
    cases = [("Content-Encoding: br\r\nContent-Length: 1", b"x", 415), ("Content-Encoding: gzip, gzip, gzip\r\nContent-Length: 1", b"x", 415),
             (f"Content-Encoding: gzip\r\nContent-Length: {len(bomb)}", bomb, 413), ("Content-Encoding: gzip\r\nContent-Length: 1", b"x", 400),
             ("Content-Length: 99999999999", b"", 413), ("Content-Length: 99999999999\r\nExpect: 100-continue", b"", 413),
             ("Content-Length: 3", b"{x}", 400), ("Content-Length: 0", b"", 400),
             ("Transfer-Encoding: chunked", b"fffffff\r\n", 413), ("Transfer-Encoding: chunked", b"3\r\n{x}\r\n0\r\n\r\n", 400)]
    port = cluster.ports[0]
    for path in "/v1/chat/completions", "/v1/messages", "/invocations", "/v1/files":
        for fields, body, want in cases:
            head = f"POST {path} HTTP/1.1\r\n{fields}"
            for key in "", "\r\nx-api-key: sk-wrong-key", f"\r\nx-api-key: {ADMIN}":
                assert answer_of(port, head + key, body)[0] == 401, (path, fields, key)
            known = answer_of(port, f"{head}\r\nx-api-key: {KEY}", body)[0]
            # DJL uses other statuses for a bad body, and this cluster has no store of files
            assert known == want or path in ("/invocations", "/v1/files") and known != 401, (path, fields, known)
    for head in "POST /v1/nothing HTTP/1.1", "PUT /v1/models HTTP/1.1":  # unauthenticated clients cannot find out which routes exist
        assert answer_of(port, head + "\r\nContent-Length: 99999999999")[0] == 401
        assert answer_of(port, head + f"\r\nContent-Length: 99999999999\r\nx-api-key: {KEY}")[0] in (404, 405)
    # The body is not awaited, however short it is, and the connection ends after the answer.
    for length, sent in (10, 10), (10, 9), (60_000, 0), (60_000, 59_999), (70_000, 0), (70_000, 70_000):
        code, said = answer_of(port, f"POST /v1/completions HTTP/1.1\r\nContent-Length: {length}", bytes(sent))
        assert code == 401 and "connection: close" in said.lower(), (length, sent, said)


def test_uploads_of_strangers_take_no_memory(cluster):
    """The bound on bodies being read, 256 MiB in all, does not count the bodies of unauthenticated clients, because the gateway does
    not keep them."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 16000000\r\n\r\n"
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", cluster.ports[0]), timeout=20)) for _ in range(8)]
        for s in held:
            s.sendall(head + bytes(1000))
        assert all(b" 401 " in s.recv(100) for s in held)
        for s in held:
            s.sendall(bytes(1 << 16))  # the body is discarded, and the answer is still readable
        body = json.dumps({"prompt": "a" * 100_000, "max_tokens": 1})
        assert WEB.post(cluster.url + "/v1/completions", content=body, headers=header(KEY)).status_code == 400
        assert all(b"invalid_api_key" in s.recv(1 << 16) for s in held)


@pytest.mark.parametrize("more,want", [((), [401, 200]), (("--metrics-public",), [200, 200])])
def test_metrics_of_two_addresses_are_not_public_where_requests_are(tmp_path, more, want):
    (tmp_path / "admin").write_text(ADMIN + "\n")
    port, admin = free_ports(2)
    gateway = subprocess.Popen([str(BIN / "cox-gateway"), "--model", "null", "--head", "127.0.0.1:1", "--insecure", "--port", str(port),
                                "--admin-port", str(admin), "--admin-key-file", str(tmp_path / "admin"), *more],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        here, there = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}"
        wait_for("the gateway listens", lambda: get(there + "/livez")[0] == 200, 20)
        for url in (here, there):
            assert [status(url, "GET", "/metrics", k) for k in (None, ADMIN)] == want, url
        assert status(here, "GET", "/v1/models", None) == 200
    finally:
        gateway.terminate()
        gateway.wait(20)


def complete(url, key, **body):
    return WEB.post(url + "/v1/completions", headers=header(key),
                    json={"model": "null", "prompt": "Hi", "max_tokens": 4, **body})


@pytest.fixture
def limited(tmp_path):
    """Yields a cluster with a key file that a test rewrites."""
    keys = tmp_path / "keys"
    digest = hashlib.sha256(b"sk-hashed").hexdigest()
    keys.write_text(f"sha256:{digest} acme rate=0.001\nsk-tokens t tokens=8\nsk-alias models=other\n"
                    "sk-streams s streams=2\n")
    # the cluster is slow, so that a stream stays open while a test reads the status
    with Cluster("--api-key-file", keys, "--served-model-name", "null", "other", "--null-step-us", "100000",
                 workers=1, tp=1) as c:
        c.keys = keys
        yield c


def test_limits_and_reload(limited):
    url = limited.url
    assert complete(url, "sk-hashed").status_code == 200
    refused = complete(url, "sk-hashed")
    assert refused.status_code == 429 and 900 < int(refused.headers["Retry-After"]) <= 1000
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"

    assert complete(url, "sk-tokens", max_tokens=7).status_code == 200
    refused = complete(url, "sk-tokens")
    assert refused.status_code == 429 and int(refused.headers["Retry-After"]) >= 1

    assert complete(url, "sk-alias").status_code == 404 and complete(url, "sk-alias", model="other").status_code == 200
    seen = WEB.get(url + "/v1/models", headers=header("sk-alias")).json()
    assert [m["id"] for m in seen["data"]] == ["other"]
    hidden, absent = (WEB.post(url + "/endpoints/e/invocations", json={"inputs": "Hi"}, headers={
        **header("sk-alias"), "X-Amzn-SageMaker-Inference-Component": name}) for name in ("null", "absent"))
    assert hidden.status_code == absent.status_code == 400 and hidden.text == absent.text
    assert status(url, "GET", "/v1/models/null", "sk-alias") == 404

    body = {"model": "null", "prompt": "Hi", "max_tokens": 200, "stream": True}
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            r = stack.enter_context(WEB.stream("POST", url + "/v1/completions", headers=header("sk-streams"), json=body))
            assert r.status_code == 200
        refused = complete(url, "sk-streams")
        assert refused.status_code == 429 and refused.headers["Retry-After"] == "1"
        # The new file removes a key with an open stream, removes a limit, and adds a key.
        limited.keys.write_text("sk-hashed acme\nsk-new\n")
        wait_for("the new key is known", lambda: status(url, "GET", "/v1/models", "sk-new") == 200, 20)
        assert complete(url, "sk-streams").status_code == 401
        assert all(complete(url, "sk-hashed").status_code == 200 for _ in range(2))
    limited.wait_idle()
    limited.keys.write_text("sk-new rate=nonsense\n")
    wait_for("the broken file is told of", lambda: "keys_not_read" in limited.log(), 20)
    assert status(url, "GET", "/v1/models", "sk-hashed") == 200, "a broken file must change nothing"
    assert "sk-new" not in limited.log() and "sk-hashed" not in limited.log()


def test_a_priority_that_means_nothing_is_told_of(tmp_path):
    """In a cluster without priorities, a key's priority has no effect and the log has a warning."""
    keys = tmp_path / "keys"
    keys.write_text("sk-plain\n")
    with Cluster("--api-key-file", keys, workers=1, tp=1) as c:
        keys.write_text("sk-plain\nsk-soon priority=-5\n")
        wait_for("it is told of", lambda: "key_priorities_unused" in c.log(), 20)
        assert complete(c.url, "sk-soon").status_code == 200
        assert complete(c.url, "sk-plain", priority=3).status_code == 400


def test_a_key_has_its_priority(tmp_path):
    """With one slot, waiting requests are served by their key's priority, whatever priority they request."""
    keys = tmp_path / "keys"
    keys.write_text("sk-first priority=-9\nsk-late priority=5\nsk-soon priority=-5\nsk-free\n")
    with Cluster("--api-key-file", keys, "--scheduling-policy", "priority", "--max-num-seqs", 1, "--null-step-us",
                 "20000", workers=1, tp=1) as c:
        ended = []

        def run(name, key, **body):
            r = complete(c.url, key, max_tokens=10, **body)
            ended.append((name, r.status_code))

        body = {"model": "null", "prompt": "Hi", "max_tokens": 5000, "stream": True, "ignore_eos": True}
        with WEB.stream("POST", c.url + "/v1/completions", headers=header("sk-first"), json=body) as first:
            assert first.status_code == 200
            lines = first.iter_lines()  # the iterator must stay, because httpx closes a stream together with it
            next(lines)  # the first request has the slot, and no priority takes the slot away
            threads = [threading.Thread(target=run, args=args, kwargs=kwargs) for args, kwargs in (
                (("late, which asks to be soon", "sk-late"), {"priority": -100}),
                (("in between", "sk-free"), {"priority": 1}),
                (("soon, which asks to be later", "sk-soon"), {"priority": 3}),
                (("soon", "sk-soon"), {}))]
            for i, t in enumerate(threads):
                t.start()
                wait_for("it waits", lambda i=i: c.status()["requests"]["waiting"] == i + 1, 20)
        for t in threads:
            t.join(60)
        assert ended == [("soon", 200), ("in between", 200), ("soon, which asks to be later", 200),
                         ("late, which asks to be soon", 200)]


@pytest.mark.parametrize("env,good", [({"COX_API_KEY": "k1,k2\n"}, ["k1", "k2"]), ({"VLLM_API_KEY": "k3\n"}, ["k3"]),
                                      ({"VLLM_API_KEY": "k3", "COX_API_KEY": "k1"}, ["k1"])])
def test_keys_of_the_environment(env, good):
    """A Secret made with echo ends with a newline. vLLM's variable never leaves the gateway open."""
    with Cluster(env=env) as c:
        for key in ("k1", "k2", "k3", None):
            assert status(c.url, "GET", "/v1/models", key) == (200 if key in good else 401), key
