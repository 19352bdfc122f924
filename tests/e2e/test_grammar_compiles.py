"""Tests that a costly grammar is compiled beside the steps. Another request's tokens continue to arrive meanwhile. When a worker is
killed during the compile, no answer is lost."""
import json
import os
import signal
import threading
import time

import pytest
from cluster import SLOW, get, wait_for
from completions import complete, run
from real_model import cpu_cluster, needs_model

pytestmark = needs_model
FREE = {"model": "m", "prompt": "Once upon a time", "max_tokens": 200, "temperature": 0, "ignore_eos": True, "return_token_ids": True}


def costly(i):
    """Returns a schema that takes seconds of processor time. Each i gives another text, and every member is optional."""
    members = {f"k{i}_{n}": {"type": "string", "pattern": f"^[a-z]{{1,{30 + n % 20}}}-[0-9]{{1,{20 + n % 9}}}x{n}$"} for n in range(300)}
    schema = {"type": "object", "properties": {"a": {"enum": ["yes", "no"]}, **members}, "required": ["a"], "additionalProperties": False,
              "x-guidance": {"whitespace_flexible": False}}
    return {"model": "m", "prompt": "Say it:", "max_tokens": 6, "temperature": 0, "return_token_ids": True,
            "structured_outputs": {"json": schema}}


def counts(c):
    code, text = get(c.admin + "/api/debug")
    assert code == 200, text
    return json.loads(text)["counts"]


def n_awaiting(c):
    return counts(c)["requests_awaiting_grammar"]


@pytest.fixture(scope="module")
def cluster():
    with cpu_cluster("--max-model-len", 1024, workers=2) as c:
        complete(c, **{**FREE, "max_tokens": 4})
        yield c


class Asked(threading.Thread):
    """Sends one costly request beside others, and keeps its result."""

    def __init__(self, cluster, i):
        super().__init__(daemon=True)
        self.cluster, self.body, self.text = cluster, costly(i), None

    def run(self):
        self.text = complete(self.cluster, **self.body)["choices"][0]["text"]


def test_a_neighbour_goes_on(cluster):
    """The head counts steps with tokens that arrived while a request waited for its grammar. Only other requests can have produced
    those tokens."""
    before, asked, tokens = counts(cluster)["results_while_grammars_were_awaited"], Asked(cluster, 1), []

    def on_event(got):
        tokens.append(1)
        if len(tokens) == 5:
            asked.start()

    run(cluster, [FREE, FREE], on_event)
    asked.join(60 * SLOW)
    assert asked.text and asked.text.startswith('{"a":"')
    assert counts(cluster)["results_while_grammars_were_awaited"] - before >= 3


def ask_until_it_waits(cluster):
    """Returns a costly request that is waiting for its grammar. On a busy machine, the compile may have ended before the check. The
    function then uses the next request."""
    for i in range(2, 12):
        asked = Asked(cluster, i)
        asked.start()
        while asked.is_alive():
            if n_awaiting(cluster) > 0:
                return asked
            time.sleep(0.005)
    raise AssertionError("none of ten costly requests was seen to wait for its grammar")


def test_a_worker_is_killed_while_it_compiles(cluster):
    asked = ask_until_it_waits(cluster)
    for ordinal in (0, 1):
        os.kill(cluster.pid(f"worker-{ordinal}"), signal.SIGKILL)
    asked.join(120 * SLOW)
    assert asked.text and asked.text.startswith('{"a":"')
    assert complete(cluster, **{**FREE, "max_tokens": 4})["choices"][0]["finish_reason"] == "length"
    wait_for("nobody waits", lambda: n_awaiting(cluster) == 0)
