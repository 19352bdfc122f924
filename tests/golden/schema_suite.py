#!/usr/bin/env python3
"""Tests the grammars made from schemas with the official JSON Schema Test Suite. Each schema is compiled over single bytes, and the
matcher checks each instance of the suite. A valid instance must be accepted and any other instance refused; a schema may be
refused by name (a 400). The suite is in the source distribution of PyPI's jsonschema, which pip fetches once into
COX_CACHE/schema-suite. Without the suite the test says so and exits with status 77 (skipped).
Usage:
  schema_suite.py [--lib build/text/release/libcoxtext.a] [--table] [--verbose] [keyword ...]
--table writes the table of docs/develop/structured-outputs.md; without it, that table must equal the result.
"""
import argparse
import collections
import decimal
import fcntl
import glob
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

from grammar_lib import JSON_SCHEMA, GrammarLib, Vocabulary, default_lib
from text_golden import CACHE, ROOT, TextError, skip

PACKAGE, SHA256 = "jsonschema==4.26.0", "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
DRAFTS = {"draft7": "http://json-schema.org/draft-07/schema#", "draft2020-12": "https://json-schema.org/draft/2020-12/schema"}
ENFORCED = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
PAGE = os.path.join(ROOT, "docs", "develop", "structured-outputs.md")
MOST_FORMS = 200


class Real(str):
    """Holds a number with its text in the source."""


def load(path):
    return json.load(open(path, encoding="utf-8"), parse_float=Real, parse_int=lambda s: Real(s))


def dump(v, gap=""):
    """Writes JSON with numbers in the text that the source had, and with `gap` between tokens."""
    if isinstance(v, Real):
        return str(v)
    if isinstance(v, dict):
        return "{" + gap + ("," + gap).join(f"{dump(k)}{gap}:{gap}{dump(x, gap)}" for k, x in v.items()) + gap + "}"
    if isinstance(v, list):
        return "[" + gap + ("," + gap).join(dump(x, gap) for x in v) + gap + "]"
    return json.dumps(v, ensure_ascii=False)


def fetch_suite():
    folder = os.path.join(CACHE, "schema-suite")
    path = os.path.join(folder, PACKAGE, "tests")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(path):
            unpack_suite(folder, path)
    return path


def unpack_suite(folder, path):
    with tempfile.TemporaryDirectory(dir=folder) as room:
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", "-d", room, PACKAGE],
                              capture_output=True, text=True)
        found = glob.glob(os.path.join(room, "*.tar.gz"))
        if done.returncode or len(found) != 1:
            skip(f"the source distribution of {PACKAGE} is not in {folder} and could not be fetched: {done.stderr.strip()[-200:]}")
        if hashlib.sha256(open(found[0], "rb").read()).hexdigest() != SHA256:
            sys.exit(f"{found[0]}: not the file that the table was made with")
        with tarfile.open(found[0]) as tar:
            tar.extractall(room, filter="data")
        made = glob.glob(os.path.join(room, "*", "json", "tests"))[0]
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        os.makedirs(os.path.dirname(path))
        os.rename(made, path)


def dialect(schema, uri):
    return {"$schema": uri, **schema} if isinstance(schema, dict) and "$schema" not in schema else schema


def accepts(grammar, text):
    m = grammar.matcher()
    try:
        return all(m.accept(b) for b in text.encode("utf-8", "surrogatepass")) and bool(m.mask() >> grammar.v.eos & 1)
    except TextError:
        return False
    finally:
        m.close()


def orders(v):
    """Yields the value with the members of its objects in all orders."""
    if isinstance(v, dict):
        inner = [[(k, x) for x in orders(x)] for k, x in v.items()]
        for members in itertools.product(*inner):
            for p in itertools.permutations(members):
                yield dict(p)
    elif isinstance(v, list):
        for items in itertools.product(*[list(orders(x)) for x in v]):
            yield list(items)
    else:
        yield v


def plain(v):
    """Returns the value with numbers without an exponent and without a fraction of zeros."""
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, list):
        return [plain(x) for x in v]
    if isinstance(v, Real) and decimal.Decimal(v) == int(decimal.Decimal(v)):
        return Real(int(decimal.Decimal(v)))
    return v


def verdict(grammar, data):
    """Returns how the grammar accepts a value: as it is written, in another order or spelling, or not at all."""
    compact, spaced = accepts(grammar, dump(data)), accepts(grammar, dump(data, " \n"))
    if compact != spaced:
        return "whitespace"
    if compact:
        return "accepted"
    for form in itertools.islice(orders(plain(data)), MOST_FORMS):
        if accepts(grammar, dump(form)):
            return "canonical"
    return "refused"


def keywords(v):
    """Yields all names in a schema, and its formats."""
    if isinstance(v, dict):
        for k, x in v.items():
            yield (k, x) if isinstance(x, str) else (k, None)
            yield from keywords(x)
    elif isinstance(v, list):
        for x in v:
            yield from keywords(x)


def documented(name, schema, test, how):
    """Returns why a verdict other than the suite's is intended (docs/reference/structured-outputs.md lists the reasons). Returns
    None when the verdict is wrong."""
    found = list(keywords(schema))
    formats = {x for k, x in found if k == "format"}
    names = {k for k, _ in found}
    if test["valid"] and how == "refused":
        if formats & ENFORCED and (name == "format" or name in ("optional/format/email", "optional/format/time", "optional/format/date-time")):
            return "stricter"  # the suite ignores the format, or we refuse a quoted mailbox or a leap second outside UTC
        if not str(schema.get("$schema", "")).startswith(("http://json-schema.org/", "https://json-schema.org/")):
            return "stricter"  # a dialect that turns off keywords is read as the newest draft
    if not test["valid"] and how == "accepted":
        if names <= {"$schema", "format"} and not formats & ENFORCED:
            return "annotation"
        if names <= {"$schema", "contentMediaType", "contentEncoding"}:
            return "annotation"
    return None


COLUMNS = ("schemas", "named", "accepted", "canonical", "stricter", "refused", "annotation", "wrong")


class Row:
    def __init__(self):
        for column in COLUMNS:
            setattr(self, column, 0)

    def count(self, column):
        setattr(self, column, getattr(self, column) + 1)


def judge(name, schema, test, how):
    """Returns the table's column for an instance's verdict."""
    if test["valid"] and how in ("accepted", "canonical"):
        return how
    if not test["valid"] and how == "refused":
        return "refused"
    return documented(name, schema, test, how) or "wrong"


def check_group(v, name, row, group, uri, tell):
    row.count("schemas")
    schema = dialect(group["schema"], uri)
    try:
        grammar = v.grammar(JSON_SCHEMA, dump(schema))
    except TextError as e:
        if "allows no text" not in e.message and "nsatisfiable" not in e.message:
            row.count("named")
            tell("named", group, None, e.message)
            return
        grammar = None
    for t in group["tests"]:
        how = verdict(grammar, t["data"]) if grammar else "refused"
        column = judge(name, schema, t, how)
        row.count(column)
        tell(column, group, t, how)
    if grammar:
        grammar.close()


def groups(suite, only):
    for draft, uri in DRAFTS.items():
        for path in sorted(glob.glob(os.path.join(suite, draft, "**", "*.json"), recursive=True)):
            name = os.path.splitext(os.path.relpath(path, os.path.join(suite, draft)))[0]
            if not only or name in only:
                yield from ((name, uri, group) for group in load(path))


def table(rows):
    head = ("keyword", "schemas", "refused by name", "valid: accepted", "in another spelling", "stricter", "invalid: refused", "an annotation", "wrong")
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * len(COLUMNS) + "|"]
    total = Row()
    for name, r in sorted(rows.items(), key=lambda x: (x[0].count("/"), x[0])):
        lines.append(f"| `{name}` | " + " | ".join(str(getattr(r, c)) for c in COLUMNS) + " |")
        for c in COLUMNS:
            setattr(total, c, getattr(total, c) + getattr(r, c))
    lines.append("| **all** | " + " | ".join(f"**{getattr(total, c)}**" for c in COLUMNS) + " |")
    return "\n".join(lines) + "\n", total


MARKS = "<!-- table of tests/golden/schema_suite.py -->\n", "<!-- end of the table -->\n"


def with_table(page, text):
    """Returns the page with this table between its marks."""
    before, rest = page.split(MARKS[0])
    return before + MARKS[0] + text + MARKS[1] + rest.split(MARKS[1])[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lib", default=default_lib())
    p.add_argument("--table", action="store_true")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("keywords", nargs="*")
    a = p.parse_args()
    if not os.path.exists(a.lib):
        skip(f"{a.lib} is not built")
    suite = fetch_suite()
    v = Vocabulary(GrammarLib(a.lib), "builtin:bytes")
    rows = collections.defaultdict(Row)
    for name, uri, group in groups(suite, a.keywords):
        def tell(what, group, test, why):
            if a.verbose and what not in ("accepted", "refused") or what == "wrong":
                data = f" | {test['description']}: {dump(test['data'])[:100]} is {'' if test['valid'] else 'in'}valid" if test else ""
                print(f"{what}: {name}: {group['description']}{data} | {dump(group['schema'])[:300]} | {why}")
        check_group(v, name, rows[name], group, uri, tell)
    text, total = table(rows)
    print(text)
    page = open(PAGE, encoding="utf-8").read() if os.path.exists(PAGE) and not a.keywords else None
    if page and a.table:
        open(PAGE, "w", encoding="utf-8").write(with_table(page, text))
    elif page and page != with_table(page, text):
        sys.exit(f"{PAGE} has another table: tests/golden/schema_suite.py --table writes it")
    sys.exit(1 if total.wrong else 0)


if __name__ == "__main__":
    main()
