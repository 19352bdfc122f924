"""Implements bench/cold_start; the comment at the top of that script describes it."""
import datetime
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import httpx
from autoscaler import Autoscaler
from cluster import BIN, get, wait_for
from options import amount, count, option_parser
from serving import PROGRAMS, build, forget_file, machine, spread
from test_bad_frames import Processes

IDLE_S = 1


class Cluster(Processes):
    def __init__(self, folder, model, tp, poll_s):
        super().__init__(folder)
        self.model, self.tp, self.begun = model, tp, []
        self.start("head", BIN / "cox-head", "--port", self.head_port, "--admin-port", self.admin_port, "--keys-dir", self.keys,
                   "--tp", tp, "--scale-min", 0, "--scale-max", tp, "--scale-idle-s", IDLE_S)
        self.start("gateway", BIN / "cox-gateway", "--model", model, "--head", f"127.0.0.1:{self.head_port}", "--port", self.port,
                   "--keys-dir", self.keys)
        self.scaler = Autoscaler(self.admin + "/scale", self.worker, tp, tp, poll_s=poll_s, cooldown_s=0)

    def worker(self, i):
        self.begun.append(f"worker-{i}-{len(self.begun)}")
        self.start(self.begun[-1], BIN / "cox-worker", "--model", self.model, "--head", f"127.0.0.1:{self.head_port}", "--keys-dir",
                   self.keys, "--tp", self.tp, "--ordinal", i, "--http-port", 0)
        return self.started[self.begun[-1]]

    def rests(self):
        code, body = get(self.admin + "/scale")
        return code == 200 and json.loads(body)["desired_workers"] == 0 and not self.status()["workers"] and not self.scaler.leaving

    def at(self, names, event):
        """Returns the wall-clock time at which the last of these processes logged the event."""
        found = [re.search(rf"^(\S+)Z +\w+ +\S+ {event}\b", self.log(n), re.M) for n in names]
        return max(datetime.datetime.fromisoformat(m[1] + "+00:00").timestamp() for m in found)

    def end(self):
        self.scaler.end()
        super().end()


def first_token(c):
    body = {"model": c.model, "prompt": "The capital of France is", "max_tokens": 1, "temperature": 0, "stream": True}
    with httpx.stream("POST", c.url + "/v1/completions", json=body, timeout=120) as r:
        assert r.status_code == 200, r.read()
        at = None
        for line in r.iter_lines():
            if at is None and line.startswith("data: {") and json.loads(line[6:])["choices"]:
                at = time.time()
        return at


def one(c, cold):
    wait_for("nobody is there", c.rests, 60)
    if cold:
        forget_model(c.model)
    c.begun.clear()
    n_before = len(c.scaler.log)
    asked = time.time()
    came = first_token(c)
    clock = time.time() - time.monotonic()
    # a process of this name starts once a round, with a new log each time
    started = [when + clock for when, n in c.scaler.log[n_before:] if n > 0][0]
    events = json.loads(get(c.admin + "/api/events?since=0")[1])["events"]
    wanted = [e["time"] for e in events if e["event"] == "scaled_from_zero"][-1]
    read, formed = c.at(c.begun, "head_joined"), c.at(c.begun, "worker_ready")
    return {"the head wants a group": wanted - asked, "the autoscaler has asked": started - wanted,
            "a worker has read the model and joined": read - started, "the group serves": formed - read,
            "first token": came - formed, "in all": came - asked}


FOLDERS = {"demo": "demo-instruct", "demo-base": "demo"}


def forget_model(model):
    folder = Path(os.environ.get("COX_CACHE") or Path.home() / ".cache/coxswain") / "models" / FOLDERS.get(model, model)
    for path in folder.glob("*.gguf"):
        forget_file(path)


def main():
    parser = option_parser("cold_start")
    parser.add_argument("--rounds", type=count(), default=5)
    parser.add_argument("--model", default="demo-base")
    parser.add_argument("--tp", type=count(1, 64), default=1)
    parser.add_argument("--poll", type=amount(), default=0.1)
    o = parser.parse_args()
    build(*PROGRAMS)
    print(f"{machine()}; {o.model}, TP {o.tp}, {o.rounds} rounds: seconds, median (least … most)")
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder, Cluster(Path(folder), o.model, o.tp, o.poll) as c:
        c.scaler.start()
        wait_for("the gateway takes requests", lambda: get(c.url + "/health")[0] == 200, 60)
        rounds = {cold: [] for cold in (False, True)}
        one(c, False)  # this start warms up: the tokenizer is compiled, and pages of the programs are in memory
        for _ in range(o.rounds):
            for cold, all_of in rounds.items():
                all_of.append(one(c, cold))
    for cold, all_of in rounds.items():
        print("the model's file is " + ("not in memory" if cold else "in memory"))
        for part in all_of[0]:
            print(f"  {part:40} {spread([r[part] for r in all_of], '%.2f')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
