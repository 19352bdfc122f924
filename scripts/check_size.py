#!/usr/bin/env python3
"""Fails when a folder, a file or a function is larger than these limits.

Folders: 25 sources and headers, Python among them (tests/ has no cap).
Files: 900 lines (.c .cu .rs .py, and *_impl.h: a source that several files compile), 200 (.h).
Functions: 80 lines (kernels/ 150), 7 parameters in C.
An exception names the decision record that allows it. Usage: check_size.py [--root DIR]
"""
import argparse
import ast
import re
import sys
from collections import Counter
from pathlib import Path

import source_tree

FILE_CAP = {".c": 900, ".cu": 900, ".rs": 900, ".py": 900, ".h": 200, ".cuh": 200}
FOLDER_CAP = 25
FUNCTION_CAP, KERNEL_FUNCTION_CAP, PARAMETER_CAP = 80, 150, 7
EXCEPTIONS = {  # path → (maximum lines of the file, the decision record with the reason)
    "proto/messages.h": (450, "docs/develop/decisions/0004-size-exceptions.md"),
}
PARAMETER_EXCEPTIONS = {"config_parse": 8}  # the same record allows these functions
NOT_FUNCTIONS = {"if", "for", "while", "switch", "return", "sizeof", "do", "else",
                 "__attribute__", "__launch_bounds__", "__declspec"}


def matching(text, i, opening, closing):
    """Returns the index of the bracket that closes the one at i, or the end of the text."""
    depth = 0
    while i < len(text):
        if text[i] == opening:
            depth += 1
        elif text[i] == closing:
            depth -= 1
            if depth == 0:
                return i
        i += 1
    return len(text) - 1


def count_parameters(inside):
    if inside.strip() in ("", "void"):
        return 0
    depth = count = 0
    for ch in inside:
        depth += (ch in "([{") - (ch in ")]}")
        count += ch == "," and depth == 0
    return count + 1


def definition_head(head):
    """Returns (name, parameters) when the text before a '{' declares a function, else None."""
    if "=" in head.split("(", 1)[0]:
        return None
    at = 0
    while m := re.compile(r"\b([A-Za-z_]\w*)\s*\(").search(head, at):
        at = matching(head, m.end() - 1, "(", ")") + 1
        if m[1] not in NOT_FUNCTIONS:
            return m[1], count_parameters(head[m.end():at - 1])
    return None


def functions_c(text):
    """Yields (name, first line, lines, parameters) of every definition: a '{' at depth 0 after a ')'."""
    text = source_tree.without_comments_c(text)
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", source_tree.blank, text, flags=re.M)
    text = re.sub(r"extern\s+\{", lambda m: " " * len(m[0]), text)  # finds extern "C" {, whose text is blank here
    i = statement = 0
    while i < len(text):
        if text[i] in ";}":
            statement = i + 1
        elif text[i] == "{":
            end, head = matching(text, i, "{", "}"), text[statement:i]
            if found := definition_head(head):
                start = statement + len(head) - len(head.lstrip())
                first = text.count("\n", 0, start) + 1
                yield found[0], first, text.count("\n", start, end) + 1, found[1]
            i = end
            statement = end + 1
        i += 1


def functions_rust(text):
    text = source_tree.without_comments_rust(text)
    for m in re.finditer(r"\bfn\s+(\w+)", text):
        body = re.search(r"[{;]", text[m.end():])
        if body and body[0] == "{":
            end = matching(text, m.end() + body.start(), "{", "}")
            yield m[1], text.count("\n", 0, m.start()) + 1, text.count("\n", m.start(), end) + 1, 0


def functions_python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1, 0


READERS = {".c": functions_c, ".h": functions_c, ".cu": functions_c, ".cuh": functions_c,
           ".rs": functions_rust, ".py": functions_python}


def check_file(root, rel):
    name, text, bad = rel.as_posix(), (root / rel).read_text(errors="replace"), []
    suffix = ".c" if name.endswith("_impl.h") else rel.suffix
    cap = EXCEPTIONS.get(name, (FILE_CAP[suffix],))[0]
    n_lines = text.count("\n") + (not text.endswith("\n"))
    if n_lines > cap:
        bad.append(f"{name}: {n_lines} lines, at most {cap}")
    function_cap = KERNEL_FUNCTION_CAP if name.startswith("kernels/") else FUNCTION_CAP
    for function, line, lines, parameters in READERS[rel.suffix](text):
        if lines > function_cap:
            bad.append(f"{name}:{line}: {function} has {lines} lines, at most {function_cap}")
        if parameters > PARAMETER_EXCEPTIONS.get(function, PARAMETER_CAP):
            bad.append(f"{name}:{line}: {function} has {parameters} parameters, at most {PARAMETER_CAP}")
    return bad


def check(root):
    bad = []
    for name, (_, record) in EXCEPTIONS.items():
        if (root / name).exists() and not (root / record).exists():
            bad.append(f"{name}: its exception names {record}, which does not exist")
    in_folder = Counter()
    for rel in source_tree.files(root, set(FILE_CAP)):
        in_folder[rel.parent.as_posix()] += rel.parts[0] != "tests"
        bad += check_file(root, rel)
    return bad + [f"{folder}: {n} source files, at most {FOLDER_CAP}" for folder, n in sorted(in_folder.items()) if n > FOLDER_CAP]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    bad = check(parser.parse_args().root)
    for line in bad:
        print(line)
    print(f"check_size: {len(bad)} violations" if bad else "check_size: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
