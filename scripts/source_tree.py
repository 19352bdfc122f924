"""What check_layers.py and check_size.py share: which files are ours, and C without its comments."""
import re
from pathlib import Path

SKIPPED = {"build", ".deps", ".venv", ".venv-clients", ".venv-k8s", ".git", "target", "node_modules", "__pycache__", ".cache"}
C_SUFFIXES = {".c", ".h", ".cu", ".cuh"}

# A comment or a literal, whichever starts first; newlines inside are kept by blank().
_C_NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
_RUST_NOISE = re.compile(
    r'/\*.*?\*/|//[^\n]*|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\n\']*\'|[^\'\\\n]\')', re.S)


def blank(match):
    """Same length and line breaks, no content: offsets stay true."""
    return re.sub(r"[^\n]", " ", match.group(0))


def without_comments_c(text):
    return _C_NOISE.sub(blank, text)


def without_comments_rust(text):
    return _RUST_NOISE.sub(blank, text)


def files(root, suffixes):
    """Files below root with one of these suffixes, in a stable order, as paths relative to root."""
    for path in sorted(Path(root).rglob("*")):
        rel = path.relative_to(root)
        if path.suffix in suffixes and path.is_file() and not SKIPPED & set(rel.parts):
            yield rel
