"""Finds the commands of the pages that no test types and that no table of walks.py explains."""
from pages import ROOT, read_page
from walker import Walk
from walks import ELSEWHERE, NOBODY, WALKS

PAGES = [*(f"start/{name}.md" for name in ("install", "laptop", "server", "kubernetes", "openshift", "sagemaker", "gpu")),
         "how-to/deploy.md", "how-to/build-image.md", "how-to/custom-image.md", "how-to/examples.md",
         "reference/chart.md", "develop/deploy-design.md", "develop/deploy-testing.md"]


def pages():
    found = [*(ROOT / "docs" / page for page in PAGES), *ROOT.glob("deploy/k8s/*.md"), *ROOT.glob("deploy/systemd/*.md"), *ROOT.glob("deploy/helm/*/*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def commands():
    return [c for page in pages() for c in read_page(page)[0]]


def typed():
    """Returns {(page, line, text)} of all commands that the walks type."""
    out = set()
    for walk in WALKS:
        w = Walk()
        walk(w)
        out |= {(c.page, c.line, c.text) for c in w.typed}
    return out


def in_table(table, command):
    """Returns the row with the longest beginning that matches the command, or None."""
    rows = [row for row in table.get(command.page, []) if command.text.startswith(row[0])]
    return max(rows, key=lambda row: len(row[0]), default=None)


def findings(of, walked, elsewhere=ELSEWHERE, nobody=NOBODY):
    """Returns a sentence for each command that is in no walk and no table, or in several, and for each row that matches no command."""
    out, used = [], set()
    for c in of:
        rows = [row for row in (in_table(elsewhere, c), in_table(nobody, c)) if row]
        used |= {(c.page, row) for row in rows}
        known = ((c.page, c.line, c.text) in walked) + len(rows)
        if known == 0:
            out.append(f"{c}: no walk types it. Have one do so, or say in tests/walk/walks.py who does or why nobody (docs/develop/testing.md, \"Walks\")")
        elif known > 1:
            out.append(f"{c}: typed by a walk and named in a table of tests/walk/walks.py, or named in both tables")
    for table in (elsewhere, nobody):
        for page, rows in table.items():
            out += [f"tests/walk/walks.py: {page} has no command that begins with \"{row[0]}\"" for row in rows if (page, row) not in used]
    return out
