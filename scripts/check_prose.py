#!/usr/bin/env python3
"""Fails at the faults of prose that a script can detect. CONTRIBUTING.md, "Style", has the rules that a reader has to judge.

Comments, docstrings and pages: no sentence opens with "Of", "Who", "Whose", "Whoever" or "What" (a question may), and none has
"that which", "whoever" or "the one that". Comments do not open with "Which" or "Where" either.
A C source of more than 200 lines opens with a comment about purpose, data flow and invariants: two sentences at least.
Pages: lines of prose have at most 160 columns; tables, code and lines that are one link may be longer, and long
pieces of code in a line do not count.
Shell scripts: no backtick runs a command, because a text that quotes one would run it ($(…) runs a command).
Commits since SINCE: the subject has at most 72 characters and the form "area: change".
Usage: check_prose.py [--root DIR] [PATH...]: without PATH all files of the repository, and the commits.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

from comments import comments, language
from source_tree import SKIPPED

OPENERS = re.compile(r"(?:Of|Who|Whose|Whoever|What|Which|Where)\b(?![^.:;]*\?)", re.I)
SENTENCE = re.compile(r"(?<=[a-z0-9`)\"'\]][.:;] )(?:Of|Who|Whose|Whoever|What)\b(?! (?:is|are|does|do|if)\b[^.]*\?)[^.]*(?!\?)")
PAGE_SENTENCE = re.compile(r"(?:^|(?<=[a-z0-9`)\"'\]*][.:] ))(?:Of|Who|Whose|Whoever|What)\b[^.?]*(?:[.:;]|$)")
PHRASES = re.compile(r"\b(?:that which|whoever|the one that)\b", re.I)
LONG_SOURCE, OPENING_CHARACTERS = 200, 160
COLUMNS, SUBJECT = 160, 72
SINCE = "2026-11-29T23:40:00+00:00"  # subjects of earlier commits are not checked, because commits do not change
HISTORY = ("CHANGELOG.md", "THIRD_PARTY_NOTICES.md")
QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"")


def repository_files(root):
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    if done.returncode == 0 and done.stdout:
        return [root / line for line in done.stdout.splitlines()]
    return [p for p in sorted(root.rglob("*")) if not SKIPPED & set(p.relative_to(root).parts)]


def faults_of_comment(text):
    plain = QUOTED.sub("x", text)
    if OPENERS.match(plain):
        yield f"opens with \"{plain.split()[0]}\""
    if m := SENTENCE.search(plain):
        yield f"has a sentence that opens with \"{m[0].split()[0]}\""
    if m := PHRASES.search(plain):
        yield f"has \"{m[0]}\""


def check_source(name, text):
    for line, comment in comments(name, text):
        for fault in faults_of_comment(comment):
            yield f"{name}:{line}: a comment {fault}: {comment[:80]}"
    if name.endswith((".c", ".cu")) and text.count("\n") > LONG_SOURCE:
        first = next(iter(comments(name, text)), (0, ""))
        before = text[:text.find("#include")].count("\n") + 1
        opening = first[1] if first[0] <= before else ""
        if len(opening) < OPENING_CHARACTERS or len(re.findall(r"[.:](?: |$)", opening)) < 2:
            yield f"{name}: {text.count(chr(10))} lines, and no opening comment of purpose, data flow and invariants"


def check_page(name, text):
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        if m := re.match(r"\s*(```+|~~~+)", line):
            fence = m[1] if fence is None else None if line.strip() == fence else fence
            continue
        bare = re.sub(r"\]\([^)]*\)|<[^>]*>", "", line)
        if fence or re.match(r"\s*\||    |\s*$|\[[^\]]+\]:", line):
            continue
        if len(re.sub(r"`[^`]{80,}`", "x", line)) > COLUMNS and " " in bare.strip("-* []"):
            yield f"{name}:{number}: {len(line)} columns; {COLUMNS} at most"
        plain = QUOTED.sub("x", re.sub(r"^\s*(?:[-*+>]|\d+\.)\s+", "", bare))
        if m := None if line.startswith("#") else PAGE_SENTENCE.search(plain):
            yield f"{name}:{number}: a sentence opens with \"{m[0].split()[0]}\": {line.strip()[:80]}"
        if m := PHRASES.search(plain):
            yield f"{name}:{number}: has \"{m[0]}\": {line.strip()[:80]}"


def check_shell(name, text):
    """Yields the lines in which a backtick outside of comments, single quotes and quoted here-documents would run a command."""
    end, runs = None, True
    for number, line in enumerate(text.splitlines(), 1):
        if end is None:
            code = re.sub(r"\\.|'[^']*'|(?:^|\s)#.*$", "", line)
        else:
            end, code = (None, "") if line.strip() == end else (end, re.sub(r"\\.", "", line))
        if "`" in code and (end is None or runs):
            yield f"{name}:{number}: a backtick runs a command: {line.strip()[:80]}"
        if end is None and (m := re.search(r"<<-?(['\"]?)(\w+)", line)):
            runs, end = not m[1], m[2]


def check_subjects(root):
    done = subprocess.run(["git", "log", "--no-merges", f"--since={SINCE}", "--format=%h %s"], cwd=root, capture_output=True, text=True)
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        name, _, subject = line.partition(" ")
        if len(subject) > SUBJECT:
            yield f"commit {name}: the subject has {len(subject)} characters; {SUBJECT} at most: {subject}"
        elif not re.match(r"[a-z0-9][\w./, -]*: \S", subject):
            yield f"commit {name}: the subject is not \"area: change\": {subject}"


def check(root, paths):
    for path in paths:
        name = path.relative_to(root).as_posix()
        if path.is_symlink() or not path.is_file() or name in HISTORY:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path.suffix == ".md":
            yield from check_page(name, text)
        elif language(path, text):
            yield from check_source(name, text)
            if re.match(r"#!.*\b(?:ba)?sh\b", text):
                yield from check_shell(name, text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("paths", nargs="*", type=Path)
    args = parser.parse_args()
    root = args.root.resolve()
    chosen = [p.resolve() for p in args.paths]
    paths = [p for p in repository_files(root) if not chosen or any(p == c or c in p.parents for c in chosen)]
    found = [*check(root, paths), *(() if chosen else check_subjects(root))]
    for fault in found:
        print(f"check_prose: {fault}", file=sys.stderr)
    print("check_prose: ok" if not found else f"check_prose: {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
