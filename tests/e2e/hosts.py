"""Makes hosts for a test: network namespaces, cables between them, and programs inside.

A namespace has no name in /run/netns. It exists as long as its processes, and these die with the test's process
(PR_SET_PDEATHSIG). Therefore no process is left behind, however a test ends.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import findings
import pytest
from cluster import BIN, SLOW, end_all

HEAD_PORT, ADMIN_PORT, HTTP_PORT = 7000, 8265, 8000


def why_not():
    """Returns why this machine cannot make hosts and how to fix that, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root: run the tests as root (sudo scripts/test), or in a container of yours"
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux"), ("setpriv", "util-linux"), ("curl", "curl")):
        if not shutil.which(program):
            return f"no {program}: apt-get install {package}"
    # Tests whether the parts of a host can be made: a namespace, a veth pair, and an address.
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "sh", "-c",
                            "ip link add v0 type veth peer name v1 && ip addr add 10.0.0.1/24 dev v0"],
                           capture_output=True, text=True)
    if tried.returncode != 0:
        return ("root without the right to make network namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN; docker run --privileged): "
                + (tried.stderr.strip().splitlines() or ["unshare failed"])[-1])
    return None


def skip_without_hosts():
    reason = why_not()
    return pytest.mark.skipif(reason is not None, reason=f"SKIPPED: {reason}")


def bracketed(address):
    return f"[{address}]" if ":" in address else address


class Host:
    """`Host` is a host with its own network, host name and /etc/hosts (the file `names`). It shares everything else with this
    machine."""

    def __init__(self, name, folder):
        self.name, self.names = name, Path(folder) / f"{name}.hosts"
        self.names.write_text("127.0.0.1 localhost\n::1 localhost\n")
        nobody = Path(folder) / "resolv.conf"  # the host's name server is this address, which refuses every name at once
        nobody.write_text("nameserver 127.0.0.1\n")
        make = (f"hostname {name} && ip link set lo up && mount --bind {self.names} /etc/hosts && "
                f"mount --bind {nobody} /etc/resolv.conf && echo made && exec sleep infinity")
        self.holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--mount",
                                        "sh", "-c", make], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "made\n", f"no namespaces for {name}"

    def know(self, name, address):
        with open(self.names, "a") as f:
            f.write(f"{address} {name}\n")

    def inside(self, *args):
        ns = f"/proc/{self.holder.pid}/ns"
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={ns}/net", f"--uts={ns}/uts", f"--mount={ns}/mnt",
                f"--wd={os.getcwd()}", *map(str, args)]

    def run(self, *args, check=True, timeout=60):
        done = subprocess.run(self.inside(*args), capture_output=True, text=True, timeout=timeout * SLOW)
        assert not check or done.returncode == 0, f"{self.name}: {' '.join(map(str, args))}: {done.stdout}{done.stderr}"
        return done.stdout

    def ip(self, *args):
        return self.run("ip", *args)

    def address(self, dev, *addresses):
        for a in addresses:
            self.ip("addr", "add", a, "dev", dev, *(["nodad"] if ":" in a else []))
        self.ip("link", "set", dev, "up")

    def curl(self, url, *args):
        return self.run("curl", "-sS", "-g", "-m", "60", *args, url, check=False)

    def end(self):
        """Ends the host with all processes in it, including those that a program has left."""
        try:
            net = os.stat(f"/proc/{self.holder.pid}/ns/net").st_ino
        except OSError:  # the host has ended already
            net = None
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if net is not None and os.stat(process / "ns/net").st_ino == net:
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:  # the process has ended meanwhile
                pass
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()


class Hosts:
    """Holds all hosts and programs of a test."""

    def __init__(self, folder):
        self.folder, self.hosts, self.processes = Path(folder), {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end_all(self.processes.values())
        for p in self.processes.values():
            if p.stdout:
                p.stdout.close()
        for log in self.folder.glob("*.log"):
            findings.look_at_log(log.read_text(errors="replace"))
        for h in self.hosts.values():
            h.end()

    def add(self, *names):
        for n in names:
            self.hosts[n] = Host(n, self.folder)
        return [self.hosts[n] for n in names]

    def cable(self, a, b, dev_a, dev_b, mtu=1500):
        """Connects a and b by a veth pair: dev_a on host a, dev_b on host b."""
        a.ip("link", "add", dev_a, "mtu", mtu, "type", "veth", "peer", "name", dev_b, "mtu", mtu,
             "netns", str(b.holder.pid))

    def start(self, host, name, *args, env=None):
        """Starts a Coxswain program on a host. Its log is NAME.log. When a name is used again, the new process replaces the old one."""
        return self.start_shell(host, name, f'exec "{BIN}/$0" "$@"', *args, env=env)

    def start_shell(self, host, name, script, *args, env=None):
        """Starts a shell script on a host."""
        old = self.processes.get(name)
        assert old is None or old.poll() is not None, f"{name} runs"
        with open(self.folder / f"{name}.log", "ab") as log:
            p = subprocess.Popen(host.inside("sh", "-c", script, *args), stdin=subprocess.DEVNULL, stdout=log,
                                 stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        self.processes[name] = p
        return p

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def logs(self):
        return "\n".join(f"-- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in sorted(self.folder.glob("*.log")))

    def wait(self, what, condition, seconds=20):
        end = time.monotonic() + seconds * SLOW
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < end, f"not within {seconds * SLOW} s: {what}\n{self.logs()}"
            time.sleep(0.05)


class HostCluster(Hosts):
    """`HostCluster` has the hosts `head`, `one` and `two`. Each worker's host has a cable to the head's host, which is a router
    between them. Their addresses are 10.78.I.2 and fd78::I:2, and the head's side ends in 1. The commands are those of
    docs/start/server.md."""

    def __init__(self, folder, model="null", of_worker=(), ipv6=False):
        super().__init__(folder)
        self.model, self.of_worker, self.ipv6 = model, list(of_worker), ipv6
        self.keys, self.insecure = self.folder / "keys", False
        self.n_asked = 0

    def __enter__(self):
        try:
            self.head, *self.workers = self.add("head", "one", "two")
            for i, w in enumerate(self.workers):
                self.connect(i)
            self.head.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; "
                                      "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
        except BaseException:
            self.__exit__()
            raise
        return self

    def address(self, i, end):
        return f"fd78:{i}::{end}" if self.ipv6 else f"10.78.{i}.{end}"

    def connect(self, i, mtu=1500, end=2):
        """Connects worker i to the head, even after a disconnect."""
        w, bits = self.workers[i], 64 if self.ipv6 else 24
        self.cable(w, self.head, "up0", f"down{i}", mtu)
        self.head.address(f"down{i}", f"{self.address(i, 1)}/{bits}")
        w.address("up0", f"{self.address(i, end)}/{bits}")
        w.ip("route", "add", "default", "via", self.address(i, 1))

    def disconnect(self, i):
        self.head.ip("link", "del", f"down{i}")

    def head_at(self, i):
        return f"{bracketed(self.address(i, 1))}:{HEAD_PORT}"

    def with_keys(self):
        return ["--insecure", "--allow-remote-insecure"] if self.insecure else ["--keys-dir", self.keys]

    def start_head(self, *args):
        self.head.run(BIN / "cox", "keys", "--keys-dir", self.keys)
        self.start(self.head, "head", "cox", "head", "--host", "::" if self.ipv6 else "0.0.0.0", "--port", HEAD_PORT,
                   "--admin-host", "127.0.0.1", "--admin-port", ADMIN_PORT, *self.with_keys(), "--tp", 2,
                   "--model", "m", *args)

    def start_gateway(self, *args):
        self.start(self.head, "gateway", "cox", "gateway", "--model", self.model, "--served-model-name", "m", "--head",
                   self.head_at(0), *self.with_keys(), "--host", "127.0.0.1", "--port", HTTP_PORT, *args)

    def token(self, i, head=None):
        return self.head.run(BIN / "cox", "join-token", "--keys-dir", self.keys, "--head",
                             head or self.head_at(i)).strip().splitlines()[-1]

    def start_worker(self, i, *args, token=None, env=None):
        way = self.with_keys() + ["--head", self.head_at(i)] if self.insecure else ["--join", token or self.token(i)]
        return self.start(self.workers[i], f"worker{i}", "cox", "worker", *way, "--model", self.model,
                          "--served-model-name", "m", "--tp", 2, "--ordinal", i, *self.of_worker, *args, env=env)

    def start_all(self, *of_worker):
        """Starts all programs. of_worker(i), if given, returns the options of worker i."""
        self.start_head()
        self.start_gateway()
        for i in range(2):
            self.start_worker(i, *(of_worker[0](i) if of_worker else ()))
        self.wait_serves()

    def status(self):
        body = self.head.curl(f"http://127.0.0.1:{ADMIN_PORT}/api/status")
        return json.loads(body) if body.startswith("{") else {"healthy": False, "workers": [], "groups": []}

    def healthy(self):
        return self.status()["healthy"]

    def cox(self, *args):
        """Runs a `cox` command on the head's host."""
        return self.head.run(BIN / "cox", *args, check=False)

    def wait_serves(self, seconds=20):
        self.wait("the group is ready", self.healthy, seconds)
        self.wait("the gateway serves", lambda: "200" == self.head.curl(
            f"http://127.0.0.1:{HTTP_PORT}/health", "-o", "/dev/null", "-w", "%{http_code}"))

    def ask(self, prompt, n, **body):
        """Starts a request with curl on the head's host, without waiting for it."""
        request = {"model": "m", "prompt": prompt, "max_tokens": n, "return_token_ids": True, "ignore_eos": True, **body}
        p = subprocess.Popen(self.head.inside("curl", "-sS", "-m", 90 * SLOW, "-d", json.dumps(request), "-H",
                                              "content-type: application/json",
                                              f"http://127.0.0.1:{HTTP_PORT}/v1/completions"),
                             stdout=subprocess.PIPE, text=True)
        self.n_asked += 1
        self.processes[f"ask{self.n_asked}"] = p
        return p

    def answer(self, p):
        """Returns the first choice of the request's answer."""
        out, _ = p.communicate(timeout=90 * SLOW)
        assert '"choices"' in out, f"{out}\n{self.logs()}"
        return json.loads(out)["choices"][0]

    def ids(self, p):
        return self.answer(p)["token_ids"]

    def complete(self, prompt, n, **body):
        return self.answer(self.ask(prompt, n, **body))

    def wait_running(self, n=1):
        self.wait(f"{n} requests run", lambda: self.status()["requests"]["running"] == n)


SCRIPT = Path(__file__).with_name("wire.py")


def run_wire(hosts, host, name, *args):
    p = subprocess.Popen(host.inside(sys.executable, SCRIPT, *args), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    hosts.processes[name] = p
    assert p.stdout.readline() == "ready\n"
    return p


class Wire:
    """Holds a cable between two hosts that the test controls: `say("drop")`, `say("pass")`, `say("delay", ms, jitter_ms)`, and
    say("find", hex), which returns the number of frames with these bytes and the number of all frames."""

    def __init__(self, hosts, a, b, dev, mtu=1500):
        self.host, = hosts.add("wire")
        for i, h in enumerate((a, b)):
            hosts.cable(h, self.host, dev, f"port{i}", mtu)
            self.host.ip("link", "set", f"port{i}", "up")
            h.run(sys.executable, SCRIPT, "--plain", dev)
        self.process = run_wire(hosts, self.host, "wire", "port0", "port1")

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


class Listener(Wire):
    """Listens on a host's devices, for `find`."""

    def __init__(self, hosts, host, *devices):
        self.process = run_wire(hosts, host, "listener", "--listen", *devices)
