"""Tests that scripts/make-goldens makes a single model only when all others exist, because tests treat its folder as a complete set."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class One(unittest.TestCase):
    def test_one_needs_the_others(self):
        with tempfile.TemporaryDirectory() as d:
            out = Path(d) / "goldens"
            done = subprocess.run([sys.executable, ROOT / "scripts/make-goldens", "--out", out, "--only", "llama_tiny"], capture_output=True,
                                  text=True, timeout=120)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("Run scripts/make-goldens without --only first", done.stderr)
            self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
