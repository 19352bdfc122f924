"""Tests attacks on the inner links, on loopback and bounded: networks without a key, and peers with a valid key.

During an attack, streams must end with the expected tokens, the head's memory and descriptors must stay within a budget, and no
process may restart. Afterwards legitimate peers must be able to join. tests/e2e/test_bad_frames.py covers spoiled, repeated and
reordered frames, other versions and wrong keys; tests/e2e/test_key_rotation.py covers withdrawn keys."""
import contextlib
import os
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import null_oracle as oracle
import pytest
from cluster import BIN, SANITIZED, SHORT, SLOW, get, wait_for
from completions import run
from test_bad_frames import Processes

HOSTILE = BIN.parent / "tests/hostile"
N_STREAMS, N_TOKENS = 4, 200
RSS_BUDGET = 64 << 20  # bytes that an attack may add to the head's memory
FD_BUDGET = 40  # descriptors that may remain open after an attack
GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01CURVE" + b"\0" * 47  # greeting of ZMTP 3.1 from a CURVE client


@pytest.fixture(scope="module")
def c(tmp_path_factory):
    with Processes(tmp_path_factory.mktemp("attacks")) as c:
        c.start_head()
        for i in range(2):
            c.start_worker(f"worker-{i}", c.head_port)
        c.start_gateway(c.head_port)
        wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)
        yield c


def hostile(c, role, *what, keys=None):
    done = subprocess.run([HOSTILE, f"tcp://127.0.0.1:{c.head_port}", keys or c.keys, role, *map(str, what)],
                          capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == 0, f"{role} {what}: {done.stderr}"
    return done.stdout


def fds(p):
    return len(os.listdir(f"/proc/{p.pid}/fd"))


def rss(p):
    return int(Path(f"/proc/{p.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def attacked(c):
    """Runs streams for the duration of the context, compares their tokens, and checks the head's budget."""
    head = c.started["head"]
    pids = {n: p.pid for n, p in c.started.items()}
    before, most, over = (rss(head), fds(head)), [0, 0], threading.Event()
    results = []

    def streams():
        while not over.is_set() or not results:
            prompts = [f"stream {i} of round {len(results)} under attack" for i in range(N_STREAMS)]
            got = run(c, [{"prompt": p, "max_tokens": N_TOKENS, "temperature": 0} for p in prompts])
            results.append([g.texts == {0: oracle.text(p, N_TOKENS, temperature=0)} for p, g in zip(prompts, got)])

    def watch():
        while not most[0] or not over.wait(0.05):
            most[0], most[1] = max(most[0], rss(head)), max(most[1], fds(head))

    failed = []

    def kept(fn):
        try:
            fn()
        except BaseException as e:  # noqa: BLE001: of a thread, shown below
            failed.append(repr(e))

    threads = [threading.Thread(target=kept, args=(f,)) for f in (streams, watch)]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        over.set()
        for t in threads:
            t.join(120 * SLOW)
    assert not failed, failed
    assert results and all(all(r) for r in results), "a stream has other tokens"
    assert {n: p.pid for n, p in c.started.items() if p.poll() is None} == pids, "a process ended"
    print(f"rss {before[0] >> 20} MiB, at most {most[0] >> 20}; descriptors {before[1]}, at most {most[1]}")
    if not SANITIZED:
        assert most[0] - before[0] <= RSS_BUDGET, f"{most[0] - before[0]} bytes more"
    wait_for("the descriptors are back", lambda: fds(head) <= before[1] + FD_BUDGET)


def joins(c):
    """Checks that a legitimate worker joins within ten seconds."""
    n = len(c.status()["workers"])
    name = f"spare-{time.monotonic_ns()}"
    c.start_worker(name, c.head_port)
    wait_for("a legitimate worker joins", lambda: "head_joined" in c.log(name), 10)
    p = c.started.pop(name)
    p.terminate()
    p.wait(20 * SLOW)
    p.stdin.close()
    wait_for("it is gone", lambda: len(c.status()["workers"]) <= n)


def dial(c):
    s = socket.create_connection(("127.0.0.1", c.head_port), timeout=5)
    s.settimeout(2 * SLOW)
    return s


def test_half_open_connections(c):
    """The head survives 200 half-open connections at once, 3000 in all. Some clients are silent, some only greet, and some close at
    once."""
    rounds = 5 if SHORT else 15
    openers = [b"", GREETING[:10], GREETING, GREETING + b"\x04\x20\x05HELLO\x01\x00"]
    with attacked(c):
        for i in range(rounds):
            held = []
            for k in range(200):
                s = dial(c)
                with contextlib.suppress(OSError):
                    s.sendall(openers[(i + k) % len(openers)])
                held.append(s)
            for s in held:
                s.close()
    joins(c)


def test_connections_that_stay_half_open_are_ended(c):
    """The head closes connections whose handshake takes longer than 5 s, so no client can hold its descriptors."""
    with attacked(c):
        held = [dial(c) for _ in range(200)]
        for i, s in enumerate(held):
            with contextlib.suppress(OSError):
                s.sendall(GREETING if i % 2 else b"")
        wait_for("they are ended", lambda: fds(c.started["head"]) < 120, 15)
        for s in held:
            s.close()
    joins(c)


def test_dribbled_bytes(c):
    """A greeting that arrives at ten bytes per second does not restart the handshake's time limit with each byte."""
    with attacked(c):
        begin, alive = time.monotonic(), [dial(c) for _ in range(50)]

        def say(text):
            for s in list(alive):
                s.setblocking(False)
                try:
                    s.sendall(text)
                    while s.recv(4096):
                        pass
                    raise OSError("its end")
                except BlockingIOError:
                    pass
                except OSError:
                    alive.remove(s)
                    s.close()
            time.sleep(0.1)

        for byte in GREETING[:63]:  # these bytes are never a whole greeting
            say(bytes([byte]))
        took = time.monotonic() - begin
        while alive and time.monotonic() < begin + 9:  # a busy head may be late, but with a restarted limit the connection would end only at 11 s
            say(b"")
        for s in alive:
            s.close()
        assert took > 6 and (not alive or SLOW > 1), f"{len(alive)} of 50 still hold on after {took:.1f} s"
    joins(c)


def test_giant_frames_before_the_handshake(c):
    """The head refuses huge frame lengths by the frame's header and allocates no memory for them."""
    with attacked(c):
        for size in (1 << 16, 1 << 31, 1 << 40, (1 << 63) - 1):
            for flags in (0x02, 0x06):  # the flags stand for a long message and a long command
                s = dial(c)
                with contextlib.suppress(OSError):
                    s.sendall(GREETING + struct.pack(">BQ", flags, size) + b"A" * 65536)
                    while s.recv(65536):
                        pass
                s.close()
        for _ in range(50):
            s = dial(c)
            with contextlib.suppress(OSError):
                s.sendall(os.urandom(8192))
            s.close()
    joins(c)


TYPES = {  # message type → roles that may send it to the head; any other type ends the session
    "heartbeat": {"gateway", "worker", "operator"}, "credit": {"gateway", "worker", "operator"},
    "goodbye": {"gateway", "worker", "operator"},
    "submit": {"gateway"}, "cancel": {"gateway"}, "finish": {"gateway"}, "adapter_order": {"gateway"},
    "comm_id": {"worker"}, "formed": {"worker"}, "aborted": {"worker"}, "result": {"worker"}, "gap": {"worker"},
    "comm_error": {"worker"}, "drain_wish": {"worker"}, "adapter_done": {"worker"}, "kv_transferred": {"worker"},
    "grammar_done": {"worker"}, "slept": {"worker"},
}


@pytest.mark.parametrize("role", ["gateway", "worker", "operator"])
def test_what_a_key_may_say(c, role):
    """The head checks every key against every role and every message type, over real connections."""
    lines = [line.split(" ", 2) for line in hostile(c, role, "matrix").splitlines()]
    hellos = {said: text for what, said, text in lines if what == "hello"}
    assert hellos.pop(role) == "welcome"
    assert set(hellos) == {"gateway", "worker", "operator", "head"} - {role}
    assert all(text.startswith("this key is not registered for a") for text in hellos.values()), hellos
    types = {name: text for what, name, text in lines if what == "type"}
    assert len(types) >= 28 and set(TYPES) <= set(types)
    for name, text in types.items():
        assert text == ("allowed" if role in TYPES.get(name, ()) else "refused"), name


@pytest.mark.parametrize("role", ["gateway", "worker"])
def test_garbage_behind_a_right_key(c, role):
    with attacked(c):
        hostile(c, role, "garbage", 20 if SHORT else 100)
    joins(c)


def test_huge_frames_behind_a_right_key(c):
    """The head refuses oversized frames by their length and allocates no memory for them."""
    with attacked(c):
        hostile(c, "worker", "huge", 3)
        hostile(c, "gateway", "huge", 3)
    joins(c)


def test_a_gateway_that_floods(c):
    """A gateway sends Submits without end. Accepted requests share the queue with other tenants by key, and the others are refused.
    All of them are dropped when their gateway leaves."""
    with attacked(c):
        assert hostile(c, "gateway", "flood", 1000 if SHORT else 4000).startswith("sent ")
    wait_for("what it asked for is gone", lambda: c.status()["requests"]["running"] + c.status()["requests"]["waiting"] == 0,
             30)
    joins(c)


def test_a_worker_that_lies(c):
    """The head ignores results, gaps, ends of epochs and steps that a worker sends for a replica that it is not in."""
    before = c.status()["groups"][0]["epoch"]
    with attacked(c):
        hostile(c, "worker", "lies", 500 if SHORT else 3000)
    assert c.status()["groups"][0]["epoch"] == before, "a lie has dissolved somebody's group"
    joins(c)
