"""Tests that docs/status.md is the output of scripts/status. Each row names tests and a page that exist, and its status words have
the documented meaning."""
import json
import re
import runpy
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import status_rows  # noqa: E402

STATUS = runpy.run_path(str(ROOT / "scripts/status"))
ALL_ROWS = [row for _, rows in status_rows.ROWS for row in rows]


def built():
    """Returns the build folder that ctest was started for, or else the folder of the release build."""
    folders = [*(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "CTestTestfile.cmake").exists()), ROOT / "build/release"]
    return folders[-2] if len(folders) > 1 else folders[0]  # this is the outermost folder with a CTestTestfile.cmake


class Page(unittest.TestCase):
    def test_it_is_what_the_script_prints(self):
        said = subprocess.run([sys.executable, ROOT / "scripts/status"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said, (ROOT / "docs/status.md").read_text(), "run scripts/status > docs/status.md")

    def test_each_row_names_tests_that_exist(self):
        if not (built() / "CTestTestfile.cmake").exists():
            self.skipTest("no build folder here")
        listed = subprocess.run(["ctest", "--test-dir", built(), "-N"], capture_output=True, text=True, check=True).stdout
        names = re.findall(r"^ +Test +#\d+: (\S+)", listed, re.M)
        self.assertGreater(len(names), 300)
        for feature, patterns, _, _ in ALL_ROWS:
            for pattern in patterns.split():
                self.assertTrue(any(re.fullmatch(pattern, n) for n in names), f"{feature}: no test is called {pattern}")

    def test_each_row_has_a_place_and_a_page(self):
        self.assertGreaterEqual(len(ALL_ROWS), 32)
        for feature, _, where, link in ALL_ROWS:
            self.assertIn(where, status_rows.PLACES, feature)
            self.assertTrue((ROOT / "docs" / link).is_file(), f"{feature}: {link}")

    def test_nothing_about_gpus_is_called_tested(self):
        for feature, patterns, where, _ in ALL_ROWS:
            if "cuda" in patterns or "GPU" in feature and "plan" not in feature:
                self.assertEqual(where, "emulated", feature)


class Verdict(unittest.TestCase):
    def test_words(self):
        verdict = STATUS["verdict"]
        results = {"a_1": "passed", "a_2": "passed", "b": "skipped", "c": "failed"}
        self.assertEqual(verdict("a_.*", "cpu", results), "tested on CPU (2 tests)")
        self.assertEqual(verdict("a_1 b", "cpu", results), "tested on CPU (1 test; 1 skipped)")
        self.assertEqual(verdict("a_1", "emulated", results), "emulated on CPU, never run on a GPU (1 test)")
        self.assertEqual(verdict("a_1 d", "cpu", results), "partly tested on CPU (1 test; not run: `d`)")
        self.assertEqual(verdict("b", "cpu", results), "not run")
        self.assertEqual(verdict("d", "cpu", results), "not run")
        self.assertEqual(verdict("a_.* c", "cpu", results), "**failing**: `c`")

    def test_junit(self):
        text = ('<testsuite><testcase name="p" status="run"/><testcase name="s" status="notrun"><skipped message=""/></testcase>'
                '<testcase name="f" status="fail"><failure message=""/></testcase><testcase name="d" status="disabled"/></testsuite>')
        with tempfile.TemporaryDirectory() as folder:
            one, two = Path(folder, "one.xml"), Path(folder, "two.xml")
            one.write_text(text)
            two.write_text('<testsuite><testcase name="f" status="run"/></testsuite>')
            self.assertEqual(STATUS["read_junit"]([one]), {"p": "passed", "s": "skipped", "f": "failed", "d": "skipped"})
            self.assertEqual(STATUS["read_junit"]([one, two])["f"], "passed")

    def test_the_recorded_run_says_when_and_where(self):
        recorded = json.loads((ROOT / "docs/status.json").read_text())
        self.assertRegex(recorded["date"], r"^20\d\d-\d\d-\d\d$")
        self.assertTrue(recorded["commit"] and recorded["machine"] and recorded["passed"])


if __name__ == "__main__":
    unittest.main()
