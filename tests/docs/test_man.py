"""Tests that a manual page exists for every command, have every option, and are clean roff."""
import os
import re
import shutil
import subprocess

import pytest
from cluster import BIN, ROOT, SLOW


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([ROOT / "scripts/man", folder], env={**os.environ, "COX_BIN": str(BIN)}, timeout=60 * SLOW, check=True)
    return {p.name: p.read_text() for p in folder.iterdir()}


def cox(*words):
    return subprocess.run([BIN / "cox", *words], capture_output=True, text=True, timeout=30 * SLOW, check=True).stdout


def test_every_command_has_a_page(pages):
    commands = set(re.findall(r"^  ([a-z-]+) ", cox("help"), re.M))
    assert len(commands) > 30
    of_commands = {f"cox-{c}.1" for c in commands} | {f"cox-bench-{b}.1" for b in ("serve", "throughput", "latency", "startup")}
    assert {"cox.1"} | of_commands <= set(pages)
    of_parts = {"run": ("create", "list", "show", "logs", "terminate", "delete", "render"), "models": ("list", "add", "rm", "alias")}
    assert set(pages) - of_commands - {"cox.1"} == {f"cox-{c}-{part}.1" for c, parts in of_parts.items() for part in parts}
    for command in commands:
        assert f"\n.B {command}\n" in pages["cox.1"].replace("\\-", "-")


@pytest.mark.parametrize("words", [("up",), ("worker",), ("pull",), ("bench", "serve"), ("status",)])
def test_a_page_has_what_help_says(pages, words):
    page = pages[f"cox-{'-'.join(words)}.1"].replace("\\-", "-")
    rows = re.findall(r"^  (--[a-z0-9-]+)(?: (?:N|TEXT|TEXT\.\.\.|WORD))?(?:  +(\S.*))?$", cox(*words, "--help=all"), re.M)
    assert len(rows) > 5
    for flag, text in rows:
        assert f"\\fB{flag}\\fR" in page and text in page, flag


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_pages_are_clean_roff(pages):
    for name, text in pages.items():
        done = subprocess.run(["groff", "-ww", "-man", "-Tutf8"], input=text, capture_output=True, text=True, timeout=30 * SLOW)
        assert (done.returncode, done.stderr) == (0, ""), name
        assert "SEE ALSO" in re.sub(".\b", "", re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)), name


@pytest.mark.skipif(not (BIN.parent / "cmake_install.cmake").exists(), reason="the programs are not in a build tree")
def test_install_takes_them(pages, tmp_path):
    subprocess.run(["cmake", "--install", BIN.parent, "--component", "man", "--prefix", tmp_path], timeout=60 * SLOW, check=True, capture_output=True)
    assert {p.name for p in (tmp_path / "share/man/man1").iterdir()} == set(pages)
