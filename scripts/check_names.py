#!/usr/bin/env python3
"""Fails when a page or a comment names a source file that is not there, or a function that the file does not define.

1. A path from the root ("head/kv/blocks.c") exists; with ":name" behind it, that file defines the function.
2. A bare file name in backquotes or in a comment ("blocks.c") is the name of some file.
3. docs/develop/ways.md: each list is a way down. No file stands in it twice, but in entries that follow each other.
   The function of each entry names that of the next one (it calls, assigns or passes it), or the next entry ends with a
   hop: words in brackets that say how it is reached. Code in a hop is checked too: of `a->b` the function of the entry
   before names the member b; `path/file.c:function`, or the function of an earlier entry, names the function of the entry.
Usage: check_names.py [--root DIR]
"""
import argparse
import re
import sys
from pathlib import Path

import source_tree

TOPS = "head|worker|gateway|cli|common|kernels|proto|text|bench|tests|cmake|scripts|deploy|packaging"
SUFFIX = r"(?:c|h|cu|cuh|rs|proto|py|cmake)"
PATH = re.compile(rf"(?<![\w/.*<>{{}}$-])((?:{TOPS})/[\w/.-]*?\w\.{SUFFIX})\b(?::([a-z]\w+)\b)?(?![\w*{{])")
BARE = re.compile(r"(?<![\w/.*<>{}$-])([a-z]\w*\.(?:c|h|cu|cuh))\b(?![\w/*({])")
ENTRY = re.compile(r"^[ \t]*(\d+)\.[ \t]+(.*(?:\n[ \t]+(?!\d+\.)\S.*)*)", re.M)  # of a list, with the lines that go on
ROOM = re.compile(rf"`((?:head|worker|gateway|cli|common|kernels|proto|text)/[\w/]*\w)/?`")  # a folder, or a room without its suffix
WAY = re.compile(r"`([^`:\s]+):(\w+)`\s+(\S.*)", re.S)  # `path/file.c:function` and a sentence
HOP = re.compile(r"\(([^()]*)\)\.?$")
HISTORY = {"CHANGELOG.md"}  # it names files as they were
PLACEHOLDER = re.compile(r"/(?:[A-Z]+(?=[_.])|test_x\.)")  # "tests/cuda/NAME_test.c"
# Headers and sources of others, and examples.
FOREIGN = set("""uv.h zmq.h yaml.h argp.h nccl.h cmocka.h stdint.h stdio.h stdlib.h string.h jansson.h sodium.h xxhash.h cuda_runtime.h
    time.h bio.c assert.h math.h errno.h nvml.h hiredis.h curl.h hashtable.h expf.c b.c header.h x.c x.h""".split())
# A definition in C starts in the first column and has its body behind the parameters.
DEFINITION = re.compile(r"^(?!else\b|return\b|typedef\b)([A-Za-z_][\w \t*\n]*?[ \t*\n])([A-Za-z_]\w*)\(([^;{}]*)\)\s*\{", re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def prose(path, text):
    """What is read of a file: all of a page, and the comments of a source."""
    return text if path.suffix == ".md" else "\n".join(m[0] for m in COMMENT.finditer(text))


def definitions(root, name, cache):
    if name not in cache:
        text = (root / name).read_text(errors="replace")
        if name.endswith(".rs"):
            cache[name] = set(re.findall(r"\bfn\s+(\w+)", text))
        elif name.endswith(".py"):
            cache[name] = set(re.findall(r"^\s*(?:async )?def (\w+)", text, re.M))
        else:
            cache[name] = {m[2] for m in DEFINITION.finditer(source_tree.without_comments_c(text))} - {"main"}
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
        bad += [f"{rel}: no file is called {m[1]}" for m in BARE.finditer(text) if m[1] not in names and m[1] not in FOREIGN]
    return bad + check_ways(root)


def body(root, name, function, cache):
    """The text between the braces of a function; of several definitions all of them."""
    if name not in cache:
        text = (root / name).read_text(errors="replace") if (root / name).is_file() else ""
        cache[name] = source_tree.without_comments_rust(text) if name.endswith(".rs") else source_tree.without_comments_c(text)
    text, found = cache[name], []
    if name.endswith(".rs"):
        ends = [text.find("{", m.end()) for m in re.finditer(rf"\bfn\s+{function}\b", text)]
    else:
        ends = [m.end() - 1 for m in DEFINITION.finditer(text) if m[2] == function]
    return "\n".join(text[i:source_tree.closing(text, i)] for i in ends if i >= 0)


def names(text, function):
    """Whether the text calls, assigns or passes the function. A member of the same name is none."""
    return re.search(rf"(?<![\w.])(?<!->){function}\b", text) is not None


def hop_holds(code, entries, i, root, cache):
    """Whether what a hop says in code is so: a member that entry i - 1 uses, or a function that names the one of entry i."""
    file, colon, function = code.partition(":")
    if colon:
        return names(body(root, file, function, cache), entries[i][1])
    word = re.split(r"->|\.", code)[-1]
    if word != code:
        return re.search(rf"(?:->|\.){word}\b", body(root, *entries[i - 1][:2], cache)) is not None
    return any(f == word and names(body(root, n, f, cache), entries[i][1]) for n, f, _ in entries[:i])


def check_way(title, entries, root, cache):
    bad, seen = [], []
    for i, (file, function, sentence) in enumerate(entries):
        if seen and file != seen[-1] and file in seen:
            bad.append(f"'{title}' comes back to {file} at {function}")
        seen.append(file)
        hop = HOP.search(sentence)
        for code in re.findall(r"`([^`]+)`", hop[1]) if hop else ():
            if i == 0 or not hop_holds(code, entries, i, root, cache):
                bad.append(f"'{title}': the hop to {function} is not by {code}")
        if i > 0 and not hop and not names(body(root, *entries[i - 1][:2], cache), function):
            bad.append(f"'{title}': {entries[i - 1][1]} does not name {function}, and no hop says how it is reached")
    return bad


def check_ways(root):
    page, bad, cache = root / "docs/develop/ways.md", [], {}
    if not page.exists():
        return bad
    for part in re.split(r"^## ", page.read_text(), flags=re.M)[1:]:
        title, entries = part.split("\n", 1)[0], []
        for m in ENTRY.finditer(part):
            way = WAY.fullmatch(m[2])
            if not way or int(m[1]) != len(entries) + 1:
                bad.append(f"'{title}': {m[1]}. is not the next number with `path/file.c:function` and a sentence")
            else:
                entries.append((way[1], way[2], way[3].strip()))
        bad += check_way(title, entries, root, cache)
    return [f"docs/develop/ways.md: {line}" for line in bad]


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
