"""Tests that tests/cuda/alone_library.cmake, which tests/cuda/run-all uses on a GPU host, builds in a folder with a space in its
path. It builds sources that find their headers, including those in subfolders, and leaves out and names the sources that do not."""
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTS = """cmake_minimum_required(VERSION 3.25)
project(alone LANGUAGES C)
set(root ${CMAKE_SOURCE_DIR})
set(alone_includes "${root}/of others/include")
include("%s/tests/cuda/alone_library.cmake")
include_directories(${root})
alone_library(here "in here")
"""
FILES = {"in here/whole.c": '#include "in here/own.h"\n#include "theirs.h"\nint whole(void) { return OWN + THEIRS; }\n',
         "in here/bare.c": "int bare(void) { return 1; }\n",
         "in here/lacks.c": '#include "in here/own.h"\n#include <not_here/at_all.h>\n',
         "in here/below/deep.c": "int deep(void) { return 2; }\n",
         "in here/main.c": "int main(void) { return 0; }\n",
         "in here/own.h": "#define OWN 1\n", "of others/include/theirs.h": "#define THEIRS 2\n"}


class Alone(unittest.TestCase):
    def test_a_path_with_spaces(self):
        with tempfile.TemporaryDirectory(prefix="a b ") as folder:
            root = Path(folder) / "c d"
            for name, text in {**FILES, "CMakeLists.txt": LISTS % ROOT}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            out = ""
            for command in (["-S", root, "-B", root / "out dir"], ["--build", root / "out dir"]):
                done = subprocess.run(["cmake", *command], capture_output=True, text=True, timeout=100)
                out += done.stdout + done.stderr
                self.assertEqual(done.returncode, 0, out)
            self.assertIn("left out of here: lacks.c (not_here/at_all.h)\n", out)
            members = subprocess.run(["ar", "t", root / "out dir/libhere.a"], capture_output=True, text=True, timeout=20).stdout
            self.assertEqual(sorted(members.split()), ["bare.c.o", "deep.c.o", "whole.c.o"])


if __name__ == "__main__":
    unittest.main()
