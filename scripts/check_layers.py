#!/usr/bin/env python3
"""Fails when an include goes against an arrow of the architecture.

1. scripts/layers.txt says what each folder may include from; the table itself may have no cycle.
2. A library is wrapped by one folder: its headers are included nowhere else.
3. CMake links a folder's library only with what the table allows.
Usage: check_layers.py [--root DIR]
"""
import argparse
import graphlib
import re
import sys
from pathlib import Path

import source_tree

# header pattern → the places that may include it (a folder or a file); tests may include anything.
WRAPPED = {
    r"uv\.h|uv/.*|zmq\.h|zmq_utils\.h|hiredis(/.*|\.h)?|llhttp\.h|curl/.*|openssl/.*": ["common/net"],
    r".*\.pb-c\.h|protobuf-c(/.*|\.h)": ["proto"],
    r"cuda.*|cublas.*|nvml\.h": ["kernels/cuda"],
    r"nccl\.h": ["worker/comm/nccl.c"],
    r"yaml\.h|argp\.h": ["common/base"],
}
LIBRARY_FOLDERS = {  # CMake target → folder of the table
    "base": "common/base", "net": "common/net", "model": "common/model", "options": "common/options", "batch": "common/batch", "proto": "proto", "text": "text",
    "kernels": "kernels", "gateway": "gateway", "head": "head", "worker": "worker", "cli": "cli",
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)
UNCHECKED = ("tests", "bench")


def read_table(path):
    rules = {}
    for n, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if ":" not in line:
            raise ValueError(f"{path}:{n}: no ':' in {line!r}")
        name, allowed = line.split(":", 1)
        rules[name.strip()] = set(allowed.split())
    for name, allowed in rules.items():
        for other in allowed - {"*"} - set(rules):
            raise ValueError(f"{path}: {name} names the unknown folder {other}")
    return rules


def layer_of(path, rules):
    found = [k for k in rules if path == k or path.startswith(k + "/")]
    return max(found, key=len, default=None)


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
    text = re.sub(r"/\*.*?\*/", source_tree.blank, text, flags=re.S)
    for m in INCLUDE.finditer(text):
        line = text.count("\n", 0, m.start()) + 1
        header = m[1] or m[2]
        for pattern, homes in WRAPPED.items():
            at_home = any(name == h or name.startswith(h + "/") for h in homes)
            if re.fullmatch(pattern, header.rsplit("/", 1)[-1] if header.endswith(".pb-c.h") else header) and not at_home:
                bad.append(f"{name}:{line}: {header} is wrapped by {', '.join(homes)}; include that instead")
        if m[1] and not header.endswith(".pb-c.h"):
            to = layer_of(header, rules)
            if to is None:
                bad.append(f'{name}:{line}: "{header}" is in no folder of scripts/layers.txt (use the full path)')
            elif to != frm and to not in rules[frm] and "*" not in rules[frm]:
                bad.append(f"{name}:{line}: {frm} may not include {header}")
    return bad


def check_cmake(root, rules):
    bad = []
    for lib, folder in LIBRARY_FOLDERS.items():
        path = root / folder / "CMakeLists.txt"
        m = re.search(r"cox_folder\(\s*" + lib + r"\s+DEPS([^)]*)\)", path.read_text()) if path.exists() else None
        for dep in m[1].split() if m else []:
            other = LIBRARY_FOLDERS.get(dep)
            if other and other != folder and other not in rules[folder] and "*" not in rules[folder]:
                bad.append(f"{folder}/CMakeLists.txt: {lib} may not link {dep}")
    return bad


def check_stand_ins(root):
    """tests/cuda/no_text.c stands for text/ where CUDA tests are built without Rust: it has each function that worker/ calls. Those
    builds are rare, so that a missing one would be found late."""
    header, stand_ins = root / "text/text.h", root / "tests/cuda/no_text.c"
    if not header.exists() or not stand_ins.exists():
        return []
    functions = set(re.findall(r"\b(text_\w+)\(", header.read_text()))
    there = set(re.findall(r"^[^\s/].*?\b(text_\w+)\(", stand_ins.read_text(), re.M))
    called = {f for c in sorted((root / "worker").rglob("*.c")) for f in re.findall(r"\b(text_\w+)\(", c.read_text())}
    return [f"tests/cuda/no_text.c: {f} is missing, which worker/ calls" for f in sorted(functions & called - there)]


def check(root):
    rules = read_table(root / "scripts/layers.txt")
    bad = check_cycle(rules)
    for rel in source_tree.files(root, source_tree.C_SUFFIXES):
        bad += check_file(root, rel, rules)
    return bad + check_cmake(root, rules) + check_stand_ins(root)


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
