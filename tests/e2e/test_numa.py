"""Tests workers bound to a NUMA node or to CPUs, with the real programs. These tests have run on machines with one node only.
tests/unit/common/host/numa_test.c and tests/unit/cli/up/plan/up_plan_test.c test placement on two nodes."""
import os
import re
import signal
import subprocess
from pathlib import Path

import null_oracle as oracle
import pytest
from cluster import BIN, ROOT, Cluster, end_all, free_ports, run_cox, wait_for
from completions import body_of, complete, ids, run

NODES = Path("/sys/devices/system/node")
TINY = ROOT / "build/goldens/llama_tiny"
OURS = os.sched_getaffinity(0)

pytestmark = pytest.mark.skipif(not (NODES / "online").exists(), reason="a kernel without NUMA nodes")
needs_two_cpus = pytest.mark.skipif(len(OURS) < 2, reason="one CPU")


def numbers(text):
    """Returns {0, 1, 2, 16} for "0-2,16"."""
    found = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def cpus_of(pid):
    """Returns the allowed CPUs of each thread of a process."""
    return [numbers(re.search(r"^Cpus_allowed_list:\s*(\S+)", (t / "status").read_text(), re.M)[1])
            for t in Path(f"/proc/{pid}/task").iterdir()]


def nodes():
    """Returns {node: its CPUs that this process may use}, without nodes that have no such CPU."""
    all_of = {n: numbers((NODES / f"node{n}/cpulist").read_text()) & OURS for n in numbers((NODES / "online").read_text())}
    return {n: cpus for n, cpus in sorted(all_of.items()) if cpus}


def policies(pid):
    """Returns the policies of the process's mappings, from /proc."""
    return {line.split()[1] for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines()}


def is_allowed(c):
    """Returns false when a container forbids set_mempolicy. The log then reports it, and all other checks still apply."""
    return "memory_not_bound" not in c.log()


def wait_said(c, *patterns):
    """Waits for log lines of workers. The lines pass through a pipe of `cox up`, so a serving worker may have written more lines
    than the log shows."""
    for pattern in patterns:
        wait_for(f"{pattern} in the log", lambda: re.search(pattern, c.log()))


def test_each_worker_keeps_to_a_node():
    with Cluster("--numa-bind") as c:
        of_workers = [list(nodes())[i * len(nodes()) // 2] for i in range(2)]
        wait_said(c, *(rf" worker-{i} bound node={node} " for i, node in enumerate(of_workers)))
        for i, node in enumerate(of_workers):
            pid = c.pid(f"worker-{i}")
            assert all(cpus == nodes()[node] for cpus in cpus_of(pid)), c.log()
            assert not is_allowed(c) or policies(pid) == {f"prefer:{node}"}
        assert all(cpus == OURS for cpus in cpus_of(c.pid("head")))  # no other process is bound
        before = c.pid("worker-1")
        os.kill(before, signal.SIGKILL)
        wait_for("another worker 1", lambda: c.pids().get("worker-1", before) != before)
        wait_for("it keeps to the node", lambda: all(cpus == nodes()[of_workers[1]] for cpus in cpus_of(c.pid("worker-1"))))
        c.wait_ready()
        assert complete(c, model="null", prompt="on a node", max_tokens=20, temperature=0)["choices"][0]["text"] == oracle.text("on a node", 20, temperature=0)


@needs_two_cpus
@pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens")
def test_ranks_on_cpus_of_their_own():
    """Each rank has as many threads as CPUs, and the tokens equal those of unbound ranks."""
    asked = [body_of("Once upon a time"), body_of("The sea", temperature=1, seed=5)]
    of_tiny = ("--device", "cpu", "--kv-cache-dtype", "float32", "--served-model-name", "m")
    first, last = min(OURS), max(OURS)
    with Cluster(*of_tiny, model=str(TINY)) as c:
        want = [ids(got) for got in run(c, asked)]
    with Cluster(*of_tiny, "--numa-bind-cpus", first, last, model=str(TINY)) as c:
        assert [ids(got) for got in run(c, asked)] == want
        wait_said(c, 'transport="shared memory"', *(rf" worker-{i} memory_(not_)?bound " for i in range(2)))
        for i, cpu in enumerate((first, last)):
            assert all(cpus == {cpu} for cpus in cpus_of(c.pid(f"worker-{i}")))
            assert not is_allowed(c) or re.search(rf" worker-{i} memory_bound node=\d+ near_bytes=[1-9]\d{{5,}} ", c.log())
        assert c.log().count(" threads=1 ") == 2, c.log()


@pytest.mark.parametrize("args,words", [
    (["--numa-bind-nodes", 999], ["worker 0: --numa-bind-nodes 999: this machine has no such NUMA node"]),
    (["--numa-bind-cpus", "0-x"], ["--numa-bind-cpus", '"0-x"', "0-7,16-23"]),
    (["--numa-bind-cpus", 1023], ["--numa-bind-cpus 1023: this process cannot use CPU 1023"]),
    (["--tp", 2, "--numa-bind-nodes", 0], ["--numa-bind-nodes has 1 entry for 2 workers"]),
])
def test_what_cannot_be_starts_nothing(args, words):
    r = run_cox("up", "null", *args, "--port", free_ports(1)[0])
    assert r.returncode == 2 and len(r.stderr.splitlines()) == 1, r.stderr
    for word in words:
        assert word in r.stderr


@pytest.mark.parametrize("program", ["worker", "workers"])
def test_a_worker_says_it_too(program):
    r = run_cox(program, "--insecure", "--model", "null", "--http-port", free_ports(2)[0], "--numa-node", "999")
    assert r.returncode == 2 and "--numa-node 999: this machine has no such NUMA node" in r.stderr


def test_ranks_of_one_pod():
    """`cox workers` binds its ranks to the nodes in order."""
    head, port = free_ports(5)[:2]
    p = subprocess.Popen([BIN / "cox", "workers", "--ranks", "2", "--insecure", "--model", "null", "--tp", "2", "--head",
                          f"127.0.0.1:{head}", "--http-port", str(port), "--numa-node", "auto"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        children = Path(f"/proc/{p.pid}/task/{p.pid}/children")
        wait_for("two ranks", lambda: len(children.read_text().split()) == 2)
        of_ranks = [list(nodes())[i * len(nodes()) // 2] for i in range(2)]
        for pid in children.read_text().split():
            words = Path(f"/proc/{pid}/cmdline")  # until it executes the worker, the process has its parent's arguments
            line = wait_for("a rank's words", lambda: b"--ordinal" in (text := words.read_bytes()) and text).decode().split("\0")
            ordinal = int(line[line.index("--ordinal") + 1])
            assert line[len(line) - 1 - line[::-1].index("--numa-node") + 1] == str(of_ranks[ordinal])
            wait_for("the rank is bound", lambda: all(c == nodes()[of_ranks[ordinal]] for c in cpus_of(pid)))
    finally:
        end_all([p])
