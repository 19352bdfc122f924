"""Tests `cox` on a terminal in daily use: short messages at the start and end of `cox up`, the keys of `cox top`, and error
messages."""
import os
import re
import signal
import subprocess
import threading
from contextlib import contextmanager

import httpx
import pytest
from cluster import BIN, SLOW, Cluster, alive, end_all, free_ports, get, run_cox, wait_for
from terminal import ENV, Terminal

WIDTHS = (60, 80, 120)
ABOVE_INFO = re.compile(r"^.*(?:Z (?:warn|error) |\| (?:warning|error): ).*$", re.M)


def alarms(log):
    return ABOVE_INFO.findall(log)


def up_command(*args, workers=2):
    ports = free_ports(3 + workers)
    return ["up", "null", "--workers", workers, "--port", ports[0], "--head-port", ports[1], "--admin-port", ports[2],
            "--worker-http-port", ports[3], *args], f"http://127.0.0.1:{ports[0]}"


@contextmanager
def streams(url, n):
    """Starts n streams that run until the server ends them. Returns the last line of each stream, or None when its body broke off."""
    began, last, http = [], [None] * n, httpx.Client(timeout=60 * SLOW)

    def stream(k):
        try:
            with http.stream("POST", url + "/v1/completions", json={"prompt": "x", "max_tokens": 20000, "ignore_eos": True, "stream": True}) as r:
                lines = []
                for i, line in enumerate(r.iter_lines()):
                    lines = [*lines[-5:], line]
                    if i == 1:
                        began.append(r.status_code)
                last[k] = "\n".join(lines)
        except httpx.HTTPError:
            pass  # the stream may end in any way
    threads = [threading.Thread(target=stream, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    try:
        wait_for("the streams have begun", lambda: began == [200] * n)
        yield last
    finally:
        for t in threads:
            t.join()
        http.close()


@pytest.mark.parametrize("columns", WIDTHS)
def test_start_and_end_of_cox_up(tmp_path, columns):
    command, url = up_command("--null-step-us", 2000)
    t = Terminal(*command, columns=columns, env={**ENV, "TMPDIR": str(tmp_path)})
    try:
        t.until("the summary", lambda s: re.search(r"^curl .*\n", s, re.M))
        frame = re.search(r"┌.*?┘\n", t.text, re.S)[0].splitlines()
        assert len({len(line) for line in frame}) == 1 and len(frame[0]) <= columns, t.text
        for says in (f"{url}/v1 ", f"{url}/ ", "Model      null", "2: 2 replicas", "cox status", "Ctrl-C, or cox stop"):
            assert says in "\n".join(frame), t.text
        curl = re.search(r"^(curl .*)\n", t.text, re.M)[1]
        assert '"choices"' in subprocess.run(["sh", "-c", curl], capture_output=True, text=True, timeout=20 * SLOW).stdout
        assert "head_started" not in t.text and "worker-0 " not in t.text, "the processes' logs are for --verbose"
        progress = [p for p in t.raw.split("\r") if p.startswith("Starting: ")]
        assert all(len(re.sub("\033.*", "", p)) < columns for p in progress)
        with streams(url, 4 if columns == 80 else 0):
            before = len(t.text)
            t.process.send_signal(signal.SIGINT)
            assert t.wait() == 0
        assert t.text[before:].startswith("Stopping. Ctrl-C again") and not alarms(t.text[before:]), t.text
        assert not list(tmp_path.iterdir())
    finally:
        t.end()


def test_a_second_interrupt_ends_at_once_and_cuts_no_stream(tmp_path):
    command, url = up_command("--null-step-us", 2000, "--shutdown-timeout", 600)
    t = Terminal(*command, env={**ENV, "TMPDIR": str(tmp_path)})
    try:
        t.until("the summary", lambda s: "curl " in s)
        with streams(url, 2) as last:
            before = len(t.text)
            t.process.send_signal(signal.SIGINT)
            t.until("it lets the streams go on", lambda s: "Stopping. Ctrl-C again" in s)
            assert "stopping" in run_cox("ps", env={**os.environ, "TMPDIR": str(tmp_path)}).stdout
            done = run_cox("stop", "--timeout", 0, env={**os.environ, "TMPDIR": str(tmp_path)})
            assert done.returncode == 1 and "has not ended within 0 s. It lets open requests finish" in done.stderr
            t.process.send_signal(signal.SIGINT)
            assert t.wait() == 0
        assert all(text and "The gateway is shutting down" in text for text in last), last
        assert "process_ended" not in t.text[before:] and not alarms(t.text[before:]), t.text[before:]
    finally:
        t.end()


def test_verbose_shows_the_logs_and_errors_are_always_shown(tmp_path):
    command, _ = up_command("--verbose", workers=1)
    t = Terminal(*command, env={**ENV, "TMPDIR": str(tmp_path)})
    try:
        t.until("all of it", lambda s: "head_started" in s and "ready in" in s and "curl: " in s)
        assert "┌" not in t.text
        other = Terminal(*command[:-1], env={**ENV, "TMPDIR": str(tmp_path)})
        assert other.wait() == 2 and re.search(r"^cox up: port \d+ of .* is in use", other.text, re.M), other.text
        other.end()
    finally:
        t.end()


def test_a_worker_that_is_lost_is_said(tmp_path):
    command, _ = up_command("--print-pids", tmp_path / "pids", workers=1)
    t = Terminal(*command, env={**ENV, "TMPDIR": str(tmp_path)})
    try:
        t.until("the summary", lambda s: "curl " in s)
        pid = int(re.search(r"worker-0 (\d+)", (tmp_path / "pids").read_text())[1])
        os.kill(pid, signal.SIGKILL)
        t.until("the end and the new start", lambda s: "process_ended name=worker-0" in s and "worker_restarted name=worker-0" in s)
        t.until("what the head says of it", lambda s: "| warning: worker_lost" in s)
        logs = run_cox("logs", env={**os.environ, "TMPDIR": str(tmp_path)}).stdout
        assert "head_started" in logs and "ready in" in logs, "`cox logs` has all"
    finally:
        t.end()


def test_nothing_above_info_without_a_terminal():
    with Cluster("--null-step-us", 2000) as c:
        before = len(c.log())
        for name in ("worker-0", "gateway-0"):  # each process is ended alone, as a user may end it, and `cox up` restarts it
            os.kill(c.pid(name), signal.SIGTERM)
            wait_for(f"{name} is there again", lambda: f"_restarted name={name} " in c.log()[before:])  # noqa: B023
            wait_for("it serves", lambda: get(c.url + "/health")[0] == 200)
        with streams(c.url, 4):
            assert c.stop(signal.SIGTERM)[0] == 0
        assert "gateway_ended" in c.log()[before:] and not alarms(c.log()[before:]), c.log()[before:]


def test_each_program_alone(tmp_path):
    """Each program gets SIGTERM, one after the other, as a rollout ends pods."""
    ports = free_ports(4)
    programs = {"head": ["head", "--insecure", "--port", ports[0], "--admin-port", ports[1]],
                "worker": ["worker", "--insecure", "--head", f"127.0.0.1:{ports[0]}", "--model", "null", "--http-port", ports[2]],
                "gateway": ["gateway", "--insecure", "--head", f"127.0.0.1:{ports[0]}", "--model", "null", "--port", ports[3]]}
    for order in (("gateway", "worker", "head"), ("head",), ("worker",)):
        started = {}
        try:
            for name, command in programs.items():
                with open(tmp_path / name, "w") as log:
                    started[name] = subprocess.Popen([BIN / "cox", *map(str, command)], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            wait_for("it serves", lambda: "worker_ready" in (tmp_path / "worker").read_text() and
                     "groups_ready=1" in (tmp_path / "gateway").read_text())
            for name in order:
                started[name].terminate()
                assert started[name].wait(20 * SLOW) == 0
                log = (tmp_path / name).read_text()
                log = log[log.index("head_started" if name == "head" else "head_joined" if name == "worker" else "head_connected"):]
                assert not alarms(log), log
        finally:
            end_all(started.values())


# ---- in the background

@pytest.fixture
def here(tmp_path):
    """The test has a separate TMPDIR, in which everything is stopped at the end."""
    env = {**ENV, "TMPDIR": str(tmp_path / "tmp"), "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "tmp").mkdir()
    yield env
    run_cox("stop", "--all", env=env)


def test_in_the_background(here, tmp_path):
    def cox(*args):
        return run_cox(*args, env=here, timeout=60)
    done = cox("ps")
    assert done.returncode == 0 and done.stdout.startswith("This user runs no cluster on this machine")
    assert cox("stop", "--all").stdout.startswith("This user runs no cluster on this machine")
    command, url = up_command("-d", workers=1)
    t = Terminal(*command, columns=60, env=here)
    assert t.wait() == 0
    log = tmp_path / "state/coxswain/up/null.log"
    for says in ("┌─ Coxswain is ready", "cox stop ", "null.log", "curl "):
        assert says in t.text, t.text
    t.end()
    assert "head_started" in log.read_text() and "ready in" in log.read_text()
    assert httpx.get(url + "/health", timeout=20 * SLOW).status_code == 200
    # A second cluster with another name is accepted, and a third cluster with the same name is refused.
    second, _ = up_command("--detach", workers=1)
    done = cox(*second)
    assert done.returncode == 0 and "cox stop null-2" in done.stderr, done.stderr
    third, _ = up_command("-d", "--name", "null", workers=1)
    done = cox(*third)
    assert done.returncode == 2 and "--name null is in use: a cluster with this name runs on this machine" in done.stderr
    table = cox("ps").stdout.splitlines()
    assert re.fullmatch(r"NAME +PID +MODEL +STATE +URL +WORKERS +UPTIME +REQUESTS", table[0])
    assert [line.split()[0] for line in table[1:]] == ["null", "null-2"]
    assert re.search(rf"null +serving +{url} +1 +\d+s +0$", table[1])
    for columns in WIDTHS:
        t = Terminal("ps", columns=columns, env=here)
        assert t.wait() == 0
        lines = t.text.splitlines()
        assert max(map(len, lines)) <= columns and lines[0].split()[0] == "NAME" and "URL" in lines[0], t.text
        assert [line.split()[0] for line in lines[1:]] == ["null", "null-2"] and url in lines[1], t.text
        assert columns == 80 or ("PID" in lines[0]) == (columns == 120), t.text
        t.end()
    listed = httpx.Response(200, text=cox("ps", "--json").stdout).json()
    assert [c["name"] for c in listed] == ["null", "null-2"] and listed[0]["log"] == str(log) and listed[0]["requests"] == 0
    assert [line.split()[0] for line in cox("ps", "null-2").stdout.splitlines()] == ["NAME", "null-2"]
    for args in (["stop"], ["scale", "1"], ["logs"]):
        done = cox(*args)
        assert done.returncode == 2 and "2 clusters match. Give the name or --address of one of them" in done.stderr and "null-2 (127.0.0.1:" in done.stderr
    assert "head_started" in cox("logs", "null-2", "head").stdout
    done = cox("stop", "nobody")
    assert done.returncode == 1 and "this user runs no cluster with the name nobody" in done.stderr and "Running clusters: null (" in done.stderr
    done = cox("stop", "null-2")
    assert done.returncode == 0 and re.fullmatch(r"null-2 has stopped cleanly after \d+\.\d s\.\n", done.stdout)
    assert cox("stop", "--all", "null").returncode == 2
    assert cox("scale", "null", 1).stdout.startswith("1 workers, 1 before")
    done = cox("stop", "--all")
    assert done.returncode == 0 and done.stdout.startswith("null has stopped cleanly")
    wait_for("nobody is left", lambda: not any(alive(c["pid"]) for c in listed))
    assert not list((tmp_path / "tmp").iterdir())


def test_in_the_background_without_a_control_socket(here, tmp_path):
    """The control socket's path would be too long. `cox up` reports this on the terminal, and says how to end the cluster."""
    far = tmp_path / ("f" * 100)
    far.mkdir()
    command, url = up_command("--detach", workers=1)
    t = Terminal(*command, columns=80, env={**here, "TMPDIR": str(far)})
    try:
        assert t.wait() == 0
        pid = int(re.search(r"│ Stop       kill (\d+) ", t.text)[1])
        assert "cox stop" not in t.text[t.text.index("┌"):]
        assert re.search(r"^cox up: warning: `cox ps`, `cox stop`, .* cannot find this cluster", t.text, re.M), t.text
        os.kill(pid, signal.SIGTERM)
        wait_for("it has ended", lambda: not any(far.iterdir()))
    finally:
        t.end()


def test_in_the_background_what_cannot_start(here, tmp_path):
    done = run_cox("up", "/not/here", "-d", env=here)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "the model /not/here is not a file or folder" in done.stderr
    command, _ = up_command("-d", "--ssl-certfile", "/not/here", workers=1)
    done = run_cox(*command, env=here)
    assert done.returncode == 2 and "cox up: gateway-0 cannot start: cannot use the certificate /not/here: No such file" in done.stderr, done.stderr
    assert "the cluster did not start. See its log: " in done.stderr
    assert "certificate /not/here" in (tmp_path / "state/coxswain/up/null.log").read_text()
    command, _ = up_command("-d", "--tp", 2, workers=1)  # a rank is missing, so the cluster never serves
    t = Terminal(*command, columns=60, env=here)
    t.until("its progress", lambda s: "Waiting for other machines: 1 of 2 ranks connected" in s)
    t.process.send_signal(signal.SIGINT)
    assert t.wait() == 1 and "the start was interrupted, so the cluster was stopped" in t.text, t.text
    t.end()
    assert run_cox("ps", env=here).stdout.startswith("This user runs no cluster on this machine")


# ---- one cluster, shared by tests that only look

@pytest.fixture(scope="module")
def cluster():
    with Cluster("--dp", 10, "--peer-timeout", 60, "--name", "many", workers=12, tp=1) as c:
        wait_for("ten serve, two are spare", lambda: sorted(w["state"] for w in c.status()["workers"]) == ["free"] * 2 + ["ready"] * 10)
        yield c


def at(cluster):
    return "--address", f"127.0.0.1:{cluster.admin_port}"


def test_dp_beside_workers(cluster):
    assert len(cluster.status()["groups"]) == 10
    assert "10/12 workers serve, 2 spare\n" in run_cox("status", *at(cluster)).stdout
    done = run_cox("scale", 12, env={**os.environ, "TMPDIR": str(cluster.tmp)})
    assert done.stdout.startswith("12 workers, 12 before: 10 replicas of 1 and 2 spare") and "--dp 10" in done.stdout


def test_status_counts_a_machine_once_and_sorts(cluster):
    text = run_cox("status", *at(cluster)).stdout
    used, cpus = re.search(r"^  ([\d.]+)/(\d+) CPUs", text, re.M).groups()
    assert 0 < int(cpus) <= os.cpu_count() and float(used) < 12
    total = float(re.search(r"/([\d.]+) GiB of memory", text)[1])
    assert total <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30 + 0.1
    ordinals = re.findall(r"^[0-9a-f]{16} +(?:ready|free) +\S+ +\S+ +\S+ +(\d+)", text, re.M)
    assert ordinals == [str(i) for i in range(12)], text
    groups = re.findall(r"^(\d+) +ready +both", text, re.M)
    assert groups == sorted(groups, key=int) and len(groups) == 10


def test_logs_of_nobody(cluster):
    env = {**os.environ, "TMPDIR": str(cluster.tmp)}
    done = run_cox("logs", "worker-99", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('cox logs: the cluster has no process "worker-99". Processes of many: cox, head, gateway-0, worker-0, ')
    assert run_cox("logs", "many", "worker-3", env=env).stdout.startswith("worker-3   | ")


def test_drain_says_what_happens(cluster):
    name = f"worker-{next(w['ordinal'] for w in cluster.status()['workers'] if w['state'] == 'ready')}"  # any worker may be the spare
    done = run_cox("drain", name, *at(cluster))
    assert done.returncode == 0
    assert re.fullmatch(name + r" on \S+ is draining: it takes no more work\. No request runs in its replica \d+; other workers take new "
                        rf"requests\.\n`cox undrain {name}` undoes it\.\n", done.stdout), done.stdout
    assert re.fullmatch(name + r" on \S+ takes work again\.\n", run_cox("undrain", name, *at(cluster)).stdout)
    assert "is draining: it rejects new requests and finishes the 0 that it has" in run_cox("drain", "all", *at(cluster)).stdout
    assert run_cox("undrain", "all", *at(cluster)).stdout == "The cluster takes new requests again.\n"
    wait_for("ten serve again", lambda: sum(w["state"] == "ready" for w in cluster.status()["workers"]) == 10)


def test_peer_timeout_forgives_a_pause(cluster):
    instance = next(w["instance"] for w in cluster.status()["workers"] if w["ordinal"] == 5)

    def seen_ms():
        return next((w["last_seen_ms"] for w in cluster.status()["workers"] if w["instance"] == instance), None)
    os.kill(cluster.pid("worker-5"), signal.SIGSTOP)
    try:
        wait_for("it has been silent for longer than usual", lambda: seen_ms() is None or seen_ms() > 2500)
        assert seen_ms() is not None, "the usual 1.5 s are over, and it is still there"
    finally:
        os.kill(cluster.pid("worker-5"), signal.SIGCONT)
    wait_for("it is heard again", lambda: seen_ms() < 1000)


@pytest.mark.parametrize("columns, rows", [*zip(WIDTHS, (10, 16, 24))])
def test_top_scrolls_sorts_and_quits(cluster, columns, rows):
    t = Terminal("top", "--interval", 0.2, *at(cluster), columns=columns, rows=rows)
    try:
        t.until("a first screen", lambda s: "q quit" in s and s.endswith("\033[J"))
        assert "\033[?1049h" in t.raw and "worker-11" not in t.screen()
        first = [line for line in t.screen().splitlines() if line]
        assert len(first) < rows and max(map(len, first)) <= columns and "sort: name" in first[-1], first
        for keys in ("j", "\033[B", "\033[6~", "G"):
            t.press(keys)
        last = "worker-11" if columns < 86 else cluster.status()["workers"][0]["node"]
        t.until("the end of the list", lambda s: re.search(r"-34/34|-(\d+)/\1\D", t.screen()) and last in t.screen())
        assert t.screen().startswith("cox top   model null"), "the title stays"
        for keys in ("k", "\033[A", "\033[5~"):
            t.press(keys)
        t.press("g")
        t.until("the begin of the list", lambda s: re.search(r"  1-\d+/", t.screen()))
        t.press("s")
        t.until("another order", lambda s: "sort: state" in t.screen())
        t.press("r")
        t.until("and back to front", lambda s: "r reverse: on" in t.screen())
        t.resize(columns + 10, rows + 10)
        t.until("more rows", lambda s: len(t.screen().splitlines()) > len(first) + 5)
        t.press("q")
        assert t.wait() == 0 and t.raw.endswith("\033[?7h\033[?25h\033[?1049l") and t.settings() == t.before
    finally:
        t.end()


@pytest.mark.parametrize("columns,rows", [(20, 5), (5, 1)])
def test_top_wraps_no_line_of_a_tiny_terminal(cluster, columns, rows):
    t = Terminal("top", *at(cluster), columns=columns, rows=rows)
    try:
        t.until("a screen", lambda s: "\033[J" in s)
        assert "\033[?7l" in t.raw and len(t.screen().splitlines()) <= rows
        t.press("q")
        assert t.wait() == 0 and "\033[?7h" in t.raw
    finally:
        t.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_top_gives_the_terminal_back(cluster, number):
    t = Terminal("top", *at(cluster), columns=80, rows=24)
    try:
        t.until("a first screen", lambda s: "q quit" in s)
        assert t.settings() != t.before
        t.process.send_signal(number)
        assert t.wait() == -number and t.raw.endswith("\033[?7h\033[?25h\033[?1049l") and t.settings() == t.before
    finally:
        t.end()
