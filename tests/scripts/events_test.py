#!/usr/bin/env python3
"""docs/reference/events.md is what scripts/events makes of the sources: each event has a meaning, each meaning an event."""
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
        """Told by a literal, by one of two, through a variable; of the log alone and of `cox events`."""
        for row in ("| `start_failed` | error | cox-head, cox-worker, cox-gateway, cox |  |", "| `worker_lost` | info, warn | cox-head | yes |",
                    "| `batch_line_not_saved` | error | cox-gateway |  | `why` |", "| `head_lost` | info, warn | cox-worker, cox-gateway |  |",
                    "| `keys_read` | info | all |"):
            self.assertIn(row, PAGE)


if __name__ == "__main__":
    unittest.main()
