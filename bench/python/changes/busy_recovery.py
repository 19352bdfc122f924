"""Implements bench/busy-recovery; the comment at the top of that script describes it."""
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

from cluster import Cluster, alive, get, wait_for
from options import count, counts, names, option_parser
from serving import cpu_ns, machine, processes

LAYOUTS = {"tp2": (2, 2), "spare": (3, 2), "replicas": (2, 1)}  # layout: (workers, TP)
STRIKES = ("kill", "stop", "head")
FACTOR, MOST_S, SETTLED_S, GIVE_UP_S = 1.5, 15.0, 12.0, 240.0
RATE_S = 6.0  # longest time in seconds for which the rate before the strike is measured
HOG = "while True: pass"
# PHASES lists the phases of a recovery in order: name in the table, process, event in the log.
PHASES = (("dissolved", "head", "group_dissolved"), ("ended", "cox", "process_ended"), ("started", "cox", "worker_restarted"),
          ("started", "cox", "process_restarted"),
          ("loading", "worker", "model_loading"), ("loaded", "worker", "model_loaded"), ("up", "worker", "worker_started"),
          ("lost", "head", "worker_lost"), ("hello", "head", "worker_joined"), ("rejoined", "head", "worker_reconnected"),
          ("forming", "head", "state=forming"), ("ready", "head", "group_ready"))
LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z \S+ +(\S+) (.*)")


class Client:
    """Runs a number of streams on a separate thread, over raw sockets, so that the client uses little CPU."""

    def __init__(self, port, n, prompt_words):
        self.port, self.n, self.words = port, n, prompt_words
        self.name = random.randrange(10**9)  # this name makes each round's prompts new, so that no prompt is in the prefix cache
        self.times, self.failures, self.done = [[] for _ in range(n)], [], threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main()), daemon=True)
        self.thread.start()

    async def one(self, i):
        body = json.dumps({"model": "m", "prompt": f"Story {self.name} {i}: " + "once upon a time " * self.words, "max_tokens": 3000,
                           "ignore_eos": True, "stream": True, "temperature": 1, "seed": i}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                     % len(body) + body)
        if b" 200 " not in await reader.readline():
            raise ValueError("refused")
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                if b'"error"' in line:
                    raise ValueError(line.decode(errors="replace"))
                self.times[i].append(time.time())
        raise ValueError("it ended")

    async def main(self):
        tasks = [asyncio.create_task(self.one(i)) for i in range(self.n)]
        while not self.done.is_set():
            await asyncio.sleep(0.02)
            self.failures += [str(t.exception()) for t in tasks if t.done() and str(t.exception()) not in self.failures]
        for t in tasks:
            t.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def rate(self, begin, end):
        return sum(begin <= t < end for times in self.times for t in times) / (end - begin)

    def end(self):
        self.done.set()
        self.thread.join()


@contextlib.contextmanager
def hogs(n, weight):
    running = [subprocess.Popen(["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", HOG], start_new_session=True) for _ in range(n)]
    try:
        for p in running:
            weigh(p.pid, weight)
        yield
    finally:
        for p in running:
            p.kill()
            p.wait()


class Together:
    """`Together` is a control group for all processes started from now on. In this group the kernel shares the CPU by thread, as in
    a container, not by session."""

    def __init__(self, weight):
        self.path = Path("/sys/fs/cgroup/cpu") / f"coxbench-{os.getpid()}"
        self.path.mkdir()
        (self.path / "cpu.shares").write_text(str(int(1024 * 1.25 ** weight)))
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def end(self):
        (self.path.parent / "cgroup.procs").write_text(str(os.getpid()))
        self.path.rmdir()


def weigh(pid, weight):
    path = Path(f"/proc/{pid}/autogroup")
    if weight and path.exists():
        path.write_text(str(-weight))
        time.sleep(0.12)  # the kernel accepts only one change in a tenth of a second


def pause_of(times, struck):
    """Returns the time from the strike to the end of the longest time without a token after it; None when no token arrived."""
    after = [struck] + [t for t in times if t > struck]
    gaps = [(b - a, b) for a, b in zip(after, after[1:])]
    return max(gaps)[1] - struck if gaps else None


def phases(log, struck):
    """Returns {name: (seconds since the strike, count)} for each phase in the log after the strike. The time is that of the phase's
    last event."""
    found = {}
    for line in log.splitlines():
        m = LINE.search(line)
        at = datetime.fromisoformat(m[1] + "+00:00").timestamp() - struck if m else -1
        if at < -0.002:
            continue
        for name, process, event in PHASES:
            if m[2].startswith(process) and (m[3].startswith(event + " ") or event.startswith("state=") and event in m[3]):
                found[name] = (at, found.get(name, (0, 0))[1] + 1)
    return found


class Round:
    def __init__(self, o, cluster, layout, strike, n_hogs):
        self.o, self.c, self.layout, self.strike_name, self.n_hogs = o, cluster, layout, strike, n_hogs

    def victim(self):
        if self.strike_name == "head":
            return "head"
        status = self.c.status()
        busiest = max(status["groups"], key=lambda g: g["running"])["id"]
        ranks = {w["rank"]: w["ordinal"] for w in status["workers"] if w["group"] == busiest}
        return f"worker-{ranks[max(ranks)]}"

    def strike(self):
        victim = self.victim()
        pid = self.c.pid(victim)
        os.kill(pid, signal.SIGSTOP if self.strike_name == "stop" else signal.SIGKILL)
        struck = time.time()
        if self.strike_name == "stop":  # a stopped process is killed after 3 s, as a liveness probe would do
            def end():
                time.sleep(3)
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
            threading.Thread(target=end).start()
        return struck

    def watch(self, client, struck, seen):
        """Returns the pauses once a replica has formed after the strike and every stream has continued after that."""
        end = time.monotonic() + GIVE_UP_S
        while time.monotonic() < end and not client.failures:
            time.sleep(0.2)
            ready = phases(self.c.log()[seen:], struck).get("ready")
            pauses = [pause_of(t, struck) for t in client.times]
            if ready and None not in pauses and all(sum(x > struck + max(p, ready[0]) for x in t) > 2 for t, p in zip(client.times, pauses)):
                return pauses
        return [GIVE_UP_S if p is None else p for p in (pause_of(t + [time.time()], struck) for t in client.times)]

    def run(self):
        client = Client(self.c.ports[0], self.o.streams, self.o.words)
        try:
            wait_for("streams", lambda: client.failures or all(len(t) >= self.o.tokens for t in client.times), 120)
            with hogs(self.n_hogs, self.o.weight):
                n, begin = sum(map(len, client.times)), time.time()
                wait_for("all go on", lambda: client.failures or time.time() - begin > RATE_S
                         or sum(map(len, client.times)) > n + self.o.tokens * self.o.streams, 120)
                self.rate = client.rate(begin, time.time())
                used = {p: cpu_ns(p) for p in processes(self.c).values()}
                seen = len(self.c.log())
                struck = self.strike()
                self.pauses = self.watch(client, struck, seen)
                self.cpu = {k: (cpu_ns(p) - used.get(p, 0)) / 1e9 for k, p in processes(self.c).items() if alive(p)}
                self.phases = phases(self.c.log()[seen:], struck)
                self.failures = client.failures
        finally:
            client.end()
        return self

    def tell(self):
        marks = " ".join(f"{k} {v[0]:.2f}{'' if v[1] == 1 else f' ({v[1]})'}" for k, v in sorted(self.phases.items(), key=lambda i: i[1]))
        cpu = " ".join(f"{k} {v:.2f}" for k, v in self.cpu.items())
        print(f"  {self.layout} {self.strike_name} hogs {self.n_hogs:2}: pause {max(self.pauses):6.2f} s (first stream {min(self.pauses):.2f}); "
              f"{self.rate:.1f} tokens/s before\n    phases: {marks}\n    cpu s until the end: {cpu}"
              + ("\n    FAILED: " + "; ".join(self.failures) if self.failures else ""), flush=True)


def settle(c, n_workers):
    def well():
        code, body = get(c.admin + "/api/status")
        s = json.loads(body) if code == 200 else {"workers": []}
        return s.get("healthy") and len([w for w in s["workers"] if w["state"] in ("ready", "free")]) == n_workers
    wait_for("the cluster is whole", well, 60)
    c.wait_idle(60)
    time.sleep(SETTLED_S)  # the supervisor remembers the last loss for a while


def table(rounds, o):
    """Prints medians and maxima; returns the number of missed bars."""
    beyond = 0
    print("\n| layout, strike | hogs | pause, median s | worst s | share left | 1.5 x calm / share | |\n|---|---|---|---|---|---|---|")
    for key in dict.fromkeys((r.layout, r.strike_name) for r in rounds):
        of = [r for r in rounds if (r.layout, r.strike_name) == key]
        calm = [r for r in of if r.n_hogs == 0]
        for n in dict.fromkeys(r.n_hogs for r in of):
            here = [r for r in of if r.n_hogs == n]
            worst, median = (f(max(r.pauses) for r in here) for f in (max, statistics.median))
            share = bound = None
            if calm and n:
                share = statistics.median(r.rate for r in here) / statistics.median(r.rate for r in calm)
                bound = min(MOST_S, FACTOR * statistics.median(max(r.pauses) for r in calm) / share)
            verdict = "" if bound is None else "held" if worst <= bound else "MISSED"
            beyond += verdict == "MISSED" or any(r.failures for r in here)
            print(f"| {key[0]}, {key[1]} | {n} | {median:.2f} | {worst:.2f} | {'' if share is None else f'{share:.3f}'} | "
                  f"{'' if bound is None else f'{bound:.2f}'} | {verdict} |")
    return beyond if o.bars else 0


def measure(o):
    rounds = []
    for layout in o.layouts:
        workers, tp = LAYOUTS[layout]
        with Cluster("--device", "cpu", "--served-model-name", "m", "--max-model-len", 4096, *o.more.split(), workers=workers, tp=tp, model=o.model) as c:
            weigh(c.process.pid, o.weight)
            try:
                for strike in o.strikes:
                    for _ in range(o.rounds):
                        for n in o.hogs:
                            settle(c, workers)
                            rounds.append(Round(o, c, layout, strike, n).run())
                            rounds[-1].tell()
            finally:
                if o.log:
                    o.log.write_text(c.log())
    return rounds


def main():
    p = option_parser("busy-recovery")
    p.add_argument("--rounds", type=count(), default=3)
    p.add_argument("--hogs", type=counts(0, 64), default=[0, 6, 20])
    p.add_argument("--layouts", type=names(LAYOUTS), default=list(LAYOUTS))
    p.add_argument("--strikes", type=names(STRIKES), default=["kill"])
    p.add_argument("--streams", type=count(), default=8)
    p.add_argument("--tokens", type=count(), default=32, help="of each stream before the hogs; at most twice so many at the strike")
    p.add_argument("--words", type=count(0), default=0, help="of each prompt, times four")
    p.add_argument("--model", default="demo-base")
    p.add_argument("--weight", type=count(0, 20), default=0)
    p.add_argument("--together", action="store_true")
    p.add_argument("--bars", type=count(0, 1), default=1)
    p.add_argument("--more", default="", help="arguments of cox up")
    p.add_argument("--log", type=Path)
    o = p.parse_args()
    print(f"{machine()}; {o.streams} streams of {o.model}, {o.rounds} rounds", flush=True)
    together = Together(o.weight) if o.together else None
    o.weight = 0 if together else o.weight
    weigh(os.getpid(), o.weight)
    try:
        return 1 if table(measure(o), o) else 0
    finally:
        if together:
            together.end()


if __name__ == "__main__":
    sys.exit(main())
