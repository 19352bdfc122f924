"""Tests that the repository is self-contained: no file in it points to a folder beside it."""
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# OUTSIDE matches a folder beside the repository: a path from the root, or the root's name in CMake, scripts or Python with a step up.
OUTSIDE = re.compile(r"""(?<![\w./-])\.\./[a-z_]*shared\b | \bshared/goldens\d?\b
                     | \bROOT\.parent\b | (?:CMAKE_SOURCE_DIR|COX_ROOT|\broot)\}?/\.\./""", re.X)
# HISTORY lists pages of decisions and history, which may name folders of their time.
HISTORY = ("CHANGELOG.md", "docs/develop/decisions/")


class Outside(unittest.TestCase):
    def test_no_file_points_outside(self):
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout.split("\0")
        if not any(names):
            self.skipTest("this is no git repository")
        found = []
        for name in filter(None, names):
            path = ROOT / name
            if name.startswith(HISTORY) or path == Path(__file__) or path.is_symlink() or not path.is_file():
                continue
            text = path.read_bytes()
            if b"\0" not in text:
                found += [f"{name}: {m[0]}" for m in OUTSIDE.finditer(text.decode(errors="replace"))]
        self.assertEqual(found, [])

    def test_no_link_leads_outside(self):
        lines = subprocess.run(["git", "ls-files", "-s"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout.splitlines()
        for name in (line.split("\t", 1)[1] for line in lines if line.startswith("120000")):
            self.assertTrue((ROOT / name).resolve().is_relative_to(ROOT), name)


if __name__ == "__main__":
    unittest.main()
