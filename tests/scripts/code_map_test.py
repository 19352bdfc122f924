"""Tests that the committed picture of scripts/code-map matches the sources, and that --check detects a difference."""
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = "docs/images/code-map.svg"
TOPS = ("cli", "gateway", "head", "worker", "text", "proto", "kernels", "common")


def code_map(*words, root=ROOT):
    return subprocess.run([sys.executable, ROOT / "scripts/code-map", *words, "--root", root], capture_output=True, text=True)


class CodeMap(unittest.TestCase):
    def test_the_picture_shows_the_sources_as_they_are(self):
        done = code_map("--check")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_folder_has_a_box(self):
        text = (ROOT / PICTURE).read_text()
        boxes = re.findall(r'<text x="\d+" y="\d+">([\w()/ ]+)</text>', text)
        for top in TOPS:
            self.assertIn(f">{top}/ ", text)
            source = ROOT / top / "src" if top == "text" else ROOT / top
            for folder in source.iterdir():
                if folder.is_dir() and any(p.suffix in (".c", ".cu", ".rs") for p in folder.rglob("*")):
                    self.assertIn(folder.name, boxes, f"{top}/")

    def test_check_notices_a_new_folder_a_new_arrow_and_much_more_code(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in {"head/kv/pool.c": "int pool(void)\n{\n    return 1;\n}\n", "common/base/mem.c": "int mem;\n",
                               "common/base/mem.h": "extern int mem;\n"}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            for top in ("cli", "gateway", "worker", "proto", "kernels"):
                (root / top / "base").mkdir(parents=True)
                (root / top / f"base/{top}.c").write_text(f"int {top};\n")
            shutil.copytree(ROOT / "text/src/base", root / "text/src/base")
            (root / "docs/images").mkdir(parents=True)
            self.assertEqual(code_map(root=root).returncode, 0)
            self.assertEqual(code_map("--check", root=root).returncode, 0)
            changes = {"head/kv/pool.c": '#include "common/base/mem.h"\n', "head/links/peers.c": "int peers;\n",
                       "worker/base/worker.c": "int worker;\n" * 400}
            for name, text in changes.items():
                old = (root / name).read_text() if (root / name).exists() else None
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text(text)
                self.assertEqual(code_map("--check", root=root).returncode, 1, name)
                if old is None:
                    shutil.rmtree((root / name).parent)
                else:
                    (root / name).write_text(old)
            self.assertEqual(code_map("--check", root=root).returncode, 0)


if __name__ == "__main__":
    unittest.main()
