"""Tests deploy/systemd: systemd accepts the units, their command lines start the right programs, and the exit statuses are those
that the units rely on. systemd itself does not run; the tests start the processes as it would."""
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cluster import BIN, ROOT, SLOW, alive, free_ports, run_cox, wait_for

sys.path.append(str(ROOT / "tests/walk"))
from pages import read_page  # noqa: E402

UNITS = ROOT / "deploy/systemd"


def no_check():
    """Returns a TLS context that accepts the certificate of the test, which nobody has signed."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def asked(url, context, **headers):
    """Returns the status of an answer, or 0 without one."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10 * SLOW, context=context) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        return e.code
    except OSError:
        return 0


def settings(name):
    """Returns {key: value} of a unit's [Service]."""
    text = (UNITS / name).read_text().split("[Service]", 1)[1].split("[Install]", 1)[0]
    return dict(re.findall(r"^([A-Za-z]+)=(.*)$", text, re.M))


def command(name, **places):
    """Returns ExecStart with the built programs and systemd's values."""
    line = settings(name)["ExecStart"]
    assert line.startswith("/usr/local/bin/cox ")
    for key, value in places.items():
        assert key in line, f"{key} is not in {line}"
        line = line.replace(key, str(value))
    assert "$" not in line and "%" not in line, line
    return [str(BIN / "cox"), *shlex.split(line)[1:]]


@pytest.mark.parametrize("name", ["coxswain.service", "coxswain-worker@.service"])
def test_systemd_takes_it(tmp_path, name):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here (package systemd)")
    unit = tmp_path / name.replace("@", "@0")
    text = (UNITS / name).read_text().replace("/usr/local/bin/cox", str(BIN / "cox"))
    unit.write_text(text.replace("/usr/local/libexec/coxswain/replace-processes", str(UNITS / "replace-processes")))
    unit.chmod(0o644)  # the file gets the installed mode, because systemd warns about other modes, which a umask would give
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60 * SLOW)
    said = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line or str(tmp_path) in line]
    assert not said, said


def test_both_keep_to_one_set_of_rules():
    one, other = settings("coxswain.service"), settings("coxswain-worker@.service")
    own = {"ExecStart", "ExecReload", "Environment", "TimeoutStartSec", "RuntimeDirectory", "StateDirectory", "StateDirectoryMode", "LoadCredential"}
    assert {k: v for k, v in one.items() if k not in own} == {k: v for k, v in other.items() if k not in own}
    assert int(re.search(r"--shutdown-timeout (\d+)", one["ExecStart"])[1]) + 10 <= int(one["TimeoutStopSec"])


def of_the_page(config, tmp_path):
    """Returns up.yaml with the options of docs/start/server.md for clients of other machines, and makes the files that they name."""
    options = next(f.text for f in read_page("docs/start/server.md")[1] if f.language == "yaml")
    assert "host: 0.0.0.0" in options and "host: 127.0.0.1 " in config
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost",
                    "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"], check=True, capture_output=True)
    (tmp_path / "api-keys").write_text("a-key\n")
    return re.sub("^host:.*\n", "", config, flags=re.M) + options.replace("/etc/coxswain", str(tmp_path)).replace("0.0.0.0", "127.0.0.1")


@pytest.mark.parametrize("is_open", [False, True], ids=["the defaults", "the options of the page"])
def test_the_cluster_starts_serves_and_ends(tmp_path, is_open):
    head, admin, worker, port = free_ports(4)
    config = (UNITS / "up.yaml").read_text()
    for was, now in (("model: demo ", 'model: "null" '), ("port: 8000", f"port: {port}"), ("admin_port: 8265", f"admin_port: {admin}")):
        assert was in config
        config = config.replace(was, now)
    if is_open:
        config = of_the_page(config, tmp_path)
    (tmp_path / "up.yaml").write_text(config + f"head_port: {head}\nworker_http_port: {worker}\n")
    (tmp_path / "state").mkdir(mode=0o700)
    args = command("coxswain.service", **{"/etc/coxswain/up.yaml": tmp_path / "up.yaml", "${STATE_DIRECTORY}": tmp_path / "state",
                                          "${CACHE_DIRECTORY}": tmp_path / "cache", "${RUNTIME_DIRECTORY}": tmp_path})
    env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), **{k: v for k, v in os.environ.items() if "SAN" in k}}  # the environment has no HOME, as with DynamicUser=
    with open(tmp_path / "log", "wb") as log:
        p = subprocess.Popen(args, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        url, trusted = (f"https://127.0.0.1:{port}", no_check()) if is_open else (f"http://127.0.0.1:{port}", None)
        wait_for("it serves", lambda: asked(f"{url}/health", trusted) == 200 or p.poll() is not None)
        assert p.poll() is None, (tmp_path / "log").read_text()
        assert asked(f"{url}/v1/models", trusted) == (401 if is_open else 200)
        assert asked(f"{url}/v1/models", trusted, Authorization="Bearer a-key") == 200
        assert (tmp_path / "state/keys/head.key").exists()
        pids = [int(line.split()[1]) for line in (tmp_path / "pids").read_text().splitlines()]
        p.send_signal(signal.SIGTERM)  # with KillMode=mixed, systemd sends the signal only to the first process
        assert p.wait(20 * SLOW) == 0, (tmp_path / "log").read_text()
        assert not [pid for pid in pids if alive(pid)]
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()


def test_what_cannot_work_is_not_tried_again(tmp_path):
    assert settings("coxswain.service")["RestartPreventExitStatus"] == "2"
    (tmp_path / "up.yaml").write_text((UNITS / "up.yaml").read_text().replace("model: demo", "model: /not/here"))
    args = command("coxswain.service", **{"/etc/coxswain/up.yaml": tmp_path / "up.yaml", "${STATE_DIRECTORY}": tmp_path,
                                          "${CACHE_DIRECTORY}": tmp_path, "${RUNTIME_DIRECTORY}": tmp_path})
    done = subprocess.run(args, capture_output=True, text=True, timeout=20 * SLOW)
    assert done.returncode == 2 and "the model /not/here is not a file or folder" in done.stderr, done.stderr


def test_a_worker_joins_with_its_credential(tmp_path):
    keys, port = tmp_path / "keys", free_ports(1)[0]
    token = run_cox("join-token", "--keys-dir", keys, "--head", f"127.0.0.1:{port}").stdout
    (tmp_path / "join").write_text(token)
    (tmp_path / "join").chmod(0o600)
    (tmp_path / "worker.yaml").write_text((UNITS / "worker.yaml").read_text().replace("model: demo ", 'model: "null" '))
    args = command("coxswain-worker@.service", **{
        "/etc/coxswain/worker.yaml": tmp_path / "worker.yaml", "${CREDENTIALS_DIRECTORY}": tmp_path, "${CACHE_DIRECTORY}": tmp_path,
        "710%i": "0"})
    head = subprocess.Popen([BIN / "cox", "head", "--keys-dir", keys, "--port", str(port), "--admin-port", "0"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    worker = subprocess.Popen(args, stderr=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)})
    try:
        seen = ""
        for line in worker.stderr:
            seen += line
            if "head_joined" in line:
                break
        assert "head_joined" in seen, seen
        worker.send_signal(signal.SIGTERM)
        worker.stderr.close()
        assert worker.wait(20 * SLOW) == 0
    finally:
        for p in (worker, head):
            if p.poll() is None:
                p.kill()
                p.wait()


def test_the_pages_install_what_is_there():
    page = (UNITS / "README.md").read_text()
    files = {p.name for p in UNITS.iterdir()} - {"README.md"}
    assert set(re.findall(r"`([a-z@-]+(?:\.(?:service|yaml|preset))?)`", page)) >= files
    installed = re.findall(r"deploy/systemd/[a-z@-]+(?:\.[a-z]+)?$", page, re.M)
    assert len(installed) >= 3 and all(Path(ROOT / p).exists() for p in installed), installed
