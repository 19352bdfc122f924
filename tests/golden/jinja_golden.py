#!/usr/bin/env python3
"""Compares our chat templates with Python's jinja2. The two render every row of jinja_rows.py. Where jinja2 gives a text, our
library must give the same text, or an error that says what is not supported. Where jinja2 has an error, or a text with a memory
address, our library must have an error.
Usage: jinja_golden.py [--lib ARCHIVE] [--list]
"""
import argparse
import collections
import copy
import datetime
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import jinja_reference
except ImportError as e:
    print(f"SKIP: {e}: scripts/setup puts jinja2 into .venv")
    sys.exit(77)
import jinja_rows
from text_golden import ROOT, Lib, Template, TextError

NOW = datetime.datetime(2024, 7, 26, 12, 0, 0)
MOST_NOT_SUPPORTED = 40  # most rows that may be unsupported; raise this number only by a deliberate decision


class Ours:
    """Reads each template once for all the values that it is rendered with."""

    def __init__(self, lib):
        self.lib, self.source, self.template = lib, None, None

    def render(self, source, values, now):
        if source != self.source:
            if self.template:
                self.template.close()
            self.source = self.template = None
            self.template = Template(self.lib, source)
            self.source = source
        return self.template.render(values, now)


def outcome(render):
    """Returns (text, None), or (None, reason) when the rendering fails."""
    try:
        return render(), None
    except TextError as e:
        return None, (e.code, e.message)
    except Exception as e:  # jinja2 and Python itself raise many errors, and each of them ends a rendering
        return None, f"{type(e).__name__}: {e}"


def verdict(ours, theirs):
    (text, why), (want, error) = ours, theirs
    if why and why[0] == 6:  # 6 is the status TEXT_INTERNAL
        return "wrong"
    if error is not None or any(mark in want for mark in (" at 0x", "<function", "<class")):
        return "same" if why else "wrong"
    if text == want:
        return "same"
    return "not supported" if why and "not supported" in why[1] else "wrong"


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--lib", default=os.path.join(ROOT, "build/text/release/libcoxtext.a"))
    args.add_argument("--list", action="store_true", help="name the rows that are not supported")
    args = args.parse_args()
    env, ours = jinja_reference.environment(NOW), Ours(Lib(args.lib))
    counts = collections.Counter()
    for source, bound in dict.fromkeys(jinja_rows.rows()):
        values = jinja_rows.values_of(bound)
        got = outcome(lambda: ours.render(source, values, int(NOW.timestamp())))
        # The values are copied, because jinja2's filter `indent` adds to a list that it gets.
        want = outcome(lambda: jinja_reference.render(env, source, copy.deepcopy(values)))
        what = verdict(got, want)
        counts[what] += 1
        if what == "wrong" and counts[what] <= 30:
            print(f"  WRONG {source!r} {bound}\n    got  {got!r:.300}\n    want {want!r:.300}")
        if what == "not supported" and args.list:
            print(f"  {source} {bound}: {got[1][1]}")
    print(f"{sum(counts.values())} rows: {dict(counts)}")
    missing = jinja_rows.unused()
    if missing:
        print(f"no row has {missing}")
    return bool(missing) or counts["wrong"] > 0 or counts["not supported"] > MOST_NOT_SUPPORTED


if __name__ == "__main__":
    sys.exit(main())
