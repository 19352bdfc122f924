"""Tests that scripts/fetch-demo-model works on a machine with a Python that has no pip, and fetches what `cox pull` fetches."""
import importlib.machinery
import importlib.util
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("fetch_demo_model", str(ROOT / "scripts/fetch-demo-model"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_demo_model", loader))
    loader.exec_module(module)
    return module


def program(folder, name, status):
    path = Path(folder) / name
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


class Pip(unittest.TestCase):
    def test_the_first_python_that_has_it(self):
        fetch = load()
        with tempfile.TemporaryDirectory() as folder:
            without, with_pip = program(folder, "without", 1), program(folder, "with", 0)
            self.assertEqual(fetch.find_pip([f"{folder}/absent", without, with_pip], folder), [with_pip, "-m", "pip"])
            with self.assertRaisesRegex(fetch.Failure, "scripts/setup"):
                fetch.find_pip([f"{folder}/absent", without], folder, f"{folder}/pip-*.whl")

    def test_a_wheel_of_pip_without_a_python_that_has_it(self):
        fetch = load()
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(f"{folder}/pip-1-py3-none-any.whl", "w") as wheel:
                wheel.writestr("pip/__main__.py", "import sys\nprint('pip got', *sys.argv[1:])\n")
            command = fetch.find_pip([f"{folder}/absent"], folder, f"{folder}/pip-*.whl")
            done = subprocess.run([*command, "download", "x"], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.stdout, "pip got download x\n", done.stderr)

    def test_the_environment_of_setup_comes_first(self):
        self.assertEqual(Path(load().PYTHONS[0]), ROOT / "scripts/../.venv/bin/python")


class Table(unittest.TestCase):
    def test_the_models_are_those_of_the_programs(self):
        models = load().MODELS
        names = (ROOT / "common/model/info/demo.c").read_text()
        packages = (ROOT / "cli/pull/demo.c").read_text().replace("#", "{part}").replace("@", "{before}")
        self.assertEqual(names.count("{.name = "), len(models))
        for name, m in models.items():
            for text in (f'.name = "{name}"', f'.folder = "{m.folder}"', f'.file = "{m.file}"'):
                self.assertIn(text, names)
            for text in (f'.name = "{name}"', f'.sha256 = "{m.sha256}"', f".n_bytes = UINT64_C({m.size})", f".n_parts = {m.n_parts}",
                         f'.project = "{m.package}"', f'.wheel = "{m.wheel("", "{part}")}"', f'.member = "{m.member}"'):
                self.assertIn(text, packages)


if __name__ == "__main__":
    unittest.main()
