"""Tests that docs/how-to/runbook.md has a row for each warning in the head's source and a section for each alert, and no others."""
import re

from cluster import ROOT

PAGE = (ROOT / "docs/how-to/runbook.md").read_text()
RULES = (ROOT / "deploy/grafana/coxswain.rules.yml").read_text()
# PLACES lists the places in the source that make warnings of /api/status: each place is from the first text to the second.
PLACES = [("head/admin/json.c", "static void warn_shrunk", "json_t *admin_json_status"),
          ("head/cluster/elastic.c", "bool elastic_is_one_sided", "\n}\n"), ("head/routing/roles.c", "const char *roles_advice", "\n}\n"),
          ("head/lease/standby.c", "snprintf(s->warning,", ";"), ("head/lease/standby.c", "snprintf(s->endless,", ";"),
          ("head/lease/standby.c", "snprintf(s->nonsense,", ";"),
          ("head/core/vocabularies.c", "err, STATUS_UNSUPPORTED,", ";")]
MORE_OF_ONE = ("; ", ". ", ", but ", "it needs", "enough workers are connected", "this head ")  # texts that continue a warning


def warnings():
    """Yields every text of a warning, as written in the source."""
    for file, begin, end in PLACES:
        source = (ROOT / file).read_text()
        assert begin in source, f"{file} has no {begin!r}: PLACES"
        part = source.split(begin, 1)[1]
        if end == ";":  # a call ends at its semicolon; quoted texts may contain one
            part = re.match(r'(?:[^";]|"(?:[^"\\]|\\.)*")*', part)[0]
        else:
            part = part.split(end, 1)[0]
        for pieces in re.findall(r'(?:"(?:[^"\\]|\\.)*"\s*)+', part):
            text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', pieces))
            if len(text) > 15 and not text.startswith(MORE_OF_ONE):
                yield text


def test_every_warning_has_its_row():
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \| (.+) \|$", PAGE.split("## Warnings", 1)[1].split("## Alerts", 1)[0], re.M)
    keys, texts = [r[0] for r in rows], list(warnings())
    assert len(texts) >= 15
    for text in texts:
        assert [k for k in keys if k in text], f"docs/how-to/runbook.md has no row for the warning: {text}"
    for key in keys:
        assert [t for t in texts if key in t], f"docs/how-to/runbook.md has a row of no warning: {key}"
    assert len(set(keys)) == len(keys)


def test_every_alert_has_its_section():
    alerts = re.findall(r"- alert: (\w+)", RULES)
    sections = re.findall(r"^### (\w+)\n(.+)", PAGE, re.M)
    assert [name for name, _ in sections] == alerts and all(len(text) > 30 for _, text in sections)
    assert re.findall(r"runbook_url: docs/how-to/runbook.md#(\w+)", RULES) == [a.lower() for a in alerts]


def test_what_it_names_is_there():
    """Names in backticks are events if they have an underscore, or flags."""
    sources = "\n".join(p.read_text() for d in ("head", "worker", "gateway", "cli", "common") for p in (ROOT / d).rglob("*.[ch]"))
    for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", PAGE):
        assert f'"{name}"' in sources, f"docs/how-to/runbook.md: nothing is called {name}"
    flags = (ROOT / "docs/reference/flags.md").read_text()
    for flag in set(re.findall(r"`(--[a-z-]+)", PAGE)):
        of_table = re.escape(flag.replace("--no-", "--"))
        assert re.search(f"{of_table}(?![a-z-])", flags), f"docs/how-to/runbook.md: no flag {flag}"
    panels = (ROOT / "deploy/grafana/coxswain.json").read_text()
    for title in re.findall(r"(?<!\*)\*([A-Z][^*]+)\*(?!\*)", PAGE):
        assert f'"title": "{title}' in panels, f"docs/how-to/runbook.md: the dashboard has no panel {title}"
