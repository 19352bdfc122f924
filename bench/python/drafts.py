#!/usr/bin/env python3
"""Compares rules for drafting from the text itself: tokens a step, and draft tokens run for each token.

  python3 bench/python/drafts.py [--tokens 4]

There is no model: an existing text replaces the model's output, and the words and signs of this repository's files are the
tokens. There are three kinds of text: a file written again with a few changes, another file of the same folder, and the second
half of a page. `first` and `latest` choose which of several matches is copied from. `half` drafts half as many tokens as the ids
that the matches have in common. vLLM's default rule is `5 to 5, first, all`.
"""
import glob
import random
import re

from options import Parser, count

TOKEN = re.compile(r" ?[A-Za-z]+|\d| ?[^\sA-Za-z\d]{1,3}|\s+")
WAYS = [(5, 5, "first", "all"), (4, 2, "first", "all"), (4, 2, "latest", "all"), (16, 2, "first", "all"),
        (16, 2, "latest", "all"), (16, 2, "latest", "half"), (16, 3, "latest", "half")]
MAX_LINKS = 64


def changed(text, seed):
    r = random.Random(seed)
    names = sorted(set(re.findall(r"[a-z_]{5,}", text)))
    for name in r.sample(names, min(3, len(names))):
        text = re.sub(r"\b%s\b" % name, name + "_new", text)
    lines = text.split("\n")
    for _ in range(max(1, len(lines) // 25)):
        i = r.randrange(len(lines))
        lines[i:i + 1] = r.choice([[], [lines[i], "    check(value);"], [lines[i] + " + 1;"]])
    return "\n".join(lines)


def texts():
    code = {f: open(f).read() for f in sorted(glob.glob("worker/*.c"))[:14]}
    pages = [open(f).read() for f in sorted(glob.glob("docs/*.md"))[:10]]
    names = list(code)
    return {"changed file": [(code[f] + "Again:\n", changed(code[f], i)) for i, f in enumerate(names)],
            "other file": [(code[a], code[b]) for a, b in zip(names, names[1:])],
            "page": [(t[:len(t) // 2], t[len(t) // 2:]) for t in pages]}


def common(ids, a, b, most):
    n = 0
    while n < most and n <= a and ids[a - n] == ids[b - n]:
        n += 1
    return n


def drafts(ids, places, way, k):
    longest, shortest, which, count = way
    best, found = shortest - 1, None
    for place in places if which == "first" else reversed(places[-MAX_LINKS:]):
        n = common(ids, place, len(ids) - 1, longest)
        if n > best:
            best, found = n, place
    if found is None:
        return []
    if count == "half":
        k = min(k, max(1, common(ids, found, len(ids) - 1, 2 * k) // 2))
    out = []
    for i in range(found + 1, found + 1 + k):
        out.append(ids[i] if i < len(ids) else out[i - len(ids)])
    return out


def run(prompt, said, way, k):
    ids, index, shortest = list(prompt), {}, way[1]
    done = steps = run_drafts = entered = 0
    while done < len(said):
        for end in range(entered, len(ids) - 1):
            index.setdefault(tuple(ids[max(0, end + 1 - shortest):end + 1]), []).append(end)
        entered = len(ids) - 1
        draft = drafts(ids, index.get(tuple(ids[-shortest:]), []), way, k)
        right = 0
        while right < len(draft) and said[done + right:done + right + 1] == [draft[right]]:
            right += 1
        new = said[done:done + right + 1]
        ids += new
        done += len(new)
        steps += 1
        run_drafts += len(draft)
    return steps, run_drafts


def main():
    p = Parser("bench/python/drafts.py", __doc__)
    p.add_argument("--tokens", type=count(), default=4, help="drafts of a step, at most")
    k = p.parse_args().tokens
    for kind, pairs in texts().items():
        pairs = [(TOKEN.findall(a), TOKEN.findall(b)) for a, b in pairs]
        n = sum(len(b) for _, b in pairs)
        for way in WAYS:
            results = [run(a, b, way, k) for a, b in pairs]
            steps, run_drafts = (sum(r[i] for r in results) for i in (0, 1))
            print(f"{kind:12s} {way[0]:2d} to {way[1]} {way[2]:6s} {way[3]:4s}: {n / steps:.2f} tokens a step, "
                  f"{run_drafts / n:.2f} drafts run for each token", flush=True)


main()
