#!/usr/bin/env python3
"""Tests that docs/reference/errors.md is the output of scripts/errors: each status and code has a row, and each row has a source."""
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/errors.md").read_text()


class Errors(unittest.TestCase):
    def test_page_is_current(self):
        done = subprocess.run([ROOT / "scripts/errors", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_statuses_of_every_kind_are_found(self):
        for row in ("| 400 | `BadRequestError` | `invalid_request_error` |", "| 414 | `BadRequestError` | OpenAI's form |",
                    "| 503 | `ServiceUnavailableError` | `overloaded_error` |", "| `invalid_api_key` |"):
            self.assertIn(row, PAGE)

    def test_exit_codes_are_those_of_the_programs(self):
        """The exit codes of the page equal the numbers in the programs' enums."""
        for path, names in (("cli/base/command_line.h", {"EXIT_FINE": 0, "EXIT_FAILED": 1, "EXIT_USAGE": 2}),
                            ("head/main.c", {"EXIT_RUNTIME": 1, "EXIT_CONFIG": 2}),
                            ("worker/plan/plan_main.c", {"EXIT_DOES_NOT_FIT": 1, "EXIT_USAGE": 2}),
                            ("head/record/replay_main.c", {"EXIT_DIFFERS": 1})):
            text = (ROOT / path).read_text()
            for name, code in names.items():
                self.assertRegex(text, rf"\b{re.escape(name)} = {code}\b", path)


if __name__ == "__main__":
    unittest.main()
