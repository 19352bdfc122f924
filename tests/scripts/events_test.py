#!/usr/bin/env python3
"""Tests that docs/reference/events.md is the output of scripts/events: each event has a meaning, and each meaning has an event."""
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/events.md").read_text()


class Events(unittest.TestCase):
    def test_page_is_current(self):
        done = subprocess.run([ROOT / "scripts/events", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_events_of_every_kind_are_found(self):
        """Finds events whose name is a literal, one of two literals, or a variable; events of the log alone, and events of `cox
        events`."""
        for row in ("| `start_failed` | error | cox-head, cox-worker, cox-gateway, cox |  |", "| `worker_lost` | info, warn | cox-head | yes |",
                    "| `batch_line_not_saved` | error | cox-gateway |  | `why` |", "| `head_lost` | info, warn | cox-worker, cox-gateway |  |",
                    "| `keys_read` | info | all |"):
            self.assertIn(row, PAGE)


if __name__ == "__main__":
    unittest.main()
