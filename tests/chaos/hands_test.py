"""Tests the faults of chaos runs on three hosts without a cluster: each fault has its effect, and the effect ends when the fault is
healed."""
import asyncio
import ctypes
import os
import subprocess
import time

import chaos_net
import pytest
from chaos_faults import Hands
from chaos_net import CLOCK, SWITCH, ChaosCluster, address

reason = chaos_net.why_not()
pytestmark = pytest.mark.skipif(reason is not None, reason=f"SKIPPED: {reason}")
ECHO = ("import socket\ns = socket.create_server(('0.0.0.0', 9000))\nprint('ready', flush=True)\n"
        "while True:\n    c, _ = s.accept()\n    c.sendall(b'x')\n    c.close()")


@pytest.fixture
def hands(tmp_path, monkeypatch):
    monkeypatch.setattr(ChaosCluster, "start_all", lambda self: None)
    own = os.open("/proc/self/ns/net", os.O_RDONLY)  # the harness makes the test's network namespace its switch
    try:
        with ChaosCluster(tmp_path) as cluster:
            yield Hands(cluster, None, 4)
    finally:
        assert ctypes.CDLL(None).setns(own, 0) == 0
        os.close(own)


def reaches(hands, a, b, seconds=10):
    """Returns whether a TCP connection from host a to host b succeeds."""
    said = hands.cluster.hosts[a].run("python3", "-c", "import socket, sys; s = socket.create_connection((sys.argv[1], 9000), float(sys.argv[2])); "
                                      "print(s.recv(1))", address(b), seconds, check=False)
    return "b'x'" in said


def cut_off(hands, a, b):
    return not reaches(hands, a, b, 0.5)


def echo_on(hands, *hosts):
    for h in hosts:
        p = subprocess.Popen(hands.cluster.hosts[h].inside("python3", "-c", ECHO), stdout=subprocess.PIPE)
        assert p.stdout.readline() == b"ready\n"  # the process ends with its host


def connect_s(host):
    begin = time.monotonic()

    async def connect():
        reader, writer = await asyncio.open_connection(address(host), 9000)
        await reader.read(1)
        writer.close()
    asyncio.run(connect())
    return time.monotonic() - begin


def test_partitions_and_loss(hands):
    echo_on(hands, "a", "b", "c")
    assert all(reaches(hands, a, b) for a, b in ("ab", "ba", "bc"))
    heal = asyncio.run(hands.do_partition({"on": "ab"}))
    assert cut_off(hands, "a", "b") and cut_off(hands, "b", "a") and reaches(hands, "b", "c") and reaches(hands, "a", "c")
    asyncio.run(heal())
    heal = asyncio.run(hands.do_one({"on": "ab"}))  # the other direction is dropped too
    other = asyncio.run(hands.do_one({"on": "cb"}))
    assert "chain input" in (rules := hands.cluster.hosts["b"].run("nft", "list", "table", "ip", "chaos"))
    assert f"saddr {address('a')} drop" in rules and "daddr" not in rules
    assert cut_off(hands, "a", "b") and cut_off(hands, "c", "b")
    asyncio.run(other())
    assert reaches(hands, "c", "b") and cut_off(hands, "a", "b")
    asyncio.run(heal())
    assert reaches(hands, "a", "b")
    heal = asyncio.run(hands.do_loss({"on": "c", "percent": 99}))
    assert cut_off(hands, "a", "c") and cut_off(hands, "c", "b")
    asyncio.run(heal())
    assert reaches(hands, "a", "c")


def test_delay_and_flap(hands):
    echo_on(hands, "a")

    async def delayed():
        heal = await hands.do_delay({"on": "a", "ms": 60})
        begin = time.monotonic()
        reader, writer = await asyncio.open_connection(address("a"), 9000)
        await reader.read(1)
        writer.close()
        took = time.monotonic() - begin
        assert SWITCH in chaos_net.run("ip", "link", "show", "switch"), "the hosts' ARP would be wrong"
        await heal()
        return took

    connect_s("a")
    assert asyncio.run(delayed()) > 4 * 0.04  # the request takes two round trips of at least 40 ms each way, less their overlap
    connect_s("a")
    asyncio.run(hands.do_flap({"on": "a", "times": [0.2, 0.1]}))
    connect_s("a")


def test_disk(hands):
    host = hands.cluster.hosts["b"]
    heal = asyncio.run(hands.do_disk({"on": "b"}))
    write = ["sh", "-c", f"head -c 100000 /dev/zero > {host.disk}/more && echo written"]
    assert "written" not in host.run(*write, check=False)
    assert "written" in hands.cluster.hosts["a"].run(*write), "the disk of another host"
    asyncio.run(heal())
    assert "written" in host.run(*write)


@pytest.mark.skipif(not CLOCK.exists() or chaos_net.SANITIZED, reason=f"no {CLOCK} in this build")
def test_clock(hands):
    host = hands.cluster.hosts["b"]

    def seconds():
        said = host.run("env", f"LD_PRELOAD={CLOCK}", f"CHAOS_CLOCK={host.clock}", "python3", "-c",
                        "import time; print(time.time() - time.monotonic())")
        return float(said)

    before = seconds()
    heal = asyncio.run(hands.do_clock({"on": "b", "seconds": -86400}))
    assert abs(seconds() - before + 86400) < 60
    asyncio.run(heal())
    assert abs(seconds() - before) < 60
