"""Makes and performs the faults of a chaos run: a schedule from a seed, and the object that performs it.

A fault is a dict: at (seconds from the start), kind, on (its target), for (seconds until it is healed; absent: it ends at once),
and the further values that its kind needs. All random choices are in the schedule. A schedule that is printed, shortened and
given back (--schedule) is therefore the same run, as far as the machine allows."""
import asyncio
import itertools
import json
import random
import signal
import subprocess
import sys
import time

from chaos_net import ADMIN_PORT, HOSTS, WIRE, address, run

# BEGIN_S: seconds before the first fault. CALM_S: seconds without new faults at the end, in which faults are healed.
BEGIN_S, CALM_S = 3.0, 8.0

# DECK has the number of copies of each kind. All copies are drawn before a kind is repeated.
DECK = {"kill_worker": 3, "kill_head": 2, "kill_gateway": 2, "kill_standby": 1, "formation": 2, "drain": 2, "hang_short": 2, "hang_long": 2,
        "partition": 2, "one_way": 2, "loss": 1, "delay": 1, "flap": 2, "clock": 1, "disk": 1, "redis_killed": 1, "redis_hangs": 1,
        "slow_readers": 1}


def draw(rng, kind, names):
    """Chooses a fault's target, duration and strength."""
    def some(prefix):
        return rng.choice([n for n in names if n.startswith(prefix)])

    def span(low, high):
        return round(rng.uniform(low, high), 2)

    if kind.startswith("kill_"):
        return {"on": some(kind[5:])}
    if kind == "formation":  # a replica loses a rank, and the head dies while the replica forms again
        return {"on": some("worker"), "then": "head", "after": span(0, 0.4)}
    if kind == "drain":
        return {"on": some("worker"), "for": span(1, 5)}
    if kind.startswith("hang_"):
        on = some(rng.choice(["worker", "worker", "head", "gateway"]))
        return {"on": on, "for": span(0.2, 0.8) if kind == "hang_short" else span(3, 6)}
    if kind in ("partition", "one_way"):
        pair = rng.sample(HOSTS, 2)
        return {"on": "".join(sorted(pair) if kind == "partition" else pair), "for": span(2, 6)}
    if kind.startswith("redis_"):
        return {"on": "redis", "for": span(2, 5)}
    if kind == "slow_readers":
        return {"on": "clients", "for": span(3, 8), "seed": rng.randrange(10**6)}
    if kind == "flap":
        return {"on": rng.choice(HOSTS), "times": [span(0.2, 1.5) for _ in range(rng.randrange(1, 4))]}
    return {"on": rng.choice(HOSTS), "for": span(3, 7), **{
        "loss": lambda: {"percent": rng.randrange(3, 21)}, "delay": lambda: {"ms": rng.randrange(5, 81)},
        "clock": lambda: {"seconds": rng.choice([-1, 1]) * rng.choice([1, 30, 3600, 86400, 10**8])}, "disk": dict}[kind]()}


def hands(fault):
    """Returns the resource that two faults may not use at the same time."""
    return fault["kind"].split("_")[0], fault["on"]


def make_schedule(seed, seconds, names, kinds):
    """Makes a schedule. `names` are the existing processes. `kinds` are the allowed kinds of faults (None: all that names allow)."""
    rng = random.Random(f"schedule/{seed}")
    deck = [k for k, n in DECK.items() for _ in range(n) if kinds is None or k in kinds]
    if "standby" not in names:
        deck = [k for k in deck if k != "kill_standby"]
    if "redis" not in names:
        deck = [k for k in deck if not k.startswith("redis")]
    schedule, at, left = [], BEGIN_S, []
    while True:
        if not left:  # kinds are popped from the end; one of each kind is first, so that one minute has most kinds
            first = sorted(set(deck))
            again = [k for k, n in DECK.items() for _ in range(min(n, deck.count(k)) - 1)]
            left = rng.sample(again, len(again)) + rng.sample(first, len(first))
        kind = left.pop()
        fault = {"at": round(at, 2), "kind": kind, **draw(rng, kind, names)}
        at += rng.uniform(1.5, 4.5)
        if fault["at"] + fault.get("for", sum(fault.get("times", [])) * 2) > seconds - CALM_S:
            if fault["at"] > seconds - CALM_S:
                return schedule
            continue
        if not any(hands(f) == hands(fault) and f["at"] + f.get("for", 0) + 1 > fault["at"] for f in schedule):
            schedule.append(fault)


class Hands:
    """Performs and heals faults. Network commands run in threads, because the clients share this thread."""

    def __init__(self, cluster, streams, n_streams):
        self.cluster, self.streams, self.n_streams = cluster, streams, n_streams
        self.rules = {h: [] for h in HOSTS}  # nftables rules of each host, as "chain rule"
        self.locks = {h: asyncio.Lock() for h in HOSTS}
        self.begun = []  # faults of the schedule that have begun
        self.since = time.monotonic()  # start of the schedule
        self.n_nobody = 0

    async def run(self, schedule, should_end):
        """Performs the whole schedule, each fault at its time. Returns when all faults are healed."""
        begin = self.since = time.monotonic()
        tasks = []
        for fault in schedule:
            while (wait := begin + fault["at"] - time.monotonic()) > 0 and not should_end():
                await asyncio.sleep(min(wait, 0.2))
            if should_end():
                break
            self.begun.append(fault)
            tasks.append(asyncio.create_task(self.one(fault)))
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(done, BaseException):
                self.streams.fail(f"the harness could not do or heal a fault: {done!r}")

    async def one(self, fault):
        do = getattr(self, "do_" + fault["kind"].split("_")[0])
        heal = await do(fault)
        if heal:
            await asyncio.sleep(fault["for"])
            await heal()

    # ---- processes -------------------------------------------------------------------------------

    async def hit(self, name, sig):
        if not self.cluster.signal(await self.cluster.which(name), sig):
            self.n_nobody += 1

    async def do_kill(self, fault):
        await self.hit(fault["on"], signal.SIGKILL)

    async def do_formation(self, fault):
        await self.hit(fault["on"], signal.SIGKILL)
        for _ in range(20):  # the loop waits until a replica is being formed, which the status shows only for a moment
            s = await self.cluster.status()
            if s and any(g.get("state") not in ("ready", "serving", "running") for g in s["groups"]) or s and not s["healthy"]:
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(fault["after"])
        await self.hit(fault["then"], signal.SIGKILL)

    async def do_hang(self, fault):
        p = self.cluster.processes[await self.cluster.which(fault["on"])]
        if not p.alive():
            self.n_nobody += 1
            return None
        stopped = p.popen
        stopped.send_signal(signal.SIGSTOP)

        async def heal():
            if stopped.poll() is None:
                stopped.send_signal(signal.SIGCONT)
        return heal

    async def do_drain(self, fault):
        """Works like `cox drain NODE` and `cox undrain NODE`. The running requests move to another replica, with their blocks where
        this is cheaper than computing them again."""
        async def order(on):
            name, status = await self.cluster.serving()
            ordinal = int(fault["on"].removeprefix("worker"))
            found = [w for w in (status or {}).get("workers", []) if w["ordinal"] == ordinal]
            if not found:
                return False
            body = json.dumps({"worker": found[0]["instance"], "on": on})
            host = dict(zip(self.cluster.heads, "ab"))[name]
            return (await self.cluster.http(host, ADMIN_PORT, "/api/drain", body))[0] == 200

        if not await order(True):
            self.n_nobody += 1
            return None

        async def heal():  # a head that has started meanwhile does not have the drain
            for _ in range(100):
                if not await self.cluster.draining(fault["on"]) or await order(False):
                    return
                await asyncio.sleep(0.2)
        return heal

    async def do_redis(self, fault):
        if fault["kind"] == "redis_hangs":
            return await self.do_hang(fault)
        p = self.cluster.processes["redis"]
        p.wanted = False
        await self.hit("redis", signal.SIGKILL)

        async def heal():  # Redis stores nothing on disk, so it is empty after the restart
            p.wanted = True
        return heal

    # ---- networks --------------------------------------------------------------------------------

    async def filter(self, host, rules, add):
        """Adds or removes rules. One transaction rewrites the host's chains."""
        async with self.locks[host]:
            for rule in rules:
                self.rules[host].append(rule) if add else self.rules[host].remove(rule)
            text = "flush chain ip chaos input; flush chain ip chaos output; "
            text += "; ".join(f"add rule ip chaos {r}" for r in self.rules[host])
            await asyncio.to_thread(self.cluster.hosts[host].run, "nft", text)

    async def filtered(self, host, *rules):
        await self.filter(host, rules, True)

        async def heal():
            await self.filter(host, rules, False)
        return heal

    async def do_partition(self, fault):
        a, b = fault["on"]
        return await self.filtered(a, f"input ip saddr {address(b)} drop", f"output ip daddr {address(b)} drop")

    async def do_one(self, fault):
        a, b = fault["on"]  # frames from a to b are dropped
        return await self.filtered(b, f"input ip saddr {address(a)} drop")

    async def do_loss(self, fault):
        """Drops packets in both directions, including the clients' packets. TCP must handle this."""
        chance = f"numgen random mod 100 lt {fault['percent']} drop"
        return await self.filtered(fault["on"], f"input iifname eth0 {chance}", f"output oifname eth0 {chance}")

    async def do_delay(self, fault):
        """Puts a wire (tests/e2e/wire.py) between the host's port and the switch, so that the kernel needs no netem."""
        port, inner, outer = self.cluster.hosts[fault["on"]].port, f"w0-{fault['on']}", f"w1-{fault['on']}"

        def insert():
            run("ip", "link", "add", inner, "type", "veth", "peer", "name", outer)
            run("ip", "link", "set", outer, "master", "switch", "up")
            run("ip", "link", "set", inner, "up")
            run("ip", "link", "set", port, "nomaster")

        def take_out():
            run("ip", "link", "del", inner)
            run("ip", "link", "set", port, "master", "switch")

        await asyncio.to_thread(insert)
        wire = subprocess.Popen([sys.executable, WIRE, port, inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        async def heal():
            wire.kill()
            wire.wait()
            wire.stdin.close()
            wire.stdout.close()
            await asyncio.to_thread(take_out)

        if wire.stdout.readline() != "ready\n":
            await heal()
            raise RuntimeError("wire.py did not begin")
        wire.stdin.write(f"delay {fault['ms']} {fault['ms'] / 3:.1f}\n")
        wire.stdin.flush()
        return heal

    async def do_flap(self, fault):
        port = self.cluster.hosts[fault["on"]].port
        for down in fault["times"]:
            await asyncio.to_thread(run, "ip", "link", "set", port, "down")
            await asyncio.sleep(down)
            await asyncio.to_thread(run, "ip", "link", "set", port, "up")
            await asyncio.sleep(down / 2)

    # ---- clocks, disks and clients -----------------------------------------------------------------

    async def do_clock(self, fault):
        host = self.cluster.hosts[fault["on"]]
        host.set_clock(fault["seconds"])

        async def heal():  # the clock jumps back, or forward
            host.set_clock(0)
        return heal

    async def do_disk(self, fault):
        host = self.cluster.hosts[fault["on"]]
        path = host.disk / "filler"
        await asyncio.to_thread(host.run, "dd", "if=/dev/zero", f"of={path}", "bs=64k", check=False)

        async def heal():
            await asyncio.to_thread(host.run, "rm", "-f", path)
        return heal

    async def do_slow(self, fault):
        until = time.monotonic() + fault["for"]
        for i in random.Random(fault["seed"]).sample(range(self.n_streams), max(1, self.n_streams // 4)):
            self.streams.slow_until[i] = until


def summary(begun):
    return {k: len(list(g)) for k, g in itertools.groupby(sorted(f["kind"] for f in begun))}
