#!/usr/bin/env python3
"""Writes the measurements of a run of first-run into the docs.
  tests/cuda/first-run/merge.py TABLE.md [--status docs/gpu-status.md] [--day docs/develop/gpu-day.md] [--partial]

TABLE.md is a run's $OUT/table.md. Each row of its first table that ran replaces "last run" and "result" of the row with the same
key in the status table; a new key gets a row at the end. In its second table, a figure whose "program: what" is a key of the
table of predicted times fills that row's last cell. Everything else stays byte for byte: rows that were not run, and rows with a
later run. Merging the same table twice changes nothing.

Nothing is written when the table comes from a host without a device, or is incomplete: no first line, no "End of the table.", a
row with too few cells or without a result, a duplicate key, or a key of the emulation's rows (emulated-...), which no device
runs. --partial takes the complete rows of a table that was cut off. A run's text is data: markup in it is removed.
Exit status: 0 merged, 1 the table or a document is invalid, 2 wrong arguments."""
import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HEAD = re.compile(r"First run: commit ([\w.-]{1,60}), (\d{4}-\d\d-\d\d)T(\d\d:\d\d)Z, ([^|]{0,80}), (\d+) s")
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+ -]{0,79}")
RUN = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d)")
END = "End of the table."
EMULATED = "emulated-"
NOT_RUN = ("skipped", "no time left")
RESULT_MAX = 160
STATUS_CELLS, PREDICTED_CELLS = 5, 6


class Refused(Exception):
    """`Refused` is raised when the table or a document is invalid; the text gives the reason."""


def cells_of(line):
    """Returns the cells of a row, or None if the line does not begin and end with a bar. A bar inside of a cell has a backslash
    before it."""
    line = line.rstrip()
    if len(line) < 2 or line[0] != "|" or line[-1] != "|" or line.endswith("\\|"):
        return None
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line[1:-1])]


def plain(text, most):
    """Returns one line that fits a table's cell: no markup, no control characters."""
    text = "".join(c if c.isprintable() else " " for c in text.replace("\\|", "/"))
    text = re.sub(r"[`<>\[\]|\\*#]", "", text)
    return re.sub(r"\s+", " ", text).strip()[:most].rstrip()


class Table:
    """Holds the table of a run: .rows maps a key to (result, seconds, text), .figures maps a key to a figure."""

    def __init__(self, text, partial=False):
        lines = text.replace("\r\n", "\n").split("\n")
        head = HEAD.fullmatch(lines[0].strip())
        if not head:
            raise Refused("the first line is not \"First run: commit ..., date, device, seconds\"")
        self.commit, day, minute, device = head[1], head[2], head[3], plain(head[4], 60)
        self.when = f"{day} {minute}"
        if not device:
            raise Refused("the run was on a host without a device")
        self.by = f"{self.when}, {self.commit}, {device}"
        self.rows, self.figures = {}, {}
        if END not in lines and not partial:
            raise Refused(f"the table was cut off, because the line \"{END}\" is missing (--partial merges its complete rows)")
        width = 0
        for number, line in enumerate(lines[1:], 2):
            if line.strip() == END:
                break
            width = self._line(number, line, width, partial)

    def _line(self, number, line, width, partial):
        """Returns the width of the table that the line is in, or 0 outside of a table."""
        if not line.startswith("|"):
            return 0
        cells = cells_of(line)
        if width == 0:
            widths = {("part", "result", "time", "its last line"): 4, ("program", "what", "figure", "bar", "verdict"): 5}
            if tuple(cells or ()) not in widths:
                raise Refused(f"line {number} is not the header of a table of first-run")
            return widths[tuple(cells)]
        if set(line) <= set("|- "):
            return width
        if not cells or len(cells) != width:
            if partial:
                return width
            raise Refused(f"line {number} has {len(cells or ())} cells instead of {width}")
        self._add_row(number, cells) if width == 4 else self._add_figure(number, cells)
        return width

    def _add_row(self, number, cells):
        key = cells[0].strip("`")
        if not KEY.fullmatch(key) or key in self.rows:
            raise Refused(f"line {number}: the key {key!r} {'is already in the table' if key in self.rows else 'is invalid'}")
        if key.startswith(EMULATED):
            raise Refused(f"line {number}: the row {key!r} belongs to the emulation, not to a device")
        self.rows[key] = (plain(cells[1], 40), plain(cells[2], 20), plain(cells[3], RESULT_MAX))
        if not self.rows[key][0]:
            raise Refused(f"line {number}: the row {key!r} has no result")

    def _add_figure(self, number, cells):
        key = f"{plain(cells[0], 40)}: {plain(cells[1], 100)}"
        self.figures.setdefault(key, plain(cells[2], 60))  # the first figure counts if a program ran twice


def merge_status(document, table):
    """Returns the status document with the run's rows: (text, keys replaced, keys added, keys kept)."""
    lines, place, last, replaced, kept = document.split("\n"), {}, 0, [], []
    for i, line in enumerate(lines):
        cells = cells_of(line)
        if not cells or len(cells) != STATUS_CELLS:
            continue
        last = i
        key = re.fullmatch(r"`([^`]+)`", cells[0])
        if key and key[1] in place:
            raise Refused(f"the status table has the key {key[1]} twice")
        if key:
            place[key[1]] = i
    if not place:
        raise Refused("the status document has no table with keys and five columns")
    added = []
    for key, (result, seconds, text) in table.rows.items():
        if result in NOT_RUN:
            continue
        result = f"{result} in {seconds}" + (f": {text}" if text else "")
        if key not in place:
            last += 1
            lines.insert(last, f"| `{key}` | printed by first-run; not described here yet | `first-run` | {table.by} | {result} |")
            added.append(key)
            continue
        raw = re.split(r"(?<!\\)\|", lines[place[key]].rstrip()[1:-1])
        earlier = RUN.search(raw[3])
        if earlier and earlier[1] > table.when:
            kept.append(key)
            continue
        raw[3:] = [f" {table.by} ", f" {result} "]
        lines[place[key]] = "|" + "|".join(raw) + "|"
        replaced.append(key)
    return "\n".join(lines), replaced, added, kept


def merge_predicted(document, table):
    """Returns the page of predicted times with "measured" filled in: (text, keys filled)."""
    lines, filled = document.split("\n"), []
    for i, line in enumerate(lines):
        cells = cells_of(line)
        key = re.fullmatch(r"`([^`]+)`", cells[0]) if cells and len(cells) == PREDICTED_CELLS else None
        if not key or key[1] not in table.figures:
            continue
        raw = re.split(r"(?<!\\)\|", line.rstrip()[1:-1])
        earlier = RUN.search(raw[-1])
        if earlier and earlier[1] > table.when:
            continue
        raw[-1] = f" {table.figures[key[1]]} ({table.by}) "
        lines[i] = "|" + "|".join(raw) + "|"
        filled.append(key[1])
    return "\n".join(lines), filled


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0], add_help=True)
    parser.add_argument("table", type=Path)
    parser.add_argument("--status", type=Path, default=ROOT / "docs/gpu-status.md")
    parser.add_argument("--day", type=Path, default=ROOT / "docs/develop/gpu-day.md")
    parser.add_argument("--partial", action="store_true")
    args = parser.parse_args()
    try:
        table = Table(args.table.read_bytes().decode("utf-8", "replace"), args.partial)
        status, replaced, added, kept = merge_status(args.status.read_text(), table)
        day, filled = merge_predicted(args.day.read_text(), table)
    except (OSError, Refused) as e:
        print(f"merge: cannot merge {args.table}: {e}. Nothing was written.", file=sys.stderr)
        return 1
    args.status.write_text(status)
    args.day.write_text(day)
    not_run = [key for key, row in table.rows.items() if row[0] in NOT_RUN]
    print(f"{len(replaced)} rows replaced, {len(added)} added ({', '.join(added) or 'none'}), {len(kept)} kept because they are newer, "
          f"{len(not_run)} not run; {len(filled)} predicted times now have a measurement")
    return 0


if __name__ == "__main__":
    sys.exit(main())
