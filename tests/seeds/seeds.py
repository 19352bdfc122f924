"""Contains code that the tests of the documents share: it names and types the lines of a document. README.md lists the lines."""
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import findings
import pytest
from cluster import BIN, ROOT, SLOW

HERE = Path(__file__).parent
# DOCUMENTS is the folder with the documents, which are not part of the repository. When COX_SEEDS is set, quotes are compared with the documents.
DOCUMENTS = os.environ.get("COX_SEEDS")
PYTHON = ROOT / ".venv-clients/bin/python"
needs_clients = pytest.mark.skipif(not PYTHON.exists(), reason="no boto3 and sagemaker: scripts/setup --clients")


def path_of(number):
    """Returns the file of a document, or None when it is not available."""
    return next(Path(DOCUMENTS).glob(f"{number}_*"), None) if DOCUMENTS else None


class Row(NamedTuple):
    document: str
    place: str  # place of the test that types the line; "" when no test types it
    line: str
    last: str  # expected output, or the reason why no test types the line


def rows():
    """Yields the rows of the tables in README.md."""
    number = None
    for text in (HERE / "README.md").read_text().splitlines():
        if m := re.match(r"## (\d{3}): ", text):
            number = m[1]
        elif number and (m := re.match(r"\| (`[^`]+`|–) \|(.+)\|(.*)\|(.+)\|$", text)):
            yield Row(number, m[1].strip("`–"), m[2].strip(), m[4].strip())


def line(place, *quotes):
    """Marks a test with the place of its line in README.md's table, and with the words of the document that the test types or
    searches for."""
    return pytest.mark.seed_line(place, quotes)


def type_line(text, env=None, cwd=None, timeout=60):
    """Types a line into a shell with this build's programs in PATH. Checks that the exit code is 0 and returns the output."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **(env or {})}
    done = subprocess.run(["sh", "-c", text], env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout * SLOW)
    findings.look_at_log(done.stderr)
    assert done.returncode == 0, f"{text}\nended with exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def notebook(url, cell, *args):
    """Runs a cell of notebook.py with the packages of a notebook; returns its output."""
    words = [PYTHON, HERE / "notebook.py", url, cell, *args]
    env = {"AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": f"{ROOT}/tests/e2e"}
    return type_line(shlex.join(map(str, words)), env=env, timeout=100)


def in_order(text, *lines):
    """Checks that the text has the lines in this order. … in a line matches any text on that line."""
    at = 0
    for wanted in lines:
        found = re.compile(re.escape(wanted).replace("…", r"[^\n]*?")).search(text, at)
        assert found, f'no "{wanted}" (in this order) in\n{text}'
        at = found.end()
