"""Tests that a test types every command of the pages, or that a reason is written down. It also tests the reader of pages."""
import os
import re
import subprocess

import pytest
from known import commands, findings, pages, typed
from pages import ROOT, Command, missing, notes, read
from walker import Shell, Walk, substituted
from walks import ELSEWHERE, NOBODY, SUBSTITUTIONS

PAGE = """# A page

    indented one   # why

Say `kubectl delete pod POD --force`, not `helm install`, nor `kubectl`; `kind: pvc` is no command.

## More

```
# a comment
first $ is no prompt
curl -d '{"a":
  1}' \\
  http://here     # ends
cat > file <<'EOF'
  $kept  as it is
EOF
(sleep 1; true) & wait
```

```text
a   line
… ends
```

```text
a picture
```

```yaml
values: 1
```

```sh
one$ cox up
two$ cox status
```
"""


def test_the_reader_finds_commands_what_they_show_and_files():
    found, files = read(PAGE, "p.md")
    blocks = [c for c in found if not c.inline]
    assert [(c.line, c.section, c.text) for c in blocks] == [
        (3, "A page", "indented one"), (11, "More", "first $ is no prompt"), (12, "More", """curl -d '{"a": 1}' http://here"""),
        (15, "More", "cat > file <<'EOF' $kept as it is EOF"), (18, "More", "(sleep 1; true) & wait"),
        (35, "More", "cox up"), (36, "More", "cox status")]
    assert [(c.line, c.text) for c in found if c.inline] == [(5, "kubectl delete pod POD --force")]
    assert [(c.line, c.shown) for c in found if c.shown] == [(18, ["a   line", "… ends"])]
    assert [(f.language, f.text) for f in files] == [("text", "a picture\n"), ("yaml", "values: 1\n")]
    assert blocks[0].bare == "indented one" and blocks[2].bare.endswith("http://here")
    assert blocks[3].bare == "cat > file <<'EOF'\n  $kept  as it is\nEOF"


def test_a_command_without_an_end_is_a_finding():
    with pytest.raises(AssertionError, match="without an end"):
        read("    echo 'open\n", "p.md")


def test_notes_are_read_by_their_indentation():
    assert [c.text for c in notes("Try:\n  helm test demo\n  (or not)\nkubectl in a sentence\n")] == ["helm test demo"]


@pytest.mark.parametrize("shown, lacking", [
    (["a b", "c …"], None), (["c …", "a b"], "a b"), (["a"], "a"), (["… b"], None), (["… …", "c d e"], None), (["d"], "d")])
def test_what_a_page_shows_has_to_be_there_in_its_order(shown, lacking):
    assert missing(shown, "x\na    b\n\nc d e\n") == lacking


def test_all_commands_are_typed_or_have_a_reason():
    said = findings(commands(), typed())
    assert not said, "\n".join(said)
    assert len(pages()) > 8 and len(typed()) > 50


def test_what_is_not_typed_is_found():
    one, two = Command("p.md", 1, "", "helm lint chart"), Command("p.md", 2, "", "helm test demo")
    walked = {("p.md", 1, "helm lint chart")}
    assert ["p.md:2" in said for said in findings([one, two], walked, {}, {})] == [True]
    assert findings([one, two], walked, {}, {"p.md": [("helm test", "why")]}) == []
    assert ["p.md:1" in said for said in findings([one], walked, {"p.md": [("helm", "f", "w")]}, {})] == [True]
    assert ["no command" in said for said in findings([one], walked, {}, {"p.md": [("oc", "why")]})] == [True]


@pytest.mark.parametrize("page, row", [(page, row) for page, rows in ELSEWHERE.items() for row in rows])
def test_who_types_it_elsewhere_is_there(page, row):
    assert row[2] in (ROOT / row[1]).read_text(), f"{page}: {row}"


def test_reasons_and_substitutions():
    assert all(len(reason) > 3 for rows in NOBODY.values() for _, reason in rows)
    values = {"values": "V", "kustomize": "K", "port": 1, "service": "S", "python": "P"}
    assert substituted("helm install a deploy/helm/coxswain --set 'x={y}'", SUBSTITUTIONS, values) == \
        "helm install a deploy/helm/coxswain --set 'x={y}' -f V"
    assert substituted("oc exec x $(oc get y)", SUBSTITUTIONS, values) == "kubectl exec x $(kubectl get y)"
    every = [c.bare for c in commands()] + ["helm upgrade CHART", "kubectl port-forward sts/x 8265:8265"]
    for pattern, _, _ in SUBSTITUTIONS:
        assert any(re.search(pattern, text) for text in every), f"no command has {pattern}"


def test_a_walk_types_in_the_order_of_the_page():
    w = Walk()
    w.open("docs/reference/chart.md")
    w.run("helm test demo")
    with pytest.raises(AssertionError, match="no command that begins"):
        w.run("helm install demo")


@pytest.fixture
def shell(tmp_path):
    one = Shell(tmp_path, dict(os.environ))
    yield one
    one.close()


def test_a_shell_keeps_what_was_set_and_says_how_it_ended(shell):
    assert shell("cd /; A=2") == (0, "")
    assert shell("echo $A; pwd >&2; false") == (1, "2\n/")
    assert shell("cat <<EOF\nlines\nEOF") == (0, "lines")
    assert shell("cat") == (0, "")  # `cat` ends at once, because standard input is empty
    status, said = shell("sleep 1000 & echo $!")
    assert status == 0
    assert shell("kill $!; wait $!") == (143, "")
    assert subprocess.run(["kill", "-0", said.split()[-1]], capture_output=True).returncode == 1
