"""The Rust crates that our programs are linked with: names, versions, licences and the texts of these, out of cargo."""
import os
import re
from pathlib import Path

from debian import Failed, run

NAMED = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.I)


def linked(root):
    """[(name, version, licence as an expression)], sorted; those of the tests, of builds and of other platforms are not in it."""
    os.environ["PATH"] = f"{root}/.deps/rust/bin:{os.environ['PATH']}"
    out = run("cargo", "tree", "--manifest-path", root / "text/Cargo.toml", "--locked", "--offline", "--edges", "normal",
              "--prefix", "none", "--format", "{p}|{l}")
    found = set()
    for line in out.splitlines():
        package, _, licence = line.removesuffix(" (*)").partition("|")
        name, version = package.split()[:2]
        if name != "coxtext":
            found.add((name, version.removeprefix("v"), re.sub(r"\s*/\s*", " OR ", licence) or "NOASSERTION"))
    if not found:
        raise Failed("cargo tree names no crate of text/")
    return sorted(found)


def compiler():
    """The version of the standard library that is linked along."""
    return run("rustc", "--version").split()[1]


def texts(crates):
    """The licence files of crates, each text once, below the names of those that carry it."""
    registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry/src"
    carriers = {}
    for name, version, _ in crates:
        folder = next(iter(sorted(registry.glob(f"*/{name}-{version}"))), None)
        if not folder:
            raise Failed(f"cargo's registry has no {name} {version}, whose licence an image must carry; "
                         "run cargo fetch --locked --manifest-path text/Cargo.toml")
        for path in sorted([*folder.iterdir(), *folder.glob("*/*")]):  # onig_sys has its C library's a folder further down
            if path.is_file() and NAMED.match(path.name) and path.suffix.lower() in ("", ".txt", ".md"):
                carriers.setdefault(path.read_text(errors="replace").strip(), set()).add(f"{name} {version}")
    pairs = sorted((sorted(names), text) for text, names in carriers.items())
    return "".join(f"==== {', '.join(names)}\n\n{text}\n\n" for names, text in pairs)
