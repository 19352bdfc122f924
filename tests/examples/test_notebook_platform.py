"""deploy/examples/notebook-platform on a platform that this file plays: pods are network namespaces on a bridge, without
root, capabilities or new privileges, that share one folder; an application is reached at 127.0.0.1:$CDSW_APP_PORT by a proxy
that keeps the name in the URL; cdsw.launch_workers (platform/cdsw.py) starts more pods."""
import json
import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path

import null_oracle as oracle
import pytest
from cluster import BIN, SLOW
from readme import SERVED, Readme, Shells, needs_hosts
from real_model import CACHE

pytestmark = needs_hosts
USER, APP_PORT = 8536, 8100
HEAD, API = "10.254.19.61", "10.254.19.62"
WORKERS = ["10.254.21.215", "10.254.18.73", "10.254.19.56", "10.254.20.80", "10.254.18.74"]
HOME, PROGRAMS, LIBRARY = "/home/cdsw", "/mnt/bin", "/mnt/lib"
AS_USER = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--no-new-privs", "--inh-caps=-all",
           "--bounding-set=-all", "setpriv", "--pdeathsig", "KILL"]  # which a change of the user takes away


class Platform(Shells):
    def __init__(self, folder, readme, project):
        super().__init__(folder, readme)
        self.project, self.launched = project, []
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
        """Calls of the platform's library, until the listener is shut down."""
        while True:
            try:
                asker, _ = self.listener.accept()
            except OSError:
                return
            with asker, asker.makefile("rw") as f:
                try:
                    answer = {"workers": self.answer(json.loads(f.readline()))}
                except Exception as e:  # the application is told, and the test finds it in its log
                    answer = {"error": repr(e)}
                f.write(json.dumps(answer) + "\n")

    def answer(self, call):
        if call["call"] == "launch":
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
            mount -t tmpfs none /mnt; mkdir {PROGRAMS} {LIBRARY}; mount --bind {BIN} {PROGRAMS}
            mount --bind {Path(__file__).parent / "platform"} {LIBRARY}""")
        if CACHE.exists():
            pod.run("sh", "-c", f"mkdir -p {HOME}/.cache/coxswain; mount --bind -o ro {CACHE} {HOME}/.cache/coxswain")
        return pod

    def start_in(self, pod, name, script, **more):
        """As the platform does it: the user's environment and nobody else's."""
        of = {"HOME": HOME, "PATH": f"{PROGRAMS}:/usr/bin:/bin", "CDSW_APP_PORT": APP_PORT, "CDSW_READONLY_PORT": 8090,
              "CDSW_PUBLIC_PORT": 8080, "CDSW_ENGINE_ID": pod.name, "CDSW_IP_ADDRESS": pod.ip_address,
              "CDSW_DOMAIN": "ml.example.com", "PYTHONPATH": LIBRARY, "PYTHONDONTWRITEBYTECODE": 1, "PLATFORM": f"{HOME}/platform.sock",
              **self.project, **more}
        words = [*AS_USER, "env", "-i", *(f"{k}={v}" for k, v in of.items()), "sh", "-c", f"cd {HOME}; exec {script}"]
        return self.start_shell(pod, name, 'exec "$0" "$@"', *words)

    def terminal(self, pod, block):
        """A block typed in a session's terminal: what it said, on both streams."""
        script = pod.name + "-" + block
        (self.readme.folder / script).write_text(f"exec 2>&1\n{self.readme.typed(block)}")
        p = self.start_in(pod, script, f"sh ./{script}")
        assert p.wait(60 * SLOW) == 0, self.log(script)
        said = self.log(script)
        (self.folder / f"{script}.log").unlink()  # the next one's begins here
        return said

    def through_the_proxy(self, pod, path, *args):
        """A browser's or a client's request, as the platform's proxy brings it: (status, body)."""
        said = pod.curl(f"http://127.0.0.1:{APP_PORT}{path}", "-H", f"Host: {pod.name}.ml.example.com", "-w", "\n%{http_code}", *args)
        body, status = said.rsplit("\n", 1)
        return int(status), body


@pytest.fixture
def home():
    """A folder that the pods' user may come to, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="coxtest-platform-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def variables(readme):
    """The project's, as the README lists them."""
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
        api = platform.pod("api", API)
        platform.start_in(api, "application-api", "python3 api.py")
        platform.wait("the api serves", lambda: platform.through_the_proxy(api, "/health")[0] == 200, 60)
        session = platform.pod("session", "10.254.19.63")
        platform.wait("all serve", lambda: "4/4 workers serve" in platform.terminal(session, "status"))
        readme.saw("status", platform.terminal(session, "status"))
        key = (readme.folder / "cluster/admin-key").read_text()
        code, page = platform.through_the_proxy(head, "/")
        assert code == 200 and "<html" in page
        assert platform.through_the_proxy(head, "/api/status")[0] == 401
        code, body = platform.through_the_proxy(head, "/api/status", "-H", f"Authorization: Bearer {key}")
        status = json.loads(body)
        assert code == 200 and [g["tp"] for g in status["groups"]] == [tp] * (4 // tp)
        assert {w["host"] for w in status["nodes"]} >= {w["id"] for w in platform.launched}
        readme.commands["ask"] = readme.commands["ask"].replace("https://api.ml.example.com", f"http://127.0.0.1:{APP_PORT}")
        said = platform.terminal(api, "ask")
        readme.saw("ask", said)
        if model == "null":
            assert json.loads(said)["choices"][0]["text"] == oracle.text("Singapore is a", 64, temperature=0)
        assert "Uid:\t8536" in Path(f"/proc/{platform.processes['worker0'].pid}/status").read_text()
        assert (readme.folder / "cluster").stat().st_mode & 0o077 == 0
    if model == "demo":
        readme.all_were_tried()


def test_a_key_and_a_spare(home):
    """COX_API_KEY and WORKERS of the project, and a pod that the platform takes away."""
    readme = Readme("notebook-platform", home, "null")
    project = {**variables(readme), "COX_MODEL": "null", "COX_API_KEY": "k1", "WORKERS": 5, "COX_NULL_STEP_US": 20000}
    with Platform(home, readme, project) as platform:
        head = platform.pod("head", HEAD)
        platform.start_in(head, "application-head", "python3 head.py")
        platform.wait("five workers were launched", lambda: len(platform.launched) == 5)
        api = platform.pod("api", API)
        platform.start_in(api, "application-api", "python3 api.py")
        platform.wait("all are there", lambda: "4/5 workers serve, 1 spare" in platform.terminal(head, "status"))
        body = json.dumps({"prompt": "Singapore is a", "max_tokens": 200, "temperature": 0})
        ask = ["/v1/completions", "-H", "Content-Type: application/json", "-d", body]
        platform.wait("the api serves", lambda: platform.through_the_proxy(api, "/health")[0] == 200)
        assert platform.through_the_proxy(api, *ask)[0] == 401
        got = {}
        client = threading.Thread(target=lambda: got.update(answer=platform.through_the_proxy(api, *ask, "-H", "Authorization: Bearer k1")))
        client.start()
        platform.wait("it runs", lambda: "1 running" in platform.terminal(head, "status"))
        serving = next(w["node"] for w in workers_of(platform, head) if w["group"] is not None)
        platform.kill(serving)
        client.join()
        status, answer = got["answer"]
        assert status == 200 and json.loads(answer)["choices"][0]["text"] == oracle.text("Singapore is a", 200, temperature=0)
        platform.wait("the spare has its place", lambda: "4/4 workers serve, 0 spare" in platform.terminal(head, "status"))


def workers_of(platform, head):
    key = (platform.readme.folder / "cluster/admin-key").read_text()
    return json.loads(platform.through_the_proxy(head, "/api/status", "-H", f"Authorization: Bearer {key}")[1])["workers"]
