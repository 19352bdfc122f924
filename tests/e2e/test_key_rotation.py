"""Tests that keys of every role are changed while a cluster serves under load, by the steps that `cox keys --rotate` prints. It also
tests that a key is removed."""
import os
import shutil
import signal
import threading
import time

import httpx
import null_oracle as oracle
from cluster import BIN, SLOW, Cluster, get, run_cox, wait_for
from completions import run
from test_bad_frames import Processes

N_TOKENS = 60


class Load(threading.Thread):
    """Sends one request after the other and compares each answer."""

    def __init__(self, url, name):
        super().__init__(daemon=True)
        self.url, self.name, self.ended, self.failed, self.n = url, name, threading.Event(), [], 0
        self.start()

    def run(self):
        while not self.ended.is_set():
            prompt = f"{self.name} asks for the {self.n}th time"
            try:
                r = httpx.post(self.url + "/v1/completions", timeout=60 * SLOW, json={
                    "prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0})
                if r.status_code != 200 or r.json()["choices"][0]["text"] != oracle.text(prompt, N_TOKENS, temperature=0):
                    self.failed.append((r.status_code, r.text))
            except httpx.HTTPError as e:
                self.failed.append(repr(e))
            self.n += 1


def keys(c, *args, code=0):
    done = run_cox("keys", "--keys-dir", c.keys, *args)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def reload(c, code=0):
    done = run_cox("keys", "--reload", "--address", f"127.0.0.1:{c.admin_port}")
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def first_line(c, name):
    return (c.keys / name).read_text().splitlines()[0]


def copy(c, folder, *names):
    for name in names:  # the replacement is atomic, as `cox keys` writes
        shutil.copy2(c.keys / name, folder / (name + ".new"))
        (folder / (name + ".new")).rename(folder / name)


def test_every_key_is_rotated_under_load(tmp_path):
    """Each machine has its own folder, as in production. The test follows the printed steps."""
    with Processes(tmp_path) as c:
        of = {n: tmp_path / f"keys-of-{n}" for n in ("head", "gateway", "worker")}
        for n, folder in of.items():
            folder.mkdir(mode=0o700)
            copy(c, folder, *(["head.key", "head.pub", "authorized"] if n == "head" else [f"{n}.key", f"{n}.pub", "head.pub"]))
        operators = c.keys  # this is the folder of the cluster's operator

        def start_head():
            c.keys = of["head"]
            c.start_head()
            c.keys = operators

        start_head()
        for i in range(2):
            c.start_worker(f"worker-{i}", c.head_port, keys=of["worker"])
        c.keys = of["gateway"]
        c.start_gateway(c.head_port)
        c.keys = operators
        wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)
        pids = {n: p.pid for n, p in c.started.items()}
        load = [Load(c.url, f"client {i}") for i in range(4)]
        old = {n: first_line(c, f"{n}.pub") for n in ("head", "gateway", "worker", "operator")}

        for role in ("gateway", "worker", "operator"):
            said = keys(c, "--rotate", role)
            assert "authorized" in said and f"--retire {role}" in said, said
            copy(c, of["head"], "authorized")
            if role in of:
                copy(c, of[role], f"{role}.key", f"{role}.pub")
            n_read = c.log("head").count("authorized_read")
            time.sleep(0.2)
            keys(c, "--retire", role)
            copy(c, of["head"], "authorized")
            wait_for("the head has read it", lambda: c.log("head").count("authorized_read") > n_read)
            if role not in of:
                continue
            begin = time.monotonic()
            wait_for("sessions of the old key end", lambda role=role: f"peer_revoked role={role}" in c.log("head"))
            assert time.monotonic() - begin < 2 * SLOW
            names = [n for n in pids if n.startswith(role)]
            new = first_line(c, f"{role}.pub")
            for n in names:
                wait_for(f"{n} has the new key", lambda n=n, new=new: "keys_read" in c.log(n) and new in c.log(n))
            n_before = [t.n for t in load]
            wait_for("requests end again", lambda: all(t.n > n for t, n in zip(load, n_before)), 30)

        said = keys(c, "--rotate", "head")
        assert "head.pub" in said and "--retire head" in said, said
        for n in ("gateway", "worker"):
            copy(c, of[n], "head.pub")
        token = run_cox("join-token", "--keys-dir", c.keys, "--head", f"127.0.0.1:{c.head_port}").stdout.strip()
        c.start("joined", BIN / "cox-worker", "--model", "null", "--device", "null", "--join", token, "--tp", 2, "--http-port", 0)
        wait_for("a worker with a token of now is in", lambda: len(c.status()["workers"]) == 3)
        copy(c, of["head"], "head.key", "head.pub")
        assert "uses its new key now" in reload(c)
        wait_for("it has", lambda: "head_key_taken" in c.log("head"))
        n_before = [t.n for t in load]
        wait_for("requests end again", lambda: all(t.n > n + 1 for t, n in zip(load, n_before)), 40)
        wait_for("and comes back", lambda: c.log("joined").count("head_joined") == 2 and len(c.status()["workers"]) == 3)
        assert c.started["joined"].poll() is None
        keys(c, "--retire", "head")
        for n in ("gateway", "worker"):
            copy(c, of[n], "head.pub")

        for t in load:
            t.ended.set()
        for t in load:
            t.join(60 * SLOW)
        assert [t.failed for t in load] == [[], [], [], []]
        assert sum(t.n for t in load) > 20
        assert all(first_line(c, f"{n}.pub") != old[n] for n in old)
        assert all(c.started[n].poll() is None and c.started[n].pid == pid for n, pid in pids.items()), "one started anew"
        # A new worker has only new keys.
        c.start_worker("late", c.head_port, keys=of["worker"])
        wait_for("it is welcome", lambda: "head_joined" in c.log("late"))


def test_on_one_machine(tmp_path):
    """With `cox up --keys-dir` there is one folder for all, and a restarted head takes its new key. Long streams continue through
    every change."""
    prompts = [f"stream {i} through every change" for i in range(4)]
    n = 1200  # a token takes 10 ms
    with Cluster("--keys-dir", tmp_path / "keys", "--null-step-us", 10000) as c:
        c.keys, begun = tmp_path / "keys", threading.Event()
        got = []

        def streams():
            got.extend(run(c, [{"prompt": p, "max_tokens": n, "temperature": 0, "ignore_eos": True} for p in prompts],
                           on_event=lambda _: begun.set()))

        t = threading.Thread(target=streams, daemon=True)
        t.start()
        assert begun.wait(20 * SLOW)
        for role in ("worker", "gateway"):
            keys(c, "--rotate", role)
            keys(c, "--retire", role)
            wait_for(f"the {role}s have the new key", lambda role=role: c.log().count(f"keys_read role={role}") >= (
                2 if role == "worker" else 1))
        keys(c, "--rotate", "head")
        assert t.is_alive(), "the streams ended before the last change"
        os.kill(c.pid("head"), signal.SIGKILL)
        wait_for("peers have met the head's other key", lambda: c.log().count("n_head_keys=2") >= 3)
        t.join(120 * SLOW)
        assert [g.texts for g in got] == [{0: oracle.text(p, n, temperature=0)} for p in prompts]
        keys(c, "--retire", "head")


def test_the_head_takes_its_key_under_streams(tmp_path):
    """The same head takes new keys twice under the same streams, without a restart. A faulty folder changes nothing."""
    prompts = [f"stream {i} through the head's keys" for i in range(4)]
    n, steps = 900, []  # a token takes 10 ms
    with Cluster("--keys-dir", tmp_path / "keys", "--null-step-us", 10000) as c:
        c.keys, pids = tmp_path / "keys", c.pids()
        assert "already" in reload(c)
        right = (c.keys / "head.key").read_bytes()

        def change(got):
            if len(steps) < 2 and got.n_chunks > 100 + 400 * len(steps):
                steps.append(keys(c, "--rotate", "head") + reload(c))
                keys(c, "--retire", "head")

        assert len(right) > 40
        done = run(c, [{"prompt": p, "max_tokens": n, "temperature": 0, "ignore_eos": True} for p in prompts], on_event=change)
        assert [g.texts for g in done] == [{0: oracle.text(p, n, temperature=0)} for p in prompts]
        assert len(steps) == 2 and all("uses its new key now" in s and "--reload" in s for s in steps), steps
        wait_for("both are told of", lambda: c.log().count("head_key_taken") == 2)  # `cox up` prints the head's line
        assert c.pids() == pids
        assert "already" in reload(c)
        (c.keys / "head.key").write_bytes(right)  # this is the previous secret key, which does not match head.pub
        assert "does not match the .pub file" in reload(c, code=1)
        assert c.log().count("head_key_taken") == 2
        assert httpx.post(c.url + "/v1/completions", json={"prompt": "a", "max_tokens": 5}, timeout=20 * SLOW).status_code == 200


def test_a_stolen_key_is_out(tmp_path):
    with Processes(tmp_path) as c:
        stolen = tmp_path / "stolen"
        c.start_head(tp=1)
        c.start_worker("worker-0", c.head_port, tp=1)
        c.start_gateway(c.head_port)
        wait_for("/health is 200", lambda: get(c.url + "/health")[0] == 200)
        shutil.copytree(c.keys, stolen)
        c.start_worker("thief", c.head_port, keys=stolen, tp=1)
        wait_for("it is in", lambda: len(c.status()["workers"]) == 2)

        # A file with an error changes nothing and is reported once.
        good = (c.keys / "authorized").read_text()
        (c.keys / "authorized").write_text(good + "worker nonsense\n")
        wait_for("the error is told of", lambda: "authorized_not_read" in c.log("head"))
        (c.keys / "authorized").unlink()
        wait_for("and that it is gone", lambda: c.log("head").count("authorized_not_read") == 2)
        time.sleep(1.2)
        assert c.log("head").count("authorized_not_read") == 2 and len(c.status()["workers"]) == 2
        assert "peer_revoked" not in c.log("head")
        (c.keys / "authorized").write_text(good)
        wait_for("it is read again", lambda: "authorized_read" in c.log("head"))

        keys(c, "--rotate", "worker")
        keys(c, "--retire", "worker")
        wait_for("the thief is out", lambda: len(c.status()["workers"]) == 1 and "refused the key of this process" in c.log("thief"))
        assert c.started["thief"].poll() is None and c.started["worker-0"].poll() is None
        r = httpx.post(c.url + "/v1/completions", json={"prompt": "a", "max_tokens": 5, "temperature": 0}, timeout=20 * SLOW)
        assert r.json()["choices"][0]["text"] == oracle.text("a", 5, temperature=0)
        time.sleep(1)
        assert len(c.status()["workers"]) == 1, "the thief is back"


def test_rotate_says_what_is_wrong(tmp_path):
    with Processes(tmp_path) as c:
        assert "is not a role: give head, worker, gateway or operator" in keys(c, "--rotate", "king", code=2)
        assert "--rotate and --retire cannot be used together" in keys(c, "--rotate", "head", "--retire", "head", code=2)
        assert "one after the other" in keys(c, "--reload", "--rotate", "head", code=2)
        assert "no key can be retired" in keys(c, "--retire", "worker", code=1)
        keys(c, "--rotate", "worker")
        assert "--retire worker" in keys(c, "--rotate", "worker", code=1)
