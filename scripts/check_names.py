#!/usr/bin/env python3
"""Fails when a page or a comment names a source file that does not exist, or a function that the file does not define.

1. A path from the root ("head/kv/blocks.c") exists; with ":name" behind it, that file defines the function.
2. A bare file name in backquotes or in a comment ("blocks.c") is the name of some file, and so is `blocks.*`. Behind
   `path/file.c`, a page's `name` is a word of that file.
3. Each list of docs/develop/ways.md is a way through the code, from top to bottom: scripts/ways.py.
Usage: check_names.py [--root DIR]
"""
import argparse
import re
import sys
from pathlib import Path

import source_tree
from ways import check_ways

TOPS = "head|worker|gateway|cli|common|kernels|proto|text|bench|tests|cmake|scripts|deploy|packaging"
SUFFIX = r"(?:c|h|cu|cuh|rs|proto|py|cmake)"
PATH = re.compile(rf"(?<![\w/.*<>{{}}$-])((?:{TOPS})/[\w/.-]*?\w\.{SUFFIX})\b(?::([a-z]\w+)\b)?(?![\w*{{])")
BARE = re.compile(r"(?<![\w/.*<>{}$-])([a-z]\w*\.(?:c|h|cu|cuh))\b(?![\w/*({])")
ROOM = re.compile(rf"`((?:head|worker|gateway|cli|common|kernels|proto|text)/[\w/]*\w)/?`")  # matches a folder, or a source file without its suffix
ANY = re.compile(r"`([a-z][\w/]*)\.\*`")  # matches `blocks.*`, which means a source and its header
PAIR = re.compile(rf"`((?:{TOPS})/[\w/.-]+\.{SUFFIX})`, `([a-z]\w+)`")  # matches `path/file.c`, `function`
HISTORY = {"CHANGELOG.md"}  # these pages name files that may no longer exist
PLACEHOLDER = re.compile(r"/(?:[A-Z]+(?=[_.])|test_x\.)")  # such as "tests/cuda/NAME_test.c"

# FOREIGN has headers and sources of other projects, and names in examples.
FOREIGN = set("""uv.h zmq.h yaml.h argp.h nccl.h cmocka.h stdint.h stdio.h stdlib.h string.h jansson.h sodium.h xxhash.h cuda_runtime.h
    time.h bio.c assert.h math.h errno.h nvml.h hiredis.h curl.h hashtable.h expf.c b.c header.h x.c x.h""".split())
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def prose(path, text):
    """Returns the text to check: all of a page, or the comments of a source."""
    return text if path.suffix == ".md" else "\n".join(m[0] for m in COMMENT.finditer(text))


def definitions(root, name, cache):
    if name not in cache:
        text = (root / name).read_text(errors="replace")
        if name.endswith(".rs"):
            cache[name] = set(re.findall(r"\bfn\s+(\w+)", text))
        elif name.endswith(".py"):
            cache[name] = set(re.findall(r"^\s*(?:async )?def (\w+)", text, re.M))
        else:
            cache[name] = {m[2] for m in source_tree.DEFINITION.finditer(source_tree.without_comments_c(text))} - {"main"}
    return cache[name]


def check(root):
    bad, cache = [], {}
    there = {p.as_posix() for p in source_tree.files(root, {".c", ".h", ".cu", ".cuh", ".rs", ".proto", ".py", ".cmake", ".md"})}
    names, stems = {n.rsplit("/", 1)[-1] for n in there}, {n.rsplit(".", 1)[0] for n in there}
    for rel in sorted(there):
        path = root / rel
        if rel in HISTORY or path.suffix in (".proto", ".cmake", ".py"):
            continue
        text = prose(path, path.read_text(errors="replace"))
        for m in PATH.finditer(text):
            if PLACEHOLDER.search(m[1]):
                continue
            if m[1] not in there and not (root / m[1]).exists():
                bad.append(f"{rel}: there is no {m[1]}")
            elif m[2] and m[1].endswith((".c", ".h", ".cu", ".cuh", ".rs", ".py")) and m[2] not in definitions(root, m[1], cache):
                bad.append(f"{rel}: {m[1]} defines no {m[2]}")
        bad += [f"{rel}: there is no {m[1]}" for m in ROOM.finditer(text) if path.suffix == ".md" and m[1] not in stems and not (root / m[1]).exists()]
        if path.suffix == ".md":
            bad += [f"{rel}: there is no {m[1]}.*" for m in ANY.finditer(text)
                    if m[1] not in (stems if "/" in m[1] else {n.rsplit("/", 1)[-1] for n in stems})]
            bad += [f"{rel}: {m[1]} has no {m[2]}" for m in PAIR.finditer(text)
                    if m[1] in there and not re.search(rf"\b{m[2]}\b", (root / m[1]).read_text(errors="replace"))]
        bad += [f"{rel}: no file is called {m[1]}" for m in BARE.finditer(text) if m[1] not in names and m[1] not in FOREIGN]
    return bad + check_ways(root)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    bad = check(parser.parse_args().root)
    for line in bad:
        print(line)
    print(f"check_names: {len(bad)} faults" if bad else "check_names: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
