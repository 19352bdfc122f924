"""Tests two heads and a real Redis on loopback (from Debian's redis-tools; skipped where it is missing): the serving head, the
effects of losing a process, and the rule that never two heads serve one cluster."""
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import httpx
import null_oracle as oracle
import pytest

from cluster import BIN, SLOW, Cluster, end_all, free_ports, get, run_cox, wait_for
from completions import run
from test_quotas import PASSWORD, Redis, needs_redis

TTL = 1.5 if SLOW == 1 else 2.5  # lease time in seconds; a head that does not run for this long is replaced
LEASE, CLOCK = "{cox:default}:lease", BIN.parent / "tests/libchaos_clock.so"
pytestmark = needs_redis


class Head:
    """`Head` is a cox-head of a pair, which no supervisor restarts."""

    def __init__(self, folder, url, name, keys=None):
        self.port, self.admin_port = free_ports(2)
        self.log_path = folder / f"{name}.log"
        self.command = [str(BIN / "cox-head"), *(["--keys-dir", str(keys)] if keys else ["--insecure"]), "--port", str(self.port), "--admin-port", str(self.admin_port),
                        "--lease-ttl", str(TTL)]
        self.env = {**os.environ, "COX_REDIS": url}

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        return self

    def status(self):
        code, body = get(f"http://127.0.0.1:{self.admin_port}/api/status")
        return json.loads(body) if code == 200 else {}

    def role(self):
        return self.status().get("role")

    def term(self):
        return self.status().get("term", 0)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_role(self, role, seconds=20):
        wait_for(f"it is {role}\n{self.log()}", lambda: self.role() == role, seconds)


@pytest.fixture
def redis(tmp_path):
    """Yields a Redis with a wall clock from a file, where the library for that has been built."""
    (tmp_path / "clock").write_bytes(bytes(8))
    with Redis(tmp_path, {"LD_PRELOAD": str(CLOCK), "CHAOS_CLOCK": str(tmp_path / "clock")} if CLOCK.exists() else None) as r:
        r.set_clock = lambda seconds: set_clock(tmp_path / "clock", seconds)
        yield r


def set_clock(path, seconds):
    with open(path, "r+b") as f:
        f.write(struct.pack("q", seconds * 10**9))


@pytest.fixture
def heads(tmp_path, redis):
    pair = [Head(tmp_path, redis.url, name) for name in ("a", "b")]
    pair[0].start().wait_role("serving")
    pair[1].start().wait_role("standby")
    wait_for("the standby knows who serves", lambda: str(pair[0].port) in pair[1].status()["lease"]["holder"])
    yield pair
    end_all([h.process for h in pair])


def stays(heads, roles, seconds):
    """Checks for `seconds` that the roles do not change."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for head, role in zip(heads, roles):
            assert head.role() == role, f"{head.role()} instead of {role}\n{head.log()}"
        time.sleep(0.05)


def test_one_serves_and_one_waits(heads, redis):
    a, b = heads
    assert get(f"http://127.0.0.1:{b.admin_port}/readyz") == (503, "standby\n")
    assert get(f"http://127.0.0.1:{b.admin_port}/livez")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        connect(b.port)
    connect(a.port).close()
    for head, serves in ((a, 1), (b, 0)):
        page = get(f"http://127.0.0.1:{head.admin_port}/metrics")[1].splitlines()
        assert f"coxswain_head_serves {serves}" in page and "coxswain_head_store_reached 1" in page
    wait_for("the standby is as old as a head that knows the load", lambda: b.status()["uptime_s"] > 6.5)
    code, text = get(f"http://127.0.0.1:{b.admin_port}/scale")
    assert code == 503 and "standby" in text  # otherwise an autoscaler would take "no workers" for "one replica is enough"
    assert "coxswain_head_desired_workers" not in get(f"http://127.0.0.1:{b.admin_port}/metrics")[1]
    assert get(f"http://127.0.0.1:{a.admin_port}/scale")[0] == 200
    assert "coxswain_head_desired_workers 1" in get(f"http://127.0.0.1:{a.admin_port}/metrics")[1]
    said = cox("status", "--no-follow", b)
    assert said.returncode == 0 and str(a.port) in said.stdout and "HEALTHY" not in said.stdout, said.stdout + said.stderr
    assert "--workers" not in said.stdout
    assert cox("status", a).returncode == 1  # head `a` serves, without workers
    for command in ("events", "--no-follow"), ("lora", "list", "--no-follow"):
        said = cox(*command, b)
        assert said.returncode == 0 and f":{a.port} serves" in said.stderr and said.stderr.count("\n") == 1, said.stderr
        assert cox(*command, a).stderr == ""
    assert "--insecure" in cox("keys", "--reload", a).stderr and "standby" in cox("keys", "--reload", b).stderr
    code, text = post(b, "/api/drain", {"worker": "all", "on": True})
    assert code == 409 and str(a.port) in text
    term = a.term()
    a.process.send_signal(signal.SIGKILL)
    a.process.wait()
    b.wait_role("serving")
    connect(b.port).close()
    assert b.term() > term
    a.start().wait_role("standby")
    stays(heads, ["standby", "serving"], 1.5 * TTL)
    begin = time.monotonic()
    b.process.terminate()  # Head `b` returns the lease, so no head waits for the TTL.
    a.wait_role("serving")
    assert time.monotonic() - begin < TTL * SLOW, a.log()
    assert b.process.wait(20) == 0
    assert a.term() > term + 1


def test_a_command_follows_from_the_standby_to_who_serves(heads, redis):
    """A command follows once, with a message, to the head that the lease names, and to no other."""
    a, b = heads
    assert b.status()["lease"]["admin"] == f"127.0.0.1:{a.admin_port}" and "admin" not in b.status()["lease"]["holder"]
    followed = f": the head at 127.0.0.1:{b.admin_port} is a standby; asking the head at 127.0.0.1:{a.admin_port}, which serves\n"
    for command, code in ((("status",), 1), (("events",), 0), (("lora", "list"), 0), (("debug", "dump"), 0), (("drain", "all"), 1),
                          (("undrain", "all"), 1), (("lora", "unload", "x"), 1)):
        there, here = cox(*command, b), cox(*command, a)
        assert there.stderr == f"cox {command[0]}{followed}" + here.stderr, command
        assert there.returncode == here.returncode, command
    assert "HEALTHY" in cox("status", b).stdout
    assert "standby" in cox("keys", "--reload", b).stderr  # these commands apply only to the head at the address
    assert cox("drain", "all", "--no-follow", b).returncode == 1
    # A head that does not hold the lease answers at the lease's address. This can happen when the pair is on another machine, where 127.0.0.1 is
    # another host.
    os.kill(a.process.pid, signal.SIGSTOP)
    text = redis.ask("GET", LEASE).split()
    redis.ask("SET", LEASE, f"00000000000000aa tcp://10.0.0.1:7000?admin=127.0.0.1:{b.admin_port} {text[2]}", "PX", "60000")
    wait_for("it sees that one", lambda: "10.0.0.1" in b.status()["lease"]["holder"])
    said = cox("status", b)
    assert "standby" in said.stdout and ", which serves" not in said.stderr
    redis.ask("SET", LEASE, f"00000000000000aa tcp://10.0.0.1:7000 {text[2]}", "PX", "60000")  # an older version wrote the lease in this form
    wait_for("it sees the old one", lambda: "admin" not in b.status()["lease"])
    assert "10.0.0.1:7000 serves" in cox("events", b).stderr
    os.kill(a.process.pid, signal.SIGCONT)


def test_the_lease_says_what_others_can_use(tmp_path, redis):
    """When heads listen on every interface, the lease has this host's name or --advertise-host, for peers and the admin API."""
    key = tmp_path / "admin"
    key.write_text("an-admin-key\n")
    head = Head(tmp_path, redis.url, "a")
    head.command = [*(x for x in head.command if x != "--insecure"), "--keys-dir", str(make_keys(tmp_path / "keys")), "--host", "0.0.0.0",
                    "--admin-host", "0.0.0.0", "--admin-key-file", str(key)]
    for more, host in (([], socket.gethostname()), (["--advertise-host", "head-0.heads"], "head-0.heads"),
                       (["--advertise-host", "fd00::7"], "[fd00::7]")):
        p = subprocess.Popen([*head.command, *more], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=head.env)
        wait_for("it has the lease", lambda: redis.ask("GET", LEASE))
        assert redis.ask("GET", LEASE).split()[1] == f"tcp://{host}:{head.port}?admin={host}:{head.admin_port}"
        end_all([p])
        wait_for("it gave it back", lambda: not redis.ask("GET", LEASE))
    bad = subprocess.run([*head.command, "--advertise-host", "a b"], capture_output=True, text=True, timeout=20 * SLOW, env=head.env)
    assert bad.returncode == 2 and "--advertise-host" in bad.stderr


def make_keys(folder):
    subprocess.run([str(BIN / "cox"), "keys", "--keys-dir", str(folder)], check=True, capture_output=True, timeout=20 * SLOW)
    return folder


def test_a_holder_of_other_keys_is_named(tmp_path, redis):
    """Two clusters use one name. The standby with other keys warns once for each holder, and still takes over, because a cluster's
    keys may be in the middle of a change."""
    ours, theirs = (make_keys(tmp_path / f"keys-{n}") for n in ("ours", "theirs"))
    a, b, c = (Head(tmp_path, redis.url, n, keys) for n, keys in (("a", ours), ("b", theirs), ("c", ours)))

    def named(head):
        return [w for w in head.status()["warnings"] if "other keys" in w]

    try:
        a.start().wait_role("serving")
        b.start().wait_role("standby")
        c.start().wait_role("standby")
        wait_for("who waits with other keys says so", lambda: named(b))
        assert str(a.port) in named(b)[0] and "--cluster-name" in named(b)[0]
        wait_for("the other one knows who serves", lambda: str(a.port) in c.status()["lease"]["holder"])
        assert len(c.status()["lease"]["holder"].split()) == 2  # the holder is instance and address only
        stays([a, b, c], ["serving", "standby", "standby"], TTL)
        assert not named(c) and not named(a)
        assert b.log().count("lease_of_other_keys") == 1
        c.process.terminate()
        assert c.process.wait(20) == 0
        a.process.kill()
        a.process.wait()
        b.wait_role("serving")
        assert not named(b)
        a.start().wait_role("standby")
        wait_for("the first one says so now", lambda: named(a))
        assert "lease_of_other_keys" in a.log()
        for name in ("head.key", "head.pub"):  # The standby's key was being changed, and now the change is complete.
            (ours / name).write_bytes((theirs / name).read_bytes())
        wait_for("nothing is said of equal keys", lambda: not named(a))
        assert "lease_of_other_keys" not in c.log()
    finally:
        end_all([h.process for h in (a, b, c)])


def cox(*command):
    *words, head = command
    return subprocess.run([str(BIN / "cox"), *words, "--address", f"127.0.0.1:{head.admin_port}"], capture_output=True, text=True,
                          timeout=20 * SLOW)


def post(head, path, body):
    r = httpx.post(f"http://127.0.0.1:{head.admin_port}{path}", json=body, trust_env=False, timeout=20)
    return r.status_code, r.text


def connect(port):
    return socket.create_connection(("127.0.0.1", port), 5)


def test_redis_goes_and_comes_back_empty(heads, redis):
    a, b = heads
    term = a.term()
    redis.kill()
    wait_for("both have lost it", lambda: not any(h.status()["lease"]["store_reached"] for h in heads))
    stays(heads, ["serving", "standby"], 1.5 * TTL)
    redis.start()
    wait_for("both have it again", lambda: all(h.status()["lease"]["store_reached"] for h in heads))
    stays(heads, ["serving", "standby"], 2 * TTL)
    assert a.term() == term
    assert redis.ask("GET", "{cox:default}:term").split()[0] == str(term)
    assert redis.ask("FLUSHALL") == "OK"  # this deletes everything while the heads' links are open
    stays(heads, ["serving", "standby"], 2 * TTL)
    assert a.term() == term


def test_redis_and_the_serving_head_die_together(heads, redis):
    a, b = heads
    redis.kill()
    a.process.kill()
    a.process.wait()
    a.start().wait_role("standby")
    stays(heads, ["standby", "standby"], 1.5 * TTL)  # Without Redis, no head can get the lease.
    redis.start()
    wait_for("one serves", lambda: "serving" in (a.role(), b.role()))
    time.sleep(TTL)
    assert sorted([a.role(), b.role()]) == ["serving", "standby"]


def test_a_head_may_end_while_redis_stands_still(heads, redis):
    """The head gives up the lease and ends before Redis answers."""
    a, b = heads
    redis.process.send_signal(signal.SIGSTOP)
    try:
        a.process.send_signal(signal.SIGTERM)
        assert a.process.wait(10 * SLOW) == 0
    finally:
        redis.process.send_signal(signal.SIGCONT)
    wait_for("the other one serves", lambda: b.role() == "serving")


def test_a_head_that_stood_still_steps_down(heads, redis):
    a, b = heads
    term = a.term()
    a.process.send_signal(signal.SIGSTOP)
    b.wait_role("serving")
    assert b.term() > term
    a.process.send_signal(signal.SIGCONT)
    assert a.process.wait(20) == 0  # the head ends with 0, and its supervisor would restart it as the standby
    assert "lease_lost" in a.log()
    a.start().wait_role("standby")
    stays(heads, ["standby", "serving"], TTL)


def left(redis):
    return int(redis.ask("PTTL", LEASE))


def endless(head):
    return [w for w in head.status().get("warnings", []) if "was not written by a head" in w]


@pytest.mark.parametrize("how", ["persisted", "clock"])
def test_a_lease_that_would_not_end_is_taken_over(heads, redis, how):
    """The head dies before it can renew a lease that has no end (a restored dump) or an end a day away. The standby takes over."""
    a, b = heads
    if how == "clock" and not CLOCK.exists():
        pytest.skip(f"no {CLOCK}")
    term = a.term()
    a.process.send_signal(signal.SIGSTOP)
    if how == "clock":
        redis.set_clock(-86400)
        assert left(redis) > 86000000
    else:
        assert redis.ask("PERSIST", LEASE) == "1"
    a.process.kill()
    a.process.wait()
    wait_for("who waits says so", lambda: endless(b))
    assert str(a.port) in endless(b)[0] and f"DEL {LEASE}" in endless(b)[0]
    b.wait_role("serving")
    assert b.term() > term and not endless(b)
    assert b.log().count("lease_without_end") == b.log().count("lease_bounded") == 1, b.log()
    a.start().wait_role("standby")
    stays(heads, ["standby", "serving"], 2 * TTL)


def test_a_lease_without_an_end_stays_with_its_head(heads, redis):
    a, b = heads
    term = a.term()
    for _ in range(4):
        assert redis.ask("PERSIST", LEASE) == "1"
        wait_for("it has an end again", lambda: 0 < left(redis) <= 1000 * TTL)
    if CLOCK.exists():
        redis.set_clock(-86400)
    stays(heads, ["serving", "standby"], 2 * TTL)
    assert a.term() == term and left(redis) <= 1000 * TTL


def test_a_lease_that_somebody_set_ends(heads, redis):
    """The serving head treats the lease as that of another head and ends. No head holds the lease, and the standby finally gets it."""
    a, b = heads
    term = a.term()
    assert redis.ask("SET", LEASE, "somebody") == "OK"
    assert a.process.wait(20) == 0
    a.start()
    wait_for("who waits says so", lambda: endless(b))
    assert "somebody" in endless(b)[0]
    wait_for("one serves", lambda: "serving" in (a.role(), b.role()), 20)
    wait_for("the other one waits", lambda: sorted([a.role(), b.role()]) == ["serving", "standby"])
    assert max(a.term(), b.term()) > term and 0 < left(redis) <= 1000 * TTL


def test_a_redis_that_stood_still_changes_nothing(heads, redis):
    """The standby's requests wait in its sockets while Redis is stopped, and the lease has expired when Redis reads them."""
    a, b = heads
    term = a.term()
    wait_for("the standby may take what is free", lambda: b.status()["lease"]["store_reached"])
    time.sleep(1.5 * TTL)  # the standby has watched for a TTL, so from now on each of its requests tries to get the lease
    for still in (0.6 * TTL, 2 * TTL, 3 * TTL):
        redis.process.send_signal(signal.SIGSTOP)
        time.sleep(still)
        redis.process.send_signal(signal.SIGCONT)
        stays(heads, ["serving", "standby"], 2 * TTL)
    assert a.term() == term
    assert redis.ask("GET", "{cox:default}:term").split()[0] == str(term)


def test_nonsense_in_the_store_is_no_answer(heads, redis):
    """The serving head continues, whatever another program writes into the store."""
    a, b = heads
    for value in ("x", "99999999999999999999 0123456789abcdef", "4294967295 0123456789abcdef"):
        assert redis.ask("SET", "{cox:default}:term", value) == "OK"
        stays(heads, ["serving", "standby"], TTL)
    assert "store_answer" in a.log()  # the last value leaves no valid number for a term


def nonsense(head):
    return [w for w in head.status().get("warnings", []) if "invalid answer about the lease" in w]


@pytest.mark.parametrize("key", [LEASE, "{cox:default}:term"])
def test_a_key_of_a_wrong_type_is_told(heads, redis, key):
    """The store has a list in place of a string. The serving head continues, and both heads report that no head could take over."""
    a, b = heads
    assert not nonsense(a) and not nonsense(b)
    assert redis.ask("EVAL", "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'x')", "1", key) == "1"
    wait_for("both say so", lambda: nonsense(a) and nonsense(b))
    for head in heads:
        assert len(nonsense(head)) == 1 and "WRONGTYPE" in nonsense(head)[0] and key in nonsense(head)[0]
    assert "continues to serve" in nonsense(a)[0] and "waits" in nonsense(b)[0]
    stays(heads, ["serving", "standby"], 2 * TTL)
    assert redis.ask("DEL", key) == "1"
    wait_for("it is over", lambda: not nonsense(a) and not nonsense(b))
    stays(heads, ["serving", "standby"], 2 * TTL)


def test_a_store_that_talks_nonsense_gives_no_lease(tmp_path):
    answers = [b":1\r\n", b"-OOM no\r\n", b"*-1\r\n", b"*2\r\n:1\r\n:1\r\n", b"*4\r\n:7\r\n:1\r\n$0\r\n\r\n:0\r\n",
               b"*4\r\n:1\r\n:-1\r\n$0\r\n\r\n:0\r\n", b"*4\r\n:1\r\n:4294967295\r\n$0\r\n\r\n:0\r\n",
               b"*4\r\n:1\r\n:1\r\n:1\r\n:0\r\n", b"*3\r\n:1\r\n:1\r\n$0\r\n\r\n", b"*4\r\n:1\r\n:1\r\n$0\r\n\r\n$0\r\n\r\n"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve_nonsense, args=(listener, answers), daemon=True).start()
        head = Head(tmp_path, f"redis://127.0.0.1:{listener.getsockname()[1]}", "a").start()
        try:
            head.wait_role("standby")
            stays([head], ["standby"], 3 * TTL)
            assert head.log().count("store_answer") == 1, head.log()  # each head logs this once
            assert nonsense(head)
        finally:
            end_all([head.process])


def serve_nonsense(listener, answers):
    while True:
        try:
            s, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=talk, args=(s, answers), daemon=True).start()


def talk(s, answers):
    try:
        s.recv(4096)
        s.sendall(b"+PONG\r\n")
        while s.recv(65536):
            s.sendall(answers[0])
            answers.append(answers.pop(0))
    except OSError:
        pass


def test_options_are_checked(tmp_path):
    def refusal(*args):
        done = subprocess.run([str(BIN / "cox-head"), "--insecure", "--port", "0", "--admin-port", "0", *args],
                              capture_output=True, text=True, timeout=20 * SLOW)
        return done.returncode, done.stderr

    code, text = refusal("--redis", "unix:///x", "--cluster-name", "a}b")
    assert code == 2 and "--cluster-name" in text
    code, text = refusal("--redis", f"http://u:{PASSWORD}@h")
    assert code == 2 and "redis" in text and PASSWORD not in text


class Pair(Cluster):
    """Runs `cox up --standby`. Tests ask both heads which head serves."""

    def __init__(self, redis, *args, **kwargs):
        self.second_port, self.second_admin_port = free_ports(2)
        super().__init__("--redis", redis.url, "--standby", "--standby-port", self.second_port, "--standby-admin-port",
                         self.second_admin_port, "--lease-ttl", TTL, *args, **kwargs)

    def admin_ports(self):
        return {"head": self.admin_port, "standby": self.second_admin_port}

    def states(self):
        """Returns {name: /api/status} of the heads that answer."""
        answers = {name: get(f"http://127.0.0.1:{port}/api/status", 2) for name, port in self.admin_ports().items()}
        return {name: json.loads(body) for name, (code, body) in answers.items() if code == 200}

    def serving(self):
        return [name for name, s in self.states().items() if s["role"] == "serving"]

    def settled(self):
        """Returns true when one head serves with a complete replica and the other head waits."""
        states = self.states()
        if sorted(s["role"] for s in states.values()) != ["serving", "standby"]:
            return None
        serving = next(s for s in states.values() if s["role"] == "serving")
        return serving if serving["healthy"] and len(serving["workers"]) == 2 else None

    def wait_idle_at(self, name):
        def n_open():
            requests = self.states()[name]["requests"]
            return requests["running"] + requests["waiting"]
        wait_for("no request is running or waiting", lambda: n_open() == 0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with Redis(tmp_path_factory.mktemp("redis")) as redis, Pair(redis, "--null-step-us", "3000", "--enable-lora", "--lora-root",
                                                                     tmp_path_factory.mktemp("loras"), gateways=2) as cluster:
        cluster.redis = redis
        wait_for("one head serves and one waits", cluster.settled)
        yield cluster


def survive(pair, strike, n=16, n_tokens=150, model="null"):
    """Runs 16 streams and calls strike() once while they run. Every stream must be exact. Returns the longest pause."""
    done, pause = [], [time.monotonic(), 0.0]

    def look(got):
        now = time.monotonic()
        pause[1] = max(pause[1], now - pause[0])
        pause[0] = now
        if not done and got.n_chunks > 30:
            done.append(True)
            strike()

    bodies = [{"model": model, "prompt": f"survive {i}", "max_tokens": n_tokens, "temperature": i % 2, "seed": i} for i in range(n)]
    for body, got in zip(bodies, run(pair, bodies, look)):
        assert got.texts == {0: oracle.text(body["prompt"], n_tokens, seed=body["seed"], temperature=body["temperature"])}
    assert done
    return pause[1]


@pytest.mark.parametrize("how", ["kill", "stop", "term"])
def test_streams_survive_the_serving_head(pair, how):
    name, term = pair.serving()[0], wait_for("settled", pair.settled)["term"]
    pid = pair.pid(name)
    sig = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}[how]
    try:
        pause = survive(pair, lambda: os.kill(pid, sig), n_tokens=400)
        assert pause < 15 * SLOW
        other = "standby" if name == "head" else "head"
        if how == "kill":  # the supervisor restarts the head so soon that this head may take the lease itself
            other = wait_for("one serves", pair.serving)[0]
        assert other in pair.serving()
        if how == "stop":
            # A stopped head continues when its streams already belong to another head. It sends no tokens to them, checks the lease, and ends.
            survive(pair, lambda: os.kill(pid, signal.SIGCONT))
    finally:
        if how == "stop" and pair.pids().get(name) == pid:
            os.kill(pid, signal.SIGCONT)
    now = wait_for("the old head is back and waits", lambda: pair.serving() == [other] and pair.settled())
    assert pair.pid(name) != pid and now["term"] > term
    pair.wait_idle_at(other)


def test_adapters_survive_the_serving_head(pair):
    """The workers report to a new head which adapters the old one had loaded, however long it has waited."""
    def adapters(name):
        code, body = get(f"http://127.0.0.1:{pair.admin_ports()[name]}/api/adapters")
        return {a["name"]: (a["id"], a["state"]) for a in json.loads(body)["adapters"]} if code == 200 else None

    name = pair.serving()[0]
    wait_for("settled", pair.settled)
    other = "standby" if name == "head" else "head"
    said = run_cox("lora", "load", "style=style", "--address", f"127.0.0.1:{pair.admin_ports()[name]}")
    assert said.returncode == 0, said.stderr
    held = adapters(name)
    assert held["style"][1] == "ready"
    wait_for("who waits has waited for longer than a new head is young", lambda: pair.states()[other]["uptime_s"] > 11)
    pid = pair.pid(name)
    try:
        survive(pair, lambda: os.kill(pid, signal.SIGSTOP), model="style", n_tokens=600)
        assert pair.serving() == [other] and adapters(other) == held
        models = httpx.get(f"{pair.url}/v1/models", trust_env=False, timeout=20).json()["data"]
        assert [m["id"] for m in models if m["parent"]] == ["style"]
    finally:
        os.kill(pid, signal.SIGCONT)
        wait_for("settled", pair.settled)
        run_cox("lora", "unload", "style", "--address", f"127.0.0.1:{pair.admin_ports()[pair.serving()[0]]}")


def test_streams_do_not_notice_redis(pair):
    name, term = pair.serving()[0], wait_for("settled", pair.settled)["term"]
    pause = survive(pair, lambda: (pair.redis.kill(), threading.Timer(1.5 * TTL, pair.redis.start).start()), n_tokens=1000)
    wait_for("Redis is reached again", lambda: all(s["lease"]["store_reached"] for s in pair.states().values()))
    time.sleep(2 * TTL)
    assert pair.serving() == [name] and pair.settled()["term"] == term
    assert "head_lost" not in pair.log().rsplit("store_lost", 1)[1], f"somebody lost the head; longest pause {pause:.1f} s"


def test_the_heads_key_is_changed_under_a_pair(tmp_path, redis):
    """The serving head uses the new key after `cox keys --reload`. The standby uses it when it begins to serve."""
    def rotate():
        for args in (("--keys-dir", tmp_path / "keys", "--rotate", "head"), ("--reload", "--address", f"127.0.0.1:{pair.admin_ports()[name]}")):
            said = run_cox("keys", *args)
            assert said.returncode == 0, said.stderr

    with Pair(redis, "--keys-dir", tmp_path / "keys", "--null-step-us", "3000", gateways=2) as pair:
        term = wait_for("settled", pair.settled)["term"]
        name = pair.serving()[0]
        other = "standby" if name == "head" else "head"
        survive(pair, rotate, n_tokens=600)
        assert pair.serving() == [name] and pair.settled()["term"] == term
        assert pair.log().count("head_key_taken") == 1
        pid = pair.pid(name)
        try:
            survive(pair, lambda: os.kill(pid, signal.SIGSTOP), n_tokens=600)
            assert other in pair.serving()
            assert "lease_of_other_keys" not in pair.log()
        finally:
            os.kill(pid, signal.SIGCONT)


def test_pairs_of_throw_away_keys_never_meet(pair):
    """Two `cox up --standby` without --keys-dir share one Redis: each is a separate cluster."""
    with Pair(pair.redis) as other:
        wait_for("both clusters have one head that serves", lambda: other.settled() and pair.settled())
        leases = [k for k in pair.redis.ask("KEYS", "*").splitlines() if k.endswith(":lease")]
        assert len(leases) == 2, leases
        assert "lease_of_other_keys" not in other.log() + pair.log()


class Relay:
    """`Relay` passes bytes between one head and Redis. cut() acts like a network failure."""

    def __init__(self, folder, redis):
        self.path, self.redis, self.open, self.sockets = folder / "relay.sock", redis, True, []
        self.url = f"unix://:{PASSWORD}@{self.path}"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                mine, _ = self.listener.accept()
                if not self.open:
                    mine.close()
                    continue
                theirs = socket.socket(socket.AF_UNIX)
                theirs.connect(str(self.redis.path))
            except OSError:
                return
            self.sockets += [mine, theirs]
            for a, b in ((mine, theirs), (theirs, mine)):
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    @staticmethod
    def carry(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
        except OSError:
            pass

    def cut(self):
        self.open = False
        for s in self.sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.cut()
        self.listener.close()


def start_peers(tmp_path, heads):
    """Starts two null workers and a gateway, which know both heads. Returns (processes, base URL)."""
    ports = free_ports(3)
    both = ",".join(f"127.0.0.1:{h.port}" for h in heads)
    log = open(tmp_path / "peers.log", "wb")
    peers = [[str(BIN / "cox-gateway"), "--model", "null", "--host", "127.0.0.1", "--port", str(ports[0])]]
    peers += [[str(BIN / "cox-worker"), "--model", "null", "--device", "null", "--http-port", str(ports[1 + i]), "--null-step-us",
               "3000", "--ordinal", str(i), "--tp", "2"] for i in range(2)]
    processes = [subprocess.Popen([*p, "--insecure", "--head", both], stdin=subprocess.DEVNULL, stdout=log, stderr=log) for p in peers]
    log.close()
    return processes, f"http://127.0.0.1:{ports[0]}"


def test_a_head_without_redis_keeps_its_peers_until_it_hears(tmp_path, redis):
    """When two heads serve, the peers and streams of the old head stay there, and move when it steps down."""
    relay = Relay(tmp_path, redis)
    a, b = Head(tmp_path, relay.url, "a"), Head(tmp_path, redis.url, "b")
    for h in (a, b):
        h.command += ["--tp", "2"]
    a.start().wait_role("serving")
    b.start().wait_role("standby")
    peers, url = start_peers(tmp_path, [b, a])
    try:
        wait_for("requests are served", lambda: get(url + "/health")[0] == 200)
        world = type("World", (), {"url": url})
        survive(world, relay.cut)
        b.wait_role("serving")
        assert a.role() == "serving" and b.term() > a.term()  # two heads now serve one cluster
        survive(world, lambda: None)
        assert len(a.status()["workers"]) == 2 and not b.status()["workers"]

        def heal():
            relay.open = True

        survive(world, heal, n_tokens=600)
        assert a.process.wait(20) == 0 and "lease_lost" in a.log()
        assert len(b.status()["workers"]) == 2
    finally:
        relay.close()
        end_all([h.process for h in (a, b)] + peers)
        print((tmp_path / "peers.log").read_text(errors="replace")[-6000:])
