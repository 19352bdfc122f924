"""Implements bench/sleep --llama-server: seconds from a request to the first token of a sleeping and of a stopped model, and from the start
of llama-server to its first token, with the same file. They take turns, and only one server works at a time."""
import asyncio
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from cluster import Cluster, free_ports, wait_for
from serving import go_first, spread, stream

START_S = 120
PEERS = {"llama-server": [], "llama-server --no-warmup": ["--no-warmup"]}


def check(parser, options):
    program, model = Path(options.llama_server), Path(options.model)
    if not os.access(program, os.X_OK) or program.is_dir():
        parser.error(f"--llama-server {program} is no program")
    if model.suffix != ".gguf" or not model.is_file():
        parser.error(f"--llama-server needs --model FILE.gguf, which both servers read, and {model} is no such file")


def has_workers(c):
    return [name for name in c.pids() if name.startswith("worker")]


def start_stopped(options, more):
    """Starts `cox up` with one model, whose workers end a second after the last request. It shares no weights with the cluster that
    sleeps, so it reads the file as llama-server does."""
    c = Cluster("--device", "cpu", "--weights-share", "off", "--on-demand", "--idle-timeout", 1, *more, model=f"it={options.model}", workers=1, tp=1)
    c.start(wait=False)
    if options.first:
        go_first(c.process.pid)
    c.wait_ready(START_S)
    return c


def ours(c, i):
    wait_for("the workers have ended", lambda: not has_workers(c), START_S)
    time.sleep(0.3)
    return asyncio.run(stream(c.ports[0], i, 2, model="it"))


def is_loaded(port):
    """Asks /health by a socket of its own. The server refuses connections before it listens, and answers 503 while it loads."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b" 200 " in s.recv(32)
    except OSError:
        return False


def first_token_at(port, i, process, log):
    """Returns the time of the first token. Looks every 5 ms, because looking takes time from a server that starts."""
    end = time.monotonic() + START_S
    while not is_loaded(port):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"llama-server does not serve: {Path(log.name).read_text(errors='replace')[-800:]}")
        time.sleep(0.005)
    return time.perf_counter() + asyncio.run(stream(port, i, 2))


def theirs(options, flags, i):
    """Returns the seconds from the start of the process to its first token. It has one slot, and a thread for each core."""
    port = free_ports(1)[0]
    command = [options.llama_server, "-m", options.model, "--host", "127.0.0.1", "--port", port, "-np", 1, "-c", 2048,
               "-t", os.cpu_count(), *flags]
    with tempfile.NamedTemporaryFile(prefix="coxbench-") as log:
        began = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=options.first)
        try:
            if options.first:
                go_first(process.pid)
            return first_token_at(port, i, process, log) - began
        finally:
            process.terminate()
            process.wait()


def measure(options, more, sleeping):
    """Prints a row for each level of sleep, by sleeping(level, i), for a stopped model, and for llama-server. The first round warms the
    page cache and is not counted."""
    c, rows = start_stopped(options, more), {}
    try:
        for i in range(-1, options.rounds):
            found = {f"level {level}": sleeping(level, 5000 + 10 * i + level) for level in options.level}
            found |= {"stopped": ours(c, 6000 + i)} | {name: theirs(options, flags, 7000 + i) for name, flags in PEERS.items()}
            for name, seconds in found.items() if i >= 0 else ():
                rows.setdefault(name, []).append(seconds)
    finally:
        c.stop()
    print(f"in turns, load {os.getloadavg()[0]:.1f}:")
    for name, seconds in rows.items():
        print(f"  {name}: first token {spread(seconds, '%.3f')} s")
