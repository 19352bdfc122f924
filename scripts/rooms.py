"""The rooms of the house, and the arrows between them.

A room is one stem: x.c with x.h, x.cu with x.cuh; one module of Rust; one module of Python. A header without a source of
its stem is a room of its own. An arrow A -> B says that a file of A includes a header of B, or names a function that B's
source defines for others (a function that several sources define, such as main, makes no arrow). A circle is a set of
rooms of which each reaches each other by arrows.
"""
import re
from collections import defaultdict

import source_tree

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)
# A definition starts in the first column and has its body behind the parameters.
DEFINITION = re.compile(r"^(?!else\b|return\b|typedef\b)([A-Za-z_][\w \t*\n]*?[ \t*\n])([A-Za-z_]\w*)\(([^;{}]*)\)\s*\{", re.M)
CALL = re.compile(r"(?<![\w.>])(?<!->)([A-Za-z_]\w*)[ \t]*(?:<<<[^;]*?>>>)?\(")
OWN = re.compile(r"\b(static|inline|template|__device__|__global__|__forceinline__)\b")
SOURCES = (".c", ".cu")


def stem(path):
    return path.rsplit(".", 1)[0]


class Arrows:
    """arrows[A][B]: what ties room A to room B, as the texts "includes FILE" and "calls NAME"."""

    def __init__(self):
        self.arrows = defaultdict(lambda: defaultdict(set))

    def add(self, frm, to, why):
        if frm != to:
            self.arrows[frm][to].add(why)

    def circles(self):
        """The sets of two and more rooms that reach each other (Tarjan, SIAM J. Comput. 1972), the largest first."""
        index, low, on, stack, found = {}, {}, set(), [], []
        for start in list(self.arrows):
            if start in index:
                continue
            index[start] = low[start] = len(index)
            stack.append(start)
            on.add(start)
            work = [(start, iter(sorted(self.arrows.get(start, ()))))]
            while work:
                room, rest = work[-1]
                for to in rest:
                    if to not in index:
                        index[to] = low[to] = len(index)
                        stack.append(to)
                        on.add(to)
                        work.append((to, iter(sorted(self.arrows.get(to, ())))))
                        break
                    if to in on:
                        low[room] = min(low[room], index[to])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[room])
                    if low[room] == index[room]:
                        members = set()
                        while True:
                            member = stack.pop()
                            on.discard(member)
                            members.add(member)
                            if member == room:
                                break
                        if len(members) > 1:
                            found.append(sorted(members))
        return sorted(found, key=lambda c: (-len(c), c))

    def ties(self, members):
        """The arrows inside a circle, as lines "A -> B: includes b.h, calls b_do"."""
        inside = set(members)
        return [f"{a} -> {b}: {', '.join(sorted(why))}" for a in members
                for b, why in sorted(self.arrows[a].items()) if b in inside]


def closing(text, i):
    """The index of the brace that closes the one at i, or the end of the text."""
    depth = 0
    for j in range(i, len(text)):
        depth += (text[j] == "{") - (text[j] == "}")
        if depth == 0:
            return j
    return len(text)


def c_definitions(text):
    """(functions for others, functions of this file alone) that a text without comments defines."""
    shared, own = set(), set()
    hidden = [(m.end(), closing(text, m.end() - 1)) for m in re.finditer(r"^namespace\s*\{", text, re.M)]
    for m in DEFINITION.finditer(text):
        is_own = OWN.search(m[1]) or any(a <= m.start() < b for a, b in hidden)
        (own if is_own else shared).add(m[2])
    return shared - {"main"}, own


def c_arrows(texts):
    """Arrows of C and CUDA. texts: path -> the file's text."""
    out, at, unclear, own, bare = Arrows(), {}, set(), {}, {}
    for path, text in texts.items():
        bare[path] = source_tree.without_comments_c(text)
        shared, own[path] = c_definitions(bare[path])
        if not path.endswith(SOURCES):
            unclear |= own[path] | shared
            continue
        for name in shared:
            if at.setdefault(name, stem(path)) != stem(path):
                unclear.add(name)
    for path, text in texts.items():
        commentless = re.sub(r"/\*.*?\*/", source_tree.blank, text, flags=re.S)
        for m in INCLUDE.finditer(commentless):
            if m[1] in texts:
                out.add(stem(path), stem(m[1]), f"includes {m[1]}")
        if path.endswith(SOURCES):
            for name in set(CALL.findall(bare[path])) - unclear - own[path]:
                if name in at:
                    out.add(stem(path), at[name], f"calls {name}")
    return out


def read_c(root, folders):
    """path -> text of the C and CUDA sources and headers below the folders."""
    paths = (p for p in source_tree.files(root, source_tree.C_SUFFIXES) if p.parts[0] in folders)
    return {p.as_posix(): (root / p).read_text(errors="replace") for p in paths}


def rust_modules(root, folder):
    """module path ("jinja::value") -> file, of the crate whose lib.rs lies in the folder."""
    found = {}
    for path in sorted((root / folder).rglob("*.rs")):
        parts = list(path.relative_to(root / folder).with_suffix("").parts)
        if parts[-1] in ("mod", "lib"):
            parts.pop()
        found["::".join(parts)] = path.relative_to(root).as_posix()
    return found


def rust_paths(text):
    """The paths that a text without comments names from crate, super or self, with braces spread out."""
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
    """Arrows of a Rust crate: a module that names what another one has. What a mod.rs hands on counts as its owner's."""
    modules, out = rust_modules(root, folder), Arrows()
    texts = {m: source_tree.without_comments_rust((root / f).read_text()) for m, f in modules.items()}
    handed = {}  # module -> name -> the module that has it
    for module, text in texts.items():
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
        for m in re.finditer(r"\b(?:mod|use)\s+(\w+)\b|\b(\w+)::\w", text):  # a child, by its bare name
            child = f"{module}::{m[1] or m[2]}" if module else (m[1] or m[2])
            if m[0].startswith("mod") or child not in modules:
                continue
            out.add(modules[module], modules[child], m[0])
    return out


def python_arrows(root, folder):
    """Arrows of Python modules in one folder tree that import each other by their bare names."""
    files = {p.stem: p for p in sorted((root / folder).rglob("*.py"))}
    out = Arrows()
    for path in files.values():
        for m in re.finditer(r"^\s*(?:import|from)\s+(\w+)", path.read_text(), re.M):
            if m[1] in files:
                out.add(path.relative_to(root).as_posix(), files[m[1]].relative_to(root).as_posix(), m[0].strip())
    return out
