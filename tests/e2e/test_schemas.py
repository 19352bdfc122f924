"""Tests that answers sampled at temperature 1 parse and follow their JSON schema, for every keyword. Another program validates them.
A part of the schemas is tested, or COX_GENERATIONS answers (scripts/acceptance e4)."""
import asyncio
import datetime
import decimal
import json
import os
import re

import httpx
import jsonschema
import pytest
from cluster import SHORT, SLOW
from json_schemas import EXAMPLES, SCHEMAS
from real_model import cpu_cluster, needs_model

pytestmark = [needs_model, pytest.mark.timeout(1200)]
N = int(os.environ.get("COX_GENERATIONS") or (8 if SHORT else 40))
AT_ONCE = 16
FORMATS = jsonschema.FormatChecker()
PATTERNS = {"hostname": r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*",
            "duration": r"P(?=.)(\d+Y)?(\d+M)?(\d+D)?(\d+W)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?",
            "time": r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"}
for name, pattern in PATTERNS.items():
    FORMATS.checks(name)(lambda v, p=pattern: not isinstance(v, str) or re.fullmatch(p, v) is not None)
FORMATS.checks("date-time")(lambda v: "T" in v.upper() and re.fullmatch(PATTERNS["time"], v[11:]) is not None and is_date(v[:10]))


def is_date(v):
    try:
        return datetime.date.fromisoformat(v).isoformat() == v
    except ValueError:
        return False


def chosen():
    """Returns the schemas in turn, spread over the list when there are fewer answers than schemas."""
    names = list(SCHEMAS)
    step = max(1, len(names) // N)
    return [(names[i * step % len(names)], i) for i in range(N)]


def prompt(name):
    asked = f"An example of {name.replace('_', ' ')}, as JSON:\n"
    return f"{asked}{EXAMPLES[name]}\n{asked}" if name in EXAMPLES else asked


async def ask(client, limit, name, seed):
    body = {"model": "m", "prompt": prompt(name), "max_tokens": 300, "temperature": 1, "seed": seed, "structured_outputs": {"json": SCHEMAS[name]}}
    async with limit:
        r = await client.post("/v1/completions", json=body)
    assert r.status_code == 200, (name, r.text)
    return name, r.json()["choices"][0]


async def ask_all(url):
    limit = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=url, timeout=600 * SLOW) as client:
        return await asyncio.gather(*(ask(client, limit, *c) for c in chosen()))


def exact(text):
    """Reads numbers as decimals, because 1.15 is a multiple of 0.01, although its nearest double is not."""
    return json.loads(text, parse_float=decimal.Decimal)


def fault(name, text):
    try:
        jsonschema.validate(exact(text), exact(json.dumps(SCHEMAS[name])), cls=jsonschema.Draft202012Validator, format_checker=FORMATS)
    except (ValueError, jsonschema.ValidationError) as e:
        return f"{name}: {text!r}: {str(e).splitlines()[0]}"
    return None


@pytest.fixture(scope="module")
def answers():
    with cpu_cluster("--max-model-len", 512) as c:
        yield asyncio.run(ask_all(c.url))


def test_answers_keep_to_their_schemas(answers, capsys):
    ended = [(name, c) for name, c in answers if c["finish_reason"] == "stop"]
    faults = [f for f in (fault(name, c["text"]) for name, c in ended) if f]
    cut = sorted({name for name, c in answers if c["finish_reason"] == "length"})
    with capsys.disabled():
        print(f"\ngenerations: {len(answers)} of {len({n for n, _ in answers})} schemas, {len(ended)} ended, {len(ended) - len(faults)} of "
              f"them valid; {len(answers) - len(ended)} reached max_tokens: {', '.join(cut) or 'none'}")
    assert not faults, "\n".join(faults)
    assert len(ended) >= 0.98 * len(answers)


def test_they_are_drawn(answers):
    """Answers must differ, because text that the schema forces would not test the grammar."""
    assert len({c["text"] for _, c in answers}) > 0.5 * len(answers)


@pytest.mark.parametrize("name,text", [
    ("integer", '{"value":1001}'), ("date", '{"value":"2023-02-30"}'), ("time", '{"value":"24:00:00Z"}'), ("ipv4", '{"value":"256.1.1.1"}'),
    ("duration", '{"value":"P"}'), ("hostname", '{"value":"-a"}'), ("uuid", '{"value":"x"}'), ("email", '{"value":"x"}'),
    ("date_time", '{"value":"2023-02-30T00:00:00Z"}'), ("optional", '{"name":"ab","more":1}'), ("decimals", '{"value":1.155}'),
    ("number", '{"value":0.3}'), ("bare_boolean", "tru")])
def test_the_judge_sees_faults(name, text):
    assert fault(name, text)


@pytest.mark.parametrize("name,text", [("decimals", '{"value":1.15}'), ("number", '{"value":-9.75}'), ("enum_objects", '{"value":2.5}')])
def test_the_judge_is_exact(name, text):
    assert not fault(name, text)
