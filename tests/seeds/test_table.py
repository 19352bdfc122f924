"""Tests that README.md lists for each line of the documents the test that types it, and that the documents contain the words that
the tests quote."""
import importlib

import pytest
from seeds import HERE, path_of, rows

FILES = {p.stem.removeprefix("test_seed_"): p for p in sorted(HERE.glob("test_seed_*.py"))}


def marks(path):
    """Returns (place, quotes) of each test."""
    tests = [f for name, f in vars(importlib.import_module(path.stem)).items() if name.startswith("test_")]
    return [m.args for f in tests for m in f.pytestmark if m.name == "seed_line"]


@pytest.mark.parametrize("number", FILES)
def test_the_page_has_the_tests(number):
    assert sorted(r.place for r in rows() if r.document == number and r.place) == sorted(place for place, _ in marks(FILES[number]))


@pytest.mark.parametrize("number", FILES)
def test_the_quotes_are_the_documents(number):
    path = path_of(number)
    if not path:
        pytest.skip("the document is not at hand (COX_SEEDS)")
    text = " ".join(path.read_text().split())
    wrong = [q for _, quotes in marks(FILES[number]) for q in quotes if " ".join(q.split()) not in text]
    assert not wrong
