"""Defines fixtures with the cluster of these tests. In ctest a file counts as skipped when all of its tests were skipped."""
import re

import pytest
from definitions import definitions
from kube import Kube, NoCluster
from release import Release, load_image

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


@pytest.fixture(scope="session")
def image(kube, tmp_path_factory):
    return load_image(kube, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def kinds(kube):
    """Makes the cluster accept objects of KEDA, the Gateway API and others during the tests of a file."""
    with definitions(kube):
        yield


@pytest.fixture
def space(kube, request):
    """Yields a namespace for one test and removes it at the end."""
    name = kube.namespace(re.sub("[^a-z0-9]+", "-", request.node.name)[:50].strip("-"))
    yield name
    kube.remove_namespace(name)


def pytest_runtest_setup(item):
    Release.made.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the logs of a failed test's releases to its report, while their pods still exist."""
    report = yield
    if report.failed and call.when == "call":
        for release in {*Release.made, *(one for one in item.funcargs.values() if isinstance(one, Release))}:
            report.sections.append((f"pods of {release.name} in {release.namespace}", explain(release)))
    return report


def explain(release):
    try:
        return release.explain()
    except AssertionError as error:
        return f"(cannot read the pods: {error})"
