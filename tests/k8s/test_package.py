"""Tests the chart's description (Chart.yaml) that catalogues show."""
import base64
import importlib.machinery
import importlib.util
import re
import subprocess
import sys
import xml.etree.ElementTree

import chart as c
import pytest
import yaml


def test_chart_yaml_is_that_of_its_source():
    subprocess.run([sys.executable, c.ROOT / "deploy/helm/metadata", "--check"], check=True)


def metadata(cmake=None, source=None):
    """Returns the Chart.yaml that deploy/helm/metadata would write for other inputs."""
    loader = importlib.machinery.SourceFileLoader("chart_metadata", str(c.ROOT / "deploy/helm/metadata"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("chart_metadata", loader))
    loader.exec_module(module)
    source = source or (c.ROOT / "deploy/helm/chart.in.yaml").read_text()
    svg = (c.ROOT / "docs/images/favicon.svg").read_text()
    return yaml.safe_load(module.chart(source, cmake or (c.ROOT / "CMakeLists.txt").read_text(), svg))


def test_chart_yaml_says_what_catalogues_show():
    """The version is the project's, the icon is an image without a host, and no address is named before the project has one."""
    meta = metadata()
    version = re.search(r"project\(coxswain VERSION (\S+)", (c.ROOT / "CMakeLists.txt").read_text())[1]
    assert meta["version"] == meta["appVersion"] == version and meta["maintainers"] and meta["keywords"]
    svg = base64.b64decode(meta["icon"].removeprefix("data:image/svg+xml;base64,")).decode()
    assert xml.etree.ElementTree.fromstring(svg).tag.endswith("}svg")
    notes = meta["annotations"]
    assert notes["artifacthub.io/license"] == "Apache-2.0" and notes["artifacthub.io/prerelease"] == "true" and all(isinstance(v, str) for v in notes.values())
    assert all(change["description"] for change in yaml.safe_load(notes["artifacthub.io/changes"]))
    known = metadata('project(coxswain VERSION 1.2.3 HOMEPAGE_URL "https://host.example/cox" LANGUAGES C)')
    assert (known["version"], known["home"], known["sources"]) == ("1.2.3", "https://host.example/cox", ["https://host.example/cox"])
    assert known["annotations"]["artifacthub.io/prerelease"] == "false"
    assert [link["url"] for link in yaml.safe_load(known["annotations"]["artifacthub.io/links"])] == ["https://host.example/cox", "https://host.example/cox/issues"]
    assert ("home" in meta) == ("HOMEPAGE_URL" in (c.ROOT / "CMakeLists.txt").read_text())
    for wrong in ("project(coxswain LANGUAGES C)", "project(coxswain VERSION 1.2)"):
        with pytest.raises(SystemExit, match="CMakeLists.txt has no line"):
            metadata(wrong)
    with pytest.raises(SystemExit, match="a change has a kind"):
        metadata(source="changes: [{kind: new, description: x}]")
