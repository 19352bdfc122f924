"""Three "hosts" as network namespaces: the head in one, a worker in each of two others, CURVE between
them over veth pairs, the workers started with nothing but a join token. On the CPU the two ranks of one
model reach each other through the head's host, over TCP."""
import json
import os
import shutil
import subprocess
import time

import null_oracle as oracle
import pytest
from cluster import BIN, ROOT, SLOW

PREFIX = f"cox{os.getpid() % 10000}"
HEAD, HOSTS = f"{PREFIX}h", [f"{PREFIX}a", f"{PREFIX}b"]
HEAD_PORT, ADMIN_PORT, HTTP_PORT, WORKER_PORT = 7000, 8265, 8000, 7001


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


def can_make_namespaces():
    if os.geteuid() != 0:
        return "not root"
    if not shutil.which("ip"):
        return "no ip command (package iproute2)"
    try:
        ip("netns", "add", PREFIX)
        ip("netns", "del", PREFIX)
    except subprocess.CalledProcessError as e:
        return f"cannot make network namespaces: {e.stderr.strip()}"
    return None


TINY = ROOT / "build/goldens/llama_tiny"

reason = can_make_namespaces()
pytestmark = pytest.mark.skipif(reason is not None, reason=f"SKIPPED: {reason}")


class Hosts:
    """The namespaces, their links and the processes inside; leaves nothing behind."""

    def __init__(self, folder):
        self.folder, self.processes, self.token = folder, [], {}
        self.model, self.of_worker = "null", ["--device", "null", "--null-step-us", 5000]

    def __enter__(self):
        try:
            ip("netns", "add", HEAD)
            ip("-n", HEAD, "link", "set", "lo", "up")
            for i, host in enumerate(HOSTS):
                ip("netns", "add", host)
                ip("link", "add", f"{host}v", "netns", host, "type", "veth", "peer", "name", f"{host}p", "netns", HEAD)
                for ns, dev, address in ((host, f"{host}v", f"10.78.{i}.2/24"), (HEAD, f"{host}p", f"10.78.{i}.1/24")):
                    ip("-n", ns, "addr", "add", address, "dev", dev)
                    ip("-n", ns, "link", "set", dev, "up")
                ip("-n", host, "link", "set", "lo", "up")
                ip("-n", host, "route", "add", "default", "via", f"10.78.{i}.1")
            subprocess.run(["ip", "netns", "exec", HEAD, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"],
                           check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for p in self.processes:
            if p.poll() is None:
                p.terminate()
        for p in self.processes:
            try:
                p.wait(3)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        for ns in [HEAD, *HOSTS]:
            subprocess.run(["ip", "netns", "del", ns], capture_output=True)

    def start(self, ns, name, *args):
        log = open(self.folder / f"{name}.log", "wb")
        p = subprocess.Popen(["ip", "netns", "exec", ns, str(BIN / name.split(".")[0]), *map(str, args)],
                             stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(p)
        return p

    def logs(self):
        return "\n".join(f"-- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in sorted(self.folder.glob("*.log")))

    def curl(self, ns, url, *args):
        return subprocess.run(["ip", "netns", "exec", ns, "curl", "-sS", "-m", "60", *args, url], capture_output=True,
                              text=True).stdout

    def status(self):
        body = self.curl(HEAD, f"http://127.0.0.1:{ADMIN_PORT}/api/status")
        return json.loads(body) if body.startswith("{") else {"healthy": False, "workers": [], "groups": []}

    def wait(self, what, condition, seconds=20):
        end = time.monotonic() + seconds * SLOW
        while not condition():
            assert time.monotonic() < end, f"not in time: {what}\n{self.logs()}"
            time.sleep(0.1)

    def asking(self, prompt, n, **body):
        """A request under way: a curl in the head's namespace."""
        request = {"model": "m", "prompt": prompt, "max_tokens": n, "return_token_ids": True, "ignore_eos": True, **body}
        p = subprocess.Popen(["ip", "netns", "exec", HEAD, "curl", "-sS", "-m", str(90 * SLOW), "-d", json.dumps(request),
                              "-H", "content-type: application/json", f"http://127.0.0.1:{HTTP_PORT}/v1/completions"],
                             stdout=subprocess.PIPE, text=True)
        self.processes.append(p)
        return p

    def answer(self, p):
        """Its first choice."""
        out, _ = p.communicate(timeout=90 * SLOW)
        assert '"choices"' in out, f"{out}\n{self.logs()}"
        return json.loads(out)["choices"][0]

    def complete(self, prompt, n, **body):
        return self.answer(self.asking(prompt, n, **body))

    def cable(self, i, state):
        ip("-n", HEAD, "link", "set", f"{HOSTS[i]}p", state)


@pytest.fixture
def hosts(tmp_path):
    if not shutil.which("curl"):
        pytest.skip("SKIPPED: no curl")
    with Hosts(tmp_path) as h:
        yield h


def start_cluster(hosts, folder):
    keys = folder / "keys"
    made = subprocess.run([BIN / "cox", "keys", "--keys-dir", keys], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    hosts.start(HEAD, "cox-head", "--host", "0.0.0.0", "--port", HEAD_PORT, "--admin-host", "127.0.0.1",
                "--admin-port", ADMIN_PORT, "--keys-dir", keys, "--tp", 2, "--model", "m")
    hosts.start(HEAD, "cox-gateway", "--model", hosts.model, "--served-model-name", "m", "--head",
                f"127.0.0.1:{HEAD_PORT}", "--keys-dir", keys, "--host", "127.0.0.1", "--port", HTTP_PORT)
    for i, host in enumerate(HOSTS):
        token = subprocess.run([BIN / "cox", "join-token", "--head", f"10.78.{i}.1:{HEAD_PORT}", "--keys-dir", keys],
                               capture_output=True, text=True)
        assert token.returncode == 0, token.stderr
        hosts.token[i] = token.stdout.strip().splitlines()[-1]
        start_worker(hosts, i)
    hosts.wait("the group is ready", lambda: hosts.status()["healthy"])
    hosts.wait("the gateway serves",
               lambda: "200" in hosts.curl(HEAD, f"http://127.0.0.1:{HTTP_PORT}/health", "-o", "/dev/null", "-w",
                                           "%{http_code}"))


def start_worker(hosts, i):
    return hosts.start(HOSTS[i], f"cox-worker.{i}.{len(hosts.processes)}", "--model", hosts.model, "--served-model-name",
                       "m", "--join", hosts.token[i], "--ordinal", i, "--tp", 2, "--http-port", WORKER_PORT,
                       *hosts.of_worker)


def test_two_hosts_serve_the_same_answers(hosts, tmp_path):
    start_cluster(hosts, tmp_path)
    status = hosts.status()
    assert len(status["workers"]) == 2 and status["groups"][0]["tp"] == 2
    for body in ({"temperature": 0}, {"temperature": 1, "seed": 4}):
        assert hosts.complete("across hosts", 40, **body)["text"] == oracle.text("across hosts", 40, **body)


def test_a_cut_cable_is_a_pause(hosts, tmp_path):
    """The link of one host goes down inside a request and comes back: the answer is the oracle's."""
    start_cluster(hosts, tmp_path)
    p = hosts.asking("cable", 400, seed=8)
    hosts.wait("it runs", lambda: hosts.status()["requests"]["running"] == 1)
    time.sleep(0.5)  # some tokens
    hosts.cable(1, "down")
    hosts.wait("the loss is seen", lambda: not hosts.status()["healthy"], 10)
    hosts.cable(1, "up")
    assert hosts.answer(p)["text"] == oracle.text("cable", 400, seed=8), hosts.logs()


@pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens")
def test_a_model_over_two_hosts(hosts, tmp_path):
    """Its tokens are the reference's; a cable that is cut and a rank that is killed are pauses."""
    hosts.model, hosts.of_worker = TINY, ["--device", "cpu", "--threads", 1, "--kv-cache-dtype", "float32"]
    start_cluster(hosts, tmp_path)
    for p in json.loads((TINY / "expected.json").read_text())["prompts"]:
        assert hosts.complete(p["ids"], len(p["greedy"]), temperature=0)["token_ids"] == p["greedy"], p["name"]
    bodies = [{"temperature": 0}, {"temperature": 1, "seed": 8}]
    want = [hosts.complete("cable", 900, **b)["token_ids"] for b in bodies]
    for strike in ("cable", "kill"):
        asked = [hosts.asking("cable", 900, **b) for b in bodies]
        hosts.wait("both run", lambda: hosts.status()["requests"]["running"] == 2)
        if strike == "cable":
            hosts.cable(1, "down")
            hosts.wait("the loss is seen", lambda: not hosts.status()["healthy"], 10)
            assert any(p.poll() is None for p in asked), "the strike came too late"
            hosts.cable(1, "up")
        else:
            worker = [p for p in hosts.processes if "cox-worker" in p.args[4]][1]
            worker.kill()  # `ip netns exec` has become the worker itself
            worker.wait()
            hosts.wait("the loss is seen", lambda: not hosts.status()["healthy"], 10)
            start_worker(hosts, 1)
        assert [hosts.answer(p)["token_ids"] for p in asked] == want, strike
