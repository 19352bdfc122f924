"""Implements bench/scale; the comment at the top of that script describes it."""
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster import ROOT, free_ports
from options import amount, count, option_parser
from serving import machine

BIN = ROOT / "build/release/bin"
WARM_S = 6


def arguments():
    p = option_parser("scale")
    p.add_argument("--groups", type=count(), default=125)
    p.add_argument("--tp", type=count(1, 64), default=8)
    p.add_argument("--seqs", type=count(), default=32)
    p.add_argument("--step-us", type=count(), default=25000)
    p.add_argument("--seconds", type=amount(), default=10)
    p.add_argument("--insecure", action="store_true")
    p.add_argument("--bar", type=amount(), help="µs of the head's CPU per token")
    p.add_argument("--perf", help="perf record of the head in the window, to this file")
    p.add_argument("--head", default=BIN / "cox-head", help="another cox-head, to compare")
    p.add_argument("--nofile", type=count(), default=1024, help="the head's soft limit of descriptors")
    return p.parse_args()


def build():
    subprocess.run(["cmake", "--build", ROOT / "build/release", "-j2", "--target",
                    "cox-head", "cox", "scale_peers", "scale_alone"], check=True, stdout=subprocess.DEVNULL)


def threads(pid):
    """Returns the CPU ns of the threads, summed by name."""
    out = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        out[name] = out.get(name, 0) + int((task / "schedstat").read_text().split()[0])
    return out


class Peers:
    def __init__(self, a, endpoint, keys):
        args = [BIN / "scale_peers", "--endpoint", endpoint, "--groups", a.groups, "--tp", a.tp, "--seqs", a.seqs,
                "--step-us", a.step_us] + ([] if a.insecure else ["--keys-dir", keys])
        self.process = subprocess.Popen([str(x) for x in args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.line().split()
        assert line[0] == "ready", line
        self.formed_s = float(line[1])

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("bench/scale: scale_peers ended")
        return line

    def say(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def count(self):
        self.say("count")
        return json.loads(self.line())


def window(head, peers, seconds, perf=None):
    """Measures for a number of seconds. Returns (counts, the head's CPU ns by thread, the peers' CPU ns in all)."""
    recorder = None
    if perf:
        recorder = subprocess.Popen(["perf", "record", "-q", "-g", "-F", "499", "-o", perf, "-p", str(head.pid)])
    before, cpu, load, begin = peers.count(), threads(head.pid), threads(peers.process.pid), time.monotonic()
    time.sleep(seconds)
    after, cpu2, load2, end = peers.count(), threads(head.pid), threads(peers.process.pid), time.monotonic()
    if recorder:
        recorder.send_signal(signal.SIGINT)
        recorder.wait()
    return ({k: after[k] - before[k] for k in after}, {k: cpu2[k] - cpu.get(k, 0) for k in cpu2},
            sum(load2.values()) - sum(load.values()), end - begin)


def show_idle(n, cpu, seconds):
    frames = n["frames"] / seconds
    print(f"idle: {sum(cpu.values()) / seconds / 1e7:.2f} % of a core ("
          + ", ".join(f"{k} {v / seconds / 1e7:.2f}" for k, v in sorted(cpu.items())) + f"), {frames:.0f} frames/s sent")


def show_load(a, n, cpu, load, seconds):
    tokens, steps = n["tokens"], n["steps"]
    per_token = sum(cpu.values()) / tokens / 1e3
    print(f"load: {tokens / seconds:.0f} tokens/s, {tokens / steps:.1f} a step, {n['requests'] / seconds:.0f} requests/s, "
          f"{steps / seconds:.0f} steps/s, plans of {n['plan_bytes'] / n['plans']:.0f} bytes")
    print(f"head: {per_token:.3f} us a token ({sum(cpu.values()) / seconds / 1e7:.1f} % of a core): "
          + ", ".join(f"{k} {v / tokens / 1e3:.3f}" for k, v in sorted(cpu.items()))
          + f"; {sum(cpu.values()) / n['frames'] / 1e3:.2f} us a frame sent")
    print(f"ranks: {100 * n['late'] / steps:.2f} % of the steps waited for their plan, {n['late_ns'] / max(n['late'], 1) / 1e3:.0f} us"
          f" each; the simulation is {n['lag_ns'] / steps / 1e3:.0f} us late ({load / seconds / 1e7:.0f} % of a core)")
    return per_token


def limits(a):
    def apply():
        resource.setrlimit(resource.RLIMIT_NOFILE, (a.nofile, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return apply


def main():
    a = arguments()
    build()
    print(f"{machine()}; {a.groups * a.tp} workers, {a.groups} groups of TP {a.tp}, {a.seqs} sequences a group, "
          f"steps of {a.step_us / 1000:g} ms, {'plain' if a.insecure else 'CURVE'}")
    with tempfile.TemporaryDirectory() as tmp:
        keys, (port, admin) = f"{tmp}/keys", free_ports(2)
        subprocess.run([BIN / "cox", "keys", "--keys-dir", keys], check=True, stdout=subprocess.DEVNULL)
        log = open(f"{tmp}/head.log", "w")
        head = subprocess.Popen([str(x) for x in [
            a.head, "--host", "127.0.0.1", "--port", port, "--admin-port", admin, "--tp", a.tp,
            "--max-num-seqs", 2 * a.seqs, "--max-waiting", 2 * a.groups * a.seqs, "--stats-interval", 0]
            + (["--insecure"] if a.insecure else ["--keys-dir", keys])],
            stdout=log, stderr=log, preexec_fn=limits(a), env={k: v for k, v in os.environ.items() if not k.startswith("COX_")})
        try:
            time.sleep(0.3)
            peers = Peers(a, f"tcp://127.0.0.1:{port}", keys)
            print(f"formed: {peers.formed_s:.2f} s after the first connection")
            time.sleep(1)
            n, cpu, _, seconds = window(head, peers, min(a.seconds, 5))
            show_idle(n, cpu, seconds)
            peers.say("load")
            time.sleep(WARM_S)
            n, cpu, load, seconds = window(head, peers, a.seconds, a.perf)
            per_token = show_load(a, n, cpu, load, seconds)
            peers.process.stdin.close()
            peers.process.wait()
        finally:
            head.terminate()
            head.wait()
            text = Path(f"{tmp}/head.log").read_text()
            bad = [line for line in text.splitlines() if "level=warn" in line or "level=error" in line]
            print("\n".join(bad[:10]), end="\n" if bad else "")
    alone = subprocess.run([BIN / "scale_alone", str(a.groups), str(a.seqs)], check=True, capture_output=True, text=True)
    print("alone: " + alone.stdout.strip())
    if a.bar and per_token > a.bar:
        sys.exit(f"bench/scale: {per_token:.3f} us a token, {a.bar:g} is the bar")


main()
