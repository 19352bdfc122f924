"""Tests files whose writes fail or stall. disk_shim.c is preloaded, and a file decides about writes below a folder. Only requests
that need the file are affected. While the store's thread waits for a disk, tenants are served in turn."""
import errno
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import threading

import pytest
from cluster import BIN, SANITIZED, Cluster, free_ports, get, wait_for
from test_disk import call, complete, upload

SHIM = BIN.parent / "tests/libdisk_shim.so"
needs_shim = pytest.mark.skipif(SANITIZED or not SHIM.exists(), reason="sanitizers want to be the first library themselves")
TENANT_CALLS = 256  # MAX_TENANT_CALLS in gateway/batches/calls.c


class OnDisk(Cluster):
    """`OnDisk` is a cluster with its files below a folder whose disk the test controls."""

    def __init__(self, tmp_path, *args, says=""):
        self.disk, self.control = tmp_path / "disk", tmp_path / "says"
        self.disk.mkdir()
        self.control.write_text(str(says))
        super().__init__("--state-dir", self.disk / "state", "--access-log", self.disk / "access", "--step-log", self.disk / "steps", *args,
                         workers=1, tp=1, env={"LD_PRELOAD": str(SHIM), "COX_DISK_BELOW": str(self.disk), "COX_DISK_SAYS": str(self.control)})

    def says(self, what):
        fresh = self.control.with_suffix(".new")
        fresh.write_text(str(what))
        fresh.rename(self.control)

    def metric(self, name):
        return float(next(line.split()[-1] for line in get(self.url + "/metrics")[1].splitlines() if line.startswith(f"coxswain_gateway_{name} ")))

    def access_lines(self):
        return [json.loads(line) for line in (self.disk / "access").read_text().splitlines() if line]


@needs_shim
@pytest.mark.parametrize("e", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_disk_that_fails_and_recovers(tmp_path, e):
    with OnDisk(tmp_path) as c:
        pids = c.pids()
        assert complete(c) == 200 and upload(c, 1000)[0] == 200
        wait_for("lines of before", lambda: len(c.access_lines()) >= 2)
        c.says(e)
        wait_for("the lost access log is told of", lambda: complete(c) == 200 and "access_log_lost" in c.log())
        for _ in range(5):
            assert complete(c) == 200
        assert upload(c, 1000)[0] in (503, 507)
        wait_for("the metrics say so", lambda: c.metric("access_log_up") == 0 and c.metric("access_log_lines_lost_total") >= 1)
        wait_for("the step log's end is told of", lambda: "step_log_stopped" in c.log() and complete(c) == 200)
        assert c.log().count("access_log_lost") == 1 and c.log().count("step_log_stopped") == 1
        c.says("")
        wait_for("the access log is back", lambda: complete(c) == 200 and c.metric("access_log_up") == 1)
        wait_for("the store is back", lambda: upload(c, 1000)[0] == 200)
        before = len(c.access_lines())
        assert complete(c) == 200
        wait_for("lines are written again", lambda: len(c.access_lines()) > before)
        assert c.log().count("access_log_lost") == 1 and c.pids() == pids


@needs_shim
def test_a_start_on_a_disk_that_fails(tmp_path):
    with OnDisk(tmp_path, says=errno.EROFS) as c:
        assert complete(c) == 200 and upload(c, 10)[0] in (503, 507)
        assert c.log().count("access_log_lost") == 1
        wait_for("the step log's end is told of", lambda: "step_log_stopped" in c.log())
        c.says("")
        wait_for("all is back", lambda: complete(c) == 200 and c.metric("access_log_up") == 1 and upload(c, 10)[0] == 200)
        wait_for("lines are written", lambda: complete(c) == 200 and len(c.access_lines()) > 0)


@pytest.mark.parametrize("name", ["no/such/folder", "a-folder", "a-file/below"])
def test_a_wrong_path_ends_the_start(tmp_path, name):
    (tmp_path / "a-folder").mkdir()
    (tmp_path / "a-file").write_text("x")
    done = subprocess.run([str(BIN / "cox-gateway"), "--model", "null", "--head", "tcp://127.0.0.1:1", "--insecure", "--port", str(free_ports(1)[0]),
                           "--access-log", str(tmp_path / name)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and f"--access-log {tmp_path / name}" in done.stderr, done.stderr


def test_an_access_log_that_moves(tmp_path):
    """The access log continues when it is rotated as by logrotate, and when its folder is removed and made again."""
    log = tmp_path / "logs/access"
    log.parent.mkdir()
    with Cluster("--access-log", log, workers=1, tp=1) as c:
        wait_for("a line", lambda: complete(c) == 200 and log.stat().st_size > 0)
        log.rename(log.with_suffix(".1"))
        wait_for("a line of the new file", lambda: complete(c) == 200 and log.exists() and log.stat().st_size > 0)
        log.unlink()
        log.with_suffix(".1").unlink()
        log.parent.rmdir()
        wait_for("it is told of", lambda: complete(c) == 200 and "access_log_lost" in c.log())
        log.parent.mkdir()
        wait_for("it is back", lambda: complete(c) == 200 and log.exists() and log.stat().st_size > 0)
        wait_for("that is told of, too", lambda: "access_log_found" in c.log())


def test_a_reader_that_does_not_read(tmp_path):
    """The access log is a FIFO. At first no process has it open. Then a reader opens it and does not read, so that it fills up."""
    fifo = tmp_path / "access"
    os.mkfifo(fifo)
    with Cluster("--access-log", fifo, workers=1, tp=1) as c:
        assert complete(c) == 200 and "access_log_lost" in c.log()
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        agent = {"User-Agent": "x" * 512}
        for _ in range(300):  # these lines are more than the pipe's 64 KiB
            assert get(c.url + "/health", headers=agent)[0] == 200
        assert complete(c) == 200
        assert c.stop()[0] == 0  # the gateway does not wait for the reader
        os.close(reader)


# ---- turns at the store ----

KEYS = {"hostile": "sk-hostile-tenant", "polite": "sk-polite-tenant"}


def ask(c, key, path="/v1/files", method="GET", body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", c.ports[0], timeout=120)
    connection.request(method, path, body, {"Authorization": f"Bearer {key}", **(headers or {})})
    return connection


@needs_shim
def test_tenants_take_turns_at_the_store(tmp_path):
    """The disk stalls during an upload of one tenant. That tenant then requests more lists than a tenant may have pending. Another
    tenant requests a single list, which is accepted and is one of the next two answers."""
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{key} {name}\n" for name, key in KEYS.items()))
    edge = "edge"
    form = (f'--{edge}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{edge}\r\nContent-Disposition: form-data; '
            f'name="file"; filename="x"\r\n\r\n' + "x" * 10000 + f"\r\n--{edge}--\r\n").encode()
    with OnDisk(tmp_path, "--api-key-file", keys) as c:
        c.says("hold")
        first = ask(c, KEYS["hostile"], method="POST", body=form, headers={"Content-Type": f"multipart/form-data; boundary={edge}"})
        many = [ask(c, KEYS["hostile"]) for _ in range(TENANT_CALLS + 44)]
        held = []
        refused = []

        def sort(connection):
            answer = connection.getresponse()
            body = answer.read()
            (refused if answer.status == 503 else held).append((answer.status, answer.headers, body))

        threads = [threading.Thread(target=sort, args=(x,)) for x in many]
        for t in threads:
            t.start()
        wait_for("all that find no room are refused", lambda: len(refused) >= 45)
        polite = ask(c, KEYS["polite"])
        served = ask(c, KEYS["polite"], "/v1/completions", "POST", b'{"model":"null","prompt":"x","max_tokens":8}', {"Content-Type": "application/json"})
        assert served.getresponse().status == 200  # no other request waits for this disk
        c.says("")
        assert polite.getresponse().status == 200 and first.getresponse().status == 200
        for t in threads:
            t.join(60)
        assert len(refused) == 45 and len(held) == TENANT_CALLS - 1 and {h[0] for h in held} == {200}
        for _, headers, body in refused:
            assert headers["Retry-After"] == "1" and f"{TENANT_CALLS} of your calls" in json.loads(body)["error"]["message"]
        wait_for("the log has all", lambda: sum(line["path"] == "/v1/files" for line in c.access_lines()) == TENANT_CALLS + 46)
        answered = [line["tenant"] for line in c.access_lines() if line["path"] == "/v1/files" and line["status"] == 200]
        assert answered.index("polite") <= 3, answered[:9]
        metrics = http.client.HTTPConnection("127.0.0.1", c.ports[0])
        metrics.request("GET", "/metrics", headers={"Authorization": f"Bearer {KEYS['polite']}"})
        assert b"coxswain_gateway_state_refused_total 45" in metrics.getresponse().read()


# ---- file descriptors ----

def serves(c):
    """Returns true when the cluster answers. When descriptors are short, a new connection is closed unread, which resets it."""
    try:
        return complete(c) == 200
    except ConnectionError:
        return False


def test_idle_clients_take_no_descriptors_from_others(tmp_path):
    """With 256 descriptors and more idle clients, the gateway warns at its start and refuses clients with a reason. Everything else
    continues."""
    with Cluster("--state-dir", tmp_path / "state", workers=1, tp=1) as c:
        gateway = c.pid("gateway-0")
        resource.prlimit(gateway, resource.RLIMIT_NOFILE, (120, 120))  # this limit has the same effect as other open descriptors
        idle = []
        for _ in range(200):
            idle.append(http.client.HTTPConnection("127.0.0.1", c.ports[0]))
            idle[-1].connect()
        assert c.status()["gateways"]  # the gateway is still connected to the head
        for x in idle:
            x.close()
        wait_for("it serves", lambda: serves(c))
        assert upload(c, 1000)[0] == 200 and c.pid("gateway-0") == gateway
        failed = next(line for line in get(c.url + "/metrics")[1].splitlines() if line.startswith("coxswain_gateway_http_failed_accepts_total "))
        assert float(failed.split()[-1]) <= len(idle)  # the loop does not retry the failed accepts without end
    c = Cluster(workers=1, tp=1)
    c.command = ["prlimit", "--nofile=256:256", *c.command]
    with c:
        wait_for("its log says so", lambda: re.search(r"few_file_descriptors .*max_connections=128", c.log()))
        idle = [http.client.HTTPConnection("127.0.0.1", c.ports[0]) for _ in range(200)]
        for x in idle:
            x.connect()
        assert get(c.url + "/health")[0] == 200  # the gateway closes one idle connection for this request
        assert c.status()["gateways"]
        for x in idle:
            x.close()
        wait_for("it serves", lambda: serves(c))


def test_a_request_between_idle_clients_is_answered():
    """A hundred idle clients and four requests arrive at once while few descriptors are left. The idle clients lose their
    connections."""
    with Cluster(workers=1, tp=1) as c:
        gateway = c.pid("gateway-0")
        n_open = len(os.listdir(f"/proc/{gateway}/fd"))
        resource.prlimit(gateway, resource.RLIMIT_NOFILE, (n_open + 24, n_open + 24))
        for _ in range(3):
            os.kill(gateway, signal.SIGSTOP)  # the gateway is stopped so that all connections wait in the kernel's queue
            everyone = [socket.create_connection(("127.0.0.1", c.ports[0])) for _ in range(104)]
            asking = everyone[13::26]
            for s in asking:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            os.kill(gateway, signal.SIGCONT)
            for s in asking:
                s.settimeout(30)
                assert s.recv(4096).startswith(b"HTTP/1.1 200")
            for s in everyone:
                s.close()
        assert complete(c) == 200 and c.pid("gateway-0") == gateway
