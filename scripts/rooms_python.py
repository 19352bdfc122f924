"""Reads the arrows between Python modules of one folder tree that import each other."""
import ast
from collections import defaultdict

from rooms import Arrows


def imports(tree, package):
    """Yields (dotted name, line) of all names that a module may import. "from a import b" gives both a.b and a. package: the
    module's folders."""
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
    """Returns the arrows. A name means the module whose path ends with it: the module next to the importer if it exists, else each
    such module. A module of the standard library with the same name is not distinguished."""
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
