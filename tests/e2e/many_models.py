"""Starts heads with null workers, and gateways of several models, for tests and benches."""
import json
import subprocess
from pathlib import Path

import httpx
from cluster import BIN, end_all, free_ports, get, wait_for

WEB = httpx.Client(timeout=30)


class Head:
    """Runs a head and one null worker, without a gateway."""

    def __init__(self, folder, step_us=200, head=(), worker=()):
        self.port, self.admin, http = free_ports(3)
        log = open(Path(folder) / f"head-{self.port}.log", "wb")
        common = ["--insecure", "--log-level", "info"]
        self.head = subprocess.Popen([BIN / "cox-head", *common, "--port", str(self.port), "--admin-port", str(self.admin), *map(str, head)], stdout=log, stderr=log)
        self.worker = subprocess.Popen([BIN / "cox-worker", *common, "--model", "null", "--head", f"127.0.0.1:{self.port}", "--http-port", str(http),
                                        "--null-step-us", str(step_us), *map(str, worker)], stdout=log, stderr=log)

    def entry(self, name, **more):
        return {"name": name, "model": "null", "head": f"127.0.0.1:{self.port}", "insecure": True, **more}

    def end(self):
        end_all([self.worker, self.head])


class Gateway:
    def __init__(self, folder, entries, *args):
        self.file, self.folder = Path(folder) / "models.yaml", Path(folder)
        self.write(entries)
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = Path(folder) / "gateway.log"
        self.command = [BIN / "cox-gateway", "--models", self.file, "--port", str(self.port), *map(str, args)]
        self.process = subprocess.Popen(self.command, stdout=open(self.log_path, "wb"), stderr=subprocess.STDOUT)

    def write(self, entries):
        """Replaces the file at once, as an editor does. JSON is YAML."""
        text = entries if isinstance(entries, str) else json.dumps({"models": entries}, indent=1)
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.file)

    def states(self, key=None):
        code, body = get(self.url + "/v1/models", headers={"Authorization": f"Bearer {key}"} if key else None)
        return {m["id"]: m["state"] for m in json.loads(body)["data"]} if code == 200 else {}

    def wait_states(self, **states):
        wait_for(f"the models are {states}", lambda: self.states() == states)

    def ask(self, model, path="/v1/completions", key=None, **more):
        body = {"prompt": [5, 6, 7], "max_tokens": 4, **({"model": model} if model else {}), **more}
        return WEB.post(self.url + path, json=body, headers={"Authorization": f"Bearer {key}"} if key else {})

    def log(self):
        return self.log_path.read_text().replace("\\\"", "\"")
