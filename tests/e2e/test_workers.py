"""Tests that `cox workers --ranks N` runs several ranks in one pod, with consecutive ordinals and ports. Ranks that die are
restarted, the pod is ready when all ranks are, and one SIGTERM drains them all."""
import os
import signal
from pathlib import Path

from cluster import BIN, SLOW, alive, free_ports, get, run_cox, wait_for
from steady import Steady
from test_bad_frames import Processes


class Pods(Processes):
    def pod(self, i, ranks, *args):
        (*ports,) = free_ports(ranks + 1)
        name = f"pod-{i}"
        self.start(name, BIN / "cox", "workers", "--ranks", ranks, "--ordinal", i, "--http-port", ports[0], "--model",
                   "null", "--device", "null", "--head", f"127.0.0.1:{self.head_port}", "--keys-dir", self.keys,
                   "--null-step-us", 5000, *args)
        return ports

    def ordinals(self):
        return sorted(w["ordinal"] for w in self.status()["workers"])

    def serving(self):
        return sum(g["state"] == "ready" and None not in g["workers"] for g in self.status()["groups"])

    def ranks_of(self, i):
        pid = self.started[f"pod-{i}"].pid
        return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_two_pods_of_two_ranks(tmp_path):
    with Pods(tmp_path) as c:
        c.start_head(tp=2)
        c.start_gateway(c.head_port)
        first, second = c.pod(0, 2, "--tp", 2), c.pod(1, 2, "--tp=2")
        wait_for("two groups serve", lambda: c.serving() == 2)
        assert c.ordinals() == [0, 1, 2, 3]
        for ports in (first, second):
            wait_for("the pod is ready", lambda p=ports: get(f"http://127.0.0.1:{p[0]}/readyz")[0] == 200)
            assert all(get(f"http://127.0.0.1:{p}/livez")[0] == 200 for p in ports)

        with Steady([c.url], n_users=4) as load:
            # A rank that dies is restarted.
            victim = c.ranks_of(0)[0]
            os.kill(victim, signal.SIGKILL)
            wait_for("it is started again", lambda: not alive(victim) and len(c.ranks_of(0)) == 2)
            wait_for("two groups serve again", lambda: c.serving() == 2, 40)
            wait_for("the pod is ready again", lambda: get(f"http://127.0.0.1:{first[0]}/readyz")[0] == 200)
            wait_for("they are four", lambda: c.ordinals() == [0, 1, 2, 3])

            # One SIGTERM drains all ranks of a pod.
            ranks = c.ranks_of(1)
            c.started["pod-1"].terminate()
            assert c.started["pod-1"].wait(60 * SLOW) == 0
            assert not any(alive(p) for p in ranks)
            assert c.log("pod-1").count('worker_leaves reason="told to end (SIGTERM)"') == 2
            done = load.check().n_done
            wait_for("streams go on", lambda: load.check().n_done > done + 8, 60)
        assert c.serving() == 1


def test_what_cannot_start_ends_it(tmp_path):
    done = run_cox("workers", "--ranks", 2, "--model", tmp_path / "nothing", "--insecure", "--http-port", free_ports(3)[0],
                   timeout=60)
    assert done.returncode == 2 and "cannot start" in done.stderr and "nothing" in done.stderr, done
    done = run_cox("workers", "--ranks", 2, "--no-such-flag")
    assert done.returncode == 2 and "no-such-flag" in done.stderr
    done = run_cox("workers", "--ranks", 64, "--insecure", "--model", "null", "--http-port", 65500)
    assert done.returncode == 2 and "--ranks 64" in done.stderr


def test_a_token_is_in_nobodys_command_line(tmp_path):
    with Pods(tmp_path) as c:
        c.start_head(tp=1)
        token = run_cox("join-token", "--keys-dir", c.keys, "--head", f"127.0.0.1:{c.head_port}").stdout.strip()
        port = free_ports(2)[0]
        c.start("pod", BIN / "cox", "workers", "--ranks", 1, "--model", "null", "--device", "null", "--join", token,
                "--http-port", port)
        wait_for("it serves", lambda: c.serving() == 1)
        pid = c.started["pod"].pid
        for p in [pid, *(int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]:
            assert token.encode() not in Path(f"/proc/{p}/cmdline").read_bytes()
