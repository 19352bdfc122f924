"""Tells ctest that a file counts as skipped when all of its tests were skipped."""
outcomes = []


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcomes.append(report.outcome)


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == 0 and outcomes and set(outcomes) == {"skipped"}:
        session.exitstatus = 77
