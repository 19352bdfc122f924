"""The same rules as for the black-box tests next door, and a line for each line of the documents with --lines (tests/seeds/run)."""
import importlib.util
from pathlib import Path

import pytest

_path = Path(__file__).resolve().parents[1] / "e2e/conftest.py"
_spec = importlib.util.spec_from_file_location("e2e_conftest", _path)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
globals().update({n: v for n, v in vars(_module).items() if not n.startswith("__")})
_configure = _module.pytest_configure


def pytest_addoption(parser):
    parser.addoption("--lines", action="store_true", help="print a line of the documents a line, with ok, skip or FAILED")


def pytest_configure(config):
    _configure(config)
    config.addinivalue_line("markers", "seed_line(place, quotes): the place of a line in tests/seeds/README.md, and its words")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    mark = item.get_closest_marker("seed_line")
    if mark:
        report.seed_line = item.path.stem.removeprefix("test_seed_"), mark.args[0]
    return report


def pytest_report_teststatus(report, config):
    """The line in place of a dot."""
    if not config.getoption("--lines") or not hasattr(report, "seed_line"):
        return None
    if report.when != "call" and report.outcome == "passed":
        return None
    word = {"passed": "ok", "skipped": "skip", "failed": "FAILED"}[report.outcome]
    why = f": {report.longrepr[2].removeprefix('Skipped: ')}" if report.outcome == "skipped" else ""
    said = f"{word:<6} {' '.join(report.seed_line)}{why}"
    return report.outcome, f"{said}\n", said
