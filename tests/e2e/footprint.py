"""Measures the memory of a cluster's processes and compares it with its bounds, in bytes."""
import re
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
HEAD_BOUND = 25 * 10**6
GATEWAY_BOUND, GATEWAY_PEAK_BOUND = 150 * 10**6, 400 * 10**6  # bytes of a gateway with a vocabulary of 262k tokens


@dataclass
class Size:
    pss: int  # bytes; shared memory counts in proportion to this process's part of it
    rss: int  # bytes of all resident memory; the largest of the values, to which the bounds apply
    private: int
    peak: int  # largest rss so far in bytes
    threads: int
    fds: int


def kib_rows(text):
    return {name: 1024 * int(kib) for name, kib in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


def size_of(pid):
    proc = Path(f"/proc/{pid}")
    rollup, status = kib_rows((proc / "smaps_rollup").read_text()), (proc / "status").read_text()
    return Size(pss=rollup["Pss"], rss=rollup["Rss"], private=rollup["Private_Clean"] + rollup["Private_Dirty"],
                peak=kib_rows(status)["VmHWM"], threads=int(re.search(r"Threads:\s+(\d+)", status)[1]),
                fds=len(list((proc / "fd").iterdir())))


def sizes(cluster):
    """Returns {name: Size}. `cox` is `cox up` itself."""
    return {name: size_of(pid) for name, pid in {**cluster.pids(), "cox": cluster.process.pid}.items()}


def tables(cluster):
    """Returns {worker: {line: bytes}} from the memory tables that the workers printed at their start."""
    found = {}
    row = re.compile(r"^(worker-\d+) *\| (weights|activations|collectives|KV cache|total) +([0-9.]+) MiB", re.MULTILINE)
    for worker, name, value in row.findall(cluster.log()):
        found.setdefault(worker, {})[name] = int(float(value) * MIB)
    return found


def worker_bound(table, kv_used=True):
    """Returns the bound of a worker. With kv_used=False the worker is idle and has used no block of its KV cache."""
    planned = table["total"] - (0 if kv_used else table["KV cache"])
    return int(1.05 * planned) + 32 * MIB


def bounds(cluster, kv_used=True):
    """Returns [(process, measure, bytes, bound)]; `cox up` has no bound."""
    table, rows = tables(cluster), []
    for name, size in sizes(cluster).items():
        if name.startswith("head"):
            rows.append((name, "rss", size.rss, HEAD_BOUND))
        elif name.startswith("gateway"):
            rows.append((name, "rss", size.rss, GATEWAY_BOUND))
            rows.append((name, "peak", size.peak, GATEWAY_PEAK_BOUND))
        elif name in table:
            rows.append((name, "rss", size.rss, worker_bound(table[name], kv_used)))
    return rows
