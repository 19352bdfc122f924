"""scripts/build over stand-ins for its tools: a download of crates that breaks off is tried again before the build."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = '#!/bin/sh\necho "${0##*/} $*" >>"$LOG"\n'
# Breaks off as often as CARGO_FAILS says.
CARGO = TOOL + 'test "$(grep -c ^cargo "$LOG")" -gt "${CARGO_FAILS:-0}" || { echo "error: curl failed"; exit 101; }\n'


def build(fails=0, built=False):
    """(exit status, output, what was called) of a first build, or of one whose crates are built."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        for path in ("scripts/build", "scripts/steps.sh", "CMakePresets.json"):
            tree.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, tree / path)
        stubs = {"tree/scripts/setup": TOOL, "bin/cmake": TOOL, "bin/ninja": TOOL, "bin/ccache": TOOL,
                 "bin/sleep": "#!/bin/sh\n", "bin/cargo": CARGO}
        if built:
            stubs["tree/build/text/release/libcoxtext.a"] = ""
        for name, text in stubs.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        log = Path(folder, "log")
        env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "LOG": str(log), "CARGO_FAILS": str(fails)}
        done = subprocess.run([tree / "scripts/build"], text=True, timeout=60, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=env)
        return done.returncode, done.stdout, [line.split()[0] for line in log.read_text().splitlines()]


class Build(unittest.TestCase):
    def test_a_download_that_breaks_off_is_tried_again(self):
        for fails in (0, 1, 2):
            got, out, calls = build(fails)
            self.assertEqual((got, calls), (0, ["setup", *["cargo"] * (fails + 1), "cmake", "ninja"]), out)

    def test_one_that_never_comes_is_the_build_s_to_judge(self):
        got, out, calls = build(9)
        self.assertEqual((got, calls), (0, ["setup", *["cargo"] * 3, "cmake", "ninja"]), out)
        self.assertIn("crates.io", out)

    def test_what_is_built_asks_nobody(self):
        self.assertEqual(build(built=True)[2], ["setup", "cmake", "ninja"])


if __name__ == "__main__":
    unittest.main()
