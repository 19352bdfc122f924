"""Implements bench/tp --hey: it measures requests/s with hey, an independent client, and the body that hey's users send."""
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys

from cluster import ROOT
from serving import quiet, spread
from tp_places import Here, model_path

BODY = {"prompt": "Singapore is a", "temperature": 0}
TOKENS = {"demo": 64, "1b": 16}  # most tokens of a request, by model
LOAD = ["-c", "5", "-n", "50"]
BAR = 0.95  # least ratio of the figure of the most ranks to the figure of one rank


def program():
    return shutil.which("hey", path=f"{ROOT}/.deps/bin:{os.environ.get('PATH', '')}")


def requests_per_second(place, model):
    body = {**BODY, "max_tokens": TOKENS[model]}
    done = subprocess.run([program(), *LOAD, "-t", "0", "-m", "POST", "-H", "Content-Type: application/json", "-d", json.dumps(body),
                           place.cluster.url + "/v1/completions"], capture_output=True, text=True, timeout=600)
    if done.returncode != 0 or "[200]\t50 responses" not in done.stdout:
        raise RuntimeError(f"hey: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1])


class Table:
    def __init__(self, model, places):
        self.model, self.rows = model, {place.name: [] for place in places}

    def show(self):
        print(f"\n| {self.model} | " + " | ".join(self.rows) + " |\n|---" + "|---" * len(self.rows) + "|")
        print(f"| hey {' '.join(LOAD)}, requests/s | " + " | ".join(spread(values, "%.2f") for values in self.rows.values()) + " |")

    def verdicts(self):
        (first, one), *others = self.rows.items()
        for name, values in others:
            ratio = statistics.median(a / b for a, b in zip(values, one))
            yield f"{self.model}, hey: {name} to {first} {ratio:.2f} (bar {BAR:g})", ratio / BAR


def measure(model, options, cores):
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(Here(model_path(model), tp, 1, cores, options.threads)) for tp in options.tp]
        table = Table(model, places)
        for place in places:
            requests_per_second(place, model)
        for i in range(options.rounds):
            for place in places if i % 2 == 0 else places[::-1]:
                with quiet():
                    table.rows[place.name].append(requests_per_second(place, model))
            print(f"{model}, round {i + 1}: " + "; ".join(words for words, _ in table.verdicts()), file=sys.stderr, flush=True)
    return table
