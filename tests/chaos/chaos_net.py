"""Runs three hosts on a switch, a cluster over them, and a supervisor that restarts processes that end.

The harness runs in a separate network namespace, which is the switch: a bridge with an address, so that its clients reach every
host directly. Hosts are namespaces made by tests/e2e/hosts.py, each with its own disk (a tmpfs) for logs and its own wall clock
(clock.c). All processes and namespaces end with this process.
"""
import asyncio
import ctypes
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import findings
from cluster import BIN, ROOT, SANITIZED, SLOW, end_all
from hosts import SCRIPT as WIRE, Host, why_not as why_no_hosts

HOSTS = ("a", "b", "c")
HEAD_PORT, ADMIN_PORT, HTTP_PORT, REDIS_PORT = 7000, 8265, 8000, 6379
CLIENTS = "10.77.0.100"
# SWITCH is the fixed address of the bridge. Without it, a bridge has the lowest address of its ports. Adding or removing a wire would then change
# the address, and the hosts' ARP caches would keep the old address for 40 s.
SWITCH = "02:00:00:00:00:64"
DISK = "64m"
CLONE_NEWNET = 0x40000000
KEY, ADMIN_KEY = "chaos-key", "chaos-admin-key"
REDIS = shutil.which("redis-check-rdb") or shutil.which("redis-server")  # server from Debian's redis-tools, as in tests/e2e/test_quotas.py
CLOCK = BIN.parent / "tests/libchaos_clock.so"
PAUSES = (0.3, 1, 2, 4)  # seconds before a restart, by the number of starts that did not last 10 s


def address(host):
    return f"10.77.0.{HOSTS.index(host) + 1}"


def why_not():
    """Returns the reason why this machine cannot run the cluster and how to fix that; None when it can."""
    reason = why_no_hosts()
    if reason:
        return reason
    if not shutil.which("nft"):
        return "no nft, which partitions hosts: apt-get install nftables (scripts/setup --ci does)"
    for what, script in (("a bridge", "ip link add b0 type bridge"), ("a tmpfs", "mount -t tmpfs tmpfs /mnt"),
                         ("nftables with random numbers", "nft add table ip x && nft add chain ip x y && "
                                                          "nft add rule ip x y numgen random mod 100 lt 5 drop")):
        tried = subprocess.run(["unshare", "--net", "--mount", "sh", "-c", script], capture_output=True, text=True)
        if tried.returncode != 0:
            return f"this kernel has not what is needed, {what}: {(tried.stderr.strip().splitlines() or ['?'])[0]}"
    return None


def knows(program, option):
    return option in subprocess.run([BIN / program, "--help"], capture_output=True, text=True).stdout


def run(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, args))}: {done.stderr}"
    return done.stdout


class ChaosHost(Host):
    """Represents a host with a cable to the switch (port p-NAME on the switch, eth0 on the host), a disk and a clock."""

    def __init__(self, name, folder):
        super().__init__(name, folder)
        self.port, self.disk, self.clock = f"p-{name}", Path(folder) / "disk", Path(folder) / f"clock-{name}"
        self.clock.write_bytes(bytes(8))
        self.disk.mkdir(exist_ok=True)
        run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        run("ip", "link", "set", self.port, "master", "switch", "up")
        self.address("eth0", f"{address(name)}/24")
        self.run(sys.executable, WIRE, "--plain", "eth0")
        self.run("mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self.disk)
        self.run("nft", "add table ip chaos; add chain ip chaos input { type filter hook input priority 0; }; "
                        "add chain ip chaos output { type filter hook output priority 0; }")

    def read(self, name):
        """Returns a file on the host's disk as text."""
        path = Path(f"/proc/{self.holder.pid}/root{self.disk}/{name}")
        return path.read_text(errors="replace") if path.exists() else ""

    def set_clock(self, seconds):
        with open(self.clock, "r+b") as f:
            f.write(struct.pack("<q", int(seconds * 1e9)))


class Process:
    """Represents a process that must run: the harness restarts it when it ends."""

    def __init__(self, name, host, *args):
        self.name, self.host, self.args = name, host, [str(a) for a in args]
        self.popen, self.started, self.n_short, self.due = None, 0.0, 0, 0.0
        self.wanted, self.n_starts, self.killed_at = True, 0, []
        self.ours = set()  # pids that this harness ended with a signal

    def alive(self):
        return self.popen is not None and self.popen.poll() is None


class ChaosCluster:
    def __init__(self, folder, model="null", device="null", step_us=25000, n_workers=5):
        self.folder, self.model, self.device, self.step_us, self.n_workers = Path(folder), model, device, step_us, n_workers
        self.hosts, self.processes, self.wires = {}, {}, []
        self.crashes, self.status_of = [], None
        self.two_heads = (REDIS is not None and knows("cox-head", "--redis")
                          and all(knows(p, "A:7000,B:7000") for p in ("cox-gateway", "cox-worker")))
        self.heads = ["head", "standby"] if self.two_heads else ["head"]

    # ---- hosts -----------------------------------------------------------------------------------

    def __enter__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:  # the call applies to this thread, and to all threads that it starts
            raise OSError(ctypes.get_errno(), "unshare: no network namespace")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "switch", "address", SWITCH, "type", "bridge")
        run("ip", "addr", "add", f"{CLIENTS}/24", "dev", "switch")
        run("ip", "link", "set", "switch", "up")
        run(sys.executable, WIRE, "--plain", "switch")
        try:
            for name in HOSTS:
                self.hosts[name] = ChaosHost(name, self.folder)
            self.start_all()
        except BaseException:
            self.__exit__(RuntimeError)
            raise
        return self

    def __exit__(self, kind, *_):
        for p in self.processes.values():
            p.wanted = False
        end_all([p.popen for p in self.processes.values() if p.popen])
        for name, p in self.processes.items():
            self.look_at_end(p)
            findings.look_at_log(p.host.read(f"{name}.log"))
        for h in self.hosts.values():
            h.end()

    def keep_logs(self, folder):
        """Copies the processes' logs; the disks are removed with the hosts."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, p in self.processes.items():
            (folder / f"{name}.log").write_text(p.host.read(f"{name}.log"))

    # ---- processes -------------------------------------------------------------------------------

    def add(self, name, host, *args):
        self.processes[name] = Process(name, self.hosts[host], *args)

    def start_all(self):
        run(BIN / "cox", "keys", "--keys-dir", self.folder / "keys")
        (self.folder / "admin.key").write_text(ADMIN_KEY + "\n")
        # The limit is never reached; both gateways count it in Redis.
        (self.folder / "api.keys").write_text(f"{KEY} chaos rate=1000000\n")
        keys = ["--keys-dir", self.folder / "keys"]
        url = f"redis://{address('c')}:{REDIS_PORT}"
        if REDIS:  # a head finds its role by its own name
            (self.folder / "redis-server").symlink_to(REDIS)
            self.add("redis", "c", self.folder / "redis-server", "--port", REDIS_PORT, "--bind", address("c"), "--save", "", "--appendonly",
                     "no", "--protected-mode", "no", "--dir", self.hosts["c"].disk)
        lease = ["--redis", url, "--cluster-name", "chaos"] if self.two_heads else []
        # With another TP, sums are added in another order, so only the null device gives the same tokens.
        elastic = ["--elastic-tp"] if self.device == "null" else []
        for name, host in zip(self.heads, "ab"):
            self.add(name, host, BIN / "cox-head", "--host", address(host), "--port", HEAD_PORT, "--admin-host",
                     address(host), "--admin-port", ADMIN_PORT, "--admin-key-file", self.folder / "admin.key", *keys,
                     "--tp", 2, "--step-log", self.hosts[host].disk / f"{name}.steps", "--step-log-max-bytes", 4 << 20,
                     *lease, *elastic, *(["--elastic-tp-wait", 2] if elastic else []))
        head = ["--head", ",".join(f"{address(h)}:{HEAD_PORT}" for _, h in zip(self.heads, "ab"))]
        for i, host in enumerate("bc"):
            self.add(f"gateway{i}", host, BIN / "cox-gateway", "--model", self.model, "--served-model-name", "m", *head,
                     *keys, "--host", address(host), "--port", HTTP_PORT, "--api-key-file", self.folder / "api.keys",
                     "--access-log", self.hosts[host].disk / f"access{i}", *(["--redis", url] if REDIS else []))
        for i in range(self.n_workers):  # each replica spans two hosts; the fifth worker is a spare
            self.add(f"worker{i}", "abcab"[i % 5], BIN / "cox-worker", "--model", self.model, "--device", self.device,
                     "--served-model-name", "m", *head, *keys, "--tp", 2, "--ordinal", i, "--null-step-us", self.step_us,
                     "--threads", 1, *elastic, *([] if self.device == "null" else ["--kv-cache-dtype", "float32", "--dtype", "float32"]))
        for p in self.processes.values():
            self.start(p)

    def start(self, p):
        # The log is opened on the host's own disk, which may be full: the program must handle that.
        script = f'exec >> "{p.host.disk}/{p.name}.log" 2>&1; exec "$0" "$@"'
        env = dict(os.environ)
        if CLOCK.exists() and not SANITIZED:
            script = f'exec >> "{p.host.disk}/{p.name}.log" 2>&1; LD_PRELOAD={CLOCK} exec "$0" "$@"'
            env["CHAOS_CLOCK"] = str(p.host.clock)
        p.popen = subprocess.Popen(p.host.inside("sh", "-c", script, *p.args), stdin=subprocess.DEVNULL, env=env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        p.started, p.due, p.n_starts = time.monotonic(), 0.0, p.n_starts + 1

    def look_at_end(self, p):
        """Returns a text when the process ended by itself with a crash's signal, or with a status that no supervisor would retry."""
        code = p.popen.returncode if p.popen else None
        if code is None or p.popen.pid in p.ours:
            return
        p.ours.add(p.popen.pid)
        if code not in (0, -signal.SIGTERM):
            said = p.host.read(f"{p.name}.log").splitlines()[-3:]
            self.crashes.append(f"{p.name} ended with {code}, and nobody asked it to: {said}")

    async def supervise(self):
        """Runs until cancelled: restarts every process that ended, after a growing pause, as a kubelet does."""
        while True:
            now = time.monotonic()
            for p in self.processes.values():
                if not p.wanted or p.alive():
                    continue
                if not p.due:
                    self.look_at_end(p)
                    p.n_short = 0 if now - p.started > 10 else p.n_short + 1
                    p.due = now + PAUSES[min(p.n_short, len(PAUSES) - 1)]
                elif now >= p.due:
                    self.start(p)
            await asyncio.sleep(0.05)

    def signal(self, name, sig):
        p = self.processes[name]
        if not p.alive():
            return False
        if sig == signal.SIGKILL:
            p.ours.add(p.popen.pid)
            p.killed_at.append(time.monotonic())
        p.popen.send_signal(sig)
        return True

    # ---- status of the cluster -----------------------------------------------------------------------

    async def http(self, host, port, path, said=""):
        """Sends a GET, or a POST with a body. Returns (status, body), or (0, "") without an answer within two seconds."""
        async def ask():
            reader, writer = await asyncio.open_connection(address(host), port)
            try:
                writer.write(f"{'POST' if said else 'GET'} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
                             f"Content-Type: application/json\r\nContent-Length: {len(said)}\r\n"
                             f"Authorization: Bearer {ADMIN_KEY if port == ADMIN_PORT else KEY}\r\n\r\n{said}".encode())
                answer = await reader.read(1 << 24)
                while more := await reader.read(1 << 20):
                    answer += more
                head, _, body = answer.partition(b"\r\n\r\n")
                return int(head.split()[1]), body.decode()
            finally:
                writer.close()
        try:
            return await asyncio.wait_for(ask(), 2 * SLOW)
        except (OSError, ValueError, IndexError, asyncio.TimeoutError):
            return 0, ""

    async def status(self):
        """Returns /api/status of the serving head, or None."""
        return (await self.serving())[1]

    async def serving(self):
        """Returns (name, /api/status) of the serving head; (None, None) when no head serves."""
        for name, host in zip(self.heads, "ab"):
            if self.two_heads and (await self.http(host, ADMIN_PORT, "/readyz"))[0] != 200:
                continue
            code, body = await self.http(host, ADMIN_PORT, "/api/status")
            if code == 200 and "{" in body:
                return name, json.loads(body[body.index("{"):body.rindex("}") + 1])
        return None, None

    async def draining(self, name):
        """Returns True when this worker is draining, or when no head can tell."""
        status = await self.status()
        return status is None or any(w["draining"] for w in status["workers"] if f"worker{w['ordinal']}" == name)

    async def which(self, name):
        """Translates names: `head` is the serving head, `standby` is the other head. When no head is known to serve, names stay as
        they are."""
        found = (await self.serving())[0] if self.two_heads and name in self.heads else None
        return self.heads[(self.heads.index(found) + self.heads.index(name)) % 2] if found else name

    async def why_not_well(self):
        """Returns None when every process runs and every replica serves; else a text that names what is missing."""
        gone = [p.name for p in self.processes.values() if not p.alive()]
        if gone:
            return f"not running: {', '.join(gone)}"
        s = await self.status()
        if not s:
            return "no head answers"
        ready = [g for g in s["groups"] if g.get("state", "ready") in ("ready", "serving", "running")]
        if not s["healthy"] or len(s["workers"]) != self.n_workers or len(ready) != self.n_workers // 2:
            return f"{len(s['workers'])} workers, groups {[g.get('state') for g in s['groups']]}, healthy {s['healthy']}"
        if any(g["tp"] != g["whole_tp"] for g in ready):
            return f"groups of {[g['tp'] for g in ready]} ranks"
        for host in "bc":
            if (await self.http(host, HTTP_PORT, "/health"))[0] != 200:
                return f"the gateway on {host} does not serve"
        return None

    async def left_over(self):
        s = await self.status()
        if s and not (s["requests"]["running"] or s["requests"]["waiting"] or s["kv"]["blocks_used"]):
            return None
        return f"left in the head: {s and (s['requests'], s['kv'])}"

    async def wait_well(self, seconds, check=None):
        """Waits for a condition. Returns the number of seconds until it was met, or the reason why it was not met."""
        begin = time.monotonic()
        while True:
            reason = await (check or self.why_not_well)()
            took = time.monotonic() - begin
            if reason is None or took > seconds * SLOW:
                return took, reason
            await asyncio.sleep(0.2)
