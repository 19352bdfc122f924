"""Tests text/rustc-wrapper: which calls of rustc it changes, and how. A stand-in for rustc writes down its words."""
import subprocess
import tempfile
import unittest
from pathlib import Path

WRAPPER = Path(__file__).resolve().parents[2] / "text/rustc-wrapper"


class Wrapper(unittest.TestCase):
    def call(self, *words, status=0):
        """Calls the wrapper as cargo does; returns (exit status, the words that rustc got, the files that are there then)."""
        with tempfile.TemporaryDirectory() as folder:
            rustc = Path(folder, "rustc")
            rustc.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{folder}/words"\nexit {status}\n')
            rustc.chmod(0o755)
            out = Path(folder, "out")
            out.mkdir()
            done = subprocess.run([WRAPPER, rustc, *(w.replace("OUT", str(out)) for w in words)], timeout=60)
            return done.returncode, Path(folder, "words").read_text().replace(str(out), "OUT").split("\n")[:-1], sorted(p.name for p in out.iterdir())

    def same(self, *words):
        self.assertEqual(self.call(*words), (0, list(words), []))

    def test_a_crate_that_is_linked_becomes_bitcode(self):
        words = ["--crate-name", "serde", "--crate-type", "lib", "-C", "extra-filename=-1a", "--out-dir", "OUT", "a word"]
        self.assertEqual(self.call(*words), (0, [*words, "-C", "linker-plugin-lto"], []))

    def test_all_others_stay_as_they_are(self):
        self.same("-vV")
        self.same("-", "--crate-name", "___", "--print=file-names", "--crate-type", "cdylib")
        self.same("--crate-name", "syn", "--crate-type", "lib", "-C", "embed-bitcode=no")
        self.same("--crate-name", "coxtext", "--crate-type", "staticlib", "-C", "lto=thin")
        self.same("--crate-name", "x", "--crate-type", "lib", "-C", "linker-plugin-lto")
        self.same("--crate-name", "y", "--crate-type", "cdylib", "-C", "embed-bitcode=no", "")

    def test_llguidance_is_only_a_rust_library(self):
        words = ["--crate-name", "llguidance", "--crate-type", "staticlib", "--crate-type", "rlib", "--crate-type", "cdylib",
                 "-C", "extra-filename=-2b", "--out-dir", "OUT"]
        wanted = ["--crate-name", "llguidance", "--crate-type", "rlib", "-C", "extra-filename=-2b", "--out-dir", "OUT", "-C", "linker-plugin-lto"]
        self.assertEqual(self.call(*words), (0, wanted, ["libllguidance-2b.a", "libllguidance-2b.so"]))

    def test_a_failure_of_rustc_is_one_of_the_wrapper(self):
        status, _, files = self.call("--crate-name", "llguidance", "--out-dir", "OUT", status=101)
        self.assertEqual((status, files), (101, []))


if __name__ == "__main__":
    unittest.main()
