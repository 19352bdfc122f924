"""Tests that scripts/repeat counts, keeps and ends runs correctly, with stand-ins for tests. Each test in tests/flaky.txt exists."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# PYTEST replaces pytest: it writes the requested junit file. STUB_FAILS_AT is the run in which test_b fails.
PYTEST = r"""#!/usr/bin/env python3
import os, pathlib, sys, time
said = next(w.split("=", 1)[1] for w in sys.argv if w.startswith("--junitxml="))
stem = next(pathlib.Path(w.split("::")[0]).stem for w in sys.argv if "::" in w)
count = pathlib.Path(stem + ".count")
n = 1 + (int(count.read_text()) if count.exists() else 0)
count.write_text(str(n))
others = list(pathlib.Path(".").glob("*.running"))
mine = pathlib.Path(stem + ".running")
mine.touch()
print(f"{stem} run {n} beside {len(others)} {os.environ['STUB']}")
if stem == "test_slow":
    os.setsid() if os.fork() == 0 else None
    time.sleep(60)
time.sleep(0.05)
if stem == "test_alone" and others:
    sys.exit("not alone")
mine.unlink()
cases = ""
for function in [w.split("::")[1] for w in sys.argv if "::" in w]:
    for parameter in ("", "[1]"):
        bad = function == "test_b" and parameter and str(n) == os.environ.get("STUB_FAILS_AT")
        inside = "<failure/>" if bad else "<skipped/>" if function == "test_skipped" else ""
        if function != "test_gone":
            cases += f'<testcase classname="tests.e2e.{stem}" name="{function}{parameter}" time="0.5">{inside}</testcase>'
open(said, "w").write(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
"""
CMOCKA = r"""#!/bin/sh
echo '[ RUN      ] one'
echo '[       OK ] one'
echo '[ RUN      ] two'
[ -z "$STUB_TWO" ] && echo '[       OK ] two' || { echo '[  FAILED  ] two' >&2; exit 1; }
"""


def entry(name, *command, **properties):
    return {"name": name, "command": list(command), "properties": [{"name": k, "value": v} for k, v in properties.items()]}


class Tree:
    """`Tree` is a source tree with scripts/repeat, stand-ins for tests, and a ctest that lists them."""

    def __init__(self, folder, listed):
        self.root = Path(folder)
        for path in ("scripts", "tests", "build/release", "bin"):
            (self.root / path).mkdir(parents=True)
        shutil.copy(ROOT / "scripts/repeat", self.root / "scripts/repeat")
        (self.root / "tests/flaky.txt").write_text(listed)
        for name, text in (("pytest-stub", PYTEST), ("unit-stub", CMOCKA)):
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o755)
        here = {"WORKING_DIRECTORY": str(self.root), "ENVIRONMENT": ["STUB=given"]}
        stub = (str(self.root / "pytest-stub"), "-m", "pytest", "-q")
        tests = [entry(f"e2e_{n}", *stub, f"{self.root}/tests/e2e/test_{n}.py", **here) for n in ("a", "slow", "skipped")]
        tests.append(entry("e2e_a_long", *stub, f"{self.root}/tests/e2e/test_a.py", LABELS=["long"], **here))
        tests.append(entry("e2e_alone", *stub, f"{self.root}/tests/e2e/test_alone.py", RUN_SERIAL=True, **here))
        tests.append(entry("unit", str(self.root / "unit-stub"), **here))
        (self.root / "bin/ctest").write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps({'tests': tests})}\nEND\n")
        (self.root / "bin/ctest").chmod(0o755)

    def repeat(self, *args, **env):
        """Runs scripts/repeat; returns (exit status, output, {test: (runs, failed, skipped)})."""
        done = subprocess.run([self.root / "scripts/repeat", *map(str, args)], capture_output=True, text=True, timeout=100,
                              env={**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}", **env})
        out = done.stdout + done.stderr
        rows = re.findall(r"^ +(\d+) +(\d+) +(\d+) +\S+(?: s)?  (\S+)$", out, re.MULTILINE)
        return done.returncode, out, {row[3]: tuple(map(int, row[:3])) for row in rows}


class Repeat(unittest.TestCase):
    def tree(self, listed):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Tree(folder.name, listed)

    def test_counts_are_summed_over_calls(self):
        tree = self.tree("pytest tests/e2e/test_a.py::test_b  # why\npytest tests/e2e/test_a.py::test_c\nctest unit/two\nctest unit/one\n"
                         "pytest tests/e2e/test_alone.py::test_d\n")
        code, out, rows = tree.repeat("--runs", 3, "--side-by-side", 3)
        all_of = ("tests/e2e/test_a.py::test_b", "tests/e2e/test_a.py::test_c", "unit/two", "unit/one", "tests/e2e/test_alone.py::test_d")
        self.assertEqual((code, rows), (0, {i: (3, 0, 0) for i in all_of}), out)
        code, out, rows = tree.repeat("--runs", 5, "--tests", "e2e_a$", STUB_FAILS_AT="4")
        self.assertEqual((code, rows), (1, {all_of[0]: (5, 1, 0), all_of[1]: (5, 0, 0)}), out)
        self.assertIn("FAILED", out)
        [kept] = (tree.root / "build/release/repeat/failed").iterdir()
        self.assertIn("test_a run 4 beside 0 given", kept.read_text())
        self.assertEqual(tree.repeat("--report", "--tests", "e2e_a$")[0], 1)  # the earlier failure still counts
        code, out, rows = tree.repeat("--runs", 1, "--tests", "e2e_a$", "--forget")
        self.assertEqual((code, rows[all_of[0]]), (0, (1, 0, 0)), out)
        self.assertEqual(tree.repeat("--report")[2][all_of[2]], (3, 0, 0))

    def test_minutes_are_shared_and_kept(self):
        for how in ((), ("--fair",)):
            tree = self.tree("pytest tests/e2e/test_a.py::test_b\npytest tests/e2e/test_alone.py::test_d\n")
            tree.repeat("--runs", 1)
            began = time.monotonic()
            code, out, rows = tree.repeat("--runs", 1000, "--minutes", 0.05, *how)
            self.assertLess(time.monotonic() - began, 60)
            self.assertEqual(code, 3, out)
            self.assertTrue(all(1 < n < 1000 for n, _, _ in rows.values()), out)
            self.assertIn("2 tests have fewer than 1000 runs", out)

    def test_a_unit_test_that_fails(self):
        code, out, rows = self.tree("ctest unit/two\nctest unit/one\n").repeat("--runs", 2, STUB_TWO="1")
        self.assertEqual((code, rows), (1, {"unit/two": (2, 2, 0), "unit/one": (2, 0, 0)}), out)

    def test_what_says_nothing_has_failed(self):
        """A test without a result counts as failed, even for a listed test that no longer exists."""
        tree = self.tree("pytest tests/e2e/test_a.py::test_gone\nctest unit/three\nctest other/one\n")
        code, out, rows = tree.repeat("--runs", 1)
        self.assertEqual((code, rows), (1, {"tests/e2e/test_a.py::test_gone": (1, 1, 0), "unit/three": (1, 1, 0)}), out)
        self.assertIn("not in build/release: other/one", out)

    def test_a_skipped_test_is_not_repeated(self):
        code, out, rows = self.tree("pytest tests/e2e/test_skipped.py::test_skipped\n").repeat("--runs", 5)
        self.assertEqual((code, rows), (3, {"tests/e2e/test_skipped.py::test_skipped": (0, 0, 1)}), out)
        self.assertIn("fewer than 5 runs", out)

    def test_a_run_beyond_its_limit_is_ended_with_all_that_it_started(self):
        tree = self.tree("pytest tests/e2e/test_slow.py::test_s\n")
        code, out, rows = tree.repeat("--runs", 1, "--limit", 1)
        self.assertEqual((code, rows), (1, {"tests/e2e/test_slow.py::test_s": (1, 1, 0)}), out)
        left = subprocess.run(["pgrep", "-f", str(tree.root / "pytest-stub")], capture_output=True, text=True).stdout
        self.assertEqual(left, "")

    def test_a_call_that_is_stopped_ends_what_it_started(self):
        tree = self.tree("pytest tests/e2e/test_slow.py::test_s\npytest tests/e2e/test_a.py::test_b\n")
        p = subprocess.Popen([tree.root / "scripts/repeat", "--runs", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, "PATH": f"{tree.root}/bin:{os.environ['PATH']}"})
        end = time.monotonic() + 60
        while not ((tree.root / "test_slow.running").exists() and (tree.root / "build/release/repeat/results.jsonl").exists()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        p.terminate()
        out = p.communicate(timeout=60)[0]
        self.assertEqual(p.returncode, 3, out)
        self.assertRegex(out, r" 1 +0 +0 +\S+ s  tests/e2e/test_a.py::test_b")
        self.assertEqual(subprocess.run(["pgrep", "-f", str(tree.root / "pytest-stub")], capture_output=True, text=True).stdout, "")

    def test_wrong_usage(self):
        self.assertEqual(self.tree("").repeat("--runs", 0)[0], 2)
        code, out, _ = self.tree("ctest unit/one\n").repeat("--tests", "unti")
        self.assertEqual(code, 2, out)
        self.assertIn("is selected by --tests unti", out)
        code, out, _ = self.tree("pytest tests/e2e/test_a.py\n").repeat()
        self.assertEqual(code, 2, out)
        self.assertIn("flaky.txt:1: write", out)


class List(unittest.TestCase):
    def test_every_listed_test_is_there(self):
        sources = {p.stem: p.read_text() for p in (ROOT / "tests/unit").rglob("*_test.c")}
        for number, line in enumerate((ROOT / "tests/flaky.txt").read_text().splitlines(), 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            with self.subTest(line=number):
                self.assertRegex(line, r"  # .+ \(([0-9a-f]{8,}(, )?)+\)$", "say why it was flaky, and in which commit it was mended")
                if words[0] == "pytest":
                    file, function = words[1].split("::")
                    self.assertRegex((ROOT / file).read_text(), rf"(?m)^(async )?def {function}\(")
                elif "/" in words[1]:
                    program, function = words[1].split("/")
                    self.assertIn(function, sources[program.split("_", 1)[1]])


if __name__ == "__main__":
    unittest.main()
