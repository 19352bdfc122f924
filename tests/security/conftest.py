"""Applies the rules of tests/e2e/conftest.py here: crashed processes fail a test, and a file with only skipped tests counts as skipped."""
import importlib.util
from pathlib import Path

_path = Path(__file__).resolve().parents[1] / "e2e/conftest.py"
_spec = importlib.util.spec_from_file_location("e2e_conftest", _path)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
globals().update({n: v for n, v in vars(_module).items() if not n.startswith("__")})
