"""Contains functions that the checks share: the list of source files, and C without its comments."""
import functools
import os
import re
from pathlib import Path

SKIPPED = {"build", ".deps", ".venv", ".venv-clients", ".venv-k8s", ".git", "target", "node_modules", "__pycache__", ".cache"}
C_SUFFIXES = {".c", ".h", ".cu", ".cuh"}
# A C definition starts in the first column and has its body behind the parameters.
DEFINITION = re.compile(r"^(?!else\b|return\b|typedef\b)([A-Za-z_][\w \t*\n]*?[ \t*\n])([A-Za-z_]\w*)\(([^;{}]*)\)\s*\{", re.M)

# _C_NOISE matches a comment or a literal, whichever starts first. blank() keeps the newlines inside.
_C_NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
_RUST_NOISE = re.compile(
    r'/\*.*?\*/|//[^\n]*|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\n\']*\'|[^\'\\\n]\')', re.S)

LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')  # matches a string of C; group 1 is its text



def blank(match):
    """Returns spaces of the same length with the same newlines, so that offsets stay valid."""
    return re.sub(r"[^\n]", " ", match.group(0))


@functools.cache
def without_comments_c(text, strings=False):
    """Returns the text without its comments, and without its literals unless `strings` is set."""
    return _C_NOISE.sub(lambda m: m[0] if strings and m[0][0] in "\"'" else blank(m), text)


def without_comments_rust(text):
    return _RUST_NOISE.sub(blank, text)


def closing(text, i):
    """Returns the index of the brace that closes the one at i, or the end of the text."""
    depth = 0
    for j in range(i, len(text)):
        depth += (text[j] == "{") - (text[j] == "}")
        if depth == 0:
            return j
    return len(text)


def files(root, suffixes):
    """Returns the files below root with one of these suffixes, in a stable order, as paths relative to root. Folders of SKIPPED are
    left out, because a build that runs at the same time creates and removes files there."""
    root, found = Path(root), []
    for folder, below, names in os.walk(root):
        below[:] = [b for b in below if b not in SKIPPED]
        found += [Path(folder, n) for n in names if Path(n).suffix in suffixes]
    yield from sorted(p.relative_to(root) for p in found if p.is_file())


def arguments(text, at):
    """Returns the arguments of the call in C whose bracket is at `at`."""
    out, depth, start, i = [], 0, at + 1, at
    while True:
        c = text[i]
        if c == '"':
            i = LITERAL.match(text, i).end()
            continue
        if c == "'":
            i = text.index("'", i + (3 if text[i + 1] == "\\" else 1)) + 1
            continue
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 or (c == "," and depth == 1):
            out.append(text[start:i].strip())
            start = i + 1
        if depth == 0:
            return out
        i += 1
