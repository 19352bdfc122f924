"""Tests that an archive of tests/fuzz/corpus-add depends only on its inputs, and that the committed archives are as the script
writes them."""
import importlib.machinery
import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests/fuzz/corpus-add"
sys.dont_write_bytecode = True


def load():
    loader = importlib.machinery.SourceFileLoader("corpus_add", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("corpus_add", loader))
    loader.exec_module(module)
    return module


class Committed(unittest.TestCase):
    def test_each_target_has_a_corpus_and_each_corpus_a_target(self):
        targets = sorted(p.stem for p in (ROOT / "tests/fuzz").glob("*_fuzz.c"))
        self.assertEqual(sorted(p.name for p in (ROOT / "tests/fuzz/corpus").iterdir()), [f"{t}.tar" for t in targets])

    def test_archives_are_as_they_would_be_written(self):
        corpus_add = load()
        for path in sorted((ROOT / "tests/fuzz/corpus").glob("*.tar")):
            inputs = corpus_add.read(path)
            self.assertTrue(inputs, path.name)
            self.assertEqual(corpus_add.archive(inputs), path.read_bytes(), f"{path.name}: write it with tests/fuzz/corpus-add")


class Add(unittest.TestCase):
    def setUp(self):
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.folder = Path(tmp.name)
        for name in ("b", "a"):
            (self.folder / name).write_bytes(name.encode() * 600)

    def run_add(self, *args):
        line = [sys.executable, SCRIPT, "--corpus", self.folder / "corpus", "net_http_fuzz", *args]
        return subprocess.run(line, cwd=self.folder, capture_output=True, text=True, timeout=60)

    def made(self):
        return (self.folder / "corpus/net_http_fuzz.tar").read_bytes()

    def test_order_and_times_make_no_difference(self):
        self.assertEqual(self.run_add("b", "a").returncode, 0)
        first = self.made()
        self.assertEqual(self.run_add("--remove", "a").returncode, 0)
        (self.folder / "a").touch()
        self.assertEqual(self.run_add("a").returncode, 0)
        self.assertEqual(self.made(), first)
        self.assertEqual(self.run_add("--list").stdout, "     600 a\n     600 b\n")

    def test_an_input_is_not_replaced(self):
        self.assertEqual(self.run_add("a").returncode, 0)
        before = self.made()
        done = self.run_add("--name", "a", "b")
        self.assertEqual((done.returncode, "another input called a" in done.stderr), (1, True), done.stderr)
        self.assertEqual(self.made(), before)

    def test_what_is_not_there_is_said(self):
        self.assertIn("has no c", self.run_add("--remove", "c").stderr)
        self.assertIn("nothing to do", self.run_add().stderr)
        line = [sys.executable, SCRIPT, "no_such_fuzz", self.folder / "a"]
        self.assertIn("there is no target", subprocess.run(line, capture_output=True, text=True, timeout=60).stderr)


if __name__ == "__main__":
    unittest.main()
