"""Tests behaviour in a pod: probes for a load balancer, a shutdown that aborts no request, and a check from outside (`cox smoke`)."""
import http.server
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import null_oracle as oracle
import pytest
from cluster import BIN, SLOW, free_ports, get, run_cox, wait_for
from test_bad_frames import Processes


def complete(url, prompt, timeout=60):
    r = httpx.post(url + "/v1/completions", timeout=timeout, json={"prompt": prompt, "max_tokens": 8, "temperature": 0})
    return r.status_code, r.json()["choices"][0]["text"] if r.status_code == 200 else r.text


class Pods(Processes):
    def gateway(self, *args):
        self.start("gateway", BIN / "cox-gateway", "--model", "null", "--head", f"127.0.0.1:{self.head_port}", "--port",
                   self.port, "--keys-dir", self.keys, *args)
        wait_for("the gateway listens", lambda: get(self.url + "/accepting")[0] == 200)

    def cluster(self, *args):
        self.start_head(tp=1)
        self.start_worker("worker-0", self.head_port, tp=1)
        self.gateway(*args)
        wait_for("/health is 200", lambda: get(self.url + "/health")[0] == 200)


def test_a_gateway_takes_requests_before_there_are_workers_and_while_it_ends(tmp_path):
    with Pods(tmp_path) as c:
        (admin,) = free_ports(1)
        c.gateway("--shutdown-delay", 4 * SLOW, "--admin-port", admin, "--api-key", "sk-some-key")
        # No worker serves here, and the probes need no key.
        assert get(c.url + "/accepting")[0] == 200 and get(f"http://127.0.0.1:{admin}/accepting")[0] == 200
        assert get(c.url + "/health")[0] == 503 and get(c.url + "/readyz")[0] == 401
        c.started["gateway"].terminate()
        c.started["gateway"].wait(60 * SLOW)

        c.cluster("--shutdown-delay", 4 * SLOW)
        with httpx.stream("POST", c.url + "/v1/completions", timeout=60, json={
                "prompt": "begun before", "max_tokens": 800, "temperature": 0, "stream": True}) as begun:
            lines = begun.iter_lines()
            next(lines)
            c.started["gateway"].terminate()
            wait_for("probes say so", lambda: get(c.url + "/accepting")[0] == 503)
            for path in ("/health", "/ready", "/readyz", "/ping"):
                assert get(c.url + path)[0] == 503, path
            assert get(c.url + "/livez")[0] == 200
            for i in range(3):  # each request uses a new connection
                assert complete(c.url, f"asked while it ends {i}") == (200, oracle.text(f"asked while it ends {i}", 8,
                                                                                        temperature=0))
            assert " draining " not in c.log("gateway")
            assert sum(1 for x in lines if x.startswith("data: ")) >= 700
        assert c.started["gateway"].wait(60 * SLOW) == 0
        log = c.log("gateway")
        assert log.index(" shutdown_delay ") < log.index(" draining ")
        assert get(c.url + "/accepting")[0] == 0


def test_a_second_signal_ends_the_delay(tmp_path):
    with Pods(tmp_path) as c:
        c.cluster("--shutdown-delay", 600)
        c.started["gateway"].terminate()
        wait_for("it waits", lambda: " shutdown_delay " in c.log("gateway"))
        c.started["gateway"].terminate()
        assert c.started["gateway"].wait(60 * SLOW) == 0
        assert " draining " not in c.log("gateway")


LONG = 1500  # number of tokens of 10 ms, which take far longer than --shutdown-timeout
ASKED = {  # path: body, and the text in its stream that reports the end
    "/v1/completions": ({"prompt": "cut", "max_tokens": LONG}, '"type":"ServiceUnavailableError"'),
    "/v1/chat/completions": ({"messages": [{"role": "user", "content": "cut"}], "max_tokens": LONG}, '"type":"ServiceUnavailableError"'),
    "/v1/responses": ({"input": "cut", "max_output_tokens": LONG}, '"type":"response.failed"'),
    "/v1/messages": ({"model": "null", "messages": [{"role": "user", "content": "cut"}], "max_tokens": LONG}, "event: error"),
    "/invocations": ({"inputs": "cut", "parameters": {"max_new_tokens": LONG}}, '"code":424,"error":'),
}


def test_a_request_that_the_shutdown_timeout_ends_is_told(tmp_path):
    """When the shutdown time-out ends a stream, it gets its dialect's error event. A request without output gets a 503 with
    Retry-After."""
    with Pods(tmp_path) as c, ThreadPoolExecutor(2 * len(ASKED)) as threads:
        c.cluster("--shutdown-timeout", 1)
        begun = threading.Barrier(2 * len(ASKED) + 1)

        def stream(path):
            with httpx.stream("POST", c.url + path, timeout=60, json={**ASKED[path][0], "stream": True}) as r:
                lines = r.iter_lines()
                said = [next(lines)]
                begun.wait(30 * SLOW)
                return r.status_code, [*said, *lines]

        def whole(path):
            begun.wait(30 * SLOW)
            return httpx.post(c.url + path, timeout=60, json=ASKED[path][0])

        streams = {p: threads.submit(stream, p) for p in ASKED}
        wholes = {p: threads.submit(whole, p) for p in ASKED}
        begun.wait(30 * SLOW)
        wait_for("all run", lambda: re.search(rf"coxswain_gateway_requests_open{{.*}} {2 * len(ASKED)}\n", get(c.url + "/metrics")[1]))
        c.started["gateway"].terminate()
        for path, f in streams.items():
            status, lines = f.result()
            text = "\n".join(lines)
            assert status == 200 and ASKED[path][1] in text, (path, lines[-5:])
        for path, f in wholes.items():
            r = f.result()
            assert r.status_code == 503 and "is shutting down" in r.text, (path, r.text)
            assert int(r.headers["retry-after"]) > 0, path
        assert c.started["gateway"].wait(10 * SLOW) == 0
        assert " shutdown_timeout open_requests=" in c.log("gateway")


def test_a_head_may_be_asked_before_anybody_came(tmp_path):
    """/livez is a head's readiness for its Service: the head listens. /readyz is true when a replica serves."""
    with Pods(tmp_path) as c:
        c.start_head()
        assert get(c.admin + "/livez")[0] == 200 and get(c.admin + "/readyz")[0] == 503


def smoke(c, *args, code=0):
    done = run_cox("smoke", "--url", c.url, *args, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return [line.split(None, 3) for line in done.stdout.splitlines()]


def test_smoke_waits_for_a_cluster_that_comes(tmp_path):
    with Pods(tmp_path) as c:
        assert [w[:2] for w in smoke(c, "--timeout", 1, code=1)] == [["failed", "health"]]
        late = threading.Timer(1.0, c.cluster)
        late.start()
        said = smoke(c, "--timeout", 60 * SLOW)
        late.join()
        assert [w[:2] for w in said] == [["ok", "health"], ["ok", "models"], ["ok", "completion"], ["ok", "stream"]]
        assert "/v1/chat/completions" in said[3][3]
        smoke(c, "--model", "null")
        said = smoke(c, "--model", "nothing", "--timeout", 2, code=1)
        assert said[-1][:2] == ["failed", "models"] and '"nothing"' in said[-1][3]


def test_smoke_does_not_wait_for_a_key(tmp_path):
    with Pods(tmp_path) as c:
        c.cluster("--api-key", "sk-some-key")
        said = smoke(c, "--timeout", 600, code=1)  # a wait would exceed this test's time-out
        assert said[-1][:2] == ["failed", "models"] and "401" in said[-1][3] and "COX_API_KEY" in said[-1][3]
        done = run_cox("smoke", "--url", c.url + "/v1/", env={"COX_API_KEY": "sk-some-key"})
        assert done.returncode == 0, done.stdout


class Broken(http.server.BaseHTTPRequestHandler):
    """`Broken` is a server whose answers are correct except for one."""

    def log_message(self, *_):
        pass

    def answer(self, text, kind="application/json", status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        models = "{}" if self.server.wrong == "models" else json.dumps({"data": [{"id": "m"}]})
        self.answer("" if self.path == "/health" else models)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body.get("stream"):
            event = json.dumps({"choices": [{"delta": {"content": "a"}, "text": "a", "finish_reason": "length"}]})
            whole = self.server.wrong != "stream"
            if "messages" in body and self.server.wrong == "template":
                self.answer('{"error": {"message": "no chat template"}}', status=400)
            else:
                self.answer(f"data: {event}\n\n" + ("data: [DONE]\n\n" if whole else ""), "text/event-stream")
        else:
            n = 0 if self.server.wrong == "completion" else 4
            self.answer(json.dumps({"choices": [{"text": "a"}], "usage": {"completion_tokens": n}}))


@pytest.mark.parametrize("wrong,says", [("models", "lists no model"), ("completion", "without a completion"),
                                        ("stream", "before the answer was complete"), ("template", None), (None, None)])
def test_smoke_sees_what_is_wrong(wrong, says):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    server.wrong = wrong
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = run_cox("smoke", "--url", f"http://127.0.0.1:{server.server_port}", "--timeout", 2)
        last = done.stdout.splitlines()[-1]
        if says:
            assert done.returncode == 1 and last.startswith(f"failed  {wrong} ") and says in last, done.stdout
        else:
            assert done.returncode == 0 and ("/v1/completions" in last) == (wrong == "template"), done.stdout
    finally:
        server.shutdown()
        server.server_close()
