"""Implements bench/gateway; the comment at the top of that script describes it."""
import json
import statistics
import subprocess
import sys
from pathlib import Path

import gateway_peer
from cluster import BIN, ROOT, Cluster
from gateway_peer import PEER_STREAMS, PEERS
from options import amount, count, names, option_parser
from serving import PROGRAMS, build, go_first, machine, spread

BARS = {"rate": 100_000, "p50": 150, "p99": 2000, "bytes": 40_000, "tokens_per_event": 1.01}
CORES = 2
PARTS = ("rate", "latency", "memory")


def client(port, pids, *args):
    """Runs gateway_load and returns its line of JSON."""
    pids = ",".join(f"{name}={pid}" for name, pid in pids.items())
    command = [BIN / "gateway_load", "--port", port, *(["--pids", pids] if pids else []), *args]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"gateway_load: exit status {done.returncode}")
    return json.loads(done.stdout)


class Run:
    """Runs a cluster of one null worker, and keeps the line that the client prints about it."""

    def __init__(self, step_us, *args, cluster=(), log=False, first=False):
        c = Cluster("--null-step-us", str(step_us), "--max-num-seqs", "512", *cluster, workers=1, tp=1)
        log_args = []
        if log:
            path = f"{c.folder.name}/steps"
            c.command += ["--step-log", path]
            log_args = ["--step-log", path]
        c.start()
        if first:
            go_first(c.process.pid)
        try:
            self.said = client(c.ports[0], c.pids(), *args, *log_args)
        finally:
            c.stop()


def rate(o):
    """Runs one round of the rate: 256 streams without a pause."""
    return Run(o.step_us, "--streams", o.streams, "--tokens", o.tokens, "--seconds", o.seconds,
               first=o.first).said


def latency(o):
    step_us = round(o.latency_streams / (BARS["rate"] / 2) * 1e6)
    said = Run(step_us, "--streams", o.latency_streams, "--tokens", o.tokens, "--seconds", o.seconds, log=True,
               first=o.first).said
    return {**said, "step_us": step_us}


def memory(o):
    """Measures memory. Steps are slow, so that all streams are open at once; each token needs a block of 16 positions."""
    room = ["--max-num-seqs", "8192", "--num-gpu-blocks-override", str(20 * o.held), "--max-num-batched-tokens", "65536"]
    said = Run(100_000, "--streams", o.held, "--tokens", 256, "--hold", cluster=room).said
    return said["bytes_per_stream"]


def against(peer, o, rounds):
    """Compares Coxswain's tokens/s with a peer's, by the number of streams, in turns. The peer's server stays up and idle while ours
    is measured. Returns True when a ratio is below its bar."""
    ours, theirs = {n: [] for n in PEER_STREAMS}, {n: [] for n in PEER_STREAMS}
    length = ["--tokens", o.tokens, "--seconds", o.seconds]
    for _ in range(rounds):
        for n in PEER_STREAMS:
            ours[n].append(Run(0, "--streams", n, *length, first=o.first).said["tokens_per_s"])
            said = client(peer.port, peer.pids(), "--streams", n, *length, "--any", "--warm", 3)
            theirs[n].append(said["tokens_per_s"])
    broken = False
    for n in PEER_STREAMS:
        ratio = [a / b for a, b in zip(ours[n], theirs[n])]
        print(f"{n} streams, tokens/s: {spread(ours[n], '%.0f')}, {peer.name} {spread(theirs[n], '%.0f')}: "
              f"{spread(ratio, '%.1f')} times" + (f" (at least {peer.bar})" if peer.bar else ""))
        broken = broken or (peer.bar is not None and statistics.median(ratio) < peer.bar)
    return broken


def column(rounds, *keys):
    values = []
    for said in rounds:
        for key in keys:
            said = said[key]
        values.append(said)
    return values


def print_rate(rounds):
    events, one = column(rounds, "events_per_s"), column(rounds, "tokens_per_event")
    print(f"rate: {spread(events, '%.0f')} events/s (at least {BARS['rate']}), "
          f"{spread(one, '%.3f')} tokens an event, {spread(column(rounds, 'bytes_per_event'), '%.0f')} bytes, "
          f"{spread(column(rounds, 'events_per_read'), '%.1f')} events a read of the client's")
    names = list(rounds[0]["us_per_event"])
    print("  us of CPU per event: " +
          ", ".join(f"{n} {spread(column(rounds, 'us_per_event', n), '%.2f')}" for n in names))
    capacity = [CORES * 1e6 / s for s in column(rounds, "us_per_event", "all")]
    print(f"  so {CORES} quiet cores have room for {spread(capacity, '%.0f')} events/s")
    return statistics.median(events) < BARS["rate"] or statistics.median(one) > BARS["tokens_per_event"]


def print_latency(rounds):
    broken = False
    half = column(rounds, "events_per_s")
    cpu = [e * us / 1e6 for e, us in zip(half, column(rounds, "us_per_event", "all"))]
    print(f"latency: at {spread(half, '%.0f')} events/s, steps of {rounds[0]['step_us']} us, "
          f"{spread(cpu, '%.2f')} cores busy with it; added, us:")
    for key in ("least", "p50", "p90", "p99", "p999", "most"):
        values = column(rounds, "added_us", key)
        bar = f" (at most {BARS[key]})" if key in BARS else ""
        print(f"  {key} {spread(values, '%.0f')}{bar}")
        broken = broken or (key in BARS and statistics.median(values) > BARS[key])
    return broken


def main():
    parser = option_parser("gateway")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--seconds", type=amount(), default=4)
    parser.add_argument("--streams", type=count(), default=256)
    parser.add_argument("--tokens", type=count(), default=128)
    parser.add_argument("--step-us", type=count(0), default=1500)
    parser.add_argument("--latency-streams", type=count(), default=16)
    parser.add_argument("--held", type=count(), default=5000)
    parser.add_argument("--parts", type=names(PARTS), default=list(PARTS))
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--peer", choices=sorted(PEERS), action="append", default=[])
    parser.add_argument("--setup-llama", action="store_true")
    parser.add_argument("--peer-port", type=count(1, 65535))
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "build/goldens/llama_tiny")
    o = parser.parse_args()
    if o.setup_llama:
        return gateway_peer.setup_llama()
    if o.first:
        go_first("self")
    build(*PROGRAMS, "gateway_load")
    print(f"{machine()}; {o.rounds} rounds of {o.seconds:g} s: median (least … most)")
    rates, latencies = [], []
    for _ in range(o.rounds if "rate" in o.parts or "latency" in o.parts else 0):
        if "rate" in o.parts:
            rates.append(rate(o))
        if "latency" in o.parts:
            latencies.append(latency(o))
    broken = print_rate(rates) if rates else False
    if latencies:
        broken = print_latency(latencies) or broken
    if "memory" in o.parts:
        held = memory(o)
        print(f"memory: {o.held} streams, bytes each (at most {BARS['bytes']} of the gateway): " +
              ", ".join(f"{name} {n:.0f}" for name, n in held.items()))
        broken = broken or held["gateway-0"] > BARS["bytes"]
    peers = [lambda kind=PEERS[name]: kind(o.tokenizer) for name in o.peer]
    for start in peers + ([lambda: gateway_peer.Listening(o.peer_port)] if o.peer_port else []):
        peer = start()
        try:
            peer.wait_ready()
            broken = against(peer, o, o.rounds) or broken
        finally:
            peer.stop()
    return broken


if __name__ == "__main__":
    sys.exit(main())
