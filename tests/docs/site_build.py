"""Builds the docs site for tests, as scripts/docs does."""
import os
import subprocess

import pytest
from cluster import BIN, ROOT, SLOW

PYTHON = ROOT / ".deps/docs-venv/bin/python"
NEEDS_MKDOCS = pytest.mark.skipif(not PYTHON.exists(), reason="SKIPPED: no .deps/docs-venv here: scripts/setup --docs makes it")


def build(to, root=ROOT, **env):
    """Builds the site. --quiet is not used, because --strict counts only warnings that are printed."""
    return subprocess.run([PYTHON, "-m", "mkdocs", "build", "--strict", "--config-file", root / "mkdocs.yml", "--site-dir", to],
                          cwd=root, capture_output=True, text=True, timeout=240 * SLOW,
                          env={**os.environ, "COX_BIN": str(BIN), "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1", **env})
