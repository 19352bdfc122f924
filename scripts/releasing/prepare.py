"""Raises the version in every file that names it, and dates the section of CHANGELOG.md.

Every occurrence of the version in the repository is one of these:
  PLACES     a pattern that names Coxswain's version; `prepare` changes it
  GENERATED  a file that a script of GENERATORS writes again
  OTHERS     a file where the same digits are something else: history, versions of other projects, invented data of a test
An occurrence that is none of them makes `prepare` fail before it changes anything.
"""
import re
import subprocess
from datetime import date, datetime, timezone
from fnmatch import fnmatchcase

import versions
from versions import Failed, Version

PLACES = (  # (files, text before the version); * matches folders too
    ("CMakeLists.txt", r"^project\(coxswain VERSION "),
    ("text/Cargo.toml", r'^version = "'),
    ("text/Cargo.lock", r'^name = "coxtext"\nversion = "'),
    ("deploy/image/Dockerfile", r"\bimage\.version="),
    ("*", r"\bcoxswain(?:[-_][a-z]+)*[:_@-]"),  # coxswain:0.1.0, coxswain-0.1.0.tgz, coxswain-cuda_0.1.0_amd64.deb
    ("README.md", r"--version "),
    ("docs/*", r"(?:\bimage\.tag=|--version )"),
    ("tests/*", r"(?:\bimage\.tag=|--version )"),
)
GENERATORS = ("deploy/helm/metadata", "deploy/k8s/render")
GENERATED = ("deploy/helm/coxswain/Chart.yaml", "deploy/k8s/base/*", "deploy/k8s/overlays/*")
HISTORY = ("CHANGELOG.md", "docs/develop/decisions/*", "docs/develop/traps.md", "docs/images/*")
OTHERS = (*HISTORY, "THIRD_PARTY_NOTICES.md", "*go.mod", "*go.sum", "*package-lock.json", "*requirements*", "text/Cargo.lock", "cli/pull/demo.c",
          "cli/view/status_view.c", "deploy/image/archive.py", "scripts/fetch-demo-model", "scripts/release", "scripts/releasing/*",
          "tests/e2e/dashboard_fixture.py", "tests/e2e/hub_server.py", "tests/packaging/*", "tests/scripts/*", "tests/unit/cli/view/status_view_test.c")
PYTHON = ".venv-k8s/bin/python"  # has the packages that GENERATORS need


def matches(path, patterns):
    return any(fnmatchcase(path, p) for p in patterns)


def occurrence(version):
    """Returns a pattern of the version as a token, so that 10.1.0 and 0.1.0.2 do not contain 0.1.0."""
    return rf"(?<![0-9A-Za-z.])v?{re.escape(version)}(?![0-9A-Za-z]|\.\d)"


def git(root, *words):
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode not in (0, 1) or (done.returncode == 1 and done.stderr):
        raise Failed(f"git {words[0]} failed: {done.stderr.strip()[-300:]}. Run it in a checkout of the repository.")
    return done.stdout


def files_with(root, version):
    """Returns {path: text} of the tracked files that have the version's digits."""
    names = git(root, "grep", "-lIzF", version).split("\0")
    return {n: (root / n).read_bytes().decode(errors="surrogateescape") for n in names if n and not (root / n).is_symlink()}


def replaced(path, text, old, new):
    """Returns the text with the new version in every one of PLACES."""
    if matches(path, HISTORY):
        return text
    for pattern, before in PLACES:
        if fnmatchcase(path, pattern):
            text = re.sub(rf"({before}){re.escape(old)}(?![0-9A-Za-z]|\.\d)", lambda m: m[1] + new, text, flags=re.M)
    return text


def strays(root, version):
    """Returns the lines "FILE:LINE: text" that name the version and are in no list above."""
    found = []
    for path, text in files_with(root, version).items():
        if not matches(path, (*GENERATED, *OTHERS)):
            rest = replaced(path, text, version, "")
            found += [f"{path}:{i}: {line.strip()[:120]}" for i, line in enumerate(rest.split("\n"), 1) if re.search(occurrence(version), line)]
    return found


def before_the_first(root):
    """Returns the lines "FILE:LINE: text" of pages that say that there is no release. A program cannot write the sentences that replace them."""
    pattern = r"\bno release(d version)? (is published|exists) yet|there is no release yet"
    listed = git(root, "grep", "-nIiE", pattern, "--", "*.md", *(f":!{p}" for p in HISTORY))
    return [f"{path}:{number}: {text.strip()[:120]}" for path, number, text in (line.split(":", 2) for line in listed.splitlines())]


def check_strays(root, *those):
    for version in those:
        if lines := strays(root, version):
            raise Failed(f"these lines have {version}, and scripts/releasing/prepare.py does not know whether it is Coxswain's version:\n  " +
                         "\n  ".join(lines[:20]) + "\nAdd a pattern to PLACES if it is, or the file to OTHERS if it is not. Nothing was changed.")


def check_order(root, old, new):
    if new.numbers < old.numbers:
        raise Failed(f"{new.text} is lower than {old.text}, the version in CMakeLists.txt. A version never goes back: choose {' or '.join(old.next_ones())}.")
    if new.text != old.text and new.text not in old.next_ones():
        raise Failed(f"{new.text} skips versions after {old.text}. Choose {' or '.join(old.next_ones())}.")
    if git(root, "tag", "--list", f"v{new.text}").strip():
        raise Failed(f"the tag v{new.text} exists, so this version is released. Choose {' or '.join(new.next_ones())}.")


def changelog(text, version, day):
    """Returns CHANGELOG.md with the section "Unreleased" as that of the version."""
    found = versions.sections(text)
    if version in found and versions.UNRELEASED not in found:
        return text
    if version in found:
        raise Failed(f"CHANGELOG.md has sections of {version} and of {versions.UNRELEASED}. Move the lines of {versions.UNRELEASED} into the other section.")
    if not found.get(versions.UNRELEASED, ("", ""))[1]:
        raise Failed(f"CHANGELOG.md has no text in a section \"## {versions.UNRELEASED}\". Write there what users notice in this version.")
    text = text.replace(" There is no release yet.", "")
    return re.sub(rf"^## {versions.UNRELEASED}$", f"## {version} ({day})", text, flags=re.M)


def day_of(text):
    """Returns a date as YYYY-MM-DD; without a text, today's in UTC."""
    if not text:
        return datetime.now(timezone.utc).strftime("%Y-%m-%d")
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise Failed(f"--date: {text!r} is not a date. Give YYYY-MM-DD.") from None


def write(path, text):
    content = text.encode(errors="surrogateescape")
    if path.read_bytes() != content:
        path.write_bytes(content)


def generate(root):
    for script in GENERATORS:
        done = subprocess.run([root / PYTHON, root / script], cwd=root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{script} failed: {(done.stderr or done.stdout).strip()[-500:]}. Correct it, and run scripts/release --prepare again.")


def prepare(root, version, day):
    """Raises the version. CMakeLists.txt changes after the others, so that a run that broke off can be repeated."""
    new, old, day = Version(version), versions.current(root), day_of(day)
    check_order(root, old, new)
    check_strays(root, old.text, *([new.text] if new.text != old.text else []))
    lacking = [s for s in (*GENERATORS, PYTHON) if not (root / s).exists()]
    if lacking:
        raise Failed(f"{lacking[0]} is missing. Run scripts/setup --k8s-quick, which installs what the chart's scripts need.")
    log = root / "CHANGELOG.md"
    log_new = changelog(log.read_text(), new.text, day)
    changes = {path: replaced(path, text, old.text, new.text) for path, text in files_with(root, old.text).items() if not matches(path, GENERATED)}
    write(log, log_new)
    for path, text in sorted(changes.items(), key=lambda change: change[0] == "CMakeLists.txt"):
        write(root / path, text)
    generate(root)
    return git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
