#!/usr/bin/env python3
"""Fetches and unpacks the third-party sources of packaging/sources.txt. Each file is checked against its SHA-256.

  packaging/sources.py --update   writes the newest versions of Debian 13 (or 12) into packaging/sources.txt
"""
import argparse
import datetime
import functools
import hashlib
import lzma
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "deploy/image"))
from debian import Failed, run  # noqa: E402

LOCK = HERE / "sources.txt"
SUITES = ("trixie", "bookworm")  # the second one is for sources that a mirror of the first one does not have
MIRRORS = ("http://deb.debian.org/debian", "http://deb.debian.org/debian-security")
SNAPSHOT = "https://snapshot.debian.org/archive/{}/{}"  # keeps versions that Debian has replaced
MAX_BYTES = 200e6
# Source package and licence of each library; the third field is the binary package for a library whose generated C is only there.
WANTED = {"zlib": ("zlib", "Zlib"), "libzstd": ("libzstd", "BSD-3-Clause"), "openssl": ("openssl", "Apache-2.0"), "curl": ("curl", "curl"),
          "libsodium": ("libsodium", "ISC"), "libuv": ("libuv1", "MIT"), "jansson": ("jansson", "MIT"), "libyaml": ("libyaml", "MIT"),
          "xxhash": ("xxhash", "BSD-2-Clause"), "hiredis": ("hiredis", "BSD-3-Clause"), "protobuf-c": ("protobuf-c", "BSD-2-Clause"),
          "sqlite": ("sqlite3", "blessing"), "libzmq": ("zeromq3", "LicenseRef-LGPL-3.0-or-later-WITH-ZeroMQ-exception"), "llhttp": ("node-undici", "MIT", "node-llhttp")}


class Source(NamedTuple):
    """Is a row of packaging/sources.txt. `file` is a .dsc, or a .deb for generated C."""
    name: str
    package: str
    suite: str
    version: str
    pool: str
    file: str
    sha256: str
    licence: str


def sources():
    """Returns the rows of the lock file, in the order in which the libraries are built."""
    rows = [Source(*line.split()) for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    for row in rows:
        if not re.fullmatch(r"[0-9a-f]{64}", row.sha256) or "/" in row.file or ".." in row.pool:
            raise Failed(f"packaging/sources.txt: the row of {row.name} is not valid. Run packaging/sources.py --update.")
    return rows


def snapshot_time():
    return re.search(r"^# snapshot: (\w+)$", LOCK.read_text(), re.M)[1]


def download(url, to=None):
    """Returns the content of an address, or writes it to the file `to`. Raises OSError."""
    request = urllib.request.Request(url, headers={"User-Agent": "coxswain-packaging"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        if to is None:
            return answer.read(int(MAX_BYTES))
        with open(to, "wb") as f:
            left = int(MAX_BYTES)
            while block := answer.read(1 << 20):
                left -= len(block)
                if left < 0:
                    raise OSError(f"more than {MAX_BYTES / 1e6:.0f} MB")
                f.write(block)
    return None


def sha256_of(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def fetch_file(pool, name, sha256, folder):
    """Returns the path of a file of Debian's pool in `folder`. The file is downloaded when it is missing or damaged."""
    path = folder / name
    if path.exists() and sha256_of(path) == sha256:
        return path
    at = snapshot_time()
    places = [*MIRRORS, SNAPSHOT.format("debian", at), SNAPSHOT.format("debian-security", at)]
    new, said = folder / (name + ".new"), []
    for place in places:
        try:
            download(f"{place}/{pool}/{name}", new)
        except OSError as e:
            said.append(f"{place}: {e}")
            continue
        if sha256_of(new) == sha256:
            new.replace(path)
            return path
        said.append(f"{place}: another SHA-256")
    raise Failed(f"cannot download {name}: {'; '.join(said)}. Check the network, or run packaging/sources.py --update for newer versions.")


def fetch(source, folder):
    """Returns the path of the .dsc or .deb file. The parts that a .dsc names are beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    first = fetch_file(source.pool, source.file, source.sha256, folder)
    if source.file.endswith(".dsc"):
        for sha256, _, name in parts(first.read_text(errors="replace")):
            fetch_file(source.pool, name, sha256, folder)
    return first


def parts(dsc):
    """Returns [(SHA-256, bytes, name)] of the files that a source package has."""
    sums = re.search(r"^Checksums-Sha256:[ \t]*\n((?: .*\n)+)", dsc, re.M)
    rows = [tuple(line.split()) for line in sums[1].splitlines()] if sums else []
    if not rows or any(len(r) != 3 or "/" in r[2] for r in rows):
        raise Failed("a .dsc file has no valid list of files. Run packaging/sources.py --update.")
    return rows


def unpack(source, downloads, to):
    """Unpacks a source into the new folder `to`, with Debian's patches."""
    first = fetch(source, downloads)
    if source.file.endswith(".deb"):
        run("dpkg-deb", "-x", first, to)
    else:
        run("dpkg-source", "--no-check", "-x", first, to)
    return to


def is_newer(a, b):
    return subprocess.run(["dpkg", "--compare-versions", field(a, "Version"), "gt", field(b, "Version")], check=False).returncode == 0


def newest_first(lists, package):
    """Returns [(suite, paragraph)] of a package in Debian's lists [(suite, text)]."""
    found = [(suite, p) for suite, text in lists for p in re.findall(rf"(?:^|\n\n)(Package: {re.escape(package)}\n.*?)(?=\n\n|\Z)", text, re.S)]
    if not found:
        raise Failed(f"Debian's lists have no package {package}. Correct WANTED in packaging/sources.py.")
    return sorted(found, key=functools.cmp_to_key(lambda a, b: is_newer(b[1], a[1]) - is_newer(a[1], b[1])))


def field(paragraph, name):
    return re.search(rf"^{name}: (\S+)", paragraph, re.M)[1]


def row_of(name, lists, binaries, downloads):
    """Returns the row of the newest version that a mirror has. A mirror's lists may be newer than its pool."""
    package, licence, *binary = WANTED[name]
    said = None
    for suite, p in newest_first(binaries, binary[0]) if binary else newest_first(lists, package):
        if binary:
            pool, _, file = field(p, "Filename").rpartition("/")
            row = Source(name, package, suite, re.search(r"^Source: \S+ \((.*)\)", p, re.M)[1], pool, file, field(p, "SHA256"), licence)
        else:
            digest, _, file = next(r for r in parts(p + "\n") if r[2].endswith(".dsc"))
            row = Source(name, package, suite, field(p, "Version"), field(p, "Directory"), file, digest, licence)
        try:
            fetch(row, downloads)
            return row
        except Failed as e:
            said = said or e
            print(f"sources: {name} {row.version} is in Debian's lists, but no mirror has it; an older version is tried", file=sys.stderr)
    raise said


def update():
    def listed(mirror, archive, path):
        return lzma.decompress(download(f"{mirror}/dists/{archive}/main/{path}")).decode()
    lists = [(suite, listed(mirror, suite + part, "source/Sources.xz")) for suite in SUITES for mirror, part in zip(MIRRORS, ("", "-security"))]
    binaries = [("bookworm", listed(MIRRORS[0], "bookworm", "binary-amd64/Packages.xz"))]  # the last Debian whose node-llhttp has the generated C
    with tempfile.TemporaryDirectory() as downloads:
        rows = [row_of(name, lists, binaries, Path(downloads)) for name in WANTED]
    head = [line for line in LOCK.read_text().splitlines() if line.startswith("#") and not line.startswith("# snapshot: ")]
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    LOCK.write_text("\n".join([*head, f"# snapshot: {now}", *(" ".join(row) for row in rows)]) + "\n")
    print(f"sources: {len(rows)} libraries in {LOCK.name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", required=True, help="rewrite packaging/sources.txt")
    parser.parse_args()
    try:
        update()
    except (Failed, urllib.error.URLError) as e:
        sys.exit(f"sources: {e}")


if __name__ == "__main__":
    main()
