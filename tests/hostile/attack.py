"""Attacks a gateway, one attack at a time, and reports for each whether the gateway held.

    tests/run_python tests/hostile/attack.py --gateway http://127.0.0.1:8000 --key K [--only NAME ...] [--pid PID]
    tests/run_python tests/hostile/attack.py --list

The gateway holds when four conditions are met. The attack's own condition is true (attacks.py). Every GET /health meanwhile is
answered within --health-s. The process lives. With --pid, the memory of the process and its children stays below --memory-mib.
The exit status is 1 when the gateway did not hold against an attack.
"""
import argparse
import http.client
import json
import os
import signal
import sys
import threading
import time
import urllib.parse
from pathlib import Path

from attacks import Target, all_attacks
from shots import Engine, Shot


class Health(threading.Thread):
    """Measures the longest time of GET /health, and how often it had no answer."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.target, self.worst, self.failed, self.over = target, 0.0, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.05):
            begin = time.monotonic()
            c = http.client.HTTPConnection(self.target.host, self.target.port, timeout=30)
            try:
                c.request("GET", "/health")
                self.failed += c.getresponse().status not in (200, 503)
            except OSError:
                self.failed += 1
            finally:
                c.close()
            self.worst = max(self.worst, time.monotonic() - begin)


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(p) for p in task.read_text().split()]
        except OSError:
            pass
    return found


def resident_mib(pid):
    """Returns the resident memory of a process and all its descendants; 0 when it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    own = next((int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")), 0) / 1024
    return own + sum(resident_mib(p) for p in children(pid))


class Memory(threading.Thread):
    """Measures the peak memory of a process and its children. Ends them at the limit, as a kernel would, to protect the machine."""

    def __init__(self, pid, kill_mib):
        super().__init__(daemon=True)
        self.pid, self.kill_mib, self.most, self.over = pid, kill_mib, 0.0, threading.Event()

    def run(self):
        while self.pid and not self.over.wait(0.1):
            self.most = max(self.most, resident_mib(self.pid))
            if self.most > self.kill_mib:
                os.kill(self.pid, signal.SIGKILL)
                return


def upload_file(t, n=15 << 20):
    """Uploads a file and returns its id; "" when the gateway keeps no files."""
    from attacks_load import form
    r = Engine(t.host, t.port).run([form(t, n)], 60)[0]
    return json.loads(r.text())["id"] if r.status == 200 else ""


def delete_file(t):
    if t.file_id:
        Engine(t.host, t.port).run([Shot(t.head("DELETE", f"/v1/files/{t.file_id}"))], 60)


def strike(attack, t, pid=0, health_s=2.0, memory_mib=1024):
    """Runs an attack. Returns "" or the reason why the gateway did not hold, the results, the longest time of GET /health in
    seconds, and the most memory in MiB."""
    health, memory = Health(t), Memory(pid, 2 * memory_mib)
    shots = attack.shots(t)
    health.start()
    memory.start()
    results = Engine(t.host, t.port).run(shots, attack.seconds)
    time.sleep(0.1)
    health.over.set()
    memory.over.set()
    health.join()
    why = attack.holds(results, t)
    if not why and health.failed:
        why = f"GET /health failed {health.failed} times beside it"
    if not why and health.worst > health_s:
        why = f"GET /health took {health.worst:.1f} s beside it"
    if not why and memory.most > memory_mib:
        why = f"the gateway took {memory.most:.0f} MiB"
    if pid and not Path(f"/proc/{pid}").exists():
        why = f"the gateway's process {pid} is gone"
    return why, results, health.worst, memory.most


def fits(attack, has):
    return all(n in has for n in attack.needs)


def wanted(attacks, names):
    """Selects attacks by name or by family. Without names all attacks are selected."""
    return [a for a in attacks if not names or a.name in names or a.family in names]


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gateway", default="http://127.0.0.1:8000")
    p.add_argument("--key", default="")
    p.add_argument("--model", default="demo")
    p.add_argument("--pid", type=int, default=0, help="the gateway's, to look at its life and memory")
    p.add_argument("--template", action="store_true", help="the gateway has --trust-request-chat-template")
    p.add_argument("--only", nargs="+", metavar="NAME", default=[], help="attacks or families")
    p.add_argument("--skip", nargs="+", metavar="NAME", default=[], help="attacks or families")
    p.add_argument("--once", action="store_true", help="the default: each attack once")
    p.add_argument("--list", action="store_true")
    p.add_argument("--health-s", type=float, default=2.0)
    p.add_argument("--memory-mib", type=float, default=1024, help="default: the chart's limit")
    return p.parse_args()


def main():
    o = options()
    url = urllib.parse.urlsplit(o.gateway)
    t = Target(url.hostname, url.port or 80, o.key, o.model)
    chosen = [a for a in wanted(all_attacks(), o.only) if a.name not in o.skip and a.family not in o.skip]
    if o.list:
        print("\n".join(f"{a.name:36} {' '.join(a.needs)}" for a in chosen))
        return 0
    t.file_id = upload_file(t)
    has = {"keys" if t.key else "no_keys", *(["state"] if t.file_id else []), *(["template"] if o.template else [])}
    failed = []
    for a in chosen:
        if not fits(a, has):
            print(f"skip {a.name:36} wants {', '.join(set(a.needs) - has)}")
            continue
        begin = time.monotonic()
        why, results, worst, most = strike(a, t, o.pid, o.health_s, o.memory_mib)
        codes = sorted({r.status for r in results})
        print(f"{'FAIL' if why else 'ok  '} {a.name:36} {codes} {time.monotonic() - begin:.1f} s, health {worst * 1000:.0f} ms"
              f"{f', {most:.0f} MiB' if o.pid else ''}{': ' + why if why else ''}", flush=True)
        failed += [a.name] if why else []
    delete_file(t)
    print(f"{len(failed)} did not hold" + (": " + " ".join(failed) if failed else ""))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
