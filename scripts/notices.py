#!/usr/bin/env python3
"""Writes the table of Rust crates in THIRD_PARTY_NOTICES.md, from text/Cargo.lock.

notices.py           writes it (asks cargo for the licences) notices.py --check   fails when a crate of the lock file is missing
in the table (needs no cargo)
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTICES, LOCK = ROOT / "THIRD_PARTY_NOTICES.md", ROOT / "text/Cargo.lock"
BEGIN = "<!-- crates: written by scripts/notices.py -->\n"


def listed():
    table = NOTICES.read_text().split(BEGIN)[1]
    return set(re.findall(r"^\| ([\w-]+) \|", table, re.M))


def locked():
    return set(re.findall(r'^name = "([^"]+)"', LOCK.read_text(), re.M)) - {"coxtext"}


def write():
    out = subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path",
                          str(ROOT / "text/Cargo.toml")], capture_output=True, text=True, check=True).stdout
    rows = sorted({(p["name"], p["version"], p["license"] or "see its source") for p in json.loads(out)["packages"]
                   if p["name"] != "coxtext"})
    head = NOTICES.read_text().split(BEGIN)[0]
    table = "| crate | version | licence |\n|---|---|---|\n" + "".join(f"| {n} | {v} | {t} |\n" for n, v, t in rows)
    NOTICES.write_text(head + BEGIN + table)
    print(f"notices: {len(rows)} crates")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        return write()
    missing = sorted(locked() - listed()) if LOCK.exists() else []
    if missing:
        sys.exit("THIRD_PARTY_NOTICES.md lacks " + ", ".join(missing) + "; run scripts/notices.py")
    print("notices: ok")


if __name__ == "__main__":
    main()
