"""The cluster of these tests, and the rule that a file of which every test was skipped counts as skipped in ctest."""
import pytest
from kube import Kube, NoCluster

outcomes = []


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcomes.append(report.outcome)


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == 0 and outcomes and set(outcomes) == {"skipped"}:
        session.exitstatus = 77


@pytest.fixture(scope="session")
def kube():
    try:
        running = Kube()
    except NoCluster as error:
        pytest.skip(str(error))
    yield running
    running.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    item.failed = getattr(item, "failed", False) or report.failed
    return report
