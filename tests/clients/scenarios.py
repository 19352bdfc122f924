"""What the scripts of this folder share: where the clusters are, and a run of every test_* function of a script.

Run by tests/e2e/test_clients.py with .venv-clients/bin/python. The last line of output is JSON: for each function null, or how it failed.
COX_URL is a cluster of null workers (model "null", wants COX_KEY), COX_DEMO_URL one of the demo model ("demo", no key), or empty.
"""
import asyncio
import inspect
import json
import os
import traceback

URL, DEMO, KEY, LIMITED = (os.environ[n] for n in ("COX_URL", "COX_DEMO_URL", "COX_KEY", "COX_LIMITED_KEY"))
SECONDS = 60 * int(os.environ["COX_SLOW"])


def raises(kinds, call):
    """The exception of one of these kinds that call() raises."""
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
