"""Tests that workers are replaced as by a StatefulSet: in parallel start, one at a time, the highest ordinal first, the next when
the last is ready. The new configuration makes old and new workers different. Streams are complete, a replica serves at every
moment, and at the end all workers have the new configuration."""
import threading
import time

import httpx
from cluster import BIN, SLOW, free_ports, get, wait_for
from steady import Steady
from test_bad_frames import Processes


class Pods(Processes):
    def __init__(self, folder, n, tp):
        super().__init__(folder)
        self.n, self.tp = n, tp
        self.http = free_ports(n)

    def worker(self, i, generation, *args):
        name = f"worker-{i}-{generation}"
        self.start(name, BIN / "cox-worker", "--model", "null", "--device", "null", "--head",
                   f"127.0.0.1:{self.head_port}", "--keys-dir", self.keys, "--tp", self.tp, "--ordinal", i, "--http-port",
                   self.http[i], "--null-step-us", 10000, *args)
        return self.started[name]

    def ready(self, i):
        return get(f"http://127.0.0.1:{self.http[i]}/readyz")[0] == 200

    def serving(self):
        groups = self.status()["groups"]
        return sum(g["state"] == "ready" and None not in g["workers"] for g in groups)


class Watch(threading.Thread):
    """Checks continuously that a replica serves."""

    def __init__(self, c):
        super().__init__(daemon=True)
        self.c, self.ended, self.least, self.n = c, threading.Event(), 99, 0
        self.start()

    def run(self):
        while not self.ended.is_set():
            self.least, self.n = min(self.least, self.c.serving()), self.n + 1
            time.sleep(0.02)


OLD, NEW = ["--max-model-len", 4096], ["--max-model-len", 2048, "--block-size", 32, "--null-load-ms", 3000 * SLOW]


def test_a_statefulset_is_rolled_under_load(tmp_path):
    with Pods(tmp_path, 4, 2) as c:
        c.start_head(tp=2)
        c.start_gateway(c.head_port)
        old = {i: c.worker(i, 0, *OLD) for i in range(4)}
        wait_for("two groups serve", lambda: c.serving() == 2)
        wait_for("all are ready", lambda: all(c.ready(i) for i in range(4)))
        watch = Watch(c)
        with Steady([c.url], n_users=8) as load:
            for i in (3, 2, 1, 0):
                old[i].terminate()
                assert old[i].wait(60 * SLOW) == 0
                c.worker(i, 1, *NEW)
                wait_for(f"pod {i} is ready", lambda i=i: c.ready(i), 60)
                load.check()
                assert watch.least >= 1, f"no group served while pod {i} was replaced"
            wait_for("two groups serve", lambda: c.serving() == 2, 60)
            done = load.check().n_done
            wait_for("streams go on", lambda: load.check().n_done > done + 16, 60)
        watch.ended.set()
        watch.join()
        assert watch.least == 1 and watch.n > 50
        assert len(c.status()["workers"]) == 4 and c.status()["model"]["max_model_len"] == 2048
        # Some workers become ready as spares, because no incomplete replica waits for a worker.
        said = {i: next(x for x in c.log(f"worker-{i}-1").splitlines() if " worker_ready " in x) for i in range(4)}
        assert [("spare" in said[i]) for i in (3, 2, 1, 0)] == [True, False, True, False], said
        assert all(c.ready(i) for i in range(4))


def test_ready_is_kept_until_a_drain(tmp_path):
    """A lost partner or head does not make a worker unready. Otherwise a rollout would stop."""
    with Pods(tmp_path, 2, 2) as c:
        c.start_head(tp=2)
        workers = [c.worker(0, 0)]
        wait_for("it answers", lambda: get(f"http://127.0.0.1:{c.http[0]}/livez")[0] == 200)
        assert not c.ready(0)  # the worker is not ready until its partner connects
        workers.append(c.worker(1, 0))
        wait_for("both are ready", lambda: c.ready(0) and c.ready(1))
        workers[1].kill()
        workers[1].wait()
        wait_for("the group is gone", lambda: c.serving() == 0)
        assert c.ready(0)
        c.started["head"].terminate()
        c.started["head"].wait(20 * SLOW)
        assert c.ready(0)
        c.start_head(tp=2)
        wait_for("it is back", lambda: c.status()["workers"])
        assert c.ready(0)
        instance = c.status()["workers"][0]["instance"]
        for on in (True, False):
            r = httpx.post(c.admin + "/api/drain", json={"worker": instance, "on": on})
            assert r.status_code == 200, r.text
            wait_for(f"drained: {on}", lambda on=on: c.ready(0) != on)
        assert get(f"http://127.0.0.1:{c.http[0]}/readyz") == (200, "ok\n")


def test_a_head_of_before_says_nothing(tmp_path):
    """An older head does not report readiness. A worker is then ready when the head accepts it, as in earlier versions."""
    with Pods(tmp_path, 1, 2) as c:
        c.start_head(tp=2)
        c.head_port = c.start_relay(3, 100000, "older")
        c.worker(0, 0)
        wait_for("it is ready", lambda: c.ready(0), 8)
