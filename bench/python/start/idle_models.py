"""Implements bench/idle-models; the comment at the top of that script describes it."""
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
from cluster import get, wait_for
from options import count, option_parser
from serving import go_first, machine, memory, quiet, spread
from test_up_models import Up

LEVELS = (0, 1, 2)


def first_token(c, level):
    """Returns the seconds to the first event of the stream. Comment lines come while the request waits."""
    body = {"model": f"level{level}", "prompt": "The capital of France is", "max_tokens": 2, "stream": True, "ignore_eos": True}
    begin = time.perf_counter()
    with httpx.stream("POST", c.url + "/v1/completions", json=body, timeout=120) as r:
        assert r.status_code == 200, r.read()
        for line in r.iter_lines():
            if line.startswith("data: {"):
                return time.perf_counter() - begin
    raise AssertionError("the stream has no token")


def rests(c, level):
    scale = json.loads(get(f"http://127.0.0.1:{c.admin_port + level}/scale")[1])
    return scale["asleep"] and scale["sleep_level"] == level if level else f"worker-level{level}-0" not in c.pids()


def measure(c, rounds):
    rows, kept = {level: [] for level in LEVELS}, {level: [] for level in LEVELS}
    for _ in range(rounds + 1):  # the first round starts the workers
        for level in LEVELS:
            rows[level].append(first_token(c, level))
        for level in LEVELS:
            wait_for(f"the model of level {level} rests", lambda level=level: rests(c, level), 60)
            pid = c.pids().get(f"worker-level{level}-0")
            kept[level].append(memory(pid)["VmRSS"] if pid else 0)
    for level in LEVELS:
        print(f"level {level}: first token {spread(rows[level][1:], '%.3f')} s, memory {statistics.median(kept[level]):.0f} MiB")


def main():
    parser = option_parser("idle-models")
    parser.add_argument("--rounds", type=count(), default=7)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--cache-dir", help="folder of the cached models")
    parser.add_argument("--first", action="store_true", help="take priority over all other programs of the machine")
    options = parser.parse_args()
    print(f"{machine()}; {options.model}, {options.rounds} rounds: median (least … most)")
    with quiet(), tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "models.yaml"
        file.write_text("models:\n" + "".join(f"- {{name: level{n}, model: {options.model}, start: asleep, idle_sleep_level: {n}, idle_timeout: 1}}\n"
                                              for n in LEVELS))
        more = ["--cache-dir", options.cache_dir] if options.cache_dir else []
        with Up(folder, "--models", file, "--device", "cpu", "--max-model-len", 4096, *more) as c:
            if options.first:
                go_first("self")
                go_first(c.process.pid)
            c.wait_ready()
            measure(c, options.rounds)


if __name__ == "__main__":
    sys.exit(main())
