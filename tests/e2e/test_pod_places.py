"""Tests a pod's programs in their environment: as process 1, under a cgroup's limits, and behind names with changing addresses. The
tests make mount, PID and network namespaces and a cgroup. Where this is impossible, they are skipped with a reason."""
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import httpx
import null_oracle as oracle
import pytest
from cluster import BIN, SLOW, alive, free_ports, get, run_cox, wait_for
from hosts import Hosts, skip_without_hosts
from test_bad_frames import Processes

pytestmark = skip_without_hosts()


# ---- process 1 ----

class FirstProcess:
    """Runs a program as process 1 of its own PID namespace."""

    def __init__(self, log, program, *args):
        self.file = open(log, "wb")
        self.outer = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child",
                                       "--mount-proc", str(BIN / program), *map(str, args)], stdin=subprocess.DEVNULL,
                                      stdout=self.file, stderr=subprocess.STDOUT)
        self.pid = wait_for("it runs", self.find)

    def find(self):
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children").read_text().split()
        # Until exec, the process has the name of unshare.
        return int(children[0]) if children and "cox" in Path(f"/proc/{children[0]}/comm").read_text() else 0

    def others(self):
        """Returns all other processes of the namespace, zombies included."""
        ns = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for p in Path("/proc").glob("[0-9]*"):
            try:
                if int(p.name) != self.pid and os.readlink(p / "ns/pid") == ns:
                    found.append(p.name)
            except OSError:
                continue
        return found

    def end(self, sig=signal.SIGTERM):
        os.kill(self.pid, sig)
        code = self.outer.wait(60 * SLOW)
        self.file.close()
        return code

    def drop(self):
        if self.outer.poll() is None:
            self.outer.kill()
            self.outer.wait()
        self.file.close()


@pytest.mark.parametrize("program", ["cox-head", "cox-worker", "cox-gateway", "cox"])
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_process_1_ends_before_its_loop_runs(tmp_path, program, sig):
    """The program waits for its configuration, because no process writes into the pipe that it reads."""
    pipe = tmp_path / "config.yaml"
    os.mkfifo(pipe)
    p = FirstProcess(tmp_path / "log", program, *(["head"] if program == "cox" else []), "--config", pipe)

    def opened():
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None

    try:
        fd = wait_for("it reads", lambda: opened() or False)
        assert p.end(sig) == 128 + sig
        os.close(fd)
    finally:
        p.drop()


def test_a_cluster_of_first_processes_drains(tmp_path):
    """Each program ends after one SIGTERM with 0, and leaves no process in its namespace."""
    with Processes(tmp_path) as c:
        keys = ["--keys-dir", c.keys]
        (http,) = free_ports(1)
        head = FirstProcess(tmp_path / "h.log", "cox", "head", "--port", c.head_port, "--admin-port", c.admin_port, *keys,
                            "--tp", 1)
        worker = FirstProcess(tmp_path / "w.log", "cox", "worker", "--model", "null", "--device", "null", "--head",
                              f"127.0.0.1:{c.head_port}", "--http-port", http, *keys)
        gateway = FirstProcess(tmp_path / "g.log", "cox", "gateway", "--model", "null", "--head",
                               f"127.0.0.1:{c.head_port}", "--port", c.port, *keys)
        try:
            wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)
            r = httpx.post(c.url + "/v1/completions", timeout=60, json={"prompt": "a", "max_tokens": 5, "temperature": 0})
            assert r.json()["choices"][0]["text"] == oracle.text("a", 5, temperature=0)
            assert [p.others() for p in (head, worker)] == [[], []]
            (compiles,) = gateway.others()  # `compiles` is the parent of the gateway's compile processes
            assert "compile-processes" in Path(f"/proc/{compiles}/cmdline").read_text()
            assert [p.end() for p in (gateway, worker, head)] == [0, 0, 0]
            assert 'worker_leaves reason="told to end (SIGTERM)"' in (tmp_path / "w.log").read_text()
        finally:
            for p in (head, worker, gateway):
                p.drop()


# ---- limits ----

class Cgroup:
    """Makes a cgroup below this process's own, version 2 or 1, with limits. Raises OSError where it may not make one."""

    def __init__(self, memory):
        self.folders = []
        v2 = Path("/sys/fs/cgroup/cgroup.controllers")
        own = {line.split(":")[1]: line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()}
        if v2.exists() and "memory" in v2.read_text().split():
            self.make(f"/sys/fs/cgroup{own['']}", {"memory.max": memory})
        else:
            path = next((p for names, p in own.items() if "memory" in names.split(",")), "/")
            self.make(f"/sys/fs/cgroup/memory{path}", {"memory.limit_in_bytes": memory})

    def make(self, parent, files):
        folder = Path(parent) / f"coxtest-{os.getpid()}-{time.monotonic_ns()}"
        folder.mkdir()
        self.folders.append(folder)
        for name, value in files.items():
            (folder / name).write_text(str(value))

    def command(self):
        return "; ".join(f"echo $$ > {f}/cgroup.procs" for f in self.folders)

    def drop(self):
        for f in self.folders:
            wait_for("the cgroup is empty", lambda f=f: not (f / "cgroup.procs").read_text().strip())
            f.rmdir()


def test_the_limits_of_a_container_are_the_machine(tmp_path):
    memory = 300 << 20
    try:
        group = Cgroup(memory)
    except OSError as e:
        pytest.skip(f"SKIPPED: no cgroup can be made here ({e})")
    with Processes(tmp_path) as c:
        try:
            c.start_head(tp=1)
            c.start("worker", "/bin/sh", "-ec", f'{group.command()}; exec "$@"', "sh", BIN / "cox-worker", "--model", "null",
                    "--device", "null", "--head", f"127.0.0.1:{c.head_port}", "--keys-dir", c.keys, "--http-port", 0)
            workers = wait_for("it is there", lambda: c.status()["workers"])
            assert workers[0]["memory_bytes"] == memory
        finally:
            c.end()
            group.drop()


# ---- names ----

def test_a_head_is_found_again_behind_its_name(tmp_path):
    """A replaced pod has another address, which its name gives. Workers and gateways resolve the name at each connection, even when
    another name is unknown."""
    assert run_cox("keys", "--keys-dir", tmp_path / "keys").returncode == 0
    with Hosts(tmp_path) as hosts:
        (box,) = hosts.add("box")
        names = "127.0.0.1 localhost\n"
        heads = "head-0.heads:7000,head-1.heads:7000"

        def know(**addresses):
            box.names.write_text(names + "".join(f"{a} {n.replace('_', '-')}.heads\n" for n, a in addresses.items()))

        def start_head(name, address):
            hosts.start(box, name, "cox-head", "--host", address, "--keys-dir", tmp_path / "keys", "--tp", 1)

        def answers(i):
            body = box.curl("http://127.0.0.1:8000/v1/completions", "-d",
                            f'{{"prompt": "question {i}", "max_tokens": 6, "temperature": 0}}', "-H",
                            "Content-Type: application/json")
            return f'"text":"{oracle.text(f"question {i}", 6, temperature=0)}"' in re.sub(r'"\s*:\s*"', '":"', body) or body

        know(head_0="127.0.0.2")
        start_head("head-a", "127.0.0.2")
        hosts.start(box, "worker", "cox-worker", "--model", "null", "--device", "null", "--head", heads, "--keys-dir",
                    tmp_path / "keys")
        hosts.start(box, "gateway", "cox-gateway", "--model", "null", "--head", heads, "--keys-dir", tmp_path / "keys")
        hosts.wait("the first head's cluster answers", lambda: answers(0) is True)
        for i, (known, address) in enumerate([({"head_0": "127.0.0.3"}, "127.0.0.3"),
                                              ({"head_1": "127.0.0.4"}, "127.0.0.4"),  # here the second name gives the address
                                              ({"head_0": "127.0.0.5", "head_1": "127.0.0.9"}, "127.0.0.5")]):
            hosts.kill("head-a" if i == 0 else f"head-{i}")
            know(**known)
            start_head(f"head-{i + 1}", address)
            hosts.wait(f"the head at {address} is found", lambda i=i: answers(i + 1) is True, 40)
            assert hosts.log("worker").count("head_joined") >= i + 2
        assert alive(hosts.processes["worker"].pid) and alive(hosts.processes["gateway"].pid)
