"""Tests that each flag that a page names is in the programs' option tables: in command lines of a text, and in the tables of
docs/how-to/migrate-from-vllm.md and docs/reference/sagemaker.md."""
import re
import subprocess

import pytest
from cluster import BIN, ROOT, SLOW

DESIGNS = set()  # pages about things that do not exist yet are not tested
PAGES = [p for p in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]) if p.relative_to(ROOT).as_posix() not in DESIGNS]
ROW = re.compile(r"^\| (.+?) \|$", re.M)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
ALIASES = {"serve": "up", "cox-head": "head", "cox-worker": "worker", "cox-gateway": "gateway"}
EVERYWHERE = {"--help", "--config"}
NO_SETTINGS = {"--host", "--port", "--sagemaker", "--data-parallel-size", "--invocations-statuses", "--shutdown-timeout", "--stats-format"}


@pytest.fixture(scope="module")
def tables():
    """Returns (command → its flags, flags of vLLM that Coxswain lacks → how they are handled), as `cox flags` prints them."""
    said = subprocess.run([BIN / "cox", "flags"], capture_output=True, text=True, timeout=30 * SLOW, check=True).stdout
    commands, missing = {}, {}
    for title, text in re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", said, re.M):
        if title.startswith("cox "):
            for item in re.findall(r"^- (<a .*\n(?:  .*\n)+)", text, re.M):
                aliases = re.findall(r"\balias(?:es)? ((?:`-[^`]+`,?\s+)+)", item)
                names = re.findall(r"\*\*`(--[^`]+)`\*\*", item) + re.findall(r"`(-+[^`]+)`", "".join(aliases))
                assert f'<a id="{title.replace(" ", "-")}-{names[0][2:]}"></a>' in item, item
                commands.setdefault(title.removeprefix("cox "), set()).update(names)
        for row in [] if title.startswith("cox ") else re.findall(r"^\| (`-.+?) \| (.*)$", text, re.M):
            missing.update(dict.fromkeys(re.findall(r"`(-+[^`]+)`", row[0]), row[1].split(" | ")[0]))
    commands["workers"] |= commands["worker"]
    for name in ("run-batch", "bench throughput", "bench latency", "bench startup"):  # these commands start a cluster of their own
        commands[name] |= commands["up"]
    assert len(commands["up"]) > 100 and len(missing) > 100
    return commands, missing


def flags_of(commands, words):
    """Returns the flags of the command that a line begins with, or None when the line begins with no command that has flags."""
    words = [ALIASES.get(words[0], words[0]), *words[1:]]
    return next((commands[" ".join(words[:n])] for n in (2, 1) if " ".join(words[:n]) in commands), None)


def lines_of(text):
    """Yields the command lines in spans of code and in fences."""
    fences = re.findall(r"^ *```\S*.*\n((?:.*\n)*?) *```$", text, re.M)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```(?:.*\n)*? *```$", "", text, flags=re.M))
    for line in [*spans, *(line for f in fences for line in re.sub(r"\\\n *", " ", f).splitlines())]:
        for part in re.split(r"&&|\|\||[|;()]|#", line):
            if m := re.search(r"(?:^|[\s/])(?:cox |(?=cox-(?:head|worker|gateway) ))([a-z].*)", part):
                yield m[1]


def test_command_lines_have_flags_that_are_there(tables):
    commands, missing = tables
    wrong, seen = [], 0
    for page in PAGES:
        if page.name == "flags.md":
            continue
        for line in lines_of(page.read_text()):
            known = flags_of(commands, line.split())
            for flag in [] if known is None else FLAG.findall(line.split(" -- ")[0]):
                seen += 1
                positive = re.sub(r"^--no-", "--", flag)
                if not {flag, positive} & (known | EVERYWHERE | set(missing)):
                    wrong.append(f"{page.relative_to(ROOT)}: cox {line}: {flag}")
    assert not wrong, "\n".join(wrong)
    assert seen > 100


def rows(page, heading):
    text = (ROOT / page).read_text()
    part = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [[cell.strip() for cell in row.split("|")] for row in ROW.findall(part)][2:]


def test_vllm_s_flags_become_what_the_page_says(tables):
    commands, missing = tables
    table = rows("docs/how-to/migrate-from-vllm.md", "Flags")
    assert len(table) > 30
    for flag, verdict, *_ in table:
        name = flag.strip("`")
        is_there = "the same" if name in commands["up"] else missing.get(name, "an error")
        assert verdict == is_there, f"{name}: the page says {verdict}, cox up says {is_there}"


def djl_s_settings():
    """Yields (setting, flag, "MODEL" or "nothing") of the table of settings. "The flags of these names" is one flag for each setting."""
    for settings, becomes, *_ in rows("docs/reference/sagemaker.md", "Settings"):
        for name in re.findall(r"`([a-z_]+)`", settings):
            yield name, f"--{name.replace('_', '-')}" if becomes == "the flags of these names" else becomes.strip("`")


def test_djl_s_settings_become_what_the_page_says(tables):
    """The page agrees with the source cli/sagemaker/settings.c. sagemaker_test.c has a case for each of its settings."""
    commands, _ = tables
    source = (ROOT / "cli/sagemaker/settings.c").read_text()
    given = {re.sub("^--no-", "--", f) for f in re.findall(r'"(--[a-z-]+)', source)}
    table = list(djl_s_settings())
    assert len(table) > 25
    for name, flag in table:
        if flag in ("nothing", "MODEL"):
            assert not re.search(rf'flag\(r, "[^"]+",[^;]*"{name}"', source), f"{name} does become something"
            continue
        assert flag in commands["up"], f"cox up has no {flag}"
        assert f'"{name}"' in source and flag in given, (name, flag)
    assert given - {flag for _, flag in table} <= NO_SETTINGS, "flags that the page gives no setting for"


def test_pictures_are_small_and_fetch_nothing():
    pictures = sorted((ROOT / "docs/images").glob("*.svg"))
    text = "".join(p.read_text() for p in [*sorted((ROOT / "docs/explain").glob("*.md")), ROOT / "docs/develop/ways.md"])
    assert len(pictures) >= 5
    for p in pictures:
        svg = p.read_text()
        recorded = p.name == "recovery-session.svg"  # scripts/record makes this picture; README.md and docs/index.md show it
        assert len(svg) < (200_000 if recorded else 24_000 if p.name == "code-map.svg" else 10_000), p.name
        assert not re.search(r"(?:href|src|url\()\s*[=(]?[\"']?(?:https?:)?//", svg.replace('xmlns="http://www.w3.org/2000/svg"', "")), p.name
        if p.name != "favicon.svg":
            shown = (ROOT / "docs/index.md").read_text() if recorded else text
            assert "prefers-color-scheme:dark" in svg and "<title" in svg and f"images/{p.name}" in shown, p.name
