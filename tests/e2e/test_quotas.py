"""Tests gateways that share the limits of keys through a real redis-server (from Debian's redis-tools; skipped where it is missing):
one key's rate and tokens at two gateways, Redis killed and restarted, the stored data, and a Redis with invalid answers."""
import hashlib
import os
import shutil
import socket
import subprocess
import threading
import time

import httpx
import pytest

from cluster import BIN, Cluster, end_all, wait_for

KEY = "the-secret-of-a-tenant"
PASSWORD = "redis-password"
# Debian's redis-tools contains the server under the name of a tool, and does not start one.
SERVER = shutil.which("redis-check-rdb") or shutil.which("redis-server")
needs_redis = pytest.mark.skipif(not SERVER, reason="no redis-server here: scripts/setup installs it")


class Redis:
    """Runs a Redis on a Unix socket in the test's folder. Nothing is kept when it ends."""

    def __init__(self, folder, env=None):
        self.path = folder / "redis.sock"
        self.env = {**os.environ, **(env or {})}
        self.url = f"unix://:{PASSWORD}@{self.path}"
        self.command = ["redis-server", "--port", "0", "--unixsocket", str(self.path), "--save", "", "--appendonly",
                        "no", "--requirepass", PASSWORD, "--dir", str(folder)]

    def start(self):
        self.process = subprocess.Popen(self.command, executable=SERVER, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env=self.env)
        wait_for("redis answers", lambda: self.ask("PING") == "PONG", 20)

    def ask(self, *words):
        done = subprocess.run(["redis-cli", "-s", str(self.path), "--no-auth-warning", "-a", PASSWORD, *words],
                              capture_output=True, text=True, timeout=20)
        return done.stdout.strip()

    def kill(self):
        self.process.kill()
        self.process.wait(20)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        end_all([self.process])


def metric(url, name):
    text = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {KEY}"}, trust_env=False, timeout=20).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.split(" ")[0].split("{")[0] == name)


def urls(cluster):
    return [f"http://127.0.0.1:{p}" for p in cluster.ports]


def wait_shared(cluster, value=1):
    for url in urls(cluster):
        wait_for(f"quotas are shared: {value}", lambda url=url: metric(url, "coxswain_gateway_quota_shared") == value, 20)
        if value:
            wait_for("both gateways are known",
                     lambda url=url: metric(url, "coxswain_gateway_quota_gateways") == 2, 20)


def completion(client, url, max_tokens=1):
    body = {"model": "null", "prompt": [1, 2, 3], "max_tokens": max_tokens, "ignore_eos": True}
    r = client.post(f"{url}/v1/completions", json=body, headers={"Authorization": f"Bearer {KEY}"})
    assert r.status_code in (200, 429), r.text
    assert r.status_code == 200 or int(r.headers["retry-after"]) >= 1
    return r.status_code == 200


def burst(cluster, n, max_tokens=1):
    """Sends n requests, in turn at each gateway. Returns (admitted, seconds)."""
    begin = time.monotonic()
    with httpx.Client(trust_env=False, timeout=20) as client:
        admitted = sum(completion(client, urls(cluster)[i % 2], max_tokens) for i in range(n))
    return admitted, time.monotonic() - begin


def start(folder, redis, limits):
    keys = folder / "keys"
    keys.write_text(f"{KEY} team {limits}\n")
    return Cluster("--api-key-file", keys, workers=1, tp=1, gateways=2, env={"COX_REDIS": redis})


@needs_redis
def test_two_gateways_share_a_rate(tmp_path):
    with Redis(tmp_path) as redis, start(tmp_path, redis.url, "rate=5") as c:
        wait_shared(c)
        for least in (4, 0):  # in the second round the bucket is empty
            admitted, seconds = burst(c, 60)
            # The bound is a full bucket, its refill, and the credit. Without sharing it would be 10 + 10 * seconds.
            assert least <= admitted <= 5 + 5 * seconds + 5 / 4 + 2, (admitted, seconds)
        names = redis.ask("--scan").split()
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        assert any(n.startswith("{cox}:quota:1:") and n.endswith(":r") for n in names), names
        assert "{cox}:gateways" in names and all(n.startswith("{cox}:") for n in names)
        assert KEY not in str(names) and digest[:16] not in str(names)
        assert all(int(redis.ask("TTL", n)) > 0 for n in names)
        with httpx.Client(trust_env=False, timeout=20) as client:
            for url in urls(c):
                wait_for("it is filled again", lambda url=url: completion(client, url), 20)
        command = " ".join(open(f"/proc/{pid}/cmdline").read() for pid in c.pids().values())
        assert PASSWORD not in command and PASSWORD not in c.log()


@needs_redis
def test_two_gateways_share_tokens(tmp_path):
    with Redis(tmp_path) as redis, start(tmp_path, redis.url, "tokens=600") as c:
        wait_shared(c)
        begin = time.time()
        admitted, seconds = burst(c, 60, max_tokens=27)  # each answer uses 30 tokens with its prompt
        assert 20 <= admitted and 30 * admitted <= 600 + 10 * seconds + 600 / 4 + 2 * 30, (admitted, seconds)

        def accounted_for():  # returns true when the gateways have reported their debts and returned their unused tokens
            name = next(n for n in redis.ask("--scan").split() if n.endswith(":t"))
            level, at = map(float, redis.ask("HMGET", name, "level", "at").split())
            return 0 <= level - (600 - 30 * admitted) <= 10 * (at / 1e6 - begin)

        wait_for("every token is accounted for", accounted_for, 20)


@needs_redis
def test_redis_is_lost_and_comes_back(tmp_path):
    with Redis(tmp_path) as redis, start(tmp_path, redis.url, "rate=20") as c:
        wait_shared(c)
        burst(c, 10)
        redis.kill()
        stop, results = threading.Event(), []

        def load(url):
            with httpx.Client(trust_env=False, timeout=20) as client:
                while not stop.is_set():
                    results.append(completion(client, url))
                    time.sleep(0.05)

        threads = [threading.Thread(target=load, args=(url,)) for url in urls(c)]
        for t in threads:
            t.start()
        try:
            wait_shared(c, 0)
            begin, n = time.monotonic(), sum(results)
            wait_for("requests are served without it", lambda: sum(results) >= n + 30, 30)
            seconds = time.monotonic() - begin
            assert sum(results) - n <= 2 * 10 * seconds + 2 * 10 + 2, (sum(results) - n, seconds)  # each gateway allows half of the rate
            redis.start()
            wait_shared(c, 1)
        finally:
            stop.set()
            for t in threads:
                t.join(60)
        for i in range(2):
            mine = [line for line in c.log().splitlines() if line.startswith(f"gateway-{i}")]
            assert sum("quotas_local" in line for line in mine) == 1, mine  # the gateway logs this once, however often it tries
            assert sum("quotas_shared" in line for line in mine) == 2, mine
        admitted, seconds = burst(c, 60)
        assert admitted <= 20 + 20 * seconds + 20 / 4 + 2


def nonsense(listener, answers):
    """Runs a server that answers Redis's greeting correctly, and then sends arbitrary answers."""
    def talk(s):
        try:
            s.recv(4096)
            s.sendall(b"+PONG\r\n")
            while s.recv(65536):
                s.sendall(answers[0])
                answers.append(answers.pop(0))
        except OSError:
            pass

    def accept():
        while True:
            try:
                s = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=talk, args=(s,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def test_nonsense_from_redis(tmp_path):
    answers = [b":99999999999\r\n", b"*2\r\n$3\r\nnan\r\n$3\r\n1e9\r\n", b"*2\r\n$4\r\n1e99\r\n$1\r\n0\r\n", b"*0\r\n",
               b"-ERR unknown\r\n", b"$3\r\nabc\r\n", b"*2\r\n$2\r\n-5\r\n$4\r\n-inf\r\n", b"*-1\r\n", b"*999999999\r\n",
               b"SSH-2.0\r\n"]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "fake"))
        listener.listen(8)
        nonsense(listener, answers)
        with start(tmp_path, f"unix://{tmp_path}/fake", "rate=50") as c:
            wait_for("it thinks that there is one", lambda: "quotas_shared" in c.log(), 20)
            admitted, seconds = burst(c, 100)
            assert 10 <= admitted <= 2 * (50 + 50 * seconds)
            wait_for("it is told of", lambda: "quotas_answer" in c.log(), 20)  # `cox up` prints the gateway's line
            listener.close()
    assert not c.log_path.exists()  # `cox up` ended normally


@pytest.mark.parametrize("url", ["http://h", "rediss://h", "redis://secret-user@h", "unix://relative"])
def test_urls_that_are_none(url):
    done = subprocess.run([str(BIN / "cox-gateway"), "--model", "null", "--insecure", "--redis", url],
                          capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "--redis" in done.stderr and "secret-user" not in done.stderr, done.stderr
