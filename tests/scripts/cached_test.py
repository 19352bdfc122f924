"""Tests that scripts/cached reuses a result exactly when its inputs and texts are the same, and never an incomplete result."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cached"


class Cached(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        self.root = Path(self.tmp.name)
        self.write("in/a", "1")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_cached(self, command, *options, output="out", cache="cache"):
        """Runs scripts/cached in self.root with a shell command; returns the exit status."""
        env = {**os.environ, "COX_BUILD_CACHE": str(self.root / cache) if cache else ""}
        line = [SCRIPT, "--output", output, "--input", "in", *options, "--", "sh", "-c", command]
        return subprocess.run(line, cwd=self.root, env=env, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode

    def made(self, *options, **more):
        """Returns how often the command has run so far; the command writes that count to its output."""
        self.assertEqual(self.run_cached("echo >>ran; wc -l <ran >out", *options, **more), 0)
        return int((self.root / "out").read_text())

    def forget(self):
        """Removes the output but keeps the inputs, as in a fresh checkout."""
        for name in ("out", ".out.made-of"):
            (self.root / name).unlink(missing_ok=True)

    def test_the_same_inputs_give_the_same_result_once(self):
        self.assertEqual(self.made(), 1)
        self.forget()
        self.assertEqual(self.made(), 1)

    def test_each_change_of_an_input_is_seen(self):
        self.assertEqual(self.made(), 1)
        changes = (lambda: self.write("in/a", "2"), lambda: self.write("in/b", ""), lambda: (self.root / "in/a").rename(self.root / "in/c"),
                   lambda: (self.root / "in/c").chmod(0o755))
        for n, change in enumerate(changes, 2):
            change()
            self.assertEqual(self.made(), n)
        self.assertEqual(self.made("--text", "gcc 12"), len(changes) + 2)

    def test_an_earlier_state_is_found_again(self):
        self.made()
        self.write("in/a", "2")
        self.assertEqual(self.made(), 2)
        self.write("in/a", "1")
        self.assertEqual(self.made(), 1)

    def test_a_result_that_is_there_keeps_its_time(self):
        self.made()
        os.utime(self.root / "out", (1000, 1000))
        self.made()
        self.assertEqual((self.root / "out").stat().st_mtime, 1000)

    def test_an_output_that_another_build_made_is_not_taken(self):
        self.made()
        self.write("in/a", "2")
        self.assertEqual(self.run_cached("echo plain >out", cache=""), 0)
        self.write("in/a", "1")
        self.assertEqual(self.made(), 1)

    def test_an_output_that_was_damaged_is_not_taken(self):
        self.made()
        self.write("out", "garbage")
        self.assertEqual(self.made(), 1)

    def test_a_look_says_whether_a_result_is_there_and_makes_none(self):
        line = [SCRIPT, "--output", "out", "--input", "in", "--look"]
        env = {**os.environ, "COX_BUILD_CACHE": str(self.root / "cache")}
        self.assertEqual(subprocess.run(line, cwd=self.root, env=env).returncode, 1)
        self.made()
        self.assertEqual(subprocess.run(line, cwd=self.root, env=env).returncode, 0)
        self.forget()
        self.assertEqual(subprocess.run(line, cwd=self.root, env=env).returncode, 0)
        self.assertFalse((self.root / "out").exists())

    def test_a_failure_is_passed_on_and_kept_by_nobody(self):
        self.assertEqual(self.run_cached("echo half >out; exit 3"), 3)
        self.assertEqual(self.run_cached("echo whole >out"), 0)
        self.assertEqual((self.root / "out").read_text(), "whole\n")

    def test_a_signal_is_a_failure(self):
        self.assertEqual(self.run_cached("kill -9 $$"), 137)

    def test_a_folder_is_a_result_as_well(self):
        self.assertEqual(self.run_cached("mkdir -p out/b; echo 1 >out/b/c; ln -s b out/d"), 0)
        subprocess.run(["rm", "-r", self.root / "out", self.root / ".out.made-of"], check=True)
        self.assertEqual(self.run_cached("exit 9"), 0)
        self.assertEqual((self.root / "out/d/c").read_text(), "1\n")

    def test_without_a_cache_the_command_runs_each_time(self):
        self.assertEqual([self.made(cache=""), self.made(cache="")], [1, 2])
        self.assertEqual(sorted(p.name for p in self.root.iterdir()), ["in", "out", "ran"])

    def test_a_cache_that_cannot_be_written_costs_no_result(self):
        self.write("cache", "a file, not a folder")
        self.assertEqual(self.made(), 1)

    def test_the_cache_is_bounded(self):
        for i in range(8):
            self.write("in/a", str(i))
            self.made()
        self.assertEqual(len(list((self.root / "cache").iterdir())), 4)


if __name__ == "__main__":
    unittest.main()
