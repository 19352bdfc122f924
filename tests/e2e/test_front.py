"""Tests the gateway's handling of every request on any route: CORS, ids, the access log, a proxy's path, and clients that send
slowly, too much, or nothing."""
import json
import re
import shutil
import socket
import subprocess
import time

import httpx
import null_oracle as oracle
import pytest
from cluster import BIN, ROOT, Cluster, wait_for

KEY = "sk-front"
PAGE = "https://app.example"
TINY = ROOT / "build/goldens/gemma3_tiny_gguf_q4_0/model.gguf"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "access"
    with Cluster("--api-key", KEY, "--allowed-origins", json.dumps([PAGE, "https://b.example"]), "--allowed-methods",
                 "GET", "POST", "--enable-request-id-headers", "--root-path", "/llm/", "--access-log", log,
                 workers=1, tp=1) as c:
        c.access_log = log
        yield c


@pytest.fixture(scope="module")
def web(cluster):
    with httpx.Client(base_url=cluster.url, timeout=30, headers={"Authorization": f"Bearer {KEY}"}) as c:
        yield c


def preflight(cluster, origin, method="POST"):
    return httpx.request("OPTIONS", cluster.url + "/v1/completions", headers={
        "Origin": origin, "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization,content-type"})


def test_a_browser_asks_first(cluster):
    yes = preflight(cluster, PAGE)
    assert yes.status_code == 200 and yes.headers["Access-Control-Allow-Origin"] == PAGE
    assert yes.headers["Access-Control-Allow-Methods"] == "GET, POST"
    assert yes.headers["Access-Control-Allow-Headers"] == "authorization,content-type"
    assert yes.headers["Vary"] == "Origin" and "Access-Control-Allow-Credentials" not in yes.headers
    for no in (preflight(cluster, "https://evil.example"), preflight(cluster, PAGE + ".evil"),
               preflight(cluster, "null"), preflight(cluster, ",")):
        assert no.status_code == 400 and "Access-Control-Allow-Origin" not in no.headers
    assert preflight(cluster, PAGE, "DELETE").status_code == 400


def test_answers_say_who_may_read_them(web):
    body = {"model": "null", "prompt": "Hi", "max_tokens": 3}
    for stream in (False, True):
        for path, headers in (("/v1/completions", {}), ("/v1/completions", {"Authorization": "no"})):
            r = web.post(path, json=body | {"stream": stream}, headers={"Origin": PAGE} | headers)
            assert r.headers["Access-Control-Allow-Origin"] == PAGE, (stream, headers)
            assert "X-Request-Id" in r.headers["Access-Control-Expose-Headers"]
    assert "Access-Control-Allow-Origin" not in web.get("/v1/models", headers={"Origin": "https://x.example"}).headers
    assert "Access-Control-Allow-Origin" not in web.get("/v1/models").headers
    # OPTIONS without a page's headers is a normal request, so it is refused without a key.
    assert httpx.request("OPTIONS", str(web.base_url) + "/v1/models").status_code == 401


def test_request_ids(web):
    body = {"model": "null", "prompt": "Hi", "max_tokens": 3}
    r = web.post("/v1/completions", json=body, headers={"X-Request-Id": "Mine-1:a_b.c"})
    assert r.headers["X-Request-Id"] == "Mine-1:a_b.c" and r.json()["id"] == "cmpl-Mine-1:a_b.c"
    for bad in ("a b", "x" * 65, 'a"b', ""):
        r = web.post("/v1/completions", json=body, headers={"X-Request-Id": bad})
        assert re.fullmatch("[0-9a-f]{32}", r.headers["X-Request-Id"]), bad
        assert r.json()["id"] == "cmpl-" + r.headers["X-Request-Id"]
    ids = {web.get("/nothing").headers["X-Request-Id"] for _ in range(3)}
    assert len(ids) == 3
    with web.stream("POST", "/v1/completions", json=body | {"stream": True}, headers={"X-Request-Id": "s"}) as r:
        assert r.headers["X-Request-Id"] == "s" and r.status_code == 200
        assert '"id":"cmpl-s"' in r.read().decode()


def test_path_behind_a_proxy(web):
    assert web.get("/llm/v1/models").json() == web.get("/v1/models").json()
    assert web.get("/llm/v1/models/null").status_code == 200
    assert web.get("/llm/health").status_code == 200
    for path in ("/llmx/v1/models", "/llm", "/llm/llm/v1/models", "/x/llm/v1/models"):
        assert web.get(path).status_code == 404, path
    assert httpx.get(str(web.base_url) + "/llm/v1/models").status_code == 401


def entries(cluster, **want):
    whole, _, _ = cluster.access_log.read_text().rpartition("\n")  # the last line may be incomplete
    found = [json.loads(line) for line in whole.splitlines()]
    return [e for e in found if all(e[k] == v for k, v in want.items())]


def test_access_log(cluster, web):
    secret = "my secret prompt"
    httpx.get(cluster.url + "/" + "a" * 600, headers={"X-Request-Id": "log-5", "User-Agent": "b" * 512})
    wait_for("a long path's line", lambda: len(entries(cluster, id="log-5")) == 1, 10)
    long = entries(cluster, id="log-5")[0]
    assert long["path"] == "/" + "a" * 511 + "…" and long["agent"] == "b" * 512
    body = {"model": "null", "prompt": secret, "max_tokens": 5}
    answer = web.post("/v1/completions?q=hidden", json=body, headers={"X-Request-Id": "log-1"})
    httpx.get(cluster.url + "/v1/models", headers={"X-Request-Id": "log-2", "Authorization": "Bearer sk-wrong"})
    with web.stream("POST", "/v1/completions", json=body | {"stream": True}, headers={"X-Request-Id": "log-3"}) as r:
        streamed = r.read()
    with web.stream("POST", "/v1/completions", json=body | {"stream": True, "max_tokens": 1000},
                    headers={"X-Request-Id": "log-4"}) as r:
        next(r.iter_raw())
    wait_for("four lines", lambda: len(entries(cluster, id="log-4")) == 1, 10)
    (one,), (two,), (three,), (four,) = (entries(cluster, id=f"log-{i}") for i in (1, 2, 3, 4))
    assert one["method"] == "POST" and one["path"] == "/v1/completions" and one["status"] == 200
    assert one["bytes"] == len(answer.content) and not one["aborted"] and 0 < one["seconds"] < 60
    assert abs(one["time"] - time.time()) < 120 and one["agent"].startswith("python-httpx")
    assert two["status"] == 401
    assert three["status"] == 200 and three["bytes"] == len(streamed)
    assert four["status"] == 200 and four["aborted"]
    text = cluster.access_log.read_text()
    assert all(word not in text for word in (secret, KEY, "sk-wrong", "hidden"))


def raw(cluster, data, seconds=20):
    with socket.create_connection(("127.0.0.1", cluster.ports[0]), timeout=seconds) as s:
        s.sendall(data)
        got = b""
        while piece := s.recv(65536):
            got += piece
        return got


def test_headers_and_urls_are_bounded(cluster):
    assert b" 431 " in raw(cluster, b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 40000 + b"\r\n\r\n").split(b"\r\n")[0]
    many = b"".join(b"H%d: x\r\n" % i for i in range(200))
    assert b" 431 " in raw(cluster, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n").split(b"\r\n")[0]
    first = raw(cluster, b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n").split(b"\r\n")[0]
    assert b" 414 " in first, first


def test_a_header_that_drips_in_is_cut_off(cluster, web):
    """A client cannot hold a connection by sending slowly (slow loris): bytes keep coming, but the whole header has one deadline."""
    with socket.create_connection(("127.0.0.1", cluster.ports[0]), timeout=30) as s:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        s.settimeout(0.5)
        answer = b""
        for i in range(100):
            try:
                s.sendall(b"A%d: x\r\n" % i)
                piece = s.recv(4096)
                answer += piece
                if not piece:
                    break
            except socket.timeout:
                assert web.get("/health").status_code == 200  # other clients do not wait for the slow client
            except OSError:
                break
        assert b" 408 " in answer, answer


def on_socket(path):
    transport = httpx.HTTPTransport(uds=str(path))
    with httpx.Client(transport=transport, base_url="http://gateway", timeout=20) as c:
        try:
            return c.get("/v1/models").json()["data"][0]["id"]
        except httpx.TransportError:
            return None


def test_unix_socket(tmp_path):
    path = tmp_path / "gateway.sock"
    command = [str(BIN / "cox-gateway"), "--model", "null", "--insecure", "--head", "127.0.0.1:1", "--uds", str(path)]

    def start():
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True)

    first = start()
    try:
        wait_for("the socket answers", lambda: path.exists() and on_socket(path) == "null", 20)
        with start() as second:  # a second gateway must not take the socket of a gateway that still runs
            assert "is in use" in second.communicate(timeout=20)[1] and second.returncode in (1, 2)
        assert on_socket(path) == "null"
        first.kill()
        first.wait(20)
        assert path.exists()
        first = start()
        wait_for("a dead one's socket is replaced", lambda: on_socket(path) == "null", 20)
        first.terminate()
        first.wait(20)
        assert not path.exists()
    finally:
        first.kill()
        first.wait(20)
        first.stderr.close()
    plain = tmp_path / "file"
    plain.write_text("mine")
    command[-1] = str(plain)
    with start() as refused:
        assert refused.communicate(timeout=20)[1] and refused.returncode in (1, 2)
    assert plain.read_text() == "mine"


def test_generation_config(tmp_path):
    (tmp_path / "generation_config.json").write_text('{"do_sample": true, "temperature": 0.0, "top_k": 5}')
    body = {"model": "null", "prompt": "Hi", "max_tokens": 12, "seed": 3}
    with Cluster("--generation-config", tmp_path, workers=1, tp=1) as c:
        def text(**more):
            return httpx.post(c.url + "/v1/completions", json=body | more).json()["choices"][0]["text"]

        assert text() == oracle.text("Hi", 12, seed=3, temperature=0)
        assert text(temperature=1) == oracle.text("Hi", 12, seed=3, temperature=1) != text()


@pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens")
def test_sampling_of_the_demo_models(tmp_path):
    """The model demo has its makers' temperature and top_p, and demo-base has OpenAI's. A folder overrides both."""
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.5}')
    for file in ("demo-instruct/SmolLM2-135M-Instruct.Q4_1.gguf", "demo/gemma-3-270m-q4_k_m.gguf"):
        path = tmp_path / "models" / file
        path.parent.mkdir(parents=True)
        shutil.copyfile(TINY, path)
    for model, args, said in (("demo", [], "temperature=0.2 top_p=0.9 "), ("demo", ["--generation-config", "auto"], "temperature=0.2 top_p=0.9 "),
                              ("demo", ["--generation-config", tmp_path], "temperature=0.5 top_p=1 "), ("demo-base", [], None)):
        with Cluster("--device", "null", *args, model=model, workers=1, tp=1, env={"COX_CACHE": str(tmp_path)}) as c:
            last = f"sampling_defaults {said}" if said else "ready in "
            wait_for(f"{last!r} in the log of cox up {model}", lambda: last in c.log())
            assert said or "sampling_defaults" not in c.log()
