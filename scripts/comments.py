"""Returns the comments of a source as one list of (line, text), in every language.

C, CUDA, JavaScript, CSS and protobuf schemas have /* */ and //, Rust has // as well as /// and //!, Python has # and docstrings,
shell, CMake, YAML and lists of Python packages (*requirements*.txt) have #. Adjacent lines of one comment become one text, joined by single spaces; a comment that is a drawing or a list also
stays one text. Literals are not comments. A # inside of a here-document of a shell script counts as a comment; that is rare and
harmless.
"""
import ast
import io
import re
import tokenize
from pathlib import Path

SLASHES = {".c", ".h", ".cu", ".cuh", ".cpp", ".js", ".mjs", ".css", ".proto"}
HASHES = {".sh", ".cmake", ".yaml", ".yml", ".toml"}
HASH_NAMES = {"CMakeLists.txt", "Makefile", "layers.txt", "flaky.txt"}

_LITERAL = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
_RUST_LITERAL = r'b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\n\']*\'|[^\'\\\n]\')'
_SLASH_COMMENT = r"/\*.*?\*/|(?:^|(?<=\s))//[^\n]*(?:\n[ \t]*//[^\n]*)*"
_C = re.compile(_SLASH_COMMENT + "|" + _LITERAL, re.S | re.M)
_RUST = re.compile(_SLASH_COMMENT + "|" + _RUST_LITERAL, re.S | re.M)
_HASH = re.compile(r"(?:^|(?<=\s))#(?!!)[^\n]*(?:\n[ \t]*#[^\n]*)*", re.M)


def language(path, text=""):
    """Returns "c", "rust", "python" or "hash"; None for a file of another kind."""
    path = Path(path)
    if path.suffix in SLASHES:
        return "c"
    if path.suffix in (".rs", ".py"):
        return {".rs": "rust", ".py": "python"}[path.suffix]
    if path.suffix in HASHES or path.name in HASH_NAMES or (path.suffix == ".txt" and "requirements" in path.name):
        return "hash"
    first = text.split("\n", 1)[0]
    if path.suffix == "" and first.startswith("#!"):
        return "python" if "python" in first else "hash"
    return None


def _joined(comment):
    """Returns the words of a comment without its marks."""
    comment = re.sub(r"^/\*+!?|\*/$", "", comment)
    lines = (re.sub(r"^\s*(?://[/!]?|\*(?!\w)|#+)?\s?", "", line) for line in comment.split("\n"))
    return " ".join(" ".join(lines).split())


def _python(text):
    try:
        tree = ast.parse(text)
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, tokenize.TokenError):
        return  # the file does not parse, which check_layers.py reports
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            yield node.body[0].lineno, " ".join(ast.get_docstring(node).split())
    run, last = [], None
    for token in tokens:
        if token.type != tokenize.COMMENT or token.string.startswith("#!"):
            continue
        alone = not token.line[:token.start[1]].strip()
        if run and alone and last == token.start[0] - 1:
            run[1].append(token.string)
        else:
            if run:
                yield run[0], _joined("\n".join(run[1]))
            run = [token.start[0], [token.string]]
        last = token.start[0]
    if run:
        yield run[0], _joined("\n".join(run[1]))


def comments(path, text):
    """Yields (line, text) of each comment of a source."""
    kind = language(path, text)
    if kind == "python":
        yield from sorted(_python(text))
        return
    pattern = {"c": _C, "rust": _RUST, "hash": _HASH}.get(kind)
    for m in pattern.finditer(text) if pattern else ():
        if m[0].startswith(("/*", "//", "#")):
            yield text.count("\n", 0, m.start()) + 1, _joined(m[0])
