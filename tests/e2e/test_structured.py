"""Tests constrained output of the demo model: text sampled at temperature 1 follows its grammar, streamed or whole, with draft
tokens and with a worker killed in the middle. An invalid grammar gives a 400."""
import concurrent.futures
import json
import os
import re
import signal
from typing import Literal

import anthropic
import httpx
import openai
import pydantic
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
DRAFTS = ["--speculative-config", '{"method":"ngram","num_speculative_tokens":4}', "--speculative-disable-by-batch-size", 64]
TAG = {"type": "tag", "begin": "<code>", "content": {"type": "regex", "pattern": "[A-F]{3}-[0-9]{4}"}, "end": "</code>"}
CODE = "[A-F]{3}-[0-9]{4}( [A-F]{3}-[0-9]{4}){6}"


def is_person(text):
    p = json.loads(text)
    return (list(p) == ["name", "age", "colours"] and 2 <= len(p["name"]) <= 12 and 7 <= p["age"] <= 77 and isinstance(p["age"], int)
            and 1 <= len(p["colours"]) <= 3 and set(p["colours"]) <= {"red", "green", "blue"})


CASES = [({"response_format": {"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": PERSON}}}, is_person),
         ({"structured_outputs": {"json": PERSON}}, is_person),
         ({"structured_outputs": {"regex": CODE}}, lambda t: re.fullmatch(CODE, t)),
         ({"structured_outputs": {"choice": ["yes", "no", "\"per\u00e9haps\""]}}, lambda t: t in ("yes", "no", "\"per\u00e9haps\"")),
         ({"guided_grammar": "start: \"(\" start \")\" | \"x\""}, lambda t: re.fullmatch(r"(\(*)x(\)*)", t) and t.count("(") == t.count(")")),
         ({"response_format": {"type": "structural_tag", "format": TAG}}, lambda t: re.fullmatch(r"<code>[A-F]{3}-[0-9]{4}</code>", t)),
         ({"structured_outputs": {"structural_tag": json.dumps({"type": "structural_tag", "format": TAG})}},
          lambda t: re.fullmatch(r"<code>[A-F]{3}-[0-9]{4}</code>", t)),
         ({"structured_outputs": {"grammar": "root ::= answer\nanswer ::= \"yes\" | \"no\" # GBNF"}}, lambda t: t in ("yes", "no"))]


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
    assert len({c["text"] for c in alone}) > len(CASES) or SHORT  # sampled answers differ


def test_streams_beside_others_are_the_same(cluster, alone):
    """Requests without a constraint stay the same too."""
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


def test_drafts_are_cut_where_the_grammar_says(alone):
    with cpu_cluster("--max-model-len", 512, *DRAFTS) as c:
        assert [complete(c, **b)["choices"][0]["text"] for b in BODIES] == [a["text"] for a in alone]


def test_a_costly_mask_ends_its_own_answer(cluster):
    """An ambiguous grammar ends only its own answer, with a named error. Other requests in the same steps get the tokens that they
    get alone."""
    free = body({}, 7, return_token_ids=True, max_tokens=16 if SHORT else 64, ignore_eos=True)
    costly = [body({"structured_outputs": {"grammar": "start: s\ns: s s | s s s | /[a-z ]/"}}, s, min_tokens=150) for s in range(4)]
    want = complete(cluster, **free)["choices"][0]["text"]
    with concurrent.futures.ThreadPoolExecutor(len(costly)) as pool:
        answers = pool.map(lambda b: httpx.post(cluster.url + "/v1/completions", json=b, timeout=60 * SLOW), costly)
        got = run(cluster, [free])[0]
        for r in answers:
            assert r.status_code == 400 and "costs more than it may" in r.json()["error"]["message"], r.text
    assert got.texts[0] == want


TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "required": ["city"], "additionalProperties": False, "properties": {"city": {"$ref": "#/$defs/city"}},
    "$defs": {"city": {"enum": ["Rome", "Oslo"]}}}}} for name in ("weather", "distance")]


@pytest.mark.parametrize("more,names", [({"tool_choice": "required"}, {"weather", "distance"}),
                                        ({"tool_choice": "required", "parallel_tool_calls": False}, {"weather", "distance"}),
                                        ({"tool_choice": {"type": "function", "function": {"name": "distance"}}}, {"distance"})])
def test_calls_that_are_asked_for(cluster, more, names):
    """Forced calls need no parser for the model's family, and streamed calls equal whole ones."""
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


class Person(pydantic.BaseModel):
    model_config = {"json_schema_extra": {"x-guidance": {"whitespace_flexible": False}}}
    name: Literal["Ada", "Bo"]
    old: bool


def test_packages_parse_what_they_asked_for(cluster):
    """The package converts a class to a schema and the answer to an object of that class, in OpenAI's responses and Anthropic's
    messages, whole and streamed."""
    client = openai.OpenAI(base_url=cluster.url + "/v1", api_key="none", max_retries=0, timeout=60 * SLOW)
    ask = {"model": "m", "input": "Name somebody.", "max_output_tokens": 100, "temperature": 1, "text_format": Person}
    got = client.responses.parse(**ask)
    assert got.status == "completed" and isinstance(got.output_parsed, Person) and got.output_text.startswith("{")
    with client.responses.stream(**ask) as s:
        assert isinstance(s.get_final_response().output_parsed, Person)
    tools = [openai.pydantic_function_tool(Person, name="note")["function"]]
    for stream in False, True:
        ask = {"model": "m", "input": "Note somebody.", "max_output_tokens": 100, "temperature": 1, "tool_choice": "required",
               "tools": [{"type": "function", **tools[0]}], "parallel_tool_calls": False}
        if stream:
            with client.responses.stream(**ask) as s:
                calls = s.get_final_response().output
        else:
            calls = client.responses.create(**ask).output
        assert [c.type for c in calls] == ["function_call"] and calls[0].name == "note" and calls[0].call_id.startswith("call_")
        Person.model_validate_json(calls[0].arguments)
    other = anthropic.Anthropic(base_url=cluster.url, api_key="none", max_retries=0, timeout=60 * SLOW)
    got = other.messages.create(model="m", max_tokens=100, messages=[{"role": "user", "content": "Name somebody."}],
                                output_config={"format": {"type": "json_schema", "schema": {**Person.model_json_schema(), "additionalProperties": False}}})
    Person.model_validate_json(got.content[0].text)


def test_chat_json_object(cluster):
    r = httpx.post(cluster.url + "/v1/chat/completions", timeout=60 * SLOW,
                   json={"model": "m", "messages": [{"role": "user", "content": "Three fruits and their colours, as JSON."}],
                         "temperature": 0, "max_tokens": 200, "response_format": {"type": "json_object"}})
    assert r.status_code == 200, r.text
    choice = r.json()["choices"][0]
    assert choice["message"]["content"].startswith("{")
    assert choice["finish_reason"] == "length" or isinstance(json.loads(choice["message"]["content"]), dict)


COLOUR = {"type": "object", "additionalProperties": False, "required": ["colour"], "properties": {"colour": {"enum": ["red", "green", "blue"]}},
          "x-guidance": {"whitespace_flexible": False}}


def reasoned(url, **more):
    """Returns reasoning, content and finish reason of a stream."""
    body = {"model": "m", "temperature": 1, "max_tokens": 300, "stream": True,
            "response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": COLOUR}}, **more}
    reasoning, content, finish = "", "", None
    with httpx.stream("POST", url + "/v1/chat/completions", json=body, timeout=60 * SLOW) as r:
        for line in r.iter_lines():
            for c in json.loads(line[6:])["choices"] if line.startswith("data: {") else []:
                reasoning += c["delta"].get("reasoning") or ""
                content += c["delta"].get("content") or ""
                finish = c["finish_reason"] or finish
    return reasoning, content, finish


def test_reasoning_comes_before_the_grammar():
    """Text before the marker is free, and text after it follows the schema. The model does not know the marker, so logit biases make
    it generate the marker."""
    with cpu_cluster("--max-model-len", 512, "--reasoning-parser", "deepseek_v3") as c:
        ids = httpx.post(c.url + "/tokenize", json={"model": "m", "prompt": "a</think>", "add_special_tokens": False}).json()["tokens"][1:]
        chat = [{"role": "user", "content": "A colour?"}, {"role": "assistant", "content": "<think>Perhaps"}]
        for seed in range(2):
            more = {"messages": chat, "continue_final_message": True, "add_generation_prompt": False, "seed": seed,
                    "logit_bias": {str(i): 100 for i in ids}}
            reasoning, content, finish = reasoned(c.url, **more)
            assert finish == "stop" and "</think>" not in reasoning, (reasoning, content)
            assert json.loads(content)["colour"] in ("red", "green", "blue")
            whole = httpx.post(c.url + "/v1/chat/completions", timeout=60 * SLOW, json={
                "model": "m", "temperature": 1, "max_tokens": 300, **more,
                "response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": COLOUR}}}).json()["choices"][0]["message"]
            assert (whole.get("reasoning") or "", whole["content"]) == (reasoning, content)
        more = {"messages": chat, "continue_final_message": True, "add_generation_prompt": False, "max_tokens": 20}
        reasoning, content, finish = reasoned(c.url, **more)  # The reasoning is free text, until the marker ends it.
        assert finish == "length" and len(reasoning) > 20 and not content, (reasoning, content)
        # When reasoning has not begun, the answer begins at once, or the opening marker is first.
        opening = httpx.post(c.url + "/tokenize", json={"model": "m", "prompt": "<think>", "add_special_tokens": False}).json()["tokens"]
        for bias in (-100, 100):
            more = {"messages": chat[:1], "seed": 0, "logit_bias": {str(opening[0]): bias}, "max_tokens": 300 if bias < 0 else 20}
            reasoning, content, finish = reasoned(c.url, **more)
            assert (finish == "stop" and not reasoning) if bias < 0 else (finish == "length" and reasoning and not content), (reasoning, content)
            assert bias > 0 or json.loads(content)["colour"] in ("red", "green", "blue")


@pytest.mark.parametrize("extra,field,words", [
    ({"structured_outputs": {"json": {"type": "array", "minItems": 10**9}}}, "structured_outputs", "minItems"),
    ({"guided_grammar": "start: %json {\"type\": \"array\", \"minItems\": 1000000000}"}, "guided_grammar", "minItems"),
    ({"structured_outputs": {"json": {"type": "string", "pattern": "^\"[a-z]+$"}}}, "structured_outputs", "quote"),
    ({"guided_json": {"type": "nothing"}}, "guided_json", "nothing"),
    ({"structured_outputs": {"regex": "(a"}}, "structured_outputs", "unclosed group"),
    ({"structured_outputs": {"grammar": "start: nobody"}}, "structured_outputs", "nobody"),
    ({"guided_grammar": "root ::= nobody"}, "guided_grammar", "uses the rule nobody, which is not defined"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"minimum": 3, "maximum": 2, "type": "integer"}}}},
     "response_format", "nsatisfiable"),
    ({"structured_outputs": {"regex": "(" * 65 + "a" + ")" * 65}}, "structured_outputs", "nested"),
    ({"structured_outputs": {"regex": "a" * 300000}}, "structured_outputs", "300000 bytes"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "only one of them")])
def test_what_is_no_grammar_is_refused(cluster, extra, field, words):
    r = httpx.post(cluster.url + "/v1/completions", json=body(extra), timeout=60 * SLOW)
    assert r.status_code == 400 and r.json()["error"]["param"] == field and words in r.json()["error"]["message"], r.text
