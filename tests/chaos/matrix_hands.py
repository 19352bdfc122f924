"""Performs the faults of a matrix run: those of chaos_faults.py, aimed at the serving processes, and a few that need several
strikes.

FAULTS names each row: its faults, and `span`, the seconds for which the faults themselves keep the cluster from serving (a
stopped process, a partitioned network). A pause includes these seconds in addition to the recovery."""
import asyncio
import contextlib
import os
import resource
import signal
import socket
import time
from pathlib import Path

from chaos_faults import Hands
from chaos_net import HOSTS, HTTP_PORT, address

HANG_S, PART_S, STORM_GAP_S, N_STORM = 4.0, 4.0, 0.4, 10
CGROUP = Path("/sys/fs/cgroup")
CPU_SHARE, MEMORY_FACTOR, MEMORY_MORE = 0.1, 1.5, 8 << 20  # limits: fraction of one CPU; factor and bytes beyond the process's earlier memory
N_IDLE, SPARE_DESCRIPTORS = 200, 32


def fault(kind, on, at=0.0, **more):
    return {"kind": kind, "on": on, "at": at, **more}


FAULTS = {
    "none": (0, []),
    "kill_worker": (0, [fault("kill_worker", "busy")]),
    "kill_head": (0, [fault("kill_head", "head")]),
    "kill_gateway": (0, [fault("kill_gateway", "gateway0")]),
    "formation": (0, [fault("formation", "busy", then="head", after=0.2)]),
    "storm": (N_STORM * STORM_GAP_S, [fault("kill_worker", ("busy", "busy0")[i % 2], i * STORM_GAP_S) for i in range(N_STORM)]),
    "hang_short": (0.6, [fault("hang_short", on, 1.5 * i, **{"for": 0.6}) for i, on in enumerate(("busy0", "head", "gateway1"))]),
    "hang_worker": (HANG_S, [fault("hang_long", "busy0", **{"for": HANG_S})]),
    "hang_head": (HANG_S, [fault("hang_long", "head", **{"for": HANG_S})]),
    "hang_gateway": (HANG_S, [fault("hang_long", "gateway1", **{"for": HANG_S})]),
    "partition": (PART_S, [fault("partition", "ab", **{"for": PART_S})]),
    "one_way": (PART_S, [fault("one_way", "ab", **{"for": PART_S}), fault("one_way", "ca", **{"for": PART_S})]),
    "split_brain": (PART_S, [fault("isolated", "head", **{"for": PART_S})]),
    "redis_killed": (0, [fault("redis_killed", "redis", **{"for": PART_S})]),
    "redis_hangs": (0, [fault("redis_hangs", "redis", **{"for": PART_S})]),
    "clock": (0, [fault("clock", h, seconds=s, **{"for": PART_S}) for h, s in zip(HOSTS, (-3600, 86400, 30))]),
    "disk": (0, [fault("disk", h, **{"for": PART_S}) for h in HOSTS]),
    "cgroup": (0, [fault("cgroup", "spare busy0 gateway0", **{"for": 6.0})]),
    "descriptors": (0, [fault("descriptors", "gateway0", **{"for": PART_S})]),
    "sigterm_gateway": (0, [fault("term", "gateway0")]),
}
NEEDS_CLOCK, NEEDS_REDIS = {"clock"}, {"redis_killed", "redis_hangs", "split_brain"}


class Limits:
    """Manages control groups for processes that are started in them, with either version of the kernel's interface."""

    def __init__(self):
        self.made = []
        unified = [p for p in (CGROUP, CGROUP / "unified") if {"cpu", "memory"} <= set(self.read(p / "cgroup.controllers").split())]
        self.v2 = unified[0] if unified else None
        self.roots = [self.v2] if self.v2 else [CGROUP / "cpu", CGROUP / "memory"]

    @staticmethod
    def read(path):
        with contextlib.suppress(OSError):
            return path.read_text()
        return ""

    def make(self, name, share, memory):
        """Makes a group with a limit of CPU and bytes, and returns its folders. Raises OSError when this machine does not allow
        this."""
        folders = [root / f"coxmatrix-{os.getpid()}-{name}" for root in self.roots]
        if self.v2:
            (self.v2 / "cgroup.subtree_control").write_text("+cpu +memory")
        for folder in folders:
            folder.mkdir()
            self.made.append(folder)
        if self.v2:
            settings = [(folders[0] / "cpu.max", f"{int(share * 1e5)} 100000"), (folders[0] / "memory.max", str(memory))]
        else:
            settings = [(folders[0] / "cpu.cfs_period_us", "100000"), (folders[0] / "cpu.cfs_quota_us", str(int(share * 1e5))),
                        (folders[1] / "memory.limit_in_bytes", str(memory))]
        for path, text in settings:
            path.write_text(text)
        return folders

    def end(self):
        """Moves running processes out of the groups, and removes the groups."""
        for folder in reversed(self.made):
            for pid in self.read(folder / "cgroup.procs").split():
                with contextlib.suppress(OSError):
                    (folder.parent / "cgroup.procs").write_text(pid)
            with contextlib.suppress(OSError):
                folder.rmdir()
        self.made.clear()


def why_no_limits():
    limits = Limits()
    try:
        limits.make("try", 1, 1 << 30)
    except OSError as e:
        return f"no control group with CPU and memory can be made here: {e}"
    finally:
        limits.end()
    return None


class MatrixHands(Hands):
    def __init__(self, cluster, streams):
        super().__init__(cluster, streams, 0)
        self.strikes = []  # [gateway, signal, time, end of the time in which the gateway may refuse]
        self.not_run = None  # reason why this machine could not run the row's fault

    async def strike(self, name):
        """Runs one row; returns when its faults are healed."""
        self.not_run = None
        await self.run(FAULTS[name][1], lambda: False)

    def well(self):
        """Records that the struck gateways serve again."""
        for s in self.strikes:
            s[3] = min(s[3], time.monotonic())

    async def aimed(self, name):
        """Translates names: `busy0` and `busy` are the first and last rank of the replica with the most requests; `spare` is a
        worker in no replica."""
        if name not in ("busy", "busy0", "spare"):
            return await self.cluster.which(name)
        for _ in range(20):
            status = await self.cluster.status() or {"groups": []}
            ready = [g for g in status["groups"] if g.get("state", "ready") in ("ready", "serving", "running")]
            if ready:
                busiest = max(ready, key=lambda g: g.get("running", 0))["id"]
                ranks = {w["rank"]: f"worker{w['ordinal']}" for w in status["workers"] if w["group"] == (None if name == "spare" else busiest)}
                if ranks:
                    return ranks[max(ranks) if name == "busy" else min(ranks)]
            await asyncio.sleep(0.1)
        return next((n for n, p in self.cluster.processes.items() if n.startswith("worker") and p.alive()), "worker0")

    async def hit(self, name, sig):
        target = await self.aimed(name)
        if target.startswith("gateway"):
            self.strikes.append([target, sig, time.monotonic(), float("inf")])
        if not self.cluster.signal(target, sig):
            self.n_nobody += 1

    async def do_hang(self, f):
        return await super().do_hang({**f, "on": await self.aimed(f["on"])} if f["on"].startswith("busy") else f)

    async def do_term(self, f):
        await self.hit(f["on"], signal.SIGTERM)

    async def do_isolated(self, f):
        """Isolates the head's host in both directions. The standby becomes the serving head, and there are two heads."""
        host = self.cluster.processes[await self.aimed(f["on"])].host.name
        heals = [await self.do_partition({"on": "".join(sorted((host, other)))}) for other in HOSTS if other != host]

        async def heal():
            for h in heals:
                await h()
        return heal

    async def do_cgroup(self, f):
        """Ends three processes by SIGTERM, one after the other: the spare worker, a worker of a replica (which the spare replaces)
        and a gateway. Each process starts again with a tenth of a CPU and little more memory than before."""
        limits, names = Limits(), [await self.aimed(n) for n in f["on"].split()]
        before = {n: self.cluster.processes[n].args for n in names}
        try:
            groups = {n: limits.make(n, CPU_SHARE, int(rss(self.cluster.processes[n].popen.pid) * MEMORY_FACTOR) + MEMORY_MORE) for n in names}
        except OSError as e:
            self.not_run = f"no control group with CPU and memory can be made here: {e}"
            limits.end()
            return None
        for n, folders in groups.items():  # the spare is first, because it replaces the next worker
            join = "; ".join(f"echo $$ > {g}/cgroup.procs" for g in folders)
            self.cluster.processes[n].args = ["sh", "-ec", f'{join}; exec "$0" "$@"', *before[n]]
            await self.hit(n, signal.SIGTERM)
            for _ in range(600):
                if all(Limits.read(g / "cgroup.procs").strip() for g in folders) and await self.cluster.why_not_well() is None:
                    break
                await asyncio.sleep(0.1)
            else:
                self.streams.fail(f"{n} did not start again inside its control group within 60 s")

        async def heal():
            for n, args in before.items():
                self.cluster.processes[n].args = args
            limits.end()
        return heal

    async def do_descriptors(self, f):
        """Leaves a gateway only a few descriptors, while a client holds connections that request nothing."""
        pid = self.cluster.processes[f["on"]].popen.pid
        limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + SPARE_DESCRIPTORS, limit[1]))
        idle, host = [], next(h for n, h in zip(("gateway0", "gateway1"), "bc") if n == f["on"])
        for _ in range(N_IDLE):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex((address(host), HTTP_PORT))
            idle.append(s)

        async def heal():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
            for s in idle:
                s.close()
        return heal


def rss(pid):
    """Returns the resident memory in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
