"""Tests three "hosts" as network namespaces: the head and a gateway on one, and a worker on each of two others. They are started
with the commands of docs/start/server.md and only a join token. Their answers equal those of one host."""
import ipaddress
import json
import re
import struct

import null_oracle as oracle
import pytest
from cluster import BIN, ROOT, SANITIZED, Cluster
from completions import ids, run
from hosts import HEAD_PORT, HostCluster, Hosts, Listener, bracketed, skip_without_hosts
from real_model import CACHE, MODEL, SENTENCES

TINY = ROOT / "build/goldens/llama_tiny"
OF_TINY = ["--device", "cpu", "--threads", 1, "--kv-cache-dtype", "float32", "--dtype", "float32"]
OF_DEMO = ["--device", "cpu", "--threads", 1, "--max-model-len", 512]
NULL = ["--device", "null", "--null-step-us", 5000]

pytestmark = skip_without_hosts()
needs_demo = pytest.mark.skipif(not MODEL.exists() or SANITIZED, reason=f"no demo model at {MODEL}: "
                                "scripts/fetch-demo-model; or a sanitizer's pace")
needs_tiny = pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens")


def bodies(n):
    """Returns 8 requests for n tokens: greedy and sampled, shorter and longer than a block."""
    prompts = ["Once upon a time", "The capital of France is", SENTENCES[0] * 6 + "Then", "1, 2, 4, 8, 16,"]
    more = [{"temperature": 0}, {"temperature": 1, "seed": 7, "top_p": 0.95}]
    return [{"model": "m", "prompt": p, "max_tokens": n, "ignore_eos": True, "return_token_ids": True, **m}
            for p in prompts for m in more]


def of_one_host(model, of_worker, asked):
    """Returns each request's ids from `cox up --tp 2` on this machine, over shared memory."""
    with Cluster(*of_worker, "--served-model-name", "m", model=str(model)) as c:
        return [ids(got) for got in run(c, asked)]


def all_at_once(hosts, asked):
    pending = [hosts.ask(**{("n" if k == "max_tokens" else k): v for k, v in b.items() if k != "model"}) for b in asked]
    return [hosts.ids(p) for p in pending]


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_two_hosts_serve(tmp_path, ipv6):
    with HostCluster(tmp_path, "null", NULL, ipv6=ipv6) as hosts:
        hosts.start_all()
        group, = hosts.status()["groups"]
        assert group["tp"] == 2
        assert {w["node"] for w in hosts.status()["workers"]} == {"one", "two"}
        for body in ({"temperature": 0}, {"temperature": 1, "seed": 4}):
            assert hosts.complete("across hosts", 40, **body)["text"] == oracle.text("across hosts", 40, **body)


@pytest.mark.parametrize("which", [pytest.param("tiny", marks=needs_tiny), pytest.param("demo", marks=needs_demo)])
def test_joined_by_a_veth_pair(tmp_path, which):
    """The two workers' hosts have a separate cable besides those to the head, and `--comm-host` sends the model's data over it. 8
    streams at once must equal one host's tokens."""
    model, of_worker = (TINY, OF_TINY) if which == "tiny" else (MODEL, OF_DEMO)
    asked = bodies(40 if which == "tiny" else 16)
    want = of_one_host(model, of_worker, asked)
    with HostCluster(tmp_path, model, of_worker) as hosts:
        hosts.cable(*hosts.workers, "data", "data")
        for i, w in enumerate(hosts.workers):
            w.address("data", f"10.79.0.{i + 1}/24")
        hosts.start_all(lambda i: ["--comm-host", f"10.79.0.{i + 1}", "--comm-port", 7100])
        assert all_at_once(hosts, asked) == want
        for i in range(2):
            assert f"comm_listening address=10.79.0.{i + 1}:7100" in hosts.log(f"worker{i}")
            assert 'transport="TCP"' in hosts.log(f"worker{i}")
        shown = hosts.cox("status")
        assert "one " in shown and "two " in shown and "2/2 workers serve" in shown, shown


@needs_tiny
@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_by_way_of_the_head(tmp_path, ipv6):
    """Without --comm-host the workers use the addresses that the head sees, here through the head's host as a router. The second
    cable carries small packets only. A worker waits for a head whose name is unknown, and logs it."""
    expected = json.loads((TINY / "expected.json").read_text())["prompts"]
    with HostCluster(tmp_path, TINY, OF_TINY, ipv6=ipv6) as hosts:
        hosts.disconnect(1)
        hosts.connect(1, mtu=1280)
        hosts.start_head()
        hosts.start_gateway()
        hosts.start_worker(0)
        hosts.start_worker(1, token=hosts.token(1, head=f"head.example:{HEAD_PORT}"))
        hosts.wait("it says that it waits", lambda: "head_unreachable" in hosts.log("worker1"))
        assert "its host name cannot be resolved" in hosts.log("worker1") and hosts.processes["worker1"].poll() is None
        hosts.workers[1].know("head.example", hosts.address(1, 1))
        hosts.wait_serves()
        for p in expected:
            got = hosts.complete(p["ids"], len(p["greedy"]), temperature=0)
            assert got["token_ids"] == p["greedy"], p["name"]
        long = SENTENCES[1] * 8  # the prompt has enough rows for full packets
        assert hosts.complete(long, 4, temperature=0)["token_ids"] == hosts.complete(long, 4, temperature=0)["token_ids"]
        for i in range(2):
            own = bracketed(str(ipaddress.ip_address(hosts.address(i, 2))))
            assert f"comm_listening address={own}:" in hosts.log(f"worker{i}")


def commands_of(section):
    """Returns [(host, command line)] of a section of docs/start/server.md."""
    text = (ROOT / "docs/start/server.md").read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^(first|second)\$ (.*)$", text, re.M)


@needs_demo
def test_the_recipe_for_two_servers(tmp_path):
    """Runs the documented commands line by line, as a new user types them."""
    path = f"PATH={BIN}:$PATH; export PATH HOME={tmp_path} COX_CACHE={CACHE}; "
    with Hosts(tmp_path) as hosts:
        first, second = hosts.add("first", "second")
        hosts.cable(first, second, "net", "net")
        first.address("net", "10.0.0.1/24")
        second.address("net", "10.0.0.2/24")
        typed = commands_of("A second server")
        assert [c.split()[1] for _, c in typed if c.startswith("cox")] == ["up", "join-token", "worker", "status"]
        said = {}
        for host, line in typed:
            h = first if host == "first" else second
            line = line.replace("cox1....", said.get("join-token", ""))
            what = line.split()[1]
            if what in ("up", "worker"):
                hosts.start_shell(h, what, f"{path}exec {line}")
            else:
                if what == "join-token":
                    hosts.wait("cox up has made its keys", (tmp_path / "cox-keys/worker.key").exists)
                elif what == "-s":
                    hosts.wait("ready", lambda: "ready" in hosts.log("up") and "200" == first.curl(
                        "http://127.0.0.1:8000/health", "-o", "/dev/null", "-w", "%{http_code}"), 30)
                said[what] = h.run("sh", "-c", path + line).strip()
        assert json.loads(said["-s"])["usage"]["completion_tokens"] == 32
        assert "2/2 workers serve" in said["status"] and "healthy" in said["status"], said["status"]
        for host, name, own in (("first", "up", 1), ("second", "worker", 2)):
            assert f"comm_listening address=10.0.0.{own}:7100" in hosts.log(name), host


def as_on_the_wire(ids):
    """Returns the ids as a packed field of fixed32 (proto/)."""
    return struct.pack(f"<{len(ids)}I", *ids)


@pytest.mark.parametrize("encrypted", [True, False], ids=["keys", "insecure"])
def test_prompts_are_encrypted_between_hosts(tmp_path, encrypted):
    """A listener on the cables and on the head's host finds no prompt. Without keys the listener finds the prompt, so the search
    itself works."""
    prompt = [200 + 7 * i % 50 for i in range(48)]
    with HostCluster(tmp_path, "null", NULL) as hosts:
        listener = Listener(hosts, hosts.head, "lo", "down0", "down1")
        hosts.insecure = not encrypted
        hosts.start_all()
        assert len(hosts.complete(prompt, 4)["token_ids"]) == 4
        as_sent, n = map(int, listener.say("find", as_on_the_wire(prompt[:32]).hex()).split())
        as_json, _ = map(int, listener.say("find", json.dumps(prompt)[:100].encode().hex()).split())
        assert as_json > 0 and n > 100, "the listener is deaf: curl's request is in the clear"
        assert (as_sent == 0) == encrypted
