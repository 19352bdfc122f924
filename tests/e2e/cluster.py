"""Starts and watches real Coxswain processes for a test. It ends every process that it starts."""
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import findings
from findings import SANITIZED

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("COX_BIN", ROOT / "build/release/bin"))
# Under sanitizers, the long tests run only a part of their cases. With COX_WHOLE (scripts/test --long) they run all of them.
SHORT = SANITIZED and not os.environ.get("COX_WHOLE")
SLOW = 4 if SHORT else 16 if SANITIZED else 1  # factor by which deadlines are longer
findings.install()
# A shell starts background commands with SIGINT ignored, and nohup starts them with SIGHUP ignored. Children inherit this. Without this loop, the
# programs under test would not end when a test interrupts them.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


class Block:
    """`Block` is a range of ports below the ephemeral ones that only this process uses. Tests run in parallel. With one shared range, two
    tests could get the same port before either listens."""
    FIRST, SIZE, N = 20000, 600, 20

    def __init__(self):
        self.begin, self.n, self.mutex = self.FIRST, self.SIZE * self.N, threading.Lock()
        for i in random.sample(range(self.N), self.N):
            self.held = socket.socket(socket.AF_UNIX)
            try:
                self.held.bind(f"\0coxtest-ports-{i}")  # an abstract socket belongs to this network namespace and ends with the process
            except OSError:
                self.held.close()
                continue
            self.begin, self.n = self.FIRST + i * self.SIZE, self.SIZE
            break
        self.at = random.randrange(self.n)

    def take(self, n):
        """Returns the first of the next n ports. A port is returned again only after all other ports."""
        with self.mutex:
            begin = self.at if self.at + n <= self.n else 0
            self.at = begin + n
            return self.begin + begin


block = Block()


def free_ports(n):
    """Returns n consecutive loopback ports on which no process listens or will listen."""
    for _ in range(200):
        base = block.take(n)
        held = []
        try:
            for port in range(base, base + n):
                s = socket.socket()
                held.append(s)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as for servers, a closed connection's port counts as free
                s.bind(("127.0.0.1", port))
            return list(range(base, base + n))
        except OSError:
            continue
        finally:
            for s in held:
                s.close()
    raise RuntimeError("no free ports")


def wait_for(what, condition, seconds=20.0):
    """Polls until condition() is true and returns its value. Fails with the words `what` after `seconds`."""
    end = time.monotonic() + seconds * SLOW
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds * SLOW:g} s: {what}")
        time.sleep(0.02)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end_all(processes):
    """Ends the processes as an operator does, with time for a sanitizer's leak check."""
    for p in processes:
        if p.poll() is None:
            p.send_signal(signal.SIGCONT)
            p.terminate()
    end = time.monotonic() + 3 * SLOW
    for p in processes:
        try:
            p.wait(max(0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


def get(url, timeout=5.0, headers=None):
    """Returns (status, body text). The status is 0 when there is no answer or an incomplete one."""
    try:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=timeout) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
    except (OSError, ValueError):
        return 0, ""


def run_cox(*args, timeout=20, **kwargs):
    done = subprocess.run([str(BIN / "cox"), *map(str, args)], capture_output=True, text=True,
                          timeout=timeout * SLOW, **kwargs)
    findings.look_at_log(done.stderr)
    return done


class Cluster:
    """Runs `cox up null` on free ports. `args` are passed on to it."""

    def __init__(self, *args, workers=2, tp=2, gateways=1, model="null", env=None, spare=0):
        self.folder = tempfile.TemporaryDirectory(prefix="coxtest-")
        self.pids_file = Path(self.folder.name) / "pids"
        self.log_path = Path(self.folder.name) / "log"
        self.tmp = Path(self.folder.name) / "tmp"
        self.tmp.mkdir()
        ports = free_ports(gateways + 2 + workers + spare)  # `spare`: number of workers that the test starts later
        self.ports = ports[:gateways]
        self.head_port, self.admin_port = ports[gateways:gateways + 2]
        self.worker_http_port = ports[gateways + 2]
        self.command = [str(BIN / "cox"), "up", model, "--workers", str(workers), "--tp", str(tp),
                        "--gateways", str(gateways), "--host", "127.0.0.1", "--port", str(self.ports[0]),
                        "--head-port", str(self.head_port), "--admin-port", str(self.admin_port),
                        "--worker-http-port", str(self.worker_http_port),
                        "--print-pids", str(self.pids_file), *map(str, args)]
        # A separate TMPDIR lets a test see that no file is left there.
        self.env = {**os.environ, "TMPDIR": str(self.tmp), **(env or {})}
        self.process = None

    def start(self, wait=True):
        self.log_file = open(self.log_path, "wb")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log_file,
                                        stderr=subprocess.STDOUT, env=self.env, start_new_session=True)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, seconds=20.0):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"cox up ended with {self.process.returncode}:\n{self.log()}")
            # On a busy machine the processes may be ready before `cox up` has written their ids.
            return self.pids_file.exists() and all(get(f"http://127.0.0.1:{p}/health")[0] == 200 for p in self.ports)

        try:
            wait_for("/health is 200", ready, seconds)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.log()}") from None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def admin(self):
        return f"http://127.0.0.1:{self.admin_port}"

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def pids(self):
        """Returns {name: pid} from the pid file of `cox up`."""
        found = {}
        for line in self.pids_file.read_text().splitlines():
            name, pid = line.split()[:2]
            found[name] = int(pid)
        return found

    def pid(self, name):
        return self.pids()[name]

    def status(self):
        code, body = get(self.admin + "/api/status")
        assert code == 200, f"/api/status: {code} {body}"
        return json.loads(body)

    def running(self):
        requests = self.status()["requests"]
        return requests["running"] + requests["waiting"]

    def wait_idle(self, seconds=10.0):
        wait_for("no request is running or waiting", lambda: self.running() == 0, seconds)

    def stop(self, sig=signal.SIGINT, seconds=10.0):
        """Ends `cox up`. Returns (exit status, seconds)."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        begin = time.monotonic()
        try:
            self.process.wait(seconds)
        finally:
            self.kill()
        return self.process.returncode, time.monotonic() - begin

    def kill(self):
        """Kills every process of this cluster, even after a failed test."""
        try:
            pids = list(self.pids().values())
        except (OSError, ValueError):
            pids = []
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in pids:
            if alive(pid) and "cox" in Path(f"/proc/{pid}/comm").read_text():
                os.kill(pid, signal.SIGKILL)
        if not self.log_file.closed:
            self.log_file.close()
            findings.look_at_log(self.log())

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.kill()  # Python does not call __exit__ when __enter__ fails
            self.folder.cleanup()
            raise

    def __exit__(self, kind, *_):
        try:
            self.stop()
        finally:
            if kind is not None:
                print("---- log of cox up\n" + "\n".join(self.log().splitlines()[-150:]))
            self.folder.cleanup()
