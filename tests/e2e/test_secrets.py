"""Tests that no secret of a command line is visible to other users: in /proc of any process, logs, metrics, the admin API, or a
dump."""
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from cluster import BIN, Cluster, alive, get, run_cox, wait_for

CANARIES = {"api": "canary-api-key-71", "redis": "canary-redis-72", "collector": "canary-otlp-73", "ssl": "canary-ssl-74",
            "hub": "canary-hub-75"}


class Redis:
    """Answers AUTH, SELECT, PING and similar commands with +OK, and everything else with an error, so that no limits are shared."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.seen = self.listener.getsockname()[1], b""
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        try:
            while data := c.recv(65536):
                self.seen += data
                c.sendall(b"+OK\r\n" if b"AUTH" in data else b"-ERR not here\r\n")
        except OSError:
            pass


def command_lines(pids):
    found = {}
    for pid in pids:
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            pass
    return found


def below(pid):
    pids = [pid]
    for p in pids:
        for task in Path(f"/proc/{p}/task").glob("*/children"):
            try:
                pids += [int(c) for c in task.read_text().split()]
            except OSError:
                pass
    return pids


def assert_none(what, text):
    text = text if isinstance(text, bytes) else text.encode()
    for name, canary in CANARIES.items():
        assert canary.encode() not in text, f"{what} holds the canary of {name}"


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    folder, redis = tmp_path_factory.mktemp("secrets"), Redis()
    key = folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", f"pass:{CANARIES['ssl']}", "-keyout", key, "-out",
                    folder / "cert.pem", "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, capture_output=True)
    return folder, redis


def test_nothing_shows_a_secret(secrets):
    folder, redis = secrets
    log = folder / "access"
    c = Cluster("--api-key", CANARIES["api"], f"--redis=redis://user:{CANARIES['redis']}@127.0.0.1:{redis.port}/1",
                "--hf-token", CANARIES["hub"],
                "--access-log", log, "--log-level", "debug", "--step-log", folder / "steps", workers=2, tp=2)
    with c:
        for pid, line in command_lines(below(c.process.pid)).items():
            assert_none(f"the command line of {pid}", line)
        head = {"Authorization": f"Bearer {CANARIES['api']}"}
        assert get(c.url + "/v1/models")[0] == 401
        assert get(c.url + "/v1/models", headers=head)[0] == 200
        assert get(c.url + "/v1/models", headers={"Authorization": "Bearer wrong"})[0] == 401
        for url in (c.url + "/metrics", c.url + "/openapi.json", c.admin + "/api/status", c.admin + "/api/events", c.admin + "/metrics",
                    f"http://127.0.0.1:{c.worker_http_port}/metrics"):
            assert_none(url, get(url, headers=head, timeout=2)[1])
        for words in (("status", "--json"), ("debug", "dump"), ("events",)):
            done = run_cox(*words, "--address", f"127.0.0.1:{c.admin_port}")
            assert_none(f"cox {' '.join(words)}", done.stdout + done.stderr)
        victim = c.pid("gateway-0")
        os.kill(victim, signal.SIGQUIT)  # SIGQUIT ends the gateway like any unexpected signal, and the log has its last messages
        wait_for("the gateway is another one", lambda: not alive(victim) and c.pids().get("gateway-0", victim) != victim)
        wait_for("it serves", lambda: get(c.url + "/health")[0] == 200)
        assert_none("the command line of a gateway that was started again", b"".join(command_lines(below(c.process.pid)).values()))
    assert CANARIES["redis"].encode() in redis.seen  # the gateway sent the password
    assert_none("the log of cox up", c.log())
    assert_none("the access log", log.read_bytes())


def test_a_refusal_does_not_repeat_it():
    """A collector's URL may not have a password, and the error does not repeat it."""
    done = run_cox("gateway", "--model", "null", "--insecure", "--port", "0", "--otlp-traces-endpoint",
                   f"http://user:{CANARIES['collector']}@127.0.0.1:9")
    assert done.returncode == 2 and "otlp-traces-endpoint http://" in done.stdout + done.stderr
    assert_none("the refusal", done.stdout + done.stderr)


def test_a_key_password(secrets):
    folder, _ = secrets
    c = Cluster("--ssl-certfile", folder / "cert.pem", "--ssl-keyfile", folder / "key.pem", "--ssl-keyfile-password", CANARIES["ssl"],
                workers=1, tp=1).start(wait=False)
    try:
        wait_for("the gateway listens", lambda: "gateway_listening" in c.log())
        assert_none("a command line", b"".join(command_lines(below(c.process.pid)).values()))
    finally:
        c.stop()
    assert_none("the log", c.log())


def held(*args):
    """Returns a command's line in /proc while the command waits for a silent peer."""
    with socket.create_server(("127.0.0.1", 0)) as quiet:
        words = [str(a).replace("PORT", str(quiet.getsockname()[1])) for a in args]
        p = subprocess.Popen([BIN / "cox", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            quiet.settimeout(20)
            peer, _ = quiet.accept()
            line = Path(f"/proc/{p.pid}/cmdline").read_bytes()
            peer.close()
        finally:
            p.kill()
            said = p.communicate()[0]
    return line, said


@pytest.mark.parametrize("args", [
    ("complete", "Hi", "--url", "http://127.0.0.1:PORT", "--api-key", CANARIES["api"]),
    ("smoke", "--url", "http://127.0.0.1:PORT", f"--api-key={CANARIES['api']}"),
    ("pull", "a/b", "--hf-endpoint", "https://127.0.0.1:PORT", "--hf-token", CANARIES["hub"], "--cache-dir", "/nonexistent"),
    ("pull", "s3://bucket/c/d", "--aws-endpoint-url", "http://127.0.0.1:PORT", "--aws-access-key-id", "x", "--aws-secret-access-key", CANARIES["hub"]),
    ("status", "--address", "127.0.0.1:PORT", "--admin-key", CANARIES["api"]),
], ids=lambda a: " ".join(a[:2]))
def test_commands(args, tmp_path):
    words = [str(tmp_path) if a == "/nonexistent" else a for a in args]
    line, said = held(*words)
    assert_none("the command line", line)
    assert_none("what it says", said)
