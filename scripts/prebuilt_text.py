#!/usr/bin/env python3
"""Makes and checks a prebuilt text library, which replaces the compilation of the Rust crates of text/.

  scripts/prebuilt_text.py make FILE       builds libcoxtext.a, copies it to FILE and prints its line for text/prebuilt.txt
  scripts/prebuilt_text.py use WHAT FILE   copies the library WHAT to FILE if it may be used, else ends with exit status 1
  scripts/prebuilt_text.py sources         prints the hash of the sources

WHAT is a path or a URL (http, https, file), or one of these with @sha256:LIBRARY:SOURCES appended. The library is used
only if its SHA-256 stands in text/prebuilt.txt or after the @, together with the hash of this tree's sources (text/src,
text/templates, Cargo.toml, Cargo.lock, rustc-wrapper) and, in text/prebuilt.txt, with this machine's target. scripts/build
--prebuilt-text WHAT calls `use`. `make` gives the same bytes in every folder with the same compilers. It runs
on the oldest distribution that must link the library.
"""
import contextlib
import hashlib
import http.client
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(os.environ.get("COX_ROOT") or Path(__file__).resolve().parent.parent)
INPUTS = ("text/Cargo.lock", "text/Cargo.toml", "text/rustc-wrapper", "text/src", "text/templates")
MAX_BYTES = 1 << 30
TARGET = f"{platform.machine()}-unknown-linux-gnu"
HEX = "[0-9a-f]{64}"


class Refused(Exception):
    pass


def sources_hash(root=ROOT):
    """Returns a hash of the names and contents of everything that the library is made from, without the compilers."""
    whole = hashlib.sha256()
    for name in INPUTS:
        path = root / name
        if not path.exists():
            raise Refused(f"{path} does not exist, so the sources of the text library are not complete. Check out the whole repository.")
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            whole.update(f"{file.relative_to(root).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def listed(root=ROOT):
    """Returns {hash of the library: (hash of the sources, target)} of text/prebuilt.txt."""
    rows = {}
    path = root / "text/prebuilt.txt"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) < 3 or not all(re.fullmatch(HEX, w) for w in words[:2]):
            raise Refused(f"line {number} of {path} is not 'LIBRARY SOURCES TARGET COMPILER', with two SHA-256 hashes first. Correct the line.")
        rows[words[0]] = (words[1], words[2])
    return rows


@contextlib.contextmanager
def refused(what, advice):
    """Turns errors of files and servers into Refused. A server may send anything, so text with control characters is printed as a literal."""
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as why:  # URLError is an OSError
        said = str(why) if str(why).isprintable() else ascii(str(why))
        raise Refused(f"{what}: {said[:300]}. {advice}.") from None


def copy_in(place, target):
    """Copies a file or downloads a URL into `target`. Returns its SHA-256."""
    digest, size = hashlib.sha256(), 0
    url = place if re.match("(https?|file)://", place) else None
    reading = (f"cannot read {place}", "Check the name, or leave out --prebuilt-text, and the crates are compiled")
    with refused(*reading):
        source = urllib.request.urlopen(url, timeout=60) if url else open(place, "rb")
    with source, refused(f"cannot write into {target.parent.parent}", "Free some space, or check the rights of the folder"), open(target, "wb") as out:
        while True:
            with refused(*reading):
                block = source.read(1 << 20)
            if not block:
                return digest.hexdigest()
            size += len(block)
            if size > MAX_BYTES:
                raise Refused(f"{place} has more than {MAX_BYTES >> 20} MiB, so it is no text library. Name another file.")
            digest.update(block)
            out.write(block)


def use(what, out, root=ROOT):
    """Verifies a library and puts it at `out`. Nothing is written there before the hashes are right."""
    place, at, wanted = what.partition("@sha256:")
    given = {}
    if at:
        match = re.fullmatch(f"({HEX}):({HEX})", wanted)
        if not match:
            raise Refused(f"'@sha256:{wanted}' is not @sha256:LIBRARY:SOURCES with two hashes of 64 digits. `scripts/prebuilt_text.py make` prints both.")
        given[match[1]] = (match[2], TARGET)
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".prebuilt-") as folder:
        new = Path(folder, "new")
        found = copy_in(place, new)
        known = given or listed(root)
        if found not in known:
            expected = f"expected is {next(iter(known))}" if given else "text/prebuilt.txt does not list it"
            raise Refused(f"{place} has SHA-256 {found}, but {expected}. Do not use this file: get it again, or leave out --prebuilt-text.")
        sources, target = known[found]
        mine = sources_hash(root)
        if sources != mine:
            raise Refused(f"{place} was made from other sources ({sources[:12]}…) than text/ of this tree ({mine[:12]}…). "
                          "Use the library of this commit, or leave out --prebuilt-text, and the crates are compiled.")
        if target != TARGET:
            raise Refused(f"{place} is for {target}, but this machine is {TARGET}. Use the library of this target, or leave out --prebuilt-text.")
        with open(new, "rb") as f:
            if f.read(8) != b"!<arch>\n":
                raise Refused(f"{place} is not a static library. The hash is right, so the entry that names it is wrong: correct text/prebuilt.txt.")
        if not out.is_file() or hashlib.sha256(out.read_bytes()).hexdigest() != found:  # a file that stays causes no new links
            os.replace(new, out)
    print(f"{out}: verified, SHA-256 {found}")


def make(out, root=ROOT):
    """Builds the library without traces of this machine's folders, and prints its line."""
    cargo_home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    with tempfile.TemporaryDirectory(prefix="coxtext.") as target:
        maps = ((target, "/build"), (cargo_home, "/cargo"), (str(root), "/coxswain"))
        env = dict(os.environ, CARGO_TARGET_DIR=target, SOURCE_DATE_EPOCH="0", ZERO_AR_DATE="1", CARGO_INCREMENTAL="0",
                   RUSTC_WRAPPER=str(root / "text/rustc-wrapper"), COX_RUSTC_WRAPPER="",
                   CFLAGS=" ".join(f"-ffile-prefix-map={a}={b}" for a, b in maps),
                   CARGO_ENCODED_RUSTFLAGS="\x1f".join(f"--remap-path-prefix={a}={b}" for a, b in maps))
        subprocess.run(["cargo", "build", "--release", "--locked", "--manifest-path", str(root / "text/Cargo.toml")], env=env, check=True,
                       stdout=sys.stderr)
        shutil.copy(Path(target, "release/libcoxtext.a"), out)
    rustc = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    print(hashlib.sha256(Path(out).read_bytes()).hexdigest(), sources_hash(root), TARGET, f"rustc-{rustc}")


def main():
    command, *args = sys.argv[1:] or [""]
    try:
        if command == "make" and len(args) == 1:
            make(args[0])
        elif command == "use" and len(args) == 2:
            use(*args)
        elif command == "sources" and not args:
            print(sources_hash())
        else:
            print(__doc__.strip(), file=sys.stderr)
            return 0 if command in ("-h", "--help") else 2
    except (Refused, OSError, UnicodeDecodeError, subprocess.CalledProcessError) as why:
        print(f"prebuilt_text: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
