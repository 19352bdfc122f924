"""tests/cuda/run-all on hosts that are made up: a device that programs did not use is a failure."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# No cmake among them: run-all takes the programs that are there.
TOOLS = ("bash env dirname basename realpath mkdir rm ls cat head tail sed grep cut sleep timeout date git").split()
HAS_DEVICE = any(os.path.exists(node) for node in ("/dev/nvidiactl", "/dev/dxg"))


def run_all(programs, has_device):
    """(exit status, output) over programs {name: lines of bash}."""
    with tempfile.TemporaryDirectory() as folder:
        bin_folder = Path(folder, "bin")
        built = Path(folder, "build/cuda-tests/tests")
        for path in (bin_folder, built, Path(folder, "tests/cuda")):
            path.mkdir(parents=True)
        for tool in TOOLS:
            path = shutil.which(tool)
            if path:
                (bin_folder / tool).symlink_to(path)
        if has_device:
            programs = {**programs, "../../../bin/nvidia-smi": 'case $1 in -L) echo "GPU 0" ;; *) echo 9.0 ;; esac'}
        for name, text in programs.items():
            path = built / name
            path.write_text("#!/usr/bin/env bash\n" + text + "\n")
            path.chmod(0o755)
        shutil.copy(ROOT / "tests/cuda/run-all", Path(folder, "tests/cuda/run-all"))
        done = subprocess.run([Path(folder, "tests/cuda/run-all"), "--only", "test"], timeout=60, text=True,
                              env={"PATH": str(bin_folder)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


PASSES = "echo 'device: GPU X, 9.0'; echo 3 cases"


class RunAll(unittest.TestCase):
    def check(self, status, wanted, programs, has_device=True):
        got, out = run_all(programs, has_device)
        self.assertEqual(got, status, out)
        for text in wanted:
            self.assertIn(text, out)

    def test_passes(self):
        self.check(0, ["1 passed, 0 failed, 0 skipped"], {"cuda_a_test": PASSES})

    def test_fails(self):
        self.check(1, ["FAILED (1)"], {"cuda_a_test": "echo FAILED; exit 1", "cuda_b_test": PASSES})

    def test_a_device_that_was_not_used(self):
        self.check(1, ["skipped with a device", "no cuBLASLt", "1 passed, 1 failed"],
                   {"cuda_a_test": PASSES, "cuda_b_test": "echo 'SKIPPED: no cuBLASLt'; exit 77"})

    def test_a_second_device_that_is_not_there(self):
        self.check(0, ["1 passed, 0 failed, 1 skipped"],
                   {"cuda_a_test": PASSES, "cuda_b_test": "echo 'SKIPPED: needs 2 devices, here is 1'; exit 77"})

    @unittest.skipIf(HAS_DEVICE, "this host has a device")
    def test_no_device(self):
        skips = {"cuda_a_test": "echo 'SKIPPED: no CUDA device found'; exit 77"}
        self.check(77, ["no device: 1 programs skipped, 0 failed"], skips, has_device=False)
        self.check(1, ["1 failed"], {**skips, "cuda_b_test": "exit 1"}, has_device=False)

    @unittest.skipIf(HAS_DEVICE, "this host has a device")
    def test_no_programs(self):
        self.check(77, ["no built programs"], {}, has_device=False)
        self.check(1, ["no built programs"], {})


if __name__ == "__main__":
    unittest.main()
