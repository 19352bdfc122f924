"""Reads the arrows between the modules of a Rust crate."""
import re

import source_tree
from rooms import Arrows


def rust_modules(root, folder):
    """Returns module path ("jinja::value") -> file, for the crate whose lib.rs is in the folder."""
    found = {}
    for path in sorted((root / folder).rglob("*.rs")):
        parts = list(path.relative_to(root / folder).with_suffix("").parts)
        if parts[-1] in ("mod", "lib"):
            parts.pop()
        found["::".join(parts)] = path.relative_to(root).as_posix()
    return found


def rust_paths(text):
    """Yields the paths that a text without comments names from crate, super or self, with braces expanded."""
    for m in re.finditer(r"\b(crate|super|self)((?:::(?:\w+|\{[^;]*?\}(?=\s*[;,])))+)", text):
        steps, rest = [m[1]], m[2][2:]
        if "{" in rest:
            head, inside = rest.split("{", 1)
            for part in re.split(r"[,{}]", inside):
                name = part.strip().split(" as ")[0].strip()
                if name:
                    yield steps + [w for w in head.split("::") if w] + name.split("::")
        else:
            yield steps + rest.split("::")


def rust_arrows(root, folder):
    """Returns the arrows of a Rust crate. An arrow means that a module names an item of another module. Names that a mod.rs
    re-exports belong to their owner."""
    modules, out = rust_modules(root, folder), Arrows()
    texts = {m: source_tree.without_comments_rust((root / f).read_text()) for m, f in modules.items()}
    handed = {}  # module -> name -> the module that owns it
    for module, text in texts.items():
        for alias in re.findall(r"\buse\s+crate\s+as\s+(\w+)\s*;", text):
            texts[module] = text = re.sub(rf"\b{alias}::", "crate::", text)
        for m in re.finditer(r"\bpub(?:\([\w ]+\))?\s+use\s+(?:self::)?(\w+)::(\{[^;]*\}|\w+)", text):
            child = f"{module}::{m[1]}" if module else m[1]
            for name in re.findall(r"\w+", m[2]):
                handed.setdefault(module, {})[name] = child

    def owner(base, steps):
        module = base
        for i, step in enumerate(steps):
            below = f"{module}::{step}" if module else step
            if below in modules:
                module = below
            else:
                return handed.get(module, {}).get(step, module)
        return module
    for module, text in texts.items():
        for steps in rust_paths(text):
            base = {"crate": "", "self": module}.get(steps[0])
            rest = steps[1:]
            if steps[0] == "super":
                base = module.rpartition("::")[0]
                while rest and rest[0] == "super":
                    base, rest = base.rpartition("::")[0], rest[1:]
            to = owner(base, rest)
            if to in modules and modules[to] != modules[module]:
                out.add(modules[module], modules[to], "::".join(steps))
        for m in re.finditer(r"\b(?:mod|use)\s+(\w+)\b|\b(\w+)::\w", text):  # the match is a child module by its bare name
            child = f"{module}::{m[1] or m[2]}" if module else (m[1] or m[2])
            if m[0].startswith("mod") or child not in modules:
                continue
            out.add(modules[module], modules[child], m[0])
    return out
