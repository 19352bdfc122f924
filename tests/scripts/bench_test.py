"""Tests that the scripts of bench/ refuse wrong options with one line that names the option and exit status 2, before they build or
load a model. The test has neither a build nor a model. The test is skipped without .venv."""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/python"))
import options  # noqa: E402

# COUNTS is {script: {option: a value that it refuses}}. The types of bench/python/options.py are tested on their own, without a script.
COUNTS = {
    "clients": {"--rounds": "0"},
    "cold_start": {"--poll": "inf"},
    "cpu-peers": {"--rounds": "-1", "--threads": "0,1", "--streams": "x", "--models": "demo,nope"},
    "dashboard": {"--seconds": "0"},
    "degrees": {"--degrees": "1,x"},
    "python/drafts.py": {"--tokens": "0"},
    "elastic": {"--seconds": "0"},
    "gap": {"--streams": "0"},
    "gateway": {"--peer-port": "65536", "--parts": "nope"},
    "hogged": {"--streams": "3", "--rounds": "0"},
    "killed-stream": {"--only": "nope", "--tokens": "0"},
    "load": {"--tp": "0"},
    "long-context": {"--position": "10", "--threads": "0"},
    "overload": {"--ratio": "x"},
    "prefix": {"--prefix": "15"},
    "ready": {"--tp": "0"},
    "recovery": {"--only": "nope"},
    "scale": {"--groups": "0"},
    "scheduler": {"--counts": "0"},
    "python/serving.py": {"--threads": "0"},
    "shapes": {"--models": "nope"},
    "sizes": {"--tp": "0"},
    "stalls": {"--rounds": "0", "--bodies": "nope"},
    "takeover": {"--bars": "2"},
    "tp": {"--tp": "0", "--cores": "4096", "--peer": "/nonexistent"},
}
# Each case of TOGETHER has a script, options that cannot be combined, and the text of the error line.
TOGETHER = [
    ("tp", ["--hey", "--rounds", "0"], "--rounds"),
    ("tp", ["--hey", "--hosts"], "--hey"),
    ("cpu-peers", ["--only", "vllm"], "--setup"),
    ("hogged", ["--nope"], "--nope"),
    ("tp", ["--rounds"], "--rounds"),
]
NO_LOCK = ("cpu-peers", "hogged", "long-context", "tp")


def run(script, words, folder, **env):
    path = ROOT / "bench" / script
    command = [ROOT / "tests/run_python", path] if path.suffix == ".py" else [path]
    kept = {name: value for name, value in os.environ.items() if name != "COX_MACHINE_LOCK"}
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, cwd=folder,
                          env={**kept, "COX_BIN": f"{folder}/bin", "COX_CACHE": f"{folder}/cache", **env})


class Types(unittest.TestCase):
    def test_what_they_take(self):
        for kind, text, value in ((options.count(), "1", 1), (options.count(0, 5), "5", 5), (options.counts(), "8,1,8", [1, 8]),
                                  (options.counts_among({1: 0, 8: 0}), "8", [8]), (options.amount(), "0.5", 0.5),
                                  (options.names(("a", "b")), "b,a,b", ["b", "a"])):
            self.assertEqual(kind(text), value)

    def test_what_they_do_not_take(self):
        no_count = ("0", "-1", "+1", "x", "1.5", "", " 1", "1_0", "6", "99999999999", "1\n2", "\u0663")
        for kind, texts in ((options.count(1, 5), no_count), (options.counts(1, 5), (*no_count, "1,", ",", "1,x", "1,6")),
                            (options.counts_among((1, 8)), ("3", "0", "1,3", "x", "")), (options.amount(), ("0", "-1", "nan", "inf", "x", "")),
                            (options.names(("a", "b")), ("", "c", "a,c", "a,"))):
            for text in texts:
                with self.subTest(text=text), self.assertRaises(argparse.ArgumentTypeError):
                    kind(text)


@unittest.skipUnless((ROOT / ".venv/bin/python").exists(), "no .venv in the repository; scripts/setup makes it")
class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="coxtest-")
        self.addCleanup(self.folder.cleanup)

    def each(self, cases):
        """Checks `cases`, [(script, options, text of the error line, environment)], two at a time."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda case: run(*case[:2], self.folder.name, **case[3]), cases))
        for (script, words, said, _), got in zip(cases, done):
            with self.subTest(script=script, words=words):
                self.assertEqual((got.returncode, got.stdout), (2, ""), got.stderr)
                self.assertRegex(got.stderr, r"\Abench/[^\n]+ --help\)\n\Z|\Atests/run_python bench/[^\n]+ --help\)\n\Z")
                self.assertIn(said, got.stderr)

    def test_counts(self):
        self.each([(script, [f"{option}={value}"], option, {}) for script, row in COUNTS.items() for option, value in row.items()])

    def test_words_that_do_not_go_together(self):
        self.each([(script, words, said, {}) for script, words, said in TOGETHER])

    def test_a_lock_that_is_not_there(self):
        self.each([(script, [], "COX_MACHINE_LOCK", {"COX_MACHINE_LOCK": "/nonexistent/x"}) for script in NO_LOCK])

    def test_what_is_missing_is_said_before_it_is_wanted(self):
        for script, words in (("cpu-peers", ["--models", "demo"]), ("cpu-peers", ["--models", "q4_0"]), ("tp", []), ("hogged", []),
                              ("cpu-peers", ["--served", "--models", "bf16"])):
            got = run(script, words, self.folder.name)
            with self.subTest(script=script, words=words):
                self.assertEqual((got.returncode, len(got.stderr.splitlines())), (1, 1), got.stderr)

    def test_no_integer_is_read_in_another_way(self):
        for path in (ROOT / "bench/python").rglob("*.py"):
            self.assertNotRegex(path.read_text(), r"type=(int|float|lambda)\b", f"{path.name}: bench/python/options.py has types with bounds")


if __name__ == "__main__":
    unittest.main()
