"""Tests `cox run`: run files are started, listed, shown, ended and started again (docs/reference/runs.md)."""
import json
import os
import pty
import re
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from cluster import BIN, ROOT, SLOW, alive, free_ports, get, wait_for
from hub_server import Hub, tiny_model
from runs import Runs, wait_end


@pytest.fixture
def runs(tmp_path):
    with Runs(tmp_path) as r:
        yield r


def null_run(api, head, admin, worker, name="nul", more=""):
    return (f'name: {name}\ndescription: of a test\nmodel: "null"\n'
            f"options: {{head-port: {head}, admin_port: {admin}, worker-http-port: {worker}}}\n"
            f"resources: {{workers: 1}}\nports: [{{name: api, type: http, port: {api}}}]\n{more}")


def pid_in(path):
    wait_for(f"{path} is there", lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def repository(folder, files):
    def git(*args):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *args], cwd=folder, check=True, capture_output=True)
    folder.mkdir()
    git("init", "-q", "-b", "main")
    for name, text in files.items():
        (folder / name).write_text(text)
    git("add", ".")
    git("commit", "-q", "-m", "one")
    git("tag", "v1")
    (folder / "later").write_text("")
    git("add", ".")
    git("commit", "-q", "-m", "two")
    return folder


def test_the_file_of_another_platform_validates(runs):
    done = runs.cox("--check", "-f", ROOT / "tests/e2e/runs/vessl.yaml")
    assert done.returncode == 0 and "is valid" in done.stdout
    assert re.findall(r":(\d+:\d+): note: `(\w+)`", done.stderr) == [("7:12", "cluster"), ("8:11", "preset")]
    assert not runs.dir.exists(), "nothing is made by a check"


def test_the_file_of_the_page_validates(runs):
    first, more = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/reference/runs.md").read_text(), re.S)
    done = runs.cox("--check", "-f", runs.file(first + more))
    assert (done.returncode, done.stderr) == (0, "")


def test_all_problems_with_their_lines(runs):
    path = runs.file("name: 7\nmodel: demo\noptions: {tp: x}\nport: 1\n")
    for command in (("-f",), ("--check", "-f"), ("create", "-f")):
        done = runs.cox(*command, path)
        assert (done.returncode, done.stdout) == (2, "")
        assert [line.split(": ")[0] for line in done.stderr.splitlines()] == [f"{path}:1:7", f"{path}:3:11", f"{path}:4:1"]
    assert not runs.dir.exists()


def test_a_model_in_the_background(runs):
    ports = free_ports(4)
    run = runs.create(null_run(*ports, more="env: {MY_TOKEN: abc123, DB_PASS: abc123x}\n"))
    assert re.fullmatch(r"\d{12}", run)
    wait_for("it serves", lambda: get(f"http://127.0.0.1:{ports[0]}/health")[0] == 200)
    rows = runs.cox("list").stdout.splitlines()
    assert rows[0].split() == ["ID", "Name", "Type", "Status", "Created", "Description"]
    assert re.fullmatch(rf"{run}  nul +model +running +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00  of a test", rows[1])
    shown = runs.cox("show", "nul").stdout
    assert f"http://127.0.0.1:{ports[0]}" in shown and "DB_PASS=***" in shown and "MY_TOKEN=***" in shown
    for command in (("list", "--json"), ("show", run, "--json"), ("show", run[:11])):
        assert "abc123" not in runs.cox(*command).stdout
    folder = runs.dir / run
    assert stat.S_IMODE(runs.dir.stat().st_mode) == stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {f.name: stat.S_IMODE(f.stat().st_mode) for f in folder.iterdir() if f.is_file()} == dict.fromkeys(
        ("run.yaml", "state.json", ".state.json.new", "env.json", "up.yaml", "log"), 0o600)
    follower = runs.popen("logs", "-f", run)
    assert "cox run terminate" in runs.cox("delete", run).stderr
    keeper = runs.keeper(run)
    done = runs.cox("terminate", "nul")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"Terminated '#{run}'.\n", "")
    assert not alive(keeper) and get(f"http://127.0.0.1:{ports[0]}/health")[0] == 0
    assert runs.state(run)["status"] == "terminated"
    code, out, _ = wait_end(follower)
    assert code == 0 and out == runs.log(run) and out.endswith("run        | terminated\n") and "head_started" in out
    assert runs.cox("logs", run, "-n", "1").stdout == "run        | terminated\n"
    assert not list(runs.tmp.iterdir()), "keys and sockets are gone"
    done = runs.cox("terminate", run)
    assert done.returncode == 1 and f"`cox run delete {run}`" in done.stderr
    # The run starts again from its own copy, although the run file has been removed.
    (runs.folder / "run.yaml").unlink()
    done = runs.cox("create", "--from", run)
    again = done.stdout.split()[0]
    assert done.returncode == 0 and again != run and f"http://127.0.0.1:{ports[0]}" in done.stdout
    wait_for("it serves again", lambda: get(f"http://127.0.0.1:{ports[0]}/health")[0] == 200)
    assert runs.cox("terminate", "nul").stdout == f"Terminated '#{again}'.\n", "of two of a name the one that lives"
    done = runs.cox("show", "nul")
    assert done.returncode == 2 and run in done.stderr and again in done.stderr
    for r in (run, again):
        assert runs.cox("delete", r).stdout == f"Deleted '#{r}'.\n"
    assert len(runs.cox("list").stdout.splitlines()) == 1 and not list(runs.dir.iterdir())


def test_a_model_that_cannot_start_says_why(runs):
    ports = free_ports(4)
    run = runs.create(null_run(*ports).replace('"null"', "/not/here"))
    state = runs.wait(run, "failed")
    assert "`cox up` ended with exit code 2" in state["reason"] and "the model /not/here is not a file or folder" in state["reason"]
    assert "/not/here" in runs.cox("show", run).stdout


def test_commands_one_after_the_other(runs):
    out = runs.folder / "out"
    run = runs.create(f"""name: jobs
run:
  - command: |-
      echo one $GREETING; echo $TMP_TOKEN > own
      cat $COX_RUN_ROOT/own >> {out}
    workdir: /job/here/
  - echo two >> {out}; echo "$PWD" >> {out}
env: {{GREETING: hello, TMP_TOKEN: TMP_TOKEN}}
export: {{/job: 'file:{runs.folder}/kept/deep'}}
""".replace("cat $COX_RUN_ROOT/own", "cat own"), TMP_TOKEN="of the starter")
    assert runs.wait(run, "completed", "failed")["status"] == "completed"
    assert out.read_text() == f"of the starter\ntwo\n{runs.dir}/{run}/root\n"
    assert "one hello\n" in runs.log(run)
    assert (runs.folder / "kept/deep/here/own").read_text() == "of the starter\n"
    # The run is started again in another environment. The values that it took are kept with the run and never shown.
    again = runs.cox("create", "--from", run).stdout.split()[0]
    runs.wait(again, "completed")
    assert out.read_text().count("of the starter") == 2 and "of the starter" not in json.dumps(runs.state(again))
    # After a failed command, no further command runs.
    run = runs.create(f"name: bad\nrun: [echo a, 'echo why it failed; false', 'echo never >> {out}']\n")
    state = runs.wait(run, "failed")
    assert state["reason"] == "the command in line 2 ended with exit code 1: why it failed" and "never" not in out.read_text()
    run = runs.create("name: bad\nrun: 'set -u; echo $NO_SUCH_THING'\n")
    assert "exit code 2" in runs.wait(run, "failed")["reason"]


def test_imports_and_volumes(runs):
    repo = repository(runs.folder / "repo", {"a.txt": "from git\n"})
    data = runs.folder / "data"
    data.mkdir()
    (data / "x").write_text("from a file\n")
    host = runs.folder / "host"
    host.mkdir()
    text = f"""name: places
import:
  /code/: {{git: {{url: {repo}, ref: v1}}}}
  /data: file:{data}
volumes:
  /host/deep: {{host: {host}}}
  /kept: {{size: 1Gi}}
  /claimed: {{claim: mine}}
run:
  - command: cat a.txt; ls; echo changed > ../data/x; echo 1 >> ../kept/n; echo 2 >> ../claimed/n; echo 3 > ../host/deep/n
    workdir: /code
"""
    for n in (1, 2):
        run = runs.create(text)
        assert runs.wait(run, "completed", "failed")["status"] == "completed", runs.log(run)
        assert "from git\na.txt\n" in runs.log(run), "the tag, not what came later"
        assert (data / "x").read_text() == "from a file\n", "an import is a copy"
        assert (runs.dir / run / "root/kept/n").read_text() == "1\n" * n, "what has a size stays"
        assert (host / "n").read_text() == "3\n"
    assert (runs.dir / "volumes/claim/mine/n").read_text() == "2\n2\n"
    assert runs.cox("delete", run).returncode == 0
    assert (host / "n").exists() and (runs.dir / "volumes/claim/mine/n").exists(), "volumes outlive the runs"
    # In each of these cases a source is missing.
    for bad, reason in ((text.replace("ref: v1", "ref: nosuch"), "import of /code (line 3): git fetch ended with exit code 128"),
                        (text.replace(str(host), "/not/here"), "volume /host/deep (line 6): cannot find /not/here: No such file"),
                        (text.replace(str(data), "/not/here"), "import of /data (line 4): cp ended with exit code 1")):
        assert reason in runs.wait(runs.create(bad), "failed")["reason"]


def test_artifacts_are_volumes_of_this_machine(runs):
    """A path that is imported and exported is kept on this machine under its name. A path that is only imported, or only exported,
    is a copy."""
    keeps = ("import: {/root/.cache/huggingface/: 'vessl-artifact://org/project/models'}\n"
             "export: {/root/.cache/huggingface/: 'vessl-artifact://org/project/models'}\n")
    kept = runs.dir / "volumes/artifact/org/project/models"
    for n in (1, 2):
        run = runs.create(f"name: keeps\nrun: 'echo 1 >> $HF_HOME/n; echo HF_HUB_CACHE=$HF_HUB_CACHE.'\n{keeps}", HF_HOME="/not/here", HF_HUB_CACHE="/not/here")
        assert runs.wait(run, "completed", "failed")["status"] == "completed", runs.log(run)
        assert (kept / "n").read_text() == "1\n" * n and "HF_HUB_CACHE=.\n" in runs.log(run)
    assert runs.cox("delete", run).returncode == 0 and (kept / "n").exists()
    run = runs.create("name: reads\nrun: 'cat in/n > out; echo 3 >> in/n; mkdir more; cp out more'\n"
                      "import: {/in: 'vessl-artifact://org/project/models'}\nexport: {/more: 'vessl-artifact://org/project/more'}\n")
    assert runs.wait(run, "completed", "failed")["status"] == "completed", runs.log(run)
    assert (kept / "n").read_text() == "1\n1\n", "an import without export is a copy"
    assert (runs.dir / "volumes/artifact/org/project/more/out").read_text() == "1\n1\n"
    state = runs.wait(runs.create("name: none\nrun: ls\nimport: {/in: 'vessl-artifact://org/project/nobody'}\n"), "failed")
    assert "the artifact org/project/nobody does not exist yet. Start a run that exports it first" in state["reason"]


def test_a_model_is_fetched(runs):
    """A model is downloaded by `model`, and by an import that commands and `model` find below the run's folder. The token comes from
    the user who starts the run."""
    ports = free_ports(4)
    token = "hf_SECRETSECRETSECRET"
    with Hub({"org/tiny": tiny_model()}, token=token) as hub:
        own = {"HF_ENDPOINT": hub.url, "COX_CACHE": str(runs.folder / "cache"), "COX_RETRY_WAIT": "0.01", "HF_TOKEN": token}
        run = runs.create("name: a\nimport: {/w: hf://org/tiny}\nrun: ls /w || ls $COX_RUN_ROOT/w/\nenv: {HF_TOKEN: HF_TOKEN}\n", **own)
        assert runs.wait(run, "completed", "failed")["status"] == "completed", runs.log(run)
        assert "config.json\n" in runs.log(run) and token not in runs.log(run)
        text = null_run(*ports, name="tiny").replace('"null"', "hf://org/tiny").replace("options: {", "options: {load-format: dummy, device: null, ")
        for model in (text.replace("device: null", 'device: "null"'),
                      text.replace("device: null", 'device: "null"').replace("hf://org/tiny", "/w/x") + "import: {/w/x: {model: hf:org/tiny}}\n"):
            run = runs.create(model, **own)
            wait_for("it serves", lambda: get(f"http://127.0.0.1:{ports[0]}/health")[0] == 200 or runs.state(run)["status"] == "failed", 30)
            assert runs.state(run)["status"] == "running", runs.log(run)
            assert runs.cox("terminate", run).returncode == 0
        own["HF_ENDPOINT"], own["COX_CACHE"] = "http://127.0.0.1:1", str(runs.folder / "empty")
        reason = runs.wait(runs.create(text.replace("device: null", 'device: "null"'), **own, COX_RETRIES="0"), "failed")["reason"]
        assert reason.startswith("cox pull ended with exit code 1: ") and "cannot reach" in reason


def test_a_repository_runs_nothing_of_its_own(runs):
    """No transport runs a program, not even through the user's git configuration, and no name is interpreted as an option."""
    marker = runs.folder / "marker"
    for url in (f"ext::touch {marker}", "ext::true", f"--upload-pack=touch {marker}", "fd::3"):
        done = runs.cox("create", "-f", runs.file(f"name: a\nrun: 'true'\nimport: {{/c: {{git: {{url: '{url}'}}}}}}\n"))
        assert done.returncode == 2 and ":3:26: `url`" in done.stderr
    config = runs.folder / "gitconfig"
    config.write_text(f'[url "ext::touch {marker} "]\n\tinsteadOf = https://\n')
    run = runs.create("name: a\nrun: 'true'\nimport: {/c: {git: {url: 'https://a.b/c'}}}\n", GIT_CONFIG_GLOBAL=str(config))
    assert "git fetch" in runs.wait(run, "failed")["reason"] and "transport 'ext' not allowed" in runs.log(run)
    assert not marker.exists()


def test_what_a_run_leaves_behind_ends_with_it(runs):
    pids = runs.folder / "pids"
    pids.mkdir()
    stubborn = "trap '' TERM; echo $$ > PIDS/stubborn; while :; do sleep 1; done".replace("PIDS", str(pids))
    run = runs.create(f"""name: daemons
run: |-
  setsid sh -c 'echo $$ > {pids}/own; exec sleep 1000' &
  (exec sleep 1001 & echo $! > {pids}/orphan)
  echo $$ > {pids}/shell
  while [ ! -s {pids}/own ]; do sleep 0.02; done
  if [ -e {pids}/stay ]; then exec sleep 1002; fi
""")
    runs.wait(run, "completed")
    own, orphan, shell = (pid_in(pids / n) for n in ("own", "orphan", "shell"))
    assert not any(map(alive, (own, orphan, shell)))
    # Terminating a run ends the same processes. A process that ignores the request is killed at the second request.
    (pids / "stay").write_text("")
    for f in ("own", "orphan", "shell"):
        (pids / f).unlink()
    again = runs.cox("create", "--from", run).stdout.split()[0]
    own, orphan, shell = (pid_in(pids / n) for n in ("own", "orphan", "shell"))
    assert all(map(alive, (own, orphan)))
    assert runs.cox("terminate", again).returncode == 0
    assert not any(map(alive, (own, orphan, shell))) and runs.state(again)["status"] == "terminated"
    run = runs.create(f'name: stubborn\nrun: "{stubborn}"\n')
    pid, keeper = pid_in(pids / "stubborn"), runs.keeper(run)
    first = runs.popen("terminate", run)
    wait_for("it was asked", lambda: "ending" in runs.log(run))
    assert alive(pid)
    os.kill(keeper, signal.SIGTERM)
    assert wait_end(first)[0] == 0 and not alive(pid)
    assert "killing the processes that have not ended" in runs.log(run)


def test_a_keeper_that_was_killed(runs):
    pids = runs.folder / "pids"
    pids.mkdir()
    ports = free_ports(4)
    run = runs.create(null_run(*ports))
    wait_for("it serves", lambda: get(f"http://127.0.0.1:{ports[0]}/health")[0] == 200)
    os.kill(runs.keeper(run), signal.SIGKILL)
    state = runs.wait(run, "failed")
    assert state["reason"] == "the keeper was killed"
    wait_for("the cluster has ended", lambda: get(f"http://127.0.0.1:{ports[0]}/health")[0] == 0)
    assert runs.cox("delete", run).returncode == 0
    # Processes that a run's shells have left are found and ended.
    run = runs.create(f"name: shells\nrun: setsid sleep 1000 & echo $! > {pids}/sleep; wait\n")
    pid = pid_in(pids / "sleep")
    os.kill(runs.keeper(run), signal.SIGKILL)
    runs.wait(run, "failed")
    assert runs.cox("terminate", run).returncode == 0
    wait_for("it has ended", lambda: not alive(pid))


def test_another_process_of_the_same_number(runs):
    run = runs.create("name: a\nrun: 'true'\n")
    runs.wait(run, "completed")
    path = runs.dir / run / "state.json"
    state = json.loads(path.read_text())
    began = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    for keeper in ({"pid": os.getpid(), "began": began - 1, "boot": state["keeper"]["boot"]},  # this start time is before that of this process
                   {"pid": os.getpid(), "began": began, "boot": "another start of the machine"}):
        path.write_text(json.dumps({**state, "status": "running", "keeper": keeper}))
        assert runs.state(run)["status"] == "failed" and "the keeper was killed" in runs.cox("show", run).stdout
        assert runs.cox("terminate", run).returncode == 0  # this test's own process was not killed
    assert runs.cox("delete", run).returncode == 0


def test_in_the_foreground(runs):
    ports = free_ports(4)
    p = runs.popen("-f", runs.file(null_run(*ports)))
    wait_for("it serves", lambda: get(f"http://127.0.0.1:{ports[0]}/health")[0] == 200)
    [row] = runs.cox("list").stdout.splitlines()[1:]
    p.send_signal(signal.SIGINT)
    code, out, err = wait_end(p)
    assert code == 0 and "head_started" in out and "has started as run " + row.split()[0] in err and err.endswith("terminated\n")
    assert runs.state(row.split()[0])["status"] == "terminated"
    done = runs.cox("-f", runs.file("name: a\nrun: echo here\n"))
    assert done.returncode == 0 and "here\n" in done.stdout
    done = runs.cox("-f", runs.file("name: a\nrun: 'exit 3'\n"))
    assert done.returncode == 1 and "the command in line 2 ended with exit code 3" in done.stderr


@pytest.mark.parametrize("kind", ["a pager", "a terminal that is held"])
def test_output_that_nobody_reads(runs, kind):
    """Terminate works although no process reads the output. The file has the output that the command read from the run."""
    reader, writer = os.pipe() if kind == "a pager" else pty.openpty()
    p = subprocess.Popen([BIN / "cox", "run", "-f", runs.file("name: flood\nrun: while :; do echo 0123456789abcdef; done\n")],
                         env=runs.env, stdout=writer, stderr=writer if kind != "a pager" else subprocess.DEVNULL)
    try:
        wait_for("it runs", lambda: len(runs.cox("list").stdout.splitlines()) == 2)
        run = runs.cox("list").stdout.splitlines()[1].split()[0]
        runs.wait(run, "running")
        log = runs.dir / run / "log"
        sizes = [-1, log.stat().st_size]
        wait_for("its output is held", lambda: sizes.append(log.stat().st_size) or sizes[-1] == sizes[-2] == sizes[-3] > 4096)
        done = runs.cox("terminate", run)
        assert (done.returncode, done.stdout) == (0, f"Terminated '#{run}'.\n"), done.stderr
        assert p.wait(timeout=10 * SLOW) == 0 and runs.log(run).endswith("run        | terminated\n")
    finally:
        p.kill()
        p.wait()
        os.close(reader)
        os.close(writer)


def test_output_that_is_read_late_is_all_there(runs):
    p = runs.popen("-f", runs.file("name: a\nrun: yes 0123456789abcdef | head -c 1700000; echo the end\n"))
    run = None
    wait_for("it runs", lambda: len(runs.cox("list").stdout.splitlines()) == 2)
    run = runs.cox("list").stdout.splitlines()[1].split()[0]
    assert runs.state(run)["status"] != "completed", "its output waits"
    code, out, _ = wait_end(p)
    assert code == 0 and out == runs.log(run) and out.endswith("the end\nrun        | completed\n")


def test_a_log_is_bounded(runs):
    run = runs.create("name: loud\nrun: yes 0123456789abcdef | head -c 71400000; echo the end\n")
    runs.wait(run, "completed", seconds=60)
    log, before = runs.dir / run / "log", runs.dir / run / "log.1"
    assert log.stat().st_size < before.stat().st_size <= 64 << 20
    lines = runs.cox("logs", run, "-n", "1000000").stdout.splitlines()
    assert len(lines) == 1000000 and lines[-2:] == ["the end", "run        | completed"]


def test_a_run_with_a_shut_folder_is_deleted():
    """The test runs as an unprivileged user, because root could remove everything."""
    with tempfile.TemporaryDirectory() as folder, Runs(folder) as runs:
        if os.geteuid() == 0:
            runs.folder.chmod(0o755)
            runs.dir.mkdir(mode=0o700)
            os.chown(runs.dir, 65534, 65534)
            runs.cox = lambda *args, **env: subprocess.run(
                ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(BIN / "cox"), "run", *map(str, args)],
                env={**runs.env, **env}, timeout=60, text=True, capture_output=True, cwd=folder)
        run = runs.create("name: a\nrun: mkdir -p ro/in shut/in; touch ro/f ro/in/f shut/in/f; chmod 555 ro/in ro; chmod 0 shut/in shut\n")
        assert runs.wait(run, "completed", "failed")["status"] == "completed"
        done = runs.cox("delete", run)
        assert (done.returncode, done.stdout) == (0, f"Deleted '#{run}'.\n"), done.stderr
        assert not list(runs.dir.iterdir())


def on_a_small_disk(runs, script):
    """Runs `script` with sh, where RUNS is on a disk of 1 MiB. Returns its output."""
    runs.dir.mkdir(mode=0o700)
    done = subprocess.run(["unshare", "--mount", "--map-root-user", "sh", "-ec", f'mount -t tmpfs -o size=1m,mode=700 none "$COX_RUNS_DIR"\n{script}'],
                          env={**runs.env, "COX": str(BIN / "cox")}, timeout=60, text=True, capture_output=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_disk_that_fills_up_keeps_the_end(runs):
    full = runs.file("name: full\nrun: dd if=/dev/zero of=$COX_RUNS_DIR/ballast bs=4k || true; exit CODE\n".replace("CODE", "${CODE:-0}"))
    out = on_a_small_disk(runs, f"""
for code in 0 3; do
  CODE=$code "$COX" run -f {full} > /dev/null || true
  "$COX" run list --json
  find "$COX_RUNS_DIR" -name '.*new'
  rm "$COX_RUNS_DIR/ballast"
  "$COX" run delete full
done""")
    assert re.findall(r'"status": "(\w+)"', out) == ["completed", "failed"] and ".new" not in out, out
    assert "the command in line 2 ended with exit code 3" in out and "keeper was killed" not in out


def test_a_full_disk_makes_no_run(runs):
    out = on_a_small_disk(runs, f"""
dd if=/dev/zero of="$COX_RUNS_DIR/ballast" bs=4k 2> /dev/null || true
"$COX" run create -f {runs.file("name: a" + chr(10) + "run: 'true'" + chr(10))} 2>&1 || echo code $?
ls -A "$COX_RUNS_DIR" """)
    assert "No space left on device" in out and out.endswith("code 1\nballast\n")


def test_of_whose_folder(runs):
    runs.dir.mkdir(mode=0o700)
    runs.dir.chmod(0o777)
    done = runs.cox("list")
    assert done.returncode == 1 and "is writable by other users" in done.stderr
    runs.dir.chmod(0o700)
    assert runs.cox("list").returncode == 0
    if os.geteuid() == 0:
        os.chown(runs.dir, 65534, 65534)
        done = runs.cox("list")
        assert done.returncode == 1 and "belongs to user 65534, but you are user 0" in done.stderr


def test_a_list_of_many(runs):
    """The list shows the newest runs, their total number, and no control characters."""
    assert runs.cox("list").returncode == 0
    for i in range(30):
        folder = runs.dir / f"{111100000000 + i}"
        folder.mkdir(mode=0o700)
        state = {"id": folder.name, "name": f"n{i} \u009b31m", "type": "command", "status": "completed", "created": 1.0 + i,
                 "description": "x" * 200000, "env": {"A": "b-value"}, "ports": [], "keeper": {"pid": 0, "began": 0, "boot": ""}}
        (folder / "state.json").write_text(json.dumps(state, ensure_ascii=False))
    rows = runs.cox("list", "-n", "3").stdout
    assert [r.split()[1] for r in rows.splitlines()[1:]] == ["n27", "n28", "n29"] and "\u009b" not in rows
    out = runs.cox("list", "--json", "--last", "500").stdout
    listed = json.loads(out)
    assert len(out) < 4 << 20 and listed["total"] == 30 and listed["runs"][-1]["id"] == "111100000029" and 10 < len(listed["runs"]) < 30
    assert "env" not in listed["runs"][0] and "b-value" not in runs.cox("show", "111100000003", "--json").stdout
    assert len(json.loads(runs.cox("list", "--json").stdout)["runs"]) == 30
    done = runs.cox("delete", "1")
    assert done.returncode == 2 and '"1" is too short. Give at least 4 digits' in done.stderr
    done = runs.cox("delete", "1111")
    assert done.returncode == 2 and "matches several runs" in done.stderr


def test_a_model_that_is_not_there_is_a_note(runs):
    for model, words in (("dmeo", "did you mean `demo`?"), ("/nonexist/model", "does not exist on this machine yet")):
        path = runs.file(f"name: a\nmodel: {model}\n")
        done = runs.cox("--check", "-f", path)
        assert done.returncode == 0 and done.stderr.startswith(f'{path}:2:8: note: `model` "{model}" ') and words in done.stderr
