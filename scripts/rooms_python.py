"""The arrows between modules of Python in one folder tree that import each other."""
import ast
from collections import defaultdict

from rooms import Arrows


def imports(tree, package):
    """(dotted name, line) of all that a module may import: of "from a import b" both a.b and a. package: the folders of the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                line = f"from {'.' * node.level}{node.module or ''} import {alias.name}"
                yield ".".join([*base, alias.name]), line
                yield ".".join(base), line
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield node.args[0].value.lstrip("."), f'{called}("{node.args[0].value}")'


def python_arrows(root, folder):
    """A name means the module whose path ends with it: the one beside the importer, if it is there, else each. A module of the
    standard library of the same name is not told apart."""
    ends, out, modules = defaultdict(list), Arrows(), {}
    for path in sorted((root / folder).rglob("*.py")):
        rel = path.relative_to(root)
        parts = list(rel.with_suffix("").parts)
        modules[rel.as_posix()] = parts
        if parts[-1] == "__init__":
            parts.pop()
        for i in range(len(parts)):
            ends[".".join(parts[i:])].append(rel.as_posix())
    for rel, parts in modules.items():
        package = parts if rel.endswith("/__init__.py") else parts[:-1]
        for name, line in imports(ast.parse((root / rel).read_text()), package):
            beside = [m for m in ends[name] if m.rpartition("/")[0] == rel.rpartition("/")[0]]
            for to in beside or ends[name]:
                out.add(rel, to, line)
    return out
