"""Tests `cox up --spares`: an idle model that is asked runs in the process of a spare, a spare that is killed is replaced, and spares end with
their supervisor."""
import os
import re
import signal
from pathlib import Path

import pytest
import test_up_models
from cluster import BIN, SANITIZED, alive, wait_for
from test_cuda_emulated import programs  # noqa: F401, a fixture
from test_up_models import LLAMA, Up, needs_goldens
from test_up_sleep import text

pytestmark = needs_goldens


def up(tmp_path, *more):
    return Up(tmp_path, f"a={LLAMA}", f"b={LLAMA}", "--on-demand", "--device", "cpu", "--spares", 1, *more)


def spares(c):
    """Returns the processes of the cluster that wait for a command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == c.process.pid and words[1:2] == [b"spare"] and int(folder.name) not in c.pids().values():
            found.append(int(folder.name))
    return found


def a_spare(c):
    wait_for("a spare waits", lambda: len(spares(c)) == 1 and "spare_waits" in c.log(), 30)
    return spares(c)[0]


def test_a_model_starts_in_a_spare(tmp_path):
    with up(tmp_path, "--idle-timeout", 1) as c:
        c.wait_ready()
        wait_for("the models rest", lambda: not c.workers(), 30)
        first = a_spare(c)
        wanted = text(c, "b")
        assert c.pids()["worker-b-0"] == first, c.log()
        assert "worker-b-0 | " in c.log()
        wait_for("the model rests", lambda: not c.workers(), 30)
        assert not alive(first)
        second = a_spare(c)
        assert second != first and text(c, "b") == wanted and c.pids()["worker-b-0"] == second
        # a worker that is killed is a worker: it starts again, and the model answers as before
        os.kill(second, signal.SIGKILL)
        assert text(c, "b") == wanted and c.pids()["worker-b-0"] != second
        assert "worker_restarted name=worker-b-0" in c.log(), c.log()


def test_a_killed_spare_is_replaced_and_all_end_with_cox_up(tmp_path):
    with up(tmp_path) as c:
        c.wait_ready()
        first = a_spare(c)
        os.kill(first, signal.SIGKILL)
        wait_for("another spare waits", lambda: spares(c) not in ([], [first]), 30)
        assert f"the spare process {first} has ended, signal 9" in c.log()
        second = spares(c)[0]
        os.kill(c.process.pid, signal.SIGKILL)
        c.process.wait()
        wait_for("the spare ends", lambda: not alive(second), 30)


def test_spares_end_when_cox_up_stops(tmp_path):
    with up(tmp_path) as c:
        c.wait_ready()
        spare = a_spare(c)
        c.process.terminate()
        assert c.process.wait(60) == 0, c.log()
        wait_for("the spare ends", lambda: not alive(spare), 30)


@pytest.mark.skipif(SANITIZED, reason="the emulation is too slow there")
def test_a_spare_has_the_context_of_its_gpu(tmp_path, monkeypatch, programs):  # noqa: F811
    monkeypatch.setattr(test_up_models, "BIN", programs)
    with Up(tmp_path, f"a={LLAMA}", "--on-demand", "--idle-timeout", 1, "--device", "cuda", "--max-model-len", 512,
            "--num-gpu-blocks-override", 96, "--models-memory", "1100Mi", "--spares", 1,
            LD_LIBRARY_PATH=str(BIN.parent / "tests/nvml")) as c:
        c.wait_ready()
        assert re.search(r"memory: 76.0 MiB on each of \d+ GPUs", c.log()), c.log()  # the spare takes 1 GiB
        wait_for("the model rests", lambda: not c.workers(), 30)
        spare = a_spare(c)
        assert "spare_waits context=true" in c.log()
        wanted = text(c, "a")
        assert c.pids()["worker-a-0"] == spare, c.log()
        wait_for("the model rests", lambda: not c.workers(), 30)
        assert text(c, "a") == wanted
