"""Tests failures of hosts and networks during the streams of a replica on two hosts (hosts.py). Each stream ends with exactly the
tokens of the same request alone, and `cox status` shows the failure."""
import re
import time

import null_oracle as oracle
import pytest
from cluster import ROOT
from hosts import HostCluster, Wire, skip_without_hosts

TINY = ROOT / "build/goldens/llama_tiny"
OF_TINY = ["--device", "cpu", "--threads", 1, "--kv-cache-dtype", "float32", "--dtype", "float32"]
NULL = ["--device", "null", "--null-step-us", 5000]
BODIES = [{"temperature": 0}, {"temperature": 1, "seed": 8}]

pytestmark = [skip_without_hosts(), pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens")]


def failures(hosts):
    """Returns the failures that `cox status` shows."""
    return re.findall(r"Z  (\S+ \w+: .*)", hosts.cox("status"))


def asked(hosts):
    pending = [hosts.ask("cable", 900, **b) for b in BODIES]
    hosts.wait_running(len(BODIES))
    return pending


def alone(hosts):
    return [hosts.ids(hosts.ask("cable", 900, **b)) for b in BODIES]


def wait_lost(hosts, pending, seconds=15):
    hosts.wait("the loss is seen", lambda: not hosts.healthy(), seconds)
    assert all(p.poll() is None for p in pending), "the strike came too late"


def test_a_cut_cable_is_a_pause(tmp_path):
    """The link of one host fails during a request and is restored."""
    with HostCluster(tmp_path, "null", NULL) as hosts:
        hosts.start_all()
        p = hosts.ask("cable", 400, seed=8)
        hosts.wait_running()
        hosts.head.ip("link", "set", "down1", "down")
        wait_lost(hosts, [p])
        hosts.head.ip("link", "set", "down1", "up")
        assert hosts.answer(p)["text"] == oracle.text("cable", 400, seed=8), hosts.logs()


def test_a_host_that_is_gone_and_comes_back(tmp_path):
    """A host's only cable is unplugged while its worker continues to run. The host returns with another address. Then that worker is
    killed."""
    with HostCluster(tmp_path, TINY, OF_TINY) as hosts:
        hosts.start_all()
        want = alone(hosts)
        pending = asked(hosts)
        hosts.disconnect(1)
        wait_lost(hosts, pending)
        assert hosts.processes["worker1"].poll() is None
        hosts.connect(1, end=9)
        assert [hosts.ids(p) for p in pending] == want
        assert "comm_listening address=10.78.1.9:" in hosts.log("worker1")
        assert any(f.startswith(("two worker_lost", "one comm_error")) for f in failures(hosts)), hosts.cox("status")
        pending = asked(hosts)
        hosts.kill("worker1")
        wait_lost(hosts, pending)
        hosts.start_worker(1)
        assert [hosts.ids(p) for p in pending] == want


def test_the_network_between_the_workers(tmp_path):
    """The two workers have a cable between them and reach the head without it. Delay, jitter and one second of silence on this cable
    have no effect. When the silence lasts, both ranks detect it by themselves, during a stream and between two streams."""
    with HostCluster(tmp_path, TINY, OF_TINY) as hosts:
        wire = Wire(hosts, *hosts.workers, "data")
        for i, w in enumerate(hosts.workers):
            w.address("data", f"10.79.0.{i + 1}/24")
        hosts.start_all(lambda i: ["--comm-host", f"10.79.0.{i + 1}"])
        want = alone(hosts)
        few = hosts.ids(hosts.ask("delay", 8, temperature=0))
        wire.say("delay", 20, 15)
        assert hosts.ids(hosts.ask("delay", 8, temperature=0)) == few and hosts.healthy()
        wire.say("pass")

        epoch = hosts.status()["groups"][0]["epoch"]
        pending = asked(hosts)
        wire.say("drop")
        time.sleep(1)
        wire.say("pass")
        assert [hosts.ids(p) for p in pending] == want
        assert hosts.status()["groups"][0]["epoch"] == epoch and not failures(hosts)

        pending = asked(hosts)
        wire.say("drop")
        wait_lost(hosts, pending, 30)  # the loss is detected after 5 s; a collective's limit is 60 s
        shown = failures(hosts)
        assert any(re.match(r"(one|two) comm_error: .*rank \d at 10\.79\.0\.\d:\d+ is disconnected: the peer's host has not answered", f)
                   for f in shown), shown
        assert "lost" not in "".join(shown), "both workers reach the head"
        wire.say("pass")
        assert [hosts.ids(p) for p in pending] == want

        wire.say("drop")  # the cable fails while no request is open
        hosts.wait("the loss is seen", lambda: not hosts.healthy(), 30)
        wire.say("pass")
        hosts.wait_serves()
        events = hosts.cox("events")
        assert len(re.findall(r"group_dissolved .*is disconnected: the peer's host has not answered", events)) == 2, events
