"""Checks all examples without running them: a test types every block of a README, no link is broken, and the README names every file."""
import re
from pathlib import Path

import pytest
from cluster import ROOT
from readme import EXAMPLES, Readme

FOLDERS = sorted(p.name for p in EXAMPLES.iterdir())
TESTS = Path(__file__).parent


@pytest.mark.parametrize("name", FOLDERS)
def test_a_readme(tmp_path, name):
    readme = Readme(name, tmp_path)
    source = (EXAMPLES / name / "README.md").read_text()
    test = (TESTS / f"test_{name.replace('-', '_')}.py").read_text()
    for block in (*readme.commands, *readme.shown):
        assert f'"{block}"' in test, f"no test has the block {block}"
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", source):
        assert (EXAMPLES / name / link).exists(), link
    for path in (EXAMPLES / name).iterdir():
        told = [p.read_text() for p in (EXAMPLES / name).iterdir() if p != path]
        assert path.name == "README.md" or any(path.name in text for text in told), f"nobody is told of {path.name}"


def test_the_page_that_leads_to_them():
    page = (ROOT / "docs/how-to/examples.md").read_text()
    assert re.findall(r"deploy/examples/([^/]+)/README.md", page) == ["run-file", "two-hosts", "notebook-platform", "sagemaker"]
    assert set(FOLDERS) == {"run-file", "two-hosts", "notebook-platform", "sagemaker"}
