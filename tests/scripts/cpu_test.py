"""Tests scripts/cpu_by_program.py on records that it reads, and the sum of processor time in scripts/clean-root."""
import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/cpu_by_program.py"


def load():
    sys.dont_write_bytecode = True
    module = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("cpu_by_program", SCRIPT))
    spec.loader.exec_module(module)
    return module


def record(cpu, name, version=3, user=0, system=0):
    return cpu.RECORD.pack(0, version, 0, 0, 0, 0, 1, 1, 0, 0.0, user, system, 0, 0, 0, 0, 0, 0, name)


class Programs(unittest.TestCase):
    def setUp(self):
        self.cpu = load()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name, "acct")

    def test_a_record_has_the_size_of_the_kernel_s(self):
        self.assertEqual(self.cpu.RECORD.size, 64)

    def test_times_are_added_per_program(self):
        big = 1 << 13 | 1000  # 1000 * 8 hundredths of a second
        self.file.write_bytes(record(self.cpu, b"rustc", user=big, system=50) + record(self.cpu, b"rustc", user=150) +
                              record(self.cpu, b"sed", user=3) + b"half a record")
        self.assertEqual(self.cpu.read(self.file), {"rustc": (82.0, 2), "sed": (0.03, 1)})
        said = subprocess.run([sys.executable, SCRIPT, "report", self.file], text=True, capture_output=True, timeout=60).stdout
        self.assertRegex(said, r"(?m)^rustc +82\.0 s +2$")
        self.assertRegex(said, r"(?m)^1 others +0\.0 s +1$")

    def test_records_of_another_kind_are_refused(self):
        self.file.write_bytes(record(self.cpu, b"x", version=2))
        done = subprocess.run([sys.executable, SCRIPT, "report", self.file], text=True, capture_output=True, timeout=60)
        self.assertEqual((done.returncode, "version 3" in done.stderr), (1, True))


class Sum(unittest.TestCase):
    def test_all_processes_and_their_ended_children_count(self):
        function = next(text for text in (ROOT / "scripts/clean-root").read_text().split("\n}\n") if "cpu_ms() {" in text)
        function = function[function.index("cpu_ms() {"):] + "\n}\n"
        with tempfile.TemporaryDirectory() as folder:
            for pid, name in ((1, "bash"), (27, "a (b) c")):
                path = Path(folder, "proc", str(pid), "stat")
                path.parent.mkdir(parents=True)
                path.write_text(f"{pid} ({name}) S 0 1 1 0 -1 4194560 9 9 9 9 100 20 3000 400 20 0 1 0 1 9 9\n")
            Path(folder, "proc/self").mkdir()
            said = subprocess.run(["bash", "-c", function + "cpu_ms"], text=True, capture_output=True, timeout=60, env={"ROOT": folder, "PATH": "/usr/bin:/bin"})
            self.assertEqual(said.stdout, "70400\n", said.stderr)


if __name__ == "__main__":
    unittest.main()
