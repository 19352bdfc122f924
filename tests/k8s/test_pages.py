"""Tests that the chart accepts the values and options that the deployment's pages show, and that a walk (tests/walk) runs the
commands of Helm's notes."""
import shlex
import sys

import chart as c
import helm_python as helm
import pytest
import yaml

sys.path.insert(0, str(c.ROOT / "tests/walk"))
from known import pages  # noqa: E402
from pages import notes, read_page  # noqa: E402
from walker import Walk  # noqa: E402
from walks import after_installation  # noqa: E402

INSTALLS = [command for page in pages() for command in read_page(page)[0]
            if command.text.split()[0] == "helm" and command.text.split()[1] in ("install", "upgrade", "template")]
OF_UP = "docs/start/server.md"  # its block has options of `cox up`, with which tests/e2e/test_systemd.py starts a cluster
BLOCKS = [block for page in pages() if page != OF_UP for block in read_page(page)[1] if block.language == "yaml"]


def values_of(command):
    """Returns the values that -f and --set of a command give the chart, as Helm reads them."""
    words, values = shlex.split(command, comments=True), {}
    for option, argument in zip(words, words[1:]):
        if option == "-f":
            values = c.merged(values, yaml.load((c.ROOT / argument).read_text(), c.Loader))
        elif option == "--set":
            values = c.merged(values, helm.parse_set_string(argument.replace("CLASS", "class")))
    return values


@pytest.mark.parametrize("command", INSTALLS, ids=str)
def test_options_of_a_command_are_the_charts(command):
    values = values_of(command.text)
    assert len(c.objects(values, apis=c.OPENSHIFT)) > 8


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}:{block.line}")
def test_a_block_of_values_is_the_charts(block):
    values = yaml.load(block.text, c.Loader)
    if values.get("kind") == "Application":
        values = values["spec"]["source"]["helm"]["valuesObject"]
    assert len(c.objects(values)) > 8


def test_a_name_that_the_chart_has_not_is_found():
    with pytest.raises(helm.HelmError, match="nosuch"):
        c.objects(values_of("helm install demo deploy/helm/coxswain --set worker.nosuch=1"))


@pytest.mark.parametrize("values", [{}, {"gateway": {"apiKeys": {"generate": False}}}], ids=["defaults", "without API keys"])
def test_the_notes_are_typed(values):
    """The notes are rendered with a registry. docs/how-to/build-image.md shows how an image is pushed to a registry, and tests/image
    runs the commands of that page."""
    text = c.notes({**values, "image": {"registry": "registry.example"}})
    w = Walk()
    after_installation(w, text)
    left = [command.text for command in notes(text) if command not in w.typed]
    assert not left, left
