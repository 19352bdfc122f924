"""Contains the code that the scripts of this folder share: the addresses of the clusters, and a runner for the test_* functions of a
script.

tests/e2e/test_clients.py runs the scripts with .venv-clients/bin/python.
The last line of output is a JSON object: null for each function that passed, or its traceback.
COX_URL is the address of a cluster of null workers (model "null", needs COX_KEY).
COX_DEMO_URL is the address of a cluster with the demo model ("demo", no key). It is empty when there is no such cluster.
"""
import asyncio
import inspect
import json
import os
import traceback

URL, DEMO, KEY, LIMITED = (os.environ[n] for n in ("COX_URL", "COX_DEMO_URL", "COX_KEY", "COX_LIMITED_KEY"))
SECONDS = 60 * int(os.environ["COX_SLOW"])


def raises(kinds, call):
    """Calls call() and returns the exception that it raises, which must be one of `kinds`."""
    try:
        call()
    except kinds as e:
        return e
    raise AssertionError(f"nothing of {kinds} was raised")


def main(functions):
    results = {}
    for name, f in functions.items():
        if name.startswith("test_"):
            try:
                asyncio.run(f()) if inspect.iscoroutinefunction(f) else f()
                results[name] = None
            except Exception:
                results[name] = traceback.format_exc()
    print(json.dumps(results), flush=True)
