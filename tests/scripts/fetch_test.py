"""Tests that scripts/fetch-demo-model works on a machine with a Python that has no pip, and fetches what `cox pull` fetches."""
import hashlib
import importlib.machinery
import importlib.util
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

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


class Links(unittest.TestCase):
    """Another user of a shared cache may put links where the script is going to write."""

    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.fetch, self.folder = load(), Path(made.name)
        self.victim, self.models = self.folder / "victim", self.folder / "cache/models/tea"
        self.victim.write_text("precious")
        self.models.mkdir(parents=True)
        model = b"model"
        with zipfile.ZipFile(self.folder / "tea-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tea.gguf", model)
        self.model = self.fetch.Model("tea", "tea.gguf", hashlib.sha256(model).hexdigest(), len(model), 1, "tea", "1", "tea.gguf")
        environment = mock.patch.dict("os.environ", {"COX_CACHE": str(self.folder / "cache")})
        environment.start()
        self.addCleanup(environment.stop)

    def run_fetch(self):
        script = self.folder / "pip"
        script.write_text(f'#!/bin/sh\nwhile [ "$1" != -d ]; do shift; done\ncp {self.folder}/tea-1-py3-none-any.whl "$2"\n')
        script.chmod(0o755)
        with mock.patch.object(self.fetch, "find_pip", lambda *_: [str(script)]), mock.patch.object(self.fetch, "say", lambda _: None):
            self.fetch.fetch(self.model, False)

    def test_files_are_made_anew(self):
        (self.models / "wheels").mkdir()
        for name in ("tea.gguf.new", "tea.gguf.sha256.new", "wheels/pip.log"):
            (self.models / name).symlink_to(self.victim)
        self.run_fetch()
        self.assertEqual((self.victim.read_text(), (self.models / "tea.gguf").read_bytes()), ("precious", b"model"))
        self.assertFalse((self.models / "tea.gguf.sha256").is_symlink())

    def test_a_link_in_place_of_the_lock_or_a_folder_is_refused(self):
        for name, target in ((".lock", self.victim), (".lock", self.folder / "new"), ("wheels", self.folder)):
            (self.models / name).symlink_to(target)
            with self.assertRaises((OSError, self.fetch.Failure)):
                self.run_fetch()
            (self.models / name).unlink()
        self.assertEqual((self.victim.read_text(), (self.folder / "new").exists(), (self.folder / "pip.log").exists()), ("precious", False, False))


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
