"""Holds the result of one part of scripts/audit, and reads files with bounds."""
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOWN_MAX = 200  # maximum lines of one kind that a part prints


class Failed(Exception):
    """Says why the input of a part is wrong. The part counts as wrong."""


class NotRun(Exception):
    """Says why a part could not run. The part counts neither as fine nor as wrong."""


class Part:
    """Collects what one part found. `wrong` makes the audit fail; `notes` do not."""

    def __init__(self, name):
        self.name, self.wrong, self.notes, self.checked, self.not_run = name, [], [], "", ""

    def state(self):
        return "not run" if self.not_run else "wrong" if self.wrong else "ok"

    def lines(self):
        for kind, lines in (("wrong", self.wrong), ("note", self.notes)):
            yield from (f"{self.name}: {kind}: {printable(line)}" for line in lines[:SHOWN_MAX])
            if len(lines) > SHOWN_MAX:
                yield f"{self.name}: {kind}: and {len(lines) - SHOWN_MAX} more"
        about = f"faults: {len(self.wrong)}" if self.wrong else self.not_run or self.checked
        yield f"{self.name}: {self.state()}: {printable(about)}"


def printable(text):
    """Returns the text with control characters escaped, because names in data from elsewhere reach a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def read(path, limit):
    """Returns the text of a regular file that has at most `limit` bytes."""
    path = Path(path)
    if not path.is_file():
        raise Failed(f"{path} is not a regular file")
    with open(path, "rb") as f:
        data = f.read(limit + 1)
    if len(data) > limit:
        raise Failed(f"{path} has more than {limit} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Failed(f"{path} is not UTF-8")


def load_json(text, what):
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Failed(f"{what} is not JSON: {str(e)[:100]}")
