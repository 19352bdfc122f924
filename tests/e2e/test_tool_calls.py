"""Tests tool calls over HTTP with a tiny model: the contents of a forced call, and the meaning of text between tags. Forced calls
are sampled at temperature 1 from random weights, so everything that the grammar allows soon appears. For text between tags, a
choice with one text fixes the model's output."""
import json
import re

import httpx
import jsonschema
import pytest
from cluster import ROOT, SLOW, Cluster

MODEL = ROOT / "build/goldens/llama_tiny"
pytestmark = pytest.mark.skipif(not MODEL.exists(), reason=f"no {MODEL}: scripts/make-goldens")
SEEDS = range(6)


@pytest.fixture(scope="module")
def http():
    with Cluster("--device", "cpu", "--served-model-name", "m", "--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder",
                 workers=1, tp=1, model=str(MODEL)) as c, httpx.Client(base_url=c.url, timeout=60 * SLOW) as client:
        yield client


def tool(name, parameters=None):
    function = {"name": name} if parameters is None else {"name": name, "parameters": parameters}
    return {"type": "function", "function": function}


def chat(http, **more):
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 400, "temperature": 1, **more}
    r = http.post("/v1/chat/completions", json=body)
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]


def calls(choice):
    assert choice["finish_reason"] == "tool_calls", choice
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in choice["message"]["tool_calls"]]


BOOL, WORD = {"type": "boolean"}, {"enum": ["red", "green"]}
TWO = [tool("f", {"type": "object", "properties": {"v": {"$ref": "#/$defs/D"}}, "required": ["v"], "$defs": {"D": WORD}}),
       tool("g", {"type": "object", "properties": {"v": {"$ref": "#/$defs/D"}}, "required": ["v"], "$defs": {"D": BOOL}})]
OLD_TWO = [tool("f", {"type": "object", "properties": {"v": {"$ref": "#/definitions/D"}}, "required": ["v"], "definitions": {"D": WORD}}),
           tool("g", {"type": "object", "properties": {"v": {"$ref": "#/definitions/D"}}, "required": ["v"], "definitions": {"D": BOOL}})]
ANCHORED = [tool(name, {"properties": {"v": {"$ref": "#T"}}, "required": ["v"], "$defs": {"k": {"$anchor": "T", **schema}}})
            for name, schema in (("f", WORD), ("g", BOOL))]
NESTED = {"type": "object", "properties": {"v": BOOL, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["v"]}
SIBLING = {"type": "object", "properties": {"a": WORD, "b": {"$ref": "#/properties/a"}}, "required": ["a", "b"]}
ARGUMENTS = {"definitions of one name": TWO, "old definitions of one name": OLD_TWO, "anchors of one name": ANCHORED,
             "a property of the tool": [tool("f", SIBLING)], "no parameters": [tool("f")], "empty parameters": [tool("f", {})],
             "no type": [tool("f", {"properties": {"a": BOOL}, "required": ["a"]})],
             "a part of one": [tool("f", {"properties": {"o": {"allOf": [{"$ref": "#/$defs/D"}]}}, "required": ["o"],
                                          "$defs": {"D": {"type": "object", "properties": {"q": BOOL}}}})],
             "one of two": [tool("f", {"properties": {"x": BOOL, "y": BOOL}, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]})],
             "optional ones": [tool("f", {"type": "object", "properties": {"a": BOOL, "b": WORD}})],
             "objects in lists": [tool("f", {"properties": {"a": {"type": "array", "maxItems": 2, "items": {"properties": {"b": BOOL}}}}})]}


def closed(schema):
    """Returns the schema in the form of the forced call's grammar: an object with listed properties has no others."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {k: v if k == "enum" else closed(v) for k, v in schema.items()}
    if isinstance(schema.get("properties"), dict) and "anyOf" not in schema:
        schema["additionalProperties"] = False
    return schema


@pytest.mark.parametrize("tools", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.parametrize("named", [False, True], ids=["required", "named"])
def test_forced_arguments_follow_their_own_schema(http, tools, named):
    schemas = {t["function"]["name"]: t["function"].get("parameters") or {"properties": {}} for t in tools}
    for seed in SEEDS:
        name = tools[seed % len(tools)]["function"]["name"]
        choice = {"type": "function", "function": {"name": name}} if named else "required"
        made = calls(chat(http, tools=tools, tool_choice=choice, parallel_tool_calls=False, seed=seed))
        assert len(made) == 1 and (not named or made[0][0] == name)
        assert isinstance(made[0][1], dict)
        jsonschema.validate(made[0][1], {**closed(schemas[made[0][0]]), "type": "object"})


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}], ids=["required", "named"])
def test_a_reference_to_the_tools_own_root(http, choice):
    """A random model nests one level after another, so most answers end because of their length."""
    for seed in SEEDS:
        message = chat(http, tools=[tool("f", NESTED)], tool_choice=choice, parallel_tool_calls=False, seed=seed, max_tokens=120)["message"]
        written = message["tool_calls"][0]["function"]["arguments"]
        assert re.match(r'(\{"v":(true|false),"next":)*(null|\{"v":(true|false)\}|\{?("(v|next|)?"?:?[a-z]*)?$)', written), written


def test_a_forced_call_that_breaks_off(http):
    """The list form of a forced call never appears as content, wherever the answer ends. The client receives the arguments that were
    generated."""
    ask = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool("f", {"properties": {"a": BOOL}, "required": ["a"]})]}
    with_call = set()
    for n in range(1, 60, 2):
        said = chat(http, **ask, tool_choice="required", max_tokens=n, seed=n)
        assert said["message"]["content"] == "" and said["finish_reason"] in ("length", "tool_calls"), said
        with_call.add(bool(said["message"].get("tool_calls")))
    assert with_call == {True, False}
    r = http.post("/v1/messages", json={"model": "m", "messages": ask["messages"], "max_tokens": 3, "tools": [{"name": "f", "input_schema": {}}],
                                        "tool_choice": {"type": "any"}})
    assert (r.json()["content"], r.json()["stop_reason"]) == ([], "max_tokens")


@pytest.mark.parametrize("stop", ['"', "a", "{", "true", "\n"])
def test_stop_strings_do_not_end_a_forced_call(http, stop):
    made = calls(chat(http, tools=[tool("f", {"properties": {"a": {"enum": ["a true {"]}}, "required": ["a"]})], tool_choice="required",
                      parallel_tool_calls=False, stop=[stop]))
    assert made == [("f", {"a": "a true {"})]


FORMATS = [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}]


@pytest.mark.parametrize("response_format", FORMATS, ids=["json_object", "json_schema"])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}], ids=["required", "named"])
def test_a_forced_call_goes_before_a_format(http, response_format, choice):
    made = calls(chat(http, tools=[tool("f", {"properties": {"a": BOOL}, "required": ["a"]})], tool_choice=choice,
                      response_format=response_format, parallel_tool_calls=False))
    assert [name for name, _ in made] == ["f"] and type(made[0][1]["a"]) is bool


def test_a_forced_call_goes_before_a_format_in_other_dialects(http):
    schema = {"type": "object", "properties": {"a": BOOL}, "required": ["a"]}
    fmt = {"type": "json_schema", "name": "x", "schema": {"type": "integer"}}
    r = http.post("/v1/responses", json={"model": "m", "input": "Hi", "max_output_tokens": 200, "tool_choice": "required", "parallel_tool_calls": False,
                                         "tools": [{"type": "function", "name": "f", "parameters": schema}], "text": {"format": fmt}})
    assert r.status_code == 200 and [o["type"] for o in r.json()["output"]] == ["function_call"], r.text
    r = http.post("/v1/messages", json={"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200,
                                        "tools": [{"name": "f", "input_schema": schema}], "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
                                        "output_config": {"format": {"type": "json_schema", "schema": {"type": "integer"}}}})
    assert r.status_code == 200 and [b["type"] for b in r.json()["content"]] == ["tool_use"], r.text


# Each case of TYPED has the parameter's schema, the model's text, and the resulting argument.
TYPED = [({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None), ({"type": ["string", "null"]}, "null", None),
         ({"type": ["integer", "string"]}, "42", 42), ({"oneOf": [{"type": "integer"}]}, "42", 42),
         ({"allOf": [{"type": "integer"}]}, "42", 42), ({"enum": [1, 42]}, "42", 42), ({"const": 42}, "42", 42),
         ({"$ref": "#/$defs/D"}, "42", 42), ({"type": "string"}, "42", "42"), ({"type": "string"}, "null", "null"),
         ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "4 apples", "4 apples"), ({"type": "object"}, '{"x": [1]}', {"x": [1]})]


def test_text_between_tags_is_typed_by_the_schema(http):
    for schema, text, want in TYPED:
        written = f"<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"
        tools = [tool("f", {"type": "object", "properties": {"a": schema}, "$defs": {"D": {"type": "integer"}}})]
        choice = chat(http, tools=tools, structured_outputs={"choice": [written]})
        assert calls(choice) == [("f", {"a": want})], (schema, text)


def test_numbers_beyond_64_bits_go_through(http):
    most = 2**64 - 1
    schema = {"properties": {"a": {"type": "integer", "minimum": 0, "maximum": most, "default": 10**30}}, "required": ["a"]}
    made = calls(chat(http, tools=[tool("f", schema)], tool_choice="required", parallel_tool_calls=False))
    assert 0 <= made[0][1]["a"] <= most
    r = http.post("/v1/responses", json={"model": "m", "input": "Hi", "max_output_tokens": 1, "metadata": {"n": "1"}, "top_logprobs": 10**30})
    assert r.status_code == 400 and r.json()["error"]["param"] == "top_logprobs", r.text
    r = http.post("/v1/chat/completions", json={"model": "m", "messages": [{"role": "user", "content": 10**30}]})
    assert r.status_code == 400, r.text  # the gateway does not turn the number into text
