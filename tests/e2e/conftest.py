"""Defines fixtures, and a rule: ctest counts a file as skipped when all its tests were skipped."""
import os
import sys
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import findings  # noqa: E402
from cluster import BIN, SLOW, Cluster  # noqa: E402

# ON_DEMO is true when tests use the demo model instead of a tiny or null one (label long). Each of these tests takes minutes.
ON_DEMO = "demo" in (os.environ.get("COX_INVARIANCE_MODEL"), os.environ.get("COX_OVERLOAD_MODEL"))
outcomes = []


def pytest_configure(config):
    if config.pluginmanager.hasplugin("timeout") and not config.getoption("timeout", None):
        config.option.timeout = 7200 if ON_DEMO else 120 * SLOW


def pytest_sessionstart(session):
    missing = [n for n in ("cox", "cox-head", "cox-worker", "cox-gateway") if not (BIN / n).exists()]
    if missing:
        pytest.exit(f"not built: {', '.join(missing)} in {BIN}", returncode=3)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcomes.append(report.outcome)


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == 0 and outcomes and set(outcomes) == {"skipped"}:
        session.exitstatus = 77


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """Runs after all other teardowns, so that a module's cluster has ended after its last test."""
    yield
    found = findings.take()
    if found:
        pytest.fail(f"a process crashed or has a sanitizer's report:\n{found}", pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    cluster = item.funcargs.get("cluster") if hasattr(item, "funcargs") else None
    if report.failed and cluster is not None:
        report.sections.append(("log of cox up", "\n".join(cluster.log().splitlines()[-80:])))


@pytest.fixture(scope="module")
def cluster():
    """Yields a running null cluster, which the tests of one file share."""
    with Cluster() as c:
        yield c


@pytest.fixture
def http(cluster):
    with httpx.Client(base_url=cluster.url, timeout=30.0 * SLOW) as client:
        yield client
