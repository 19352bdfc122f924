"""Tests --weights-share: the workers of a host keep packed weights in memory once, with the same answers. Workers and packers are killed.
The sizes come from /proc/PID/smaps; no test asserts a time."""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, wait_for
from completions import body_of, ids, run

TINY = ROOT / "build/goldens/llama_tiny"
pytestmark = pytest.mark.skipif(not TINY.exists(), reason=f"no {TINY}: scripts/make-goldens")
TABLE = 128  # byte of a file of the folder whose lock is the table's lock (worker/share/table.h)
PAGES = 2 * 65536  # the memory is rounded up to 64 KiB, and has one more such page


def bodies():
    known = [body_of(p["ids"], max_tokens=16) for p in json.loads((TINY / "expected.json").read_text())["prompts"][:3]]
    return known + [{**b, "temperature": 1, "seed": 7} for b in known]


@contextlib.contextmanager
def cluster(folder, *args, workers=2, tp=1):
    with Cluster("--device", "cpu", "--served-model-name", "m", "--weights-share", folder, *args, model=str(TINY), workers=workers, tp=tp) as c:
        wait_for("all replicas serve", lambda: [g["state"] for g in c.status()["groups"]] == ["ready"] * (workers // tp))
        yield c


def answers(c):
    return [ids(got) for got in run(c, bodies())]


def files(folder):
    return sorted(p.name for p in Path(folder).glob("coxswain-weights-*/*"))


def shared(pid):
    """Returns (rss, pss) in bytes of the shared weights that the process has mapped."""
    rss = pss = 0
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = "/memfd:coxswain-weights" in line
        elif inside and (found := re.match(r"(Rss|Pss): +(\d+) kB", line)):
            rss, pss = (rss + 1024 * int(found[2]), pss) if found[1] == "Rss" else (rss, pss + 1024 * int(found[2]))
    return rss, pss


def found(c, name):
    return re.findall(rf"^{name} .* weights_shared bytes=(\d+) found=(\w+)", c.log(), re.MULTILINE)


def all_found(c):
    """Waits for the log, which may be behind the status, and returns whether each worker has found the weights."""
    wait_for("all have logged their weights", lambda: all(found(c, name) for name in workers_of(c)))
    return sorted(f for name in workers_of(c) for _, f in found(c, name))


def workers_of(c):
    return {name: pid for name, pid in c.pids().items() if name.startswith("worker")}


@pytest.fixture(scope="module")
def private():
    with cluster("off", workers=1) as c:
        assert shared(c.pid("worker-0")) == (0, 0)
        yield answers(c)


@pytest.mark.parametrize("args", [(), ("--quantization", "int8"), ("--dtype", "float32")])
def test_two_replicas_have_one_copy(tmp_path, args):
    with cluster("off", *args, workers=1) as c:
        want = answers(c)
    with cluster(tmp_path, *args) as c:
        assert all_found(c) == ["false", "true"]
        n_bytes = int(found(c, "worker-0")[0][0])
        rss, pss = zip(*map(shared, workers_of(c).values()))
        assert all(n_bytes <= r <= n_bytes + PAGES for r in rss) and n_bytes - 8192 <= sum(pss) <= n_bytes + PAGES
        assert [answers(c) for _ in range(3)] == [want] * 3  # by both replicas
        assert len(files(tmp_path)) == 1
    assert not files(tmp_path)


def test_ranks_have_parts_of_their_own(tmp_path, private):
    with cluster(tmp_path, workers=4, tp=2) as c:
        assert all_found(c) == ["false"] * 2 + ["true"] * 2
        assert len(files(tmp_path)) == 2
        assert answers(c)[:3] == private[:3]
    assert not files(tmp_path)


def test_a_killed_worker_finds_the_weights_again(tmp_path, private):
    with cluster(tmp_path) as c:
        all_found(c)
        for i in range(2):  # one of the two has packed
            name = f"worker-{i}"
            before = len(found(c, name))
            os.kill(c.pid(name), signal.SIGKILL)
            wait_for("it is back", lambda name=name, before=before: len(found(c, name)) > before)
            assert found(c, name)[-1][1] == "true"
        wait_for("both serve", lambda: [g["state"] for g in c.status()["groups"]] == ["ready"] * 2)
        assert answers(c) == private
    assert not files(tmp_path)


def test_sleep_level_2_drops_and_finds(tmp_path, private):
    with cluster(tmp_path, workers=1) as c:
        def order(path):
            done = subprocess.run([sys.executable, "-c", "import sys, urllib.request; urllib.request.urlopen(urllib.request.Request(sys.argv[1], method='POST'))",
                                   c.admin + path], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        order("/sleep?level=1")
        assert shared(c.pid("worker-0"))[0] > 0
        order("/sleep?level=2")
        assert shared(c.pid("worker-0")) == (0, 0) and not files(tmp_path)
        assert answers(c) == private and shared(c.pid("worker-0"))[0] > 0


PACKER = """
import fcntl, struct, sys, time
f = open(sys.argv[1], "r+b" if len(sys.argv) > 2 else "w+b")
fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack("hhqqixxxx", fcntl.F_WRLCK, 0, int(sys.argv[2]), 1, 0))
f.write(struct.pack("QQ", 7, 1000))
f.flush()
print("packs", flush=True)
time.sleep(600)
"""


def test_the_packer_is_killed(tmp_path, private):
    """A process that holds the table's lock stands for a worker that packs. The next one waits for it, and packs when it has died."""
    with cluster(tmp_path, workers=1):
        name, = files(tmp_path)
    folder, = tmp_path.glob("coxswain-weights-*")
    (folder / name).touch(0o600)
    packer = subprocess.Popen([sys.executable, "-c", PACKER, str(folder / name), str(TABLE)], stdout=subprocess.PIPE, text=True)
    try:
        assert packer.stdout.readline() == "packs\n"
        c = Cluster("--device", "cpu", "--served-model-name", "m", "--weights-share", tmp_path, model=str(TINY), workers=1, tp=1)
        try:
            c.start(wait=False)
            wait_for("the worker loads", lambda: "model_loading" in c.log())
            assert "weights_shared" not in c.log()
            packer.kill()
            c.wait_ready()
            assert all_found(c) == ["false"] and answers(c) == private
        finally:
            c.stop()
            c.folder.cleanup()
    finally:
        packer.kill()
        packer.wait()
    assert not files(tmp_path)


def test_orphans_are_cleaned(tmp_path):
    with cluster(tmp_path, workers=1) as c:
        c.process.kill()  # nothing starts the worker again
        c.process.wait()
        os.kill(c.pid("worker-0"), signal.SIGKILL)
        left, = files(tmp_path)
    folder, = tmp_path.glob("coxswain-weights-*")
    (folder / ("0" * 32)).touch(0o600)
    (folder / "notes").touch(0o600)
    with cluster(tmp_path, workers=1) as c:
        assert all_found(c) == ["false"]
        assert files(tmp_path) == sorted([left, "notes"])
    assert files(tmp_path) == ["notes"]


def test_a_folder_that_cannot_be_used(tmp_path, private):
    (tmp_path / f"coxswain-weights-{os.geteuid()}").mkdir(mode=0o700)
    (tmp_path / f"coxswain-weights-{os.geteuid()}").chmod(0o777)
    with cluster(tmp_path, workers=1) as c:
        wait_for("it is told", lambda: "weights_not_shared" in c.log())
        assert "other users may use it" in c.log() and not found(c, "worker-0")
        assert answers(c) == private
