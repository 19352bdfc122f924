#!/usr/bin/env python3
"""Tests that docs/reference/environment.md has every variable that a program reads, and that a program reads every variable of the
page."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "cli/commands/documents/environment.c"
PAGE = (ROOT / "docs/reference/environment.md").read_text()
NAME = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*"
READERS = re.compile(rf'\b(?:getenv|environment|env_of|std::env::var|env::var(?:_os)?)\((?:[a-z>-]+, )?"({NAME})"')
WORDS = re.compile(rf'"({NAME})[="]')
BY_NAME = ("cli/pull/request/aws_credentials.c", "cli/sagemaker/settings.c", "cli/sagemaker/host.c", "cli/multi_model/serve.c")  # all names in capitals in these files are variables
NO_VARIABLES = {"MULTI_RECORD"}  # this name is the value of a variable
OPTIONS = {"COX_CACHE", "COX_RETRIES", "COX_NO_EARLY_LAUNCH", "COX_RUNS_DIR"}  # these are COX_<OPTION>, which programs also read without the table


def sources():
    for top in ("cli", "common", "head", "worker", "gateway", "kernels", "text/src", "proto"):
        for p in sorted((ROOT / top).rglob("*")):
            if p.suffix in (".c", ".h", ".cu", ".rs") and p != TABLE:
                yield p.relative_to(ROOT).as_posix(), p.read_text()


class Environment(unittest.TestCase):
    def test_each_variable_has_a_row(self):
        read = {}
        for path, text in sources():
            names = set(READERS.findall(text))
            if path in BY_NAME:
                names |= {n for n in WORDS.findall(text) if "_" in n}
            for name in names - NO_VARIABLES - OPTIONS:
                read.setdefault(name, path)
        self.assertGreater(len(read), 40)
        missing = [f"{name} ({path})" for name, path in sorted(read.items()) if f"| `{name}` |" not in PAGE]
        self.assertFalse(missing, f"no row in {TABLE.name}: {', '.join(missing)}")

    def test_each_row_has_a_reader(self):
        text = "\n".join(text for _, text in sources())
        rows = re.findall(rf'^    \{{(?:NULL|"[^"]+"), "({NAME})",', TABLE.read_text(), re.M)
        self.assertGreater(len(rows), 40)
        self.assertEqual(sorted(set(rows)), sorted(rows), "a variable has two rows")
        self.assertFalse([name for name in rows if f'"{name}' not in text], "rows that no program reads")


if __name__ == "__main__":
    unittest.main()
