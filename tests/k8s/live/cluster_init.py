"""Runs as PID 1 of the tests' cluster: it makes the mounts, starts the node's programs, and takes all of them with it when it dies.

`cluster` starts it in new namespaces (mount, pid, net, ipc, uts). Everything that a node changes is inside these namespaces. When
this process dies for any reason, the kernel ends every program and container and removes every mount, network device and iptables
rule. Only cgroup folders stay; `cluster` removes them.

    cluster_init.py STATE

It answers JSON lines on STATE/control.sock: {"start": NAME, "argv": [...]}, {"stop": NAME}, {"list": true}, {"listens": PORT}.
"""
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

# SYSCTLS are values that a kubelet would set for the whole machine. The kubelet finds them set here, so it does not change the machine's own
# values.
SYSCTLS = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
           "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}
STOP_S = 20


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


def make_mounts(state):
    """Mounts the node's own /run, /var/lib, /var/log and /proc. Mounts are shared from here on, so that volumes reach containers."""
    mount("-t", "proc", "proc", "/proc")
    mount("-t", "tmpfs", "-o", "size=64m,mode=755", "tmpfs", "/run")
    for name in ("lock", "netns", "containerd"):
        os.makedirs(f"/run/{name}", exist_ok=True)
    for name in ("lib", "log"):
        inner = state / "var" / name
        inner.mkdir(parents=True, exist_ok=True)
        mount("--bind", inner, f"/var/{name}")
    mount("-t", "tmpfs", "-o", "size=1g,mode=700", "tmpfs", state / "etcd")
    for name, value in SYSCTLS.items():
        file = state / "sysctl" / name.replace("/", "-")
        file.parent.mkdir(exist_ok=True)
        file.write_text(value + "\n")
        mount("--bind", file, f"/proc/sys/{name}")
    mount("--make-rshared", "/")


class Programs:
    """Keeps the node's running programs by name, and the exit codes of programs that have ended."""

    def __init__(self, state):
        self.state, self.pids, self.ended = state, {}, {}

    def start(self, name, argv):
        if name in self.pids:
            return {"error": f"{name} already runs"}
        log = os.open(self.state / "log" / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        except OSError as error:
            return {"error": f"cannot start {name}: {error}"}
        finally:
            os.close(log)
        child.returncode = 0  # this tells subprocess not to wait for the child, because reap() waits for it
        self.pids[name] = child.pid
        self.ended.pop(name, None)
        return {"pid": child.pid}

    def stop(self, name, number=signal.SIGTERM):
        pid = self.pids.get(name)
        if pid is None:
            return {"error": f"{name} does not run"}
        os.kill(pid, number)
        end = time.monotonic() + STOP_S
        while name in self.pids:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
            self.reap()
        return {"stopped": name}

    def reap(self):
        """Waits for every child that has ended: own programs and the orphans that PID 1 inherits."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name, known in list(self.pids.items()):
                if known == pid:
                    del self.pids[name]
                    self.ended[name] = os.waitstatus_to_exitcode(status)

    def answer(self, request):
        if "start" in request:
            return self.start(request["start"], request["argv"])
        if "stop" in request:
            return self.stop(request["stop"])
        if "listens" in request:
            with socket.socket() as probe:
                probe.settimeout(1)
                return {"listens": probe.connect_ex(("127.0.0.1", request["listens"])) == 0}
        return {"running": self.pids, "ended": self.ended}


def serve(listener, programs):
    while True:
        programs.reap()
        if not select.select([listener], [], [], 0.5)[0]:
            continue
        peer, _ = listener.accept()
        with peer, peer.makefile("rw") as lines:
            peer.settimeout(10)
            try:
                answer = programs.answer(json.loads(lines.readline()))
                lines.write(json.dumps(answer) + "\n")
                lines.flush()
            except (OSError, ValueError, KeyError, TypeError) as error:
                print(f"ignored an invalid request: {error}", flush=True)


def main():
    state = Path(sys.argv[1])
    # The host's /proc is still mounted, so this link has the process ID on the host. `cluster down` kills that process.
    outside = os.readlink("/proc/self")
    started = Path(f"/proc/{outside}/stat").read_text().rsplit(")", 1)[1].split()[19]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    make_mounts(state)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(state / "control.sock"))
    listener.listen(16)
    record = state / "init.pid"
    record.with_suffix(".new").write_text(f"{outside} {started}\n")
    record.with_suffix(".new").rename(record)
    serve(listener, Programs(state))


main()
