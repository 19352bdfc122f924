"""Attacks with grammars, schemas and regular expressions: their cost to compile and to run, in any spelling, and the end of an
answer that the model cannot finish."""
import json
import sys

from attacks import Attack, answered

sys.setrecursionlimit(20000)  # the module json writes deep schemas recursively


def patterns(n, repeat=5, by="allOf"):
    return {by: [{"type": "string", "pattern": "(.*[a-z]%d.{%d})" % (i, repeat)} for i in range(n)]}


def nested(depth, make):
    s = {"type": "integer"}
    for _ in range(depth):
        s = make(s)
    return s


def optional(n, **more):
    return {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(n)}, "additionalProperties": False, **more}


def by_schema(family, name, schema, **fields):
    return Attack(f"{family}/{name}", family, lambda t: [t.schema(schema, **fields)])


def by_regex(name, regex):
    return Attack(f"allof/{name}", "allof", lambda t: [t.complete(structured_outputs={"regex": regex})])


ALLOF = [
    by_schema("allof", "16", patterns(16)),
    by_schema("allof", "30", patterns(30)),
    by_schema("allof", "any_of_40", patterns(40, 30, "anyOf")),
    by_schema("allof", "nested", {"allOf": [patterns(6), {"allOf": [patterns(6), patterns(7, 9)]}]}),
    by_schema("allof", "pattern_of_1000", {"type": "string", "pattern": "(.*[ab].{1000})"}),
    by_schema("allof", "min_length_1e9", {"type": "string", "minLength": 10**9, "pattern": "^(a|b)*$"}),
    by_schema("allof", "min_items_1e6", {"type": "array", "items": {"type": "integer"}, "minItems": 10**6}),
    by_schema("allof", "enum_of_20000", {"enum": [f"value {i} of them" for i in range(20000)]}),
    by_schema("allof", "refs_in_a_circle", {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}, patterns(5)]},
                                                                           "b": {"anyOf": [{"$ref": "#/$defs/a"}, patterns(9)]}}}),
    by_schema("allof", "refs_doubled", {"$ref": "#/$defs/d24", "$defs": {
        "d0": {"type": "string"}, **{f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{i - 1}"}, "b": {"$ref": f"#/$defs/d{i - 1}"}},
                                               "allOf": [{"$ref": f"#/$defs/d{i - 1}"}] * 2} for i in range(1, 25)}}}),
    by_schema("allof", "deep_2000", nested(2000, lambda s: {"type": "array", "items": s})),
    by_schema("allof", "one_of_300", {"oneOf": [optional(6, required=[f"p{i % 6}"], title=str(i)) for i in range(300)]}),
    by_schema("allof", "pattern_properties", {"type": "object", "patternProperties": {"^.*[a-z]%d.{9}$" % i: {} for i in range(30)}}),
    by_regex("regex_of_two_to_the_40", "(.*a.{40})"),
    by_regex("regex_alternatives", "|".join("(a{%d}b?)*c" % i for i in range(200))),
    by_regex("regex_bounds_of_bounds", "((((a{1,40}){1,40}){1,40}){1,40})"),
    by_regex("regex_and_not", "(?:.*[a-f].{18})(?:.*[b-g].{18})(?:.*[c-h].{18})"),
    Attack("allof/lark_intersection", "allof", lambda t: [t.complete(structured_outputs={
        "grammar": "start: A\nA: " + " & ".join("/.*[a-z]%d.{6}/" % i for i in range(14)) + "\n"})]),
    Attack("allof/by_a_tool", "allof", lambda t: [t.chat(tool_choice="required", tools=[
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": patterns(16)}}}}])]),
    Attack("allof/by_responses", "allof", lambda t: [t.post("/v1/responses", {
        "model": t.model, "input": "Hi", "max_output_tokens": 16,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": {"a": patterns(16)}}}}})]),
    Attack("allof/eight_at_once", "allof", lambda t: [t.schema(patterns(16 + i)) for i in range(8)], seconds=60),
]


def spelled(t, name, value, path="/v1/completions", **fields):
    """Makes a body in which the first letter of a key is an escape, so that no text search finds the key."""
    base = {"model": t.model, "max_tokens": 2, **({"prompt": "Hi"} if path == "/v1/completions" else
                                                  {"messages": [{"role": "user", "content": "Hi"}]}), **fields}
    inner = json.dumps(value).replace('"json_schema"', '"\\u006ason_schema"').replace('"pattern"', '"p\\u0061ttern"')
    raw = json.dumps(base)[:-1] + ', "\\u%04x%s": %s}' % (ord(name[0]), name[1:], inner)
    return t.post(path, raw.encode())


HEAVY = {"type": "json_schema", "json_schema": {"name": "x", "schema": patterns(13)}}
INLINE = [
    Attack("inline/response_format", "inline", lambda t: [spelled(t, "response_format", HEAVY)]),
    Attack("inline/structured_outputs", "inline", lambda t: [spelled(t, "structured_outputs", {"json": patterns(13)})]),
    Attack("inline/chat", "inline", lambda t: [spelled(t, "response_format", HEAVY, "/v1/chat/completions")]),
    Attack("inline/tools", "inline", lambda t: [spelled(t, "tools", [{"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "properties": {"a": patterns(13)}}}}], "/v1/chat/completions", tool_choice="required")]),
    Attack("inline/twice", "inline", lambda t: [t.post("/v1/completions", (
        '{"model":"%s","prompt":"Hi","max_tokens":2,"response_format":{"type":"text"},"response_format":%s}' % (t.model, json.dumps(HEAVY))).encode())]),
    Attack("inline/every_letter", "inline", lambda t: [t.post("/v1/completions", ('{"model":"%s","prompt":"Hi","max_tokens":2,"%s":%s}' % (
        t.model, "".join("\\u%04x" % ord(c) for c in "response_format"), json.dumps(HEAVY))).encode())]),
    Attack("inline/100_properties", "inline", lambda t: [spelled(t, "response_format", {
        "type": "json_schema", "json_schema": {"name": "x", "schema": optional(400)}})]),
    Attack("inline/messages", "inline", lambda t: [spelled(t, "output_config", {"format": {"type": "json_schema", "schema": patterns(13)}}, "/v1/messages")]),
    Attack("inline/responses", "inline", lambda t: [t.post("/v1/responses", ('{"model":"%s","input":"Hi","max_output_tokens":16,"t\\u0065xt":{"format":%s}}' % (
        t.model, json.dumps({"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": {"a": patterns(13)}}}))).encode())]),
    Attack("inline/behind_blanks", "inline", lambda t: [t.post("/v1/completions", (
        '{"model":"%s","prompt":"Hi","max_tokens":2,%s"\\u0072esponse_format"%s:%s}' % (t.model, " " * 3000, "\t" * 500, json.dumps(HEAVY))).encode())]),
    Attack("inline/in_a_large_body", "inline", lambda t: [spelled(t, "response_format", HEAVY, prompt="word " * 2000)]),
    Attack("inline/regex", "inline", lambda t: [spelled(t, "structured_outputs", {"regex": "(.*a.{30})"})]),
]


def lark(name, grammar, n=4, **fields):
    return Attack(f"mask/{name}", "mask", lambda t: [t.complete(structured_outputs={"grammar": grammar}, max_tokens=48, temperature=1,
                                                                seed=i, **fields) for i in range(n)], seconds=60)


MASK = [
    lark("ambiguous", "start: s\ns: s s | s s s | /[a-z ]/ | \n"),
    lark("empty_all_over", "start: a a a a a a a a\na: b b b b |\nb: c c c c |\nc: /[a-z]/ | \n"),
    lark("left_and_right", "start: e\ne: e e | \"(\" e \")\" | e \"+\" e | e \"*\" e | /[a-z ]+/\n"),
    lark("palindromes", "start: p\np: \"a\" p \"a\" | \"b\" p \"b\" | p p | \"a\" | \"b\" | \n"),
    lark("many_terminals", "start: (" + " | ".join(f"T{i}" for i in range(400)) + ")*\n" + "".join("T%d: /[a-z]{%d} ?/\n" % (i, i % 30 + 1) for i in range(400))),
    lark("optional_tail", "start: " + " ".join(f"[x{i}]" for i in range(60)) + "\n" + "".join(f"x{i}: /[a-z ]/\n" for i in range(60))),
    lark("deep_stack", "start: d\nd: \"(\" d | /[a-z]/ d \")\" | d d | /./ \n"),
    lark("ignore", "start: w+\nw: /[a-z]+/ | w w\n%ignore /[ \\t\\n]+/\n"),
    Attack("mask/choices_5000", "mask", lambda t: [t.complete(structured_outputs={"choice": [f"answer number {i} of many" for i in range(5000)]}, max_tokens=16)] * 4),
    Attack("mask/regex_wide", "mask", lambda t: [t.complete(structured_outputs={"regex": "([a-z]+ ?|[A-Z]+|.){1,400}"}, max_tokens=48)] * 4),
    Attack("mask/schema_wide", "mask", lambda t: [t.schema({"type": "array", "items": {"anyOf": [optional(8, title=str(i)) for i in range(40)]}}, max_tokens=48)] * 4),
]


def ends_right(results, t):
    """Checks that an answer with a strict schema and the reason "stop" is whole JSON. Any other answer must name another reason."""
    if why := answered(results, t):
        return why
    for r in results:
        if r.status != 200:
            continue
        choice = json.loads(r.text())["choices"][0]
        calls = choice["message"].get("tool_calls") or []
        text = choice["message"]["content"] or (calls[0]["function"]["arguments"] if calls else "")
        if choice["finish_reason"] in ("stop", "tool_calls"):
            try:
                json.loads(text)
            except ValueError:
                return f"finish_reason {choice['finish_reason']} behind {text[:60]!r}"
    return ""


def stops(name, schema, **fields):
    return Attack(f"stop/{name}", "stop", lambda t: [t.schema(schema, max_tokens=40, temperature=0, **fields)], ends_right)


STOP = [
    *(stops(f"optional_{n}", optional(n)) for n in (300, 490, 510, 550, 700, 1200)),
    stops("required_700", optional(700, required=[f"p{i}" for i in range(700)])),
    stops("half_required", optional(700, required=[f"p{i}" for i in range(0, 700, 2)])),
    stops("nested_500", {"type": "object", "properties": {"a": optional(500), "b": optional(500)}, "additionalProperties": False}),
    stops("open_600", {**optional(600), "additionalProperties": {"type": "string"}}),
    stops("any_of_900", {"anyOf": [{"type": "object", "properties": {f"k{i}": {"type": "integer"}}, "required": [f"k{i}"], "additionalProperties": False}
                                   for i in range(900)]}),
    stops("enum_of_5000", {"type": "object", "properties": {"e": {"enum": [f"v{i}" for i in range(5000)]}}, "required": ["e"]}),
    Attack("stop/by_a_tool", "stop", lambda t: [t.chat(max_tokens=40, temperature=0, tool_choice={"type": "function", "function": {"name": "f"}}, tools=[
        {"type": "function", "function": {"name": "f", "parameters": optional(700)}}])], ends_right),
]
ATTACKS = ALLOF + INLINE + MASK + STOP
