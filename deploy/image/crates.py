"""Lists the Rust crates that are linked into Coxswain's programs: names, versions, licences and licence texts, from cargo."""
import os
import re
from pathlib import Path

from debian import Failed, run

NAMED = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.I)


def linked(root):
    """Returns sorted [(name, version, licence expression)], without crates of tests, of the build and of other platforms."""
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
        raise Failed("cargo tree lists no crate of text/, so the licences of the image are not known. Run scripts/build, then try again.")
    return sorted(found)


def compiler():
    """Returns the version of the standard library that is linked in."""
    return run("rustc", "--version").split()[1]


def texts(crates):
    """Returns the licence texts of crates, each text once, under the names of the crates that have it."""
    registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry/src"
    carriers = {}
    for name, version, _ in crates:
        folder = next(iter(sorted(registry.glob(f"*/{name}-{version}"))), None)
        if not folder:
            raise Failed(f"cargo's registry does not have the crate {name} {version}, and the image must contain its licence. "
                         "Run cargo fetch --locked --manifest-path text/Cargo.toml.")
        for path in sorted([*folder.iterdir(), *folder.glob("*/*")]):  # onig_sys has the licence of its C library in a folder below its own
            if path.is_file() and NAMED.match(path.name) and path.suffix.lower() in ("", ".txt", ".md"):
                carriers.setdefault(path.read_text(errors="replace").strip(), set()).add(f"{name} {version}")
    pairs = sorted((sorted(names), text) for text, names in carriers.items())
    return "".join(f"==== {', '.join(names)}\n\n{text}\n\n" for names, text in pairs)
