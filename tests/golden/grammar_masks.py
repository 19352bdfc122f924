#!/usr/bin/env python3
"""Compares the masks of text.h with those of PyPI's llguidance, the crate's own program, token by token: over real vocabularies (the
goldens' tokenizers), generated grammars, and prefixes sampled from the masks. Each side reads the tokenizer.json itself. Some
differences are intended:
- Tokens that end an answer are compared as one: here a request has several such ids, and llguidance has one.
- An added token that is not special is text here, as decoders print it. llguidance never allows such a token, so it is asked for the
  token's bytes, as tokens of a byte each.
- Names of members that a schema does not list have one spelling here. llguidance also allows escapes of characters that need no escape.
- Numbers are limited to those of which the two have the same texts (docs/reference/structured-outputs.md lists those that
  llguidance leaves out).
Usage:
  grammar_masks.py [--lib build/text/release/libcoxtext.a] [--vocabularies a,b] [--grammars N] [--prefixes N] [--seed N]
When something is missing (the goldens, npm's packages, llguidance), the program names it and exits with status 77 (skipped).
"""
import argparse
import json
import os
import random
import re
import sys
import tempfile
import time

from grammar_lib import JSON_SCHEMA, LARK, REGEX, GrammarLib, Vocabulary, default_lib
from text_golden import GOLDENS, TextError, fetch_tokenizer, skip

try:
    import llguidance
    import numpy
except ImportError as e:
    skip(f"{e.name} is not there (scripts/setup)")

LIMIT = 3  # the status TEXT_LIMIT of text.h
MOST_TOKENS = 12  # most tokens of one walk
WORDS = ["name", "id", "größe", "x y", "tags", "a\"b", "value", "日本", "next", "-", "Content-Type", ""]


def schema(r, depth=0):
    """Returns a random schema of keywords that text/src/schema/rules.rs passes on unchanged."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "any"] + (["object", "array", "anyOf"] * 2 if depth < 3 else [])
    kind = r.choice(kinds)
    if kind == "string":
        return {"type": "string", **r.choice([{}, {"maxLength": r.randint(1, 30)}, {"minLength": r.randint(1, 4), "maxLength": r.randint(5, 17)},
                                              {"pattern": "^" + regex(r) + "$"}, {"format": r.choice(["uuid", "email", "ipv4"])}])}
    if kind in ("integer", "number"):
        low = r.randint(-1000, 1000)
        low = abs(low) if kind == "number" else low  # below 0, llguidance allows no zero at the end of a fraction, and our grammar does
        return {"type": kind, **r.choice([{}, {"minimum": low}, {"minimum": low, "maximum": low + r.randint(1, 10**r.randint(1, 9))}])}
    if kind == "enum":
        return {"enum": r.sample([1, 2.5, "red", "green", "日本語", None, True, "", "a\nb", [1, "x"], {"k": 0}], r.randint(1, 5))}
    if kind == "object":
        names = r.sample(WORDS, r.randint(0, 4))
        return {"type": "object", "properties": {n: schema(r, depth + 1) for n in names}, "required": r.sample(names, r.randint(0, len(names))),
                **r.choice([{}, {"additionalProperties": False}, {"additionalProperties": {"type": "integer"}}])}
    if kind == "array":
        return {"type": "array", "items": schema(r, depth + 1), **r.choice([{}, {"minItems": 1}, {"maxItems": 3}])}
    if kind == "anyOf":
        return {"anyOf": [schema(r, depth + 1) for _ in range(r.randint(2, 3))]}
    return {} if kind == "any" else {"type": kind}


def regex(r, depth=0):
    """Returns a random pattern of classes, counts and choices. In some patterns, only the first character of a class leads
    elsewhere."""
    atom = r.choice(["[a-z]", "[A-Za-z0-9]", "[^<]", "[0-9]", "[ -~]", "(a1|[b-z])", "é", "[à-ÿ]", "[^a-c\\n]", "日", "ab", "[A-Z][a-z]", "(?:x|yz)"])
    if depth < 2 and r.random() < 0.5:
        parts = "".join(regex(r, depth + 1) for _ in range(r.randint(2, 3)))
        atom = r.choice([f"({parts})", f"({parts}|{regex(r, depth + 1)})"])
    return atom + r.choice(["", "", "+", "*", "?", "{2,5}", "{1,20}", "{0,3}"])


def lark(r):
    terms = [f"T{i}: /{regex(r)}/" for i in range(3)]
    start = r.choice(["T0 (\",\" T1)* T2", "(T0 | T1)+ \"\\n\" T2?", "\"<\" T0 \">\" start? \"</\" T1 \">\"", "T0 tail\ntail: \"=\" T1 | \";\" T2"])
    text = r.choice(["", "", "\nTEXT: /(\\n|.)*/\nclose[lazy]: TEXT \"</think>\""])
    return f"start: {'close ' if text else ''}{start}\n" + "\n".join(terms) + text + "\n"


def grammar(r):
    kind = r.choice([JSON_SCHEMA, JSON_SCHEMA, REGEX, LARK])
    if kind == JSON_SCHEMA:
        return kind, json.dumps({**schema(r), "x-guidance": {"whitespace_flexible": r.random() < 0.5}})
    return kind, regex(r) + regex(r) if kind == REGEX else lark(r)


def of_theirs(kind, source):
    """Returns llguidance's grammar without forced tokens, because here the model decides how a text is cut into tokens."""
    text = {JSON_SCHEMA: f"start: %json {source}", REGEX: f"start: RX\nRX: /{source}/", LARK: source}[kind]
    return llguidance.LLMatcher.grammar_from_lark('%llguidance {"no_forcing": true}\n' + text)


def has_other_spelling(text):
    """Returns true when the text has an escape that our grammars do not allow in a name."""
    short = text.replace(b"\\\\", b"")
    return any(not re.fullmatch(rb"\\($|[\"bfnrt].*|u($|0($|0($|0($|[0-7bef].*)|1($|[0-9a-f].*)))))", short[m.start():], re.S)
               for m in re.finditer(rb"\\", short))


class GivenUp(Exception):
    """Reports that a mask of our library or of llguidance exceeds its cost limit."""


class Reference:
    """Holds a tokenizer in the form that llguidance reads."""

    def __init__(self, path, v):
        text = open(path, encoding="utf-8").read()
        self.tokens = llguidance.LLTokenizer(text)
        self.bytes = {}
        added = {t["id"] for t in json.loads(text)["added_tokens"]}
        for i, token in enumerate(v.tokens):
            if len(token) == 1 and i not in added:
                self.bytes.setdefault(token[0], i)
        self.added = [i for i in sorted(added) if i < v.n and not v.special[i]]
        self.added_set = set(self.added)
        self.added_bytes = {i: [self.bytes[b] for b in v.tokens[i]] for i in self.added if all(b in self.bytes for b in v.tokens[i])}


class Pair:
    """Holds our matcher and llguidance's matcher of one grammar."""

    def __init__(self, v, reference, kind, source):
        self.grammar = v.grammar(kind, source)
        self.v, self.reference, self.tokens, self.kind = v, reference, reference.tokens, kind
        self.source = of_theirs(kind, source)
        self.begin()

    def begin(self):
        self.text = b""
        self.ours = self.grammar.matcher()
        self.theirs = llguidance.LLMatcher(self.tokens, self.source)
        if self.theirs.is_error():
            raise ValueError(self.theirs.get_error())

    def masks(self):
        """Returns the two masks as arrays of the same length, without the tokens that end a text, and whether the text may end."""
        n = (max(self.v.n, self.tokens.vocab_size) + 31) // 32 * 4
        try:
            mine = self.ours.mask().to_bytes(n, "little")
        except TextError as e:
            raise GivenUp if e.code == LIMIT else e
        other = self.theirs.compute_bitmask().ljust(n, b"\0")[:n]
        if self.theirs.is_error():
            raise GivenUp
        bits = [numpy.unpackbits(numpy.frombuffer(m, dtype=numpy.uint8), bitorder="little") for m in (mine, other)]
        ends = bool(bits[0][self.v.eos]), bool(self.theirs.is_accepting() or self.theirs.is_stopped())
        self.ask_added(bits)
        if self.kind == JSON_SCHEMA:
            for i in numpy.flatnonzero(bits[1] & ~bits[0] & 1):
                bits[1][i] = not (i < self.v.n and has_other_spelling(self.text + self.v.tokens[i]))
        for b in bits:
            b[self.v.eos] = b[self.tokens.eos_token] = 0
        return bits, ends

    def ask_added(self, bits):
        """Gets llguidance's verdict on added tokens: those that our mask allows, and a few other tokens."""
        asked = [i for i in self.reference.added if bits[0][i]][:20] + random.sample(self.reference.added, min(3, len(self.reference.added)))
        for i in self.reference.added:
            bits[1][i] = bits[0][i]
        for i in set(asked) & set(self.reference.added_bytes):
            cut = self.reference.added_bytes[i]
            bits[1][i] = self.theirs.validate_tokens(cut) == len(cut)

    def to_draw(self, mine):
        """Returns the tokens that the two matchers can take. llguidance lacks the bytes of some added tokens."""
        bits = mine.copy()
        for i in self.reference.added_set - set(self.reference.added_bytes):
            bits[i] = 0
        return numpy.flatnonzero(bits)

    def step(self, token):
        there = self.reference.added_bytes[token] if token in self.reference.added_set else [token]
        self.text += self.v.tokens[token]
        return self.ours.accept(token), self.theirs.consume_tokens(there)


def walk(pair, r, most):
    """Walks through the grammar once. Returns the number of compared positions and of differing tokens."""
    compared = different = 0
    for _ in range(min(most, MOST_TOKENS)):
        try:
            (mine, other), ends = pair.masks()
        except GivenUp:
            break
        compared += 1
        if ends[0] != ends[1] or not numpy.array_equal(mine, other):
            wrong = numpy.flatnonzero(mine != other)
            different += len(wrong) + (ends[0] != ends[1])
            print(f"  differs: {pair.source[:200]} ends {ends}: " +
                  ", ".join(f"{i} {pair.v.tokens[i] if i < pair.v.n else None!r} {'only here' if mine[i] else 'only there'}" for i in wrong[:5]))
            break
        allowed = pair.to_draw(mine)
        if not len(allowed):
            break
        token = int(r.choice(allowed))
        if pair.step(token) != (True, True):
            different += 1
            print(f"  {pair.source[:200]}: token {token} is in both masks and not taken")
            break
    pair.ours.close()
    return compared, different


def compare(v, reference, n_grammars, n_prefixes, r):
    done = compared = different = 0
    while done < n_grammars:
        kind, source = grammar(r)
        try:
            pair = Pair(v, reference, kind, source)
        except (TextError, ValueError):  # no text satisfies this grammar, so there is nothing to compare
            continue
        done += 1
        left = n_prefixes
        while left > 0:
            n, wrong = walk(pair, r, left)
            left -= max(n, 1)
            compared += n
            different += wrong
            if wrong:
                break
            pair.begin()
        pair.grammar.close()
    return compared, different


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lib", default=default_lib())
    p.add_argument("--vocabularies", default="")
    p.add_argument("--grammars", type=int, default=200)
    p.add_argument("--prefixes", type=int, default=50)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    manifest = os.path.join(GOLDENS, "tokenizers", "manifest.json")
    if not os.path.exists(manifest):
        skip(f"no goldens at {GOLDENS}: scripts/make-goldens, COX_GOLDENS")
    if not os.path.exists(a.lib):
        skip(f"{a.lib} is not built")
    lib, packages, total = GrammarLib(a.lib), json.load(open(manifest))["packages"], 0
    for name in a.vocabularies.split(",") if a.vocabularies else packages:
        path = fetch_tokenizer(name, packages[name])
        with tempfile.TemporaryDirectory(prefix="coxtext-cache-") as cache:
            v = Vocabulary(lib, path, cache)
        reference, start = Reference(path, v), time.monotonic()
        compared, different = compare(v, reference, a.grammars, a.prefixes, random.Random(f"{name} {a.seed}"))
        print(f"{name}: {v.n} tokens, {a.grammars} grammars, {compared} masks, {different} tokens of difference, {time.monotonic() - start:.0f} s",
              flush=True)
        v.close()
        total += different
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
