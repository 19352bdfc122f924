#!/usr/bin/env python3
"""Fails when an include or a name breaks the table of layers, and when files form a circle.

1. scripts/layers.txt lists the folders that each folder may include from and name; the table itself may have no cycle. Each
folder with C or
   CUDA has a separate row (tests/ and bench/ have one for all below), and no file has a suffix that is not read.
2. No two files reach each other by includes and names (scripts/rooms.py). scripts/circles.txt lists the allowed circles.
3. Each library is wrapped by one folder: no other folder includes its headers.
4. CMake links a folder's library only with what the table allows.
Usage: check_layers.py [--root DIR]
"""
import argparse
import graphlib
import re
import sys
from pathlib import Path

import rooms_c
import rooms_python
import rooms_rust
import source_tree

# WRAPPED maps a header pattern to the folders or files that may include such a header. Tests may include anything.
WRAPPED = {
    r"uv\.h|uv/.*": ["common/loop", "common/bus", "common/redis", "common/http/conn", "common/http/server", "common/http/handlers"],
    r"zmq\.h|zmq_utils\.h": ["common/bus", "common/keys"],
    r"hiredis(/.*|\.h)?": ["common/redis"],
    r"llhttp\.h": ["common/http/message", "common/http/handlers"],
    r"curl/.*": ["common/http/client"],
    r"openssl/.*": ["common/tls", "common/keys"],
    r".*\.pb-c\.h|protobuf-c(/.*|\.h)": ["proto/codec"],
    r"cuda.*|cublas.*|nvml\.h": ["kernels/cuda"],
    r"nccl\.h": ["worker/comm/nccl.c"],
    r"yaml\.h|argp\.h": ["common/config"],
}
UNCHECKED = ("tests", "bench")
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?:include|import)\w*[^\n]*", re.M)
UNREAD = {".hpp", ".hh", ".hxx", ".cc", ".cxx", ".cpp", ".c++", ".C", ".inc", ".inl", ".ipp", ".tpp", ".def"}  # these suffixes of C are not read by this script


def read_table(path):
    """Returns folder -> the folders that it may include from. "x/*" means x and all folders below it. A row that names no folder
    outside its own top folder also gets the folders of the top folder's row."""
    rows = {}
    for n, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if ":" not in line:
            raise ValueError(f"{path}:{n}: no ':' in {line!r}")
        name, allowed = line.split(":", 1)
        if name.strip() in rows:
            raise ValueError(f"{path}:{n}: {name.strip()} has a row already")
        rows[name.strip()] = allowed.split()
    rules = {}
    for name, allowed in rows.items():
        top = name.split("/")[0]
        if all(a.split("/")[0] == top for a in allowed) and name != top:
            allowed = allowed + [a for a in rows.get(top, []) if a.split("/")[0] != top]
        rules[name] = set()
        for other in allowed:
            found = {other} if other == "*" else {r for r in rows if r == other or other.endswith("/*") and (r + "/").startswith(other[:-1])}
            if not found:
                raise ValueError(f"{path}: {name} names the unknown folder {other}")
            rules[name] |= found - {name}
    return rules


def layer_of(path, rules):
    """Returns the row of a file or a module, which is the row of the nearest folder."""
    while path not in rules:
        path, below_another, _ = path.rpartition("/")
        if not below_another:
            return None
    return path


def check_cycle(rules):
    graph = {k: v - {"*"} for k, v in rules.items()}
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as e:
        return ["scripts/layers.txt: a cycle: " + " -> ".join(e.args[1])]
    return []


def check_file(root, rel, rules):
    name, bad = rel.as_posix(), []
    frm = layer_of(name, rules)
    if frm is None or frm in UNCHECKED:
        return bad
    text = (root / rel).read_text(errors="replace")
    text, tops = source_tree.without_comments_c(text, strings=True), {k.split("/")[0] for k in rules}
    for directive in DIRECTIVE.finditer(text):
        line = text.count("\n", 0, directive.start()) + 1
        m = rooms_c.INCLUDE.match(directive[0])
        if not m:
            bad.append(f"{name}:{line}: this include names no file: {directive[0].strip()}")
            continue
        header = m[1] or m[2]
        for pattern, homes in WRAPPED.items():
            at_home = any(name == h or name.startswith(h + "/") for h in homes)
            if re.fullmatch(pattern, header.rsplit("/", 1)[-1] if header.endswith(".pb-c.h") else header) and not at_home:
                bad.append(f"{name}:{line}: {header} is wrapped by {', '.join(homes)}; include that instead")
        ours = m[1] or "/" in header and header.split("/")[0] in tops
        if ours and not header.endswith(".pb-c.h"):
            to = layer_of(header, rules)
            if Path(header).suffix not in source_tree.C_SUFFIXES:
                bad.append(f"{name}:{line}: {header} is not read by this check; name it .h or .cuh")
            elif to is None:
                bad.append(f'{name}:{line}: "{header}" is in no folder of scripts/layers.txt (use the full path)')
            elif to != frm and to not in rules[frm] and "*" not in rules[frm]:
                bad.append(f"{name}:{line}: {frm} may not include {header}")
    return bad


def check_folders(root, rules):
    """Checks that each folder with C or CUDA has its row, and that no file of C has a suffix that is not read."""
    bad, folders = [], set()
    for rel in source_tree.files(root, source_tree.C_SUFFIXES | UNREAD):
        if rel.suffix in source_tree.C_SUFFIXES:
            folders.add(rel.parts[0] if rel.parts[0] in UNCHECKED else rel.parent.as_posix())
        elif rel.suffix != ".cpp" or rel.parts[0] not in UNCHECKED:
            ours = " ".join(sorted(source_tree.C_SUFFIXES))
            bad.append(f"{rel.as_posix()}: C has the suffixes {ours}; {rel.suffix} is not read by this check")
    return bad + [f"folder {f} has no row in scripts/layers.txt" for f in sorted(folders - rules.keys())]


def check_calls(found, rules):
    """Finds uses of names that the linker would allow and the table does not. Such names need no include when a lower header
    declares them. When several sources define a name, one allowed source is enough."""
    def allowed(frm, to):
        a, b = layer_of(frm, rules), layer_of(to, rules)
        return None in (a, b) or a in UNCHECKED or a == b or b in rules[a] or "*" in rules[a]
    bad = []
    for frm, tos in sorted(found.arrows.items()):
        for to, why in sorted((to, why) for to, why in tos.items() if not allowed(frm, to)):
            others = {w: found.instead.get((frm, to, w), ()) for w in why if w.startswith("names ")}
            names = sorted(w for w, rooms in others.items() if not any(allowed(frm, room) for room in rooms))
            bad += [f"{frm}: {layer_of(frm, rules)} may not call {to} ({', '.join(names)})"] if names else []
    return bad


def read_circles(path):
    """Returns the allowed circles with their reasons. Each line is "module module …: reason"."""
    allowed = []
    for n, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        line = line.split("#", 1)[0].strip()
        if line:
            members, colon, why = line.partition(": ")
            if not why.strip():
                raise ValueError(f"{path}:{n}: no reason behind ': '")
            allowed.append((n, frozenset(members.split())))
    return allowed


def check_circles(root):
    """Checks that every circle of C and CUDA, of the Rust crate and of the Python of bench/ and scripts/ is part of an allowed
    circle."""
    found = [rooms_c.c_arrows(rooms_c.read_c(root))]
    found += [rooms_rust.rust_arrows(root, "text/src")] if (root / "text/src").exists() else []
    found += [rooms_python.python_arrows(root, folder) for folder in ("bench", "scripts") if (root / folder).exists()]
    allowed, used, bad = read_circles(root / "scripts/circles.txt"), set(), []
    for arrows in found:
        for members in arrows.circles():
            home = next((n for n, names in allowed if set(members) <= names), None)
            used.add(home)
            if home is None:
                bad.append(f"a circle of {len(members)} files: {' '.join(members)}")
                bad += ["    " + tie for tie in arrows.ties(members)]
    bad += [f"scripts/circles.txt:{n}: this circle is not there any more; take the line out" for n, _ in allowed if n not in used]
    return bad + check_calls(found[0], read_table(root / "scripts/layers.txt"))


def check_cmake(root, rules):
    """Checks that a library links only libraries of folders that the table allows to its own folders. `cox_folder` names a library's
    folders."""
    bad, libraries = [], {}
    for path in source_tree.files(root, {".txt"}):
        if path.name != "CMakeLists.txt":
            continue
        text = re.sub(r"#[^\n]*", "", (root / path).read_text())
        for m in re.finditer(r"cox_folder\(\s*(\w+)([^)]*)\)", text):
            words = {"FOLDERS": [], "DEPS": [], "EXCEPT": []}
            key = None
            for word in m[2].split():
                key = word if word in words else key
                words[key].append(word)
            here = path.parent.as_posix()
            folders = [f"{here}/{f}" for f in words["FOLDERS"][1:]] or [here]
            libraries[m[1]] = (path.as_posix(), folders, words["DEPS"][1:])
    for name, (path, folders, deps) in libraries.items():
        mine = {r for r in rules if any((r + "/").startswith(f + "/") for f in folders)}
        may = set().union(*(rules[r] for r in mine)) if mine else set()
        for dep in deps:
            theirs = {r for r in rules if any((r + "/").startswith(f + "/") for f in libraries.get(dep, ("", [], []))[1])}
            if theirs and mine and not theirs & may and "*" not in may:
                bad.append(f"{path}: {name} may not link {dep}")
    return bad


def check_stand_ins(root):
    """Checks that tests/cuda/no_text.c, which replaces text/ where CUDA tests are built without Rust, has each function that worker/
    calls. Such builds are rare, so a missing function would be detected late."""
    header, stand_ins = root / "text/text.h", root / "tests/cuda/no_text.c"
    if not header.exists() or not stand_ins.exists():
        return []
    functions = set(re.findall(r"\b(text_\w+)\(", header.read_text()))
    there = set(re.findall(r"^[^\s/].*?\b(text_\w+)\(", stand_ins.read_text(), re.M))
    called = {f for c in sorted((root / "worker").rglob("*.c")) for f in re.findall(r"\b(text_\w+)\(", c.read_text())}
    return [f"tests/cuda/no_text.c: {f} is missing, which worker/ calls" for f in sorted(functions & called - there)]


def check(root):
    rules = read_table(root / "scripts/layers.txt")
    bad = check_cycle(rules) + check_folders(root, rules)
    for rel in source_tree.files(root, source_tree.C_SUFFIXES):
        bad += check_file(root, rel, rules)
    return bad + check_circles(root) + check_cmake(root, rules) + check_stand_ins(root)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    try:
        bad = check(parser.parse_args().root)
    except ValueError as e:
        bad = [str(e)]
    for line in bad:
        print(line)
    print(f"check_layers: {len(bad)} violations" if bad else "check_layers: ok")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
