"""Constrained output of the demo model: what is drawn at temperature 1 follows its grammar, streamed or whole, with guesses and with
a worker killed in the middle; what is no grammar is a 400."""
import json
import os
import re
import signal

import httpx
import pytest
from cluster import SHORT, SLOW, wait_for
from completions import complete, run
from real_model import cpu_cluster, needs_model

pytestmark = needs_model
SEEDS = range(1 if SHORT else 2)
PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "colours"],
          "properties": {"name": {"type": "string", "minLength": 2, "maxLength": 12}, "age": {"type": "integer", "minimum": 7, "maximum": 77},
                         "colours": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3}},
          "x-guidance": {"whitespace_flexible": False}}
GUESSES = ["--speculative-config", '{"method":"ngram","num_speculative_tokens":4}', "--speculative-disable-by-batch-size", 64]
CODE = "[A-F]{3}-[0-9]{4}( [A-F]{3}-[0-9]{4}){6}"


def is_person(text):
    p = json.loads(text)
    return (list(p) == ["name", "age", "colours"] and 2 <= len(p["name"]) <= 12 and 7 <= p["age"] <= 77 and isinstance(p["age"], int)
            and 1 <= len(p["colours"]) <= 3 and set(p["colours"]) <= {"red", "green", "blue"})


CASES = [({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": PERSON}}}, is_person),
         ({"structured_outputs": {"json": PERSON}}, is_person),
         ({"structured_outputs": {"regex": CODE}}, lambda t: re.fullmatch(CODE, t)),
         ({"structured_outputs": {"choice": ["yes", "no", "\"per\u00e9haps\""]}}, lambda t: t in ("yes", "no", "\"per\u00e9haps\"")),
         ({"guided_grammar": "start: \"(\" start \")\" | \"x\""}, lambda t: re.fullmatch(r"(\(*)x(\)*)", t) and t.count("(") == t.count(")"))]


def body(extra, seed=0, **more):
    return {"model": "m", "prompt": "Write about somebody:\n", "max_tokens": 160, "temperature": 1, "seed": seed, **extra, **more}


BODIES = [body(extra, s, return_token_ids=True) for extra, _ in CASES for s in SEEDS]


@pytest.fixture(scope="module")
def cluster():
    with cpu_cluster("--max-model-len", 512, workers=2) as c:
        yield c


@pytest.fixture(scope="module")
def alone(cluster):
    return [complete(cluster, **b)["choices"][0] for b in BODIES]


def test_answers_follow_their_grammar(alone):
    checks = [check for _, check in CASES for _ in SEEDS]
    for b, choice, check in zip(BODIES, alone, checks):
        assert choice["finish_reason"] == "stop" and check(choice["text"]), (b, choice)
    assert len({c["text"] for c in alone}) > len(CASES) or SHORT  # they are drawn


def test_streams_beside_others_are_the_same(cluster, alone):
    """And what is not constrained stays as it is."""
    free = [{**b, "max_tokens": 24} for b in (body({}, 5, return_token_ids=True), body({}, 6, return_token_ids=True))]
    want = [complete(cluster, **b)["choices"][0]["text"] for b in free]
    got = [g.texts[0] for g in run(cluster, BODIES + free)]
    assert got == [c["text"] for c in alone] + want


def test_killed_worker(cluster, alone):
    struck = []

    def strike(got):
        if not struck and got.n_chunks > 5:
            ready = [w["ordinal"] for w in cluster.status()["workers"] if w["group"] is not None]
            struck.append(ready)
            os.kill(cluster.pid(f"worker-{ready[0]}"), signal.SIGKILL)

    got = [g.texts[0] for g in run(cluster, BODIES, strike)]
    assert struck and got == [c["text"] for c in alone]
    wait_for("two workers", lambda: len(cluster.status()["workers"]) == 2)


def test_guesses_are_cut_where_the_grammar_says(alone):
    with cpu_cluster("--max-model-len", 512, *GUESSES) as c:
        assert [complete(c, **b)["choices"][0]["text"] for b in BODIES] == [a["text"] for a in alone]


TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "required": ["city"], "additionalProperties": False, "properties": {"city": {"$ref": "#/$defs/city"}},
    "$defs": {"city": {"enum": ["Rome", "Oslo"]}}}}} for name in ("weather", "distance")]


@pytest.mark.parametrize("more,names", [({"tool_choice": "required"}, {"weather", "distance"}),
                                        ({"tool_choice": "required", "parallel_tool_calls": False}, {"weather", "distance"}),
                                        ({"tool_choice": {"type": "function", "function": {"name": "distance"}}}, {"distance"})])
def test_calls_that_are_asked_for(cluster, more, names):
    """No parser of the model's family is needed; streamed they are the same."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "How far is it, and is it warm there?"}], "tools": TOOLS,
             "temperature": 1, "seed": 3, "max_tokens": 200, **more}
    choice = httpx.post(cluster.url + "/v1/chat/completions", json=asked, timeout=60 * SLOW).json()["choices"][0]
    calls = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and not choice["message"]["content"], choice
    assert {c["function"]["name"] for c in calls} <= names and all(
        json.loads(c["function"]["arguments"])["city"] in ("Rome", "Oslo") for c in calls)
    assert len(calls) == 1 or more == {"tool_choice": "required"}
    streamed = {}
    with httpx.stream("POST", cluster.url + "/v1/chat/completions", json={**asked, "stream": True}, timeout=60 * SLOW) as r:
        for line in r.iter_lines():
            for c in (json.loads(line[6:])["choices"][0]["delta"].get("tool_calls") or []) if line.startswith("data: {") else []:
                name, arguments = streamed.get(c["index"], ("", ""))
                f = c["function"]
                streamed[c["index"]] = (name + (f.get("name") or ""), arguments + (f.get("arguments") or ""))
    assert list(streamed.values()) == [(c["function"]["name"], c["function"]["arguments"]) for c in calls]


def test_chat_json_object(cluster):
    r = httpx.post(cluster.url + "/v1/chat/completions", timeout=60 * SLOW,
                   json={"model": "m", "messages": [{"role": "user", "content": "Three fruits and their colours, as JSON."}],
                         "temperature": 0, "max_tokens": 200, "response_format": {"type": "json_object"}})
    assert r.status_code == 200, r.text
    choice = r.json()["choices"][0]
    assert choice["message"]["content"].startswith("{")
    assert choice["finish_reason"] == "length" or isinstance(json.loads(choice["message"]["content"]), dict)


@pytest.mark.parametrize("extra,field,words", [
    ({"guided_json": {"type": "nothing"}}, "guided_json", "nothing"),
    ({"structured_outputs": {"regex": "(a"}}, "structured_outputs", "unclosed group"),
    ({"structured_outputs": {"grammar": "start: nobody"}}, "structured_outputs", "nobody"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"minimum": 3, "maximum": 2, "type": "integer"}}}},
     "response_format", "nsatisfiable"),
    ({"structured_outputs": {"regex": "(" * 65 + "a" + ")" * 65}}, "structured_outputs", "nested"),
    ({"structured_outputs": {"regex": "a" * 300000}}, "structured_outputs", "300000 bytes"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "one shape")])
def test_what_is_no_grammar_is_refused(cluster, extra, field, words):
    r = httpx.post(cluster.url + "/v1/completions", json=body(extra), timeout=60 * SLOW)
    assert r.status_code == 400 and r.json()["error"]["param"] == field and words in r.json()["error"]["message"], r.text
