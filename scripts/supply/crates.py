"""Runs cargo-audit and cargo-deny on text/Cargo.lock.

cargo-audit compares the crates with RustSec's advisories. cargo-deny checks licences, sources and forbidden crates (text/deny.toml);
its own check of advisories is left out, because cargo-audit makes it.
"""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from report import ROOT, Failed, NotRun

TOOLS = {"cargo-audit": "0.22.2", "cargo-deny": "0.20.2"}  # both need Rust 1.88 or later
PLACE = ROOT / ".deps/audit"
WAIT_S = 900
NETWORK_WORDS = ("failed to fetch", "couldn't fetch", "error sending request", "could not resolve", "dns error", "git operation failed",
                 "failed to download", "network", "unable to update")


def install():
    """Builds the tools into .deps/audit. The builds are not optimised, which saves half of their time."""
    env = dict(os.environ, CARGO_PROFILE_DEV_DEBUG="0", CARGO_INCREMENTAL="0", CARGO_TARGET_DIR=str(PLACE / "target"))
    for tool, version in TOOLS.items():
        words = ["cargo", "install", "--locked", "--debug", "--no-default-features", "--root", PLACE, f"{tool}@{version}"]
        if subprocess.run(words, env=env, check=False).returncode:
            raise Failed(f"cargo cannot install {tool} {version}. It needs Rust 1.88 or later and crates.io")
    shutil.rmtree(PLACE / "target", ignore_errors=True)


def tool(name):
    path = shutil.which(name, path=f"{PLACE / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if not path:
        raise NotRun(f"{name} {TOOLS[name]} is not installed. Run scripts/audit --install")
    return path


def run(words, cwd):
    try:
        p = subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotRun(f"{Path(words[0]).name} did not end within {WAIT_S} s")
    return p.returncode, p.stdout.decode(errors="replace")


def could_not_fetch(said):
    return any(w in said.lower() for w in NETWORK_WORDS)


def advisories(db, holder):
    """Returns a folder with RustSec's advisories: `db`, or the files of the git repository that it is."""
    if (db / "crates").is_dir():
        return db
    if not (db / "objects").is_dir():
        raise Failed(f"{db} is neither a checkout nor a git repository of RustSec's advisory-db")
    out = Path(holder) / "advisory-db"
    out.mkdir()
    tar = Path(holder) / "advisory-db.tar"
    for words in (["git", "-C", db, "archive", "-o", tar, "HEAD"], ["tar", "-x", "-C", out, "-f", tar]):
        subprocess.run(words, check=False, timeout=WAIT_S)
    if not (out / "crates").is_dir():
        raise Failed(f"{db} cannot be unpacked, or has no advisories of crates")
    return out


def check_advisories(db, offline, part):
    words = [tool("cargo-audit"), "audit", "--file", ROOT / "text/Cargo.lock", "--color", "never", "--deny", "unsound"]
    if not db and offline:
        raise NotRun("--offline, and there is no copy of RustSec's advisories. Give one with --advisory-db DIR")
    with tempfile.TemporaryDirectory() as holder:
        if db:
            words += ["--db", advisories(db, holder), "--no-fetch", "--stale"]
        code, said = run(words, ROOT / "text")  # text/.cargo/audit.toml would have exceptions
    if code and not db and could_not_fetch(said):
        raise NotRun(f"RustSec's advisories are not reachable: {last_line(said)}. Give a copy with --advisory-db DIR")
    lines = [line for line in said.splitlines() if line.strip()]
    (part.wrong if code else part.notes).extend(lines)
    part.checked = "cargo-audit compared text/Cargo.lock with RustSec's advisories"


def check_policy(offline, part):
    words = [tool("cargo-deny"), "--manifest-path", ROOT / "text/Cargo.toml", "--color", "never", "--locked", *(["--offline"] if offline else []),
             "check", "--hide-inclusion-graph", "bans", "licenses", "sources"]
    code, said = run(words, ROOT)
    if code and could_not_fetch(said):
        raise NotRun(f"cargo-deny needs the crates' sources, which are not here: {last_line(said)}")
    lines = [line for line in said.splitlines() if line.strip()]
    (part.wrong if code else part.notes).extend(lines)
    part.checked = "cargo-deny checked licences, sources and forbidden crates (text/deny.toml)"


def last_line(said):
    return (said.strip().splitlines() or ["it said nothing"])[-1].strip()
