"""Tests `cox scale` and `cox logs` for a cluster that `cox up` runs on this machine, found by its control socket."""
import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading

import httpx
import pytest
from cluster import BIN, SLOW, Cluster, alive, get, run_cox, wait_for


def cox(c, *args, **kwargs):
    return run_cox(*args, env={**os.environ, "TMPDIR": str(c.tmp), **kwargs})


def states(c):
    return sorted(w["state"] for w in c.status()["workers"])


def test_more_workers_and_fewer_and_back():
    with Cluster("--null-step-us", 10000, workers=2, tp=1, spare=2) as c:
        first = c.pids()
        done = cox(c, "scale", 4)
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("4 workers, 2 before: 4 replicas of 1 and 0 spare")
        wait_for("four serve", lambda: states(c) == ["ready"] * 4)
        assert {k: v for k, v in c.pids().items() if k in first} == first, "who was there is still there"
        assert sorted(w["ordinal"] for w in c.status()["workers"]) == [0, 1, 2, 3]
        # An added worker is restarted like any other.
        os.kill(c.pid("worker-3"), signal.SIGKILL)
        wait_for("it was lost and is back", lambda: c.pids().get("worker-3", 0) not in (0, first.get("worker-3")) and
                 "process_ended name=worker-3" in c.log() and states(c) == ["ready"] * 4)
        # The number of workers is reduced under streams that must not be disturbed.
        texts, errors = [], []
        http = httpx.Client(timeout=60 * SLOW)  # the streams share one client, because creating a client takes seconds on a busy machine

        def stream(i):
            try:
                r = http.post(c.url + "/v1/completions", json={"prompt": f"{i}", "max_tokens": 1000, "ignore_eos": True, "temperature": 0})
                texts.append((r.status_code, r.json()["usage"]["completion_tokens"]))
            except Exception as e:  # the test checks `errors` below
                errors.append(e)
        threads = [threading.Thread(target=stream, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        wait_for("they run", lambda: c.status()["requests"]["running"] >= 8)
        gone = [c.pid("worker-1"), c.pid("worker-2"), c.pid("worker-3")]
        done = cox(c, "scale", 1)
        assert done.returncode == 0 and done.stdout.startswith("1 workers, 4 before")
        for t in threads:
            t.join()
        http.close()
        assert (errors, texts) == ([], [(200, 1000)] * 8)
        wait_for("three have ended", lambda: not any(map(alive, gone)) and set(c.pids()) == {"head", "gateway-0", "worker-0"}, 60)
        assert "worker_restarted name=worker-1" not in c.log()
        own = cox(c, "logs", "cox").stdout  # this is the log of `cox up` itself
        assert "process_ended name=worker-3" in own and "worker_restarted name=worker-3" in own and "worker-1 has ended, because the number of workers was reduced" in own
        done = cox(c, "scale", 2)
        assert done.returncode == 0
        wait_for("one is back", lambda: states(c) == ["ready"] * 2 and "worker-1" in c.pids())
        code, _ = c.stop()
        assert code == 0 and not list(c.tmp.rglob("*"))


def test_a_worker_that_cannot_start_ends_nobody(tmp_path):
    with Cluster(workers=1, tp=1, spare=1) as c:
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", c.worker_http_port + 1))
            taken.listen()
            done = cox(c, "scale", 2)
        assert done.returncode == 2 and re.fullmatch(
            rf"cox scale: port {c.worker_http_port + 1} of worker-1 is in use .*--worker-http-port\n", done.stderr)
        assert get(c.url + "/health")[0] == 200 and set(c.pids()) == {"head", "gateway-0", "worker-0"}
    with Cluster("--keys-dir", tmp_path / "keys", workers=1, tp=1, spare=1) as c:
        key = tmp_path / "keys/worker.key"
        held = key.read_bytes()
        key.unlink()
        assert cox(c, "scale", 2).returncode == 0
        wait_for("it is told", lambda: "warning: worker-1 cannot start, so the cluster runs without it" in c.log() and "worker.key" in c.log())
        assert get(c.url + "/health")[0] == 200 and set(c.pids()) == {"head", "gateway-0", "worker-0"}
        key.write_bytes(held)
        key.chmod(0o600)
        assert cox(c, "scale", 2).stdout.startswith("2 workers, 1 before"), "it can be tried again"
        wait_for("both serve", lambda: states(c) == ["ready"] * 2)


def test_logs_are_those_that_were_written():
    with Cluster(workers=2, tp=1) as c:
        wait_for("both serve", lambda: states(c) == ["ready"] * 2)
        lines = cox(c, "logs").stdout.splitlines()
        assert set(lines) <= set(c.log().splitlines()) and any("head_started" in line for line in lines)

        def last_three_are_the_last():  # another line may come between the two commands, so the test retries
            last = cox(c, "logs", "-n", 3).stdout.splitlines()
            return last == cox(c, "logs").stdout.splitlines()[-3:] and len(last) == 3

        wait_for("the last three are the last of all", last_three_are_the_last)
        of_two = cox(c, "logs", "worker-1", "head").stdout.splitlines()
        assert {line.split()[0] for line in of_two} == {"worker-1", "head"}
        assert cox(c, "logs", "nobody").stdout == ""
        p = subprocess.Popen([BIN / "cox", "logs", "-f", "-n", "1", "head"], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "TMPDIR": str(c.tmp)})
        assert p.stdout.readline().startswith("head       | ")  # the command has read the log, so it prints every later line
        os.kill(c.pid("worker-1"), signal.SIGKILL)
        for line in p.stdout:
            if "worker_lost" in line:
                break
        assert line.startswith("head       | ")
        os.kill(c.process.pid, signal.SIGINT)  # when the cluster ends, the follower ends too
        rest = p.communicate(timeout=20 * SLOW)[0]
        assert p.returncode == 1 and "\t" not in rest


def test_which_cluster():
    with Cluster(workers=1, tp=1) as one:
        with Cluster(workers=1, tp=1, env={"TMPDIR": str(one.tmp)}) as two:
            both = {f"127.0.0.1:{c.admin_port}" for c in (one, two)}
            done = cox(one, "scale", 1)
            assert done.returncode == 2 and all(b in done.stderr for b in both) and "2 clusters match. Give the name or --address of one of them" in done.stderr
            done = cox(one, "scale", 2, "--address", f"127.0.0.1:{two.admin_port}")
            assert done.returncode == 0, done.stderr
            wait_for("the second has two", lambda: len(two.status()["workers"]) == 2)
            assert len(one.status()["workers"]) == 1


def test_with_keys_of_its_own_and_a_socket_for_nobody_else(tmp_path):
    with Cluster("--keys-dir", tmp_path / "keys", workers=1, tp=1, spare=1) as c:
        [folder] = c.tmp.iterdir()
        assert folder.name.startswith(f"cox-up-{c.process.pid}-") and stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert cox(c, "scale", 1).returncode == 0
        folder.chmod(0o755)  # with this mode other users could have created the folder
        assert "no cluster" in cox(c, "scale", 1).stderr
        folder.chmod(0o700)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(folder / "control"))) as http:
            for body in ("", "{", '{"workers":-1}', '{"workers":1025}', '{"workers":"2"}', '{"workers":1,"workers":1}'):
                assert http.post("http://cox/scale", content=body).status_code == 400
            assert http.get("http://cox/logs?since=x").status_code == 400
            assert http.get("http://cox/nowhere").status_code == 404
            assert json.loads(http.get("http://cox/").text)["workers"] == 1
        assert c.stop()[0] == 0 and not list(c.tmp.iterdir())


@pytest.mark.parametrize("host, says", [("demo-coxswain-head-0", "demo-coxswain-worker"), ("laptop", "RELEASE-coxswain-worker")])
def test_on_kubernetes_it_is_kubectl(tmp_path, host, says):
    done = subprocess.run(["unshare", "--uts", "sh", "-c", f"hostname {host} && exec {BIN}/cox scale 6"], capture_output=True, text=True,
                          env={**os.environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, timeout=20 * SLOW)
    if "unshare" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr}")
    assert (done.returncode, done.stdout) == (0, f"kubectl scale statefulset/{says} --replicas=6\n")
    assert "where kubectl works" in done.stderr
