"""Applies the rules of tests/e2e/conftest.py here. With --lines (tests/seeds/run) it prints one line for each line of the documents."""
import importlib.util
from pathlib import Path

from seeds import rows

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


def pytest_collection_modifyitems(items):
    for item in items:
        mark = item.get_closest_marker("seed_line")
        if mark:
            item.user_properties.append(("seed_line", (item.path.stem.removeprefix("test_seed_"), mark.args[0])))


def pytest_report_teststatus(report, config):
    """Prints the document's line in place of a dot."""
    typed = dict(getattr(report, "user_properties", [])).get("seed_line")
    if not config.getoption("--lines") or not typed:
        return None
    if report.when != "call" and report.outcome == "passed":
        return None
    word = {"passed": "ok", "skipped": "skip", "failed": "FAILED"}[report.outcome]
    why = f": {report.longrepr[2].removeprefix('Skipped: ')}" if report.outcome == "skipped" else ""
    said = f"{word:<6} {' '.join(typed)}{why}"
    quoted = next((r.line for r in rows() if (r.document, r.place) == typed), "")
    return report.outcome, f"{said}\n         {quoted}\n", said


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--lines"):
        terminalreporter.section("lines that are not typed")
        for r in rows():
            if not r.place:
                terminalreporter.write_line(f"{r.document} {r.line}\n         {r.last}")
