"""Starts runs for a test, in a separate folder, and ends all processes that were started in that folder."""
import json
import os
import signal
import subprocess
from pathlib import Path

import findings
from cluster import BIN, SLOW, alive, run_cox, wait_for


class Runs:
    def __init__(self, folder, env=None):
        self.folder = Path(folder)
        self.dir = self.folder / "runs"
        self.tmp = self.folder / "tmp"
        self.tmp.mkdir()
        self.env = {**{k: v for k, v in os.environ.items() if k != "TMP_TOKEN"}, "COX_RUNS_DIR": str(self.dir),
                    "TMPDIR": str(self.tmp), "GIT_CONFIG_GLOBAL": "/dev/null", **(env or {})}

    def cox(self, *args, **env):
        return run_cox("run", *args, env={**self.env, **env}, timeout=60)

    def file(self, text, name="run.yaml"):
        path = self.folder / name
        path.write_text(text)
        return path

    def create(self, text, **env):
        done = self.cox("create", "-f", self.file(text), **env)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[0]

    def state(self, who):
        done = self.cox("show", who, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def keeper(self, run):
        return json.loads((self.dir / run / "state.json").read_text())["keeper"]["pid"]

    def wait(self, run, *statuses, seconds=30.0):
        try:
            wait_for(f"{run} is {statuses}", lambda: self.state(run)["status"] in statuses, seconds)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.state(run)}\n{self.log(run)}") from None
        return self.state(run)

    def log(self, run):
        return (self.dir / run / "log").read_text(errors="replace")

    def popen(self, *args, **kwargs):
        return subprocess.Popen([BIN / "cox", "run", *map(str, args)], env=self.env, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **kwargs)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for state in sorted(self.dir.glob("*/state.json")):
            run = json.loads(state.read_text())
            if run["status"] in ("pending", "importing", "running"):
                self.cox("terminate", run["id"])
            if alive(run["keeper"]["pid"]) and run["keeper"]["pid"] != os.getpid():
                os.kill(run["keeper"]["pid"], signal.SIGKILL)
            log = state.parent / "log"
            if log.exists():
                findings.look_at_log(log.read_text(errors="replace"))
            if kind is not None:
                print(f"---- {run['id']} {run['status']}\n" + "\n".join(self.log(run["id"]).splitlines()[-60:]))


def wait_end(process, seconds=30):
    out, err = process.communicate(timeout=seconds * SLOW)
    return process.returncode, out, err
