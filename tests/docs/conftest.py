"""Applies the rules of tests/e2e/conftest.py here: crashed processes fail a test, and a file with only skipped tests counts as
skipped. It also builds the docs site once."""
import importlib.util
from pathlib import Path

import pytest
from site_build import build

_path = Path(__file__).resolve().parents[1] / "e2e/conftest.py"
_spec = importlib.util.spec_from_file_location("e2e_conftest", _path)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
globals().update({n: v for n, v in vars(_module).items() if not n.startswith("__")})


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Returns the folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stdout + done.stderr
    return folder
