"""Tests a cluster's processes: their start, their refusals, and that they leave nothing behind."""
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import null_oracle as oracle
import pytest
from cluster import BIN, SLOW, Cluster, alive, end_all, free_ports, get, run_cox, wait_for


def test_health_is_503_until_a_group_serves():
    c = Cluster(workers=1, tp=2)  # this cluster has half of a replica, so it never serves
    c.start(wait=False)
    try:
        code = wait_for("the gateway answers", lambda: get(c.url + "/health")[0])
        assert code == 503
        wait_for("the one worker is known", lambda: get(c.admin + "/api/status")[0] == 200 and c.status()["workers"])
        status = c.status()
        assert get(c.url + "/health")[0] == 503 and not status["healthy"]
        assert get(c.url + "/livez")[0] == 200
        warnings = status["warnings"]
        assert any("1 worker is connected, and a replica needs 2" in w and "--workers 2" in w for w in warnings), warnings
        assert "--workers 1 is too few for a replica of 2 x 1" in c.log()
    finally:
        c.stop()


def test_pids_and_names():
    with Cluster() as c:
        pids = c.pids()
        assert {"head", "worker-0", "worker-1"} <= set(pids) and any(n.startswith("gateway") for n in pids)
        assert len(set(pids.values())) == len(pids) and c.process.pid not in pids.values()
        comm = {n: Path(f"/proc/{p}/comm").read_text().strip() for n, p in pids.items()}
        assert comm["head"] == "cox-head" and comm["worker-0"] == "cox-worker"


def everything_of(c):
    """Returns the pids of `cox up` and all its children, found by session and not from its own output."""
    out = subprocess.run(["ps", "-eo", "pid=,pgid=,sid="], capture_output=True, text=True, check=True).stdout
    return {int(line.split()[0]) for line in out.splitlines() if int(line.split()[2]) == c.process.pid}


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_ctrl_c_leaves_nothing(sig, busy):
    c = Cluster("--null-step-us", "20000").start()
    try:
        processes = everything_of(c) | set(c.pids().values())
        assert len(processes) >= 5
        assert any(c.tmp.iterdir()), "the throw-away keys should be under TMPDIR"
        if busy:
            s = socket.create_connection(("127.0.0.1", c.ports[0]))
            body = b'{"model":"null","prompt":"x","max_tokens":3000,"stream":true}'
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            assert b"200" in s.recv(100)
        os.killpg(c.process.pid, sig) if sig == signal.SIGINT else c.process.send_signal(sig)
        begin = time.monotonic()
        c.process.wait(10 * SLOW)
        assert time.monotonic() - begin < 2.2 * SLOW
        assert c.process.returncode in (0, 128 + sig, -sig), c.log()
        left = [p for p in processes if alive(p)]
        assert not left, f"still running: {left}"
        assert not list(c.tmp.rglob("*")), f"left behind: {list(c.tmp.rglob('*'))}"
    finally:
        c.kill()


def test_children_die_with_a_killed_cox_up():
    c = Cluster().start()
    processes = set(c.pids().values())
    c.process.kill()
    c.process.wait()
    try:
        wait_for("all children are gone", lambda: not any(alive(p) for p in processes), 10)
    finally:
        c.kill()


def test_the_keys_of_a_killed_cox_up_go_at_the_next_start():
    with Cluster() as lives:
        killed = Cluster(env={"TMPDIR": str(lives.tmp)}).start()
        try:
            other = {d.name for d in lives.tmp.iterdir()}
            killed.process.kill()
            killed.process.wait()
        finally:
            killed.kill()
        assert len(other) == 2
        mine = [lives.tmp / n for n in other if f"-{lives.process.pid}-" in n][0]
        for d in lives.tmp.iterdir():
            os.utime(d, (1, 1))
        (lives.tmp / "cox-keys-1-open").mkdir()
        (lives.tmp / "cox-keys-1-open").chmod(0o755)  # these throw-away keys have no owner
        (lives.tmp / "cox-keys-1-link").symlink_to(mine)
        for d in ("cox-keys-1-open", "cox-keys-1-link"):
            os.utime(lives.tmp / d, (1, 1), follow_symlinks=False)
        with Cluster(env={"TMPDIR": str(lives.tmp)}) as third:
            left = {d.name for d in lives.tmp.iterdir()}
            assert f"-{killed.process.pid}-" not in " ".join(left) and mine.name in left and (mine / "head.key").exists()
            assert f"-{third.process.pid}-" in " ".join(left) and {"cox-keys-1-open", "cox-keys-1-link"} <= left
        (lives.tmp / "cox-keys-1-link").unlink()
        (lives.tmp / "cox-keys-1-open").rmdir()


@pytest.mark.parametrize("which", ["gateway", "head", "admin"])
def test_port_in_use(which):
    c = Cluster()
    port = {"gateway": c.ports[0], "head": c.head_port, "admin": c.admin_port}[which]
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", port))
        s.listen()
        c.start(wait=False)
        try:
            c.process.wait(10 * SLOW)
            assert c.process.returncode not in (0, None) and str(port) in c.log() and "in use" in c.log(), c.log()
        finally:
            c.kill()


def start(*args, log, **kwargs):
    return subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                            **kwargs)


def end(process):
    end_all([process])


def keys_dirs(c):
    return [p for p in c.tmp.rglob("*") if p.is_dir() and any(f.is_file() for f in p.iterdir())]


@pytest.mark.parametrize("program,args", [("head", ["--host", "0.0.0.0", "--port", 0, "--admin-port", 0]),
                                          ("worker", ["--head", "192.0.2.1:7000", "--device", "null", "--http-port", 0]),
                                          ("gateway", ["--head", "192.0.2.1:7000", "--model", "null", "--port", 0])],
                         ids=["head", "worker", "gateway"])
def test_no_unencrypted_link_beyond_this_machine(program, args):
    p = subprocess.run([str(BIN / f"cox-{program}"), "--insecure", *map(str, args)], capture_output=True, text=True,
                       timeout=10 * SLOW)
    assert p.returncode in (1, 2) and "without encryption, because other machines can reach it" in p.stdout + p.stderr


def test_a_worker_for_another_tp_ends_and_says_why():
    with Cluster() as c:
        p = subprocess.run([str(BIN / "cox-worker"), "--model", "null", "--head", f"127.0.0.1:{c.head_port}", "--keys-dir",
                            str(keys_dirs(c)[0]), "--tp", "3", "--http-port", "0"], capture_output=True, text=True,
                           timeout=20 * SLOW)
        assert p.returncode == 2 and "refused this worker permanently" in p.stderr and "--tp 3" in p.stderr, p.stderr


def test_garbage_on_the_head_port():
    """Bytes that are not ZeroMQ, and half a handshake, do not disturb a running cluster."""
    with Cluster() as c:
        for junk in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\xff" + b"\0" * 8 + b"\x7f\x03\x01CURVE"):
            with socket.create_connection(("127.0.0.1", c.head_port)) as s:
                s.sendall(junk)
        answer = httpx.post(c.url + "/v1/completions", json={"model": "null", "prompt": "a", "max_tokens": 5,
                                                             "temperature": 0}, timeout=20).json()
        assert answer["choices"][0]["text"] == oracle.text("a", 5, temperature=0)


@pytest.mark.parametrize("way", ["argument", "file", "environment"])
def test_join_token_adds_a_worker(tmp_path, way):
    """A worker started by hand with a join token becomes a spare. No command line shows the token."""
    with Cluster() as c, open(tmp_path / "log", "wb") as log:
        keys = keys_dirs(c)
        assert keys
        made = run_cox("join-token", "--head", f"127.0.0.1:{c.head_port}", "--keys-dir", keys[0])
        assert made.returncode == 0, made.stderr
        token = made.stdout.strip().splitlines()[-1]
        (tmp_path / "token").write_text(token + "\n")
        args, env = {"argument": (["--join", token], {}), "file": (["--join", f"@{tmp_path}/token"], {}),
                     "environment": ([], {"COX_JOIN": token})}[way]
        w = start(BIN / "cox-worker", "--model", "null", "--device", "null", *args, "--tp", 2,
                  "--http-port", free_ports(1)[0], log=log, env={**os.environ, **env})
        try:
            wait_for("a third worker", lambda: len(c.status()["workers"]) == 3)
            assert sorted(x["state"] for x in c.status()["workers"]) == ["free", "ready", "ready"]
            assert token not in Path(f"/proc/{w.pid}/cmdline").read_text()
        finally:
            end(w)


def test_idle_cluster_is_quiet():
    """An idle cluster uses about 1 % of a core, an idle head at most 25 MB."""
    if SLOW > 1:
        pytest.skip("sanitizers change both")
    with Cluster() as c:
        time.sleep(1)

        pids = [*c.pids().values(), c.process.pid]

        def cpu_ns():
            return sum(int(f.read_text().split()[0]) for p in pids for f in Path(f"/proc/{p}/task").glob("*/schedstat"))

        def share():
            before = cpu_ns()
            time.sleep(5)
            return (cpu_ns() - before) / 5e9

        shares = []  # 1.0 % was measured; the higher bound is for a slow machine, and further windows are for a busy one
        while min(shares, default=1) >= 0.02 and len(shares) < 3:
            shares.append(share())
        assert min(shares) < 0.02, [f"{s:.1%} of a core" for s in shares]
        rss = [line for line in Path(f"/proc/{c.pid('head')}/smaps_rollup").read_text().splitlines()
               if line.startswith("Rss:")]
        assert int(rss[0].split()[1]) <= 25 * 1024, rss


@pytest.mark.parametrize("args,words", [
    (["up", "null", "--no-such-flag"], ["no-such-flag"]),
    (["up"], ["model"]),
    (["statsu"], ["status"]),
    (["up", "null", "--tp", "nonsense"], ["tp"]),
    (["status", "--address", "127.0.0.1:1"], ["127.0.0.1:1"]),
    (["up", "/no/such/model"], ["/no/such/model"]),
    (["up", "google/gemma-3-270m", "--offline"], ["cox pull hf:google/gemma-3-270m@main"]),
])
def test_bad_command_lines(args, words):
    done = run_cox(*args)
    assert done.returncode != 0
    for word in words:
        assert word in (done.stderr + done.stdout).lower(), done.stderr


@pytest.mark.parametrize("how", ["logfmt", "json"])
def test_what_every_worker_says_is_read_once(how):
    c = Cluster("--block-size", 24, "--log-format", how, workers=3, tp=3)
    c.start(wait=False)
    try:
        c.process.wait(10 * SLOW)
        assert c.process.returncode == 2 and c.log().count("must be a multiple of 16") == 1, c.log()
        assert "cannot start: --block-size 24" in c.log().splitlines()[-1]
    finally:
        c.kill()


@pytest.mark.parametrize("name,content,words", [("x.gguf", b"no model", "not a GGUF file"),
                                                ("folder", None, "config.json")])
def test_what_is_no_model_starts_nothing(tmp_path, name, content, words):
    model = tmp_path / name
    model.mkdir() if content is None else model.write_bytes(content)
    r = run_cox("up", model, "--tp", 3, "--port", free_ports(1)[0])
    assert r.returncode == 2 and words in r.stderr and len(r.stderr.splitlines()) == 1


def test_version_and_help():
    assert run_cox("version").stdout.strip()
    shown = run_cox("help")
    assert shown.returncode == 0
    for command in ("up", "status", "drain", "join-token"):
        assert command in shown.stdout
    for program in ("cox-head", "cox-worker", "cox-gateway"):
        done = subprocess.run([str(BIN / program), "--help"], capture_output=True, text=True, timeout=20)
        assert done.returncode == 0 and "--keys-dir" in done.stdout


def signals_as_from_a_terminal():
    """Under nohup or in a shell's background some signals are ignored unless `cox up` installs handlers for them."""
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, signal.SIG_DFL)


def test_an_early_end_leaves_no_private_keys(tmp_path):
    """No private key is left behind, whether the signal arrives before, during or after the keys are written."""
    ports = free_ports(4)
    names = ["--port", "--head-port", "--admin-port", "--worker-http-port"]
    command = [str(BIN / "cox"), "up", "null", *(x for pair in zip(names, map(str, ports)) for x in pair)]
    for i in range(24):
        p = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, preexec_fn=signals_as_from_a_terminal)
        time.sleep(0.0025 * i * SLOW)
        p.send_signal([signal.SIGINT, signal.SIGTERM, signal.SIGHUP][i % 3])
        try:
            p.wait(10 * SLOW)
        finally:
            p.kill()
        # TSan puts a file into this folder while it starts.
        assert [f for f in tmp_path.iterdir() if not f.name.startswith("tsan.rodata")] == [], f"after {2.5 * i} ms"


def test_a_fifo_as_model_is_refused(tmp_path):
    os.mkfifo(tmp_path / "model.gguf")
    ports = free_ports(4)
    r = run_cox("up", tmp_path / "model.gguf", "--port", ports[0], "--head-port", ports[1], "--admin-port", ports[2],
                "--worker-http-port", ports[3], "--device", "null")
    assert r.returncode == 2 and "not a regular file" in r.stderr


@pytest.mark.parametrize("shell,command", [
    ("bash", "set -e; source <({cox} completion bash); complete -p cox"),
    ("zsh", "autoload -U compinit; compinit -D -u; source <({cox} completion zsh); print -r -- $_comps[cox]"),
    ("fish", "{cox} completion fish | source; complete -C 'cox sta'"),
])
def test_completion_can_be_sourced(shell, command):
    path = shutil.which(shell)
    if not path:
        pytest.skip(f"{shell} is not installed")
    r = subprocess.run([path, "-c", command.format(cox=BIN / "cox")], capture_output=True, text=True, timeout=20)
    assert r.returncode == 0 and r.stderr == ""
    assert ("status" if shell == "fish" else "_cox") in r.stdout


@pytest.mark.parametrize("way", ["flag", "environment"])
def test_a_configuration_file_is_for_cox_up_alone(tmp_path, way):
    file = tmp_path / "c.yaml"
    file.write_text("served_model_name: [from-file]\nnull_step_us: 0\n")
    args, env = (["--config", file], {}) if way == "flag" else ([], {"COX_CONFIG": str(file)})
    with Cluster(*args, env=env) as c:
        assert httpx.get(c.url + "/v1/models").json()["data"][0]["id"] == "from-file"
