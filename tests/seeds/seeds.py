"""What the tests of the documents share: how a line of a document is named and typed. README.md lists the lines."""
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
# The documents themselves are not in the repository. Where COX_SEEDS names a folder of them, what is quoted is compared with them.
DOCUMENTS = os.environ.get("COX_SEEDS")
PYTHON = ROOT / ".venv-clients/bin/python"
needs_clients = pytest.mark.skipif(not PYTHON.exists(), reason="no boto3 and sagemaker: scripts/setup --clients")


def path_of(number):
    """The file of a document; None: it is not at hand."""
    return next(Path(DOCUMENTS).glob(f"{number}_*"), None) if DOCUMENTS else None


class Row(NamedTuple):
    document: str
    place: str  # "": no test types it
    line: str
    last: str  # what is looked for, or why the line is not typed


def rows():
    """README.md's."""
    number = None
    for text in (HERE / "README.md").read_text().splitlines():
        if m := re.match(r"## (\d{3}): ", text):
            number = m[1]
        elif number and (m := re.match(r"\| (`[^`]+`|–) \|(.+)\|(.*)\|(.+)\|$", text)):
            yield Row(number, m[1].strip("`–"), m[2].strip(), m[4].strip())


def line(place, *quotes):
    """Marks a test: the place of its line in README.md's table, and the words of the document that it types or looks for."""
    return pytest.mark.seed_line(place, quotes)


def type_line(text, env=None, cwd=None, timeout=60):
    """Types a line into a shell that finds this build's programs. Its exit code has to be 0; what it prints."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **(env or {})}
    done = subprocess.run(["sh", "-c", text], env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout * SLOW)
    findings.look_at_log(done.stderr)
    assert done.returncode == 0, f"{text}\nended with exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def notebook(url, cell, *args):
    """A cell of notebook.py, with the packages that notebooks have; what it prints."""
    words = [PYTHON, HERE / "notebook.py", url, cell, *args]
    env = {"AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": f"{ROOT}/tests/e2e"}
    return type_line(shlex.join(map(str, words)), env=env, timeout=100)


def in_order(text, *lines):
    """Each of the lines behind the one before it; … in a line stands for anything on it."""
    at = 0
    for wanted in lines:
        found = re.compile(re.escape(wanted).replace("…", r"[^\n]*?")).search(text, at)
        assert found, f'no "{wanted}" (in this order) in\n{text}'
        at = found.end()
