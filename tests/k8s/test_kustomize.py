"""Tests that the files of deploy/k8s, written by `render`, match the chart. An overlay's patches turn the base into the chart's own
output."""
import copy
import glob
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys

import chart as c
import pytest
import yaml

HERE = c.ROOT / "deploy" / "k8s"
loader = importlib.machinery.SourceFileLoader("render", str(HERE / "render"))
render = importlib.util.module_from_spec(importlib.util.spec_from_loader("render", loader))
loader.exec_module(render)
KUBECTL = next(iter([k for k in [shutil.which("kubectl"), *glob.glob(os.path.expanduser(
    os.environ.get("COX_CACHE", "~/.cache/coxswain") + "/k8s/*/bin/kubectl"))] if k]), None)


def wanted(name):
    file, more = render.OVERLAYS[name]
    return render.objects(render.merged(render.merged(c.values_of(file), render.SECRETS), more))


def applied(o, operations):
    """Applies a JSON patch with the operations of RFC 6902 that `render` uses."""
    o = copy.deepcopy(o)
    for op in operations:
        *path, last = [p.replace("~1", "/").replace("~0", "~") for p in op["path"].split("/")[1:]]
        at = o
        for p in path:
            at = at[p]
        assert (last in at) == (op["op"] != "add"), op
        if op["op"] == "remove":
            del at[last]
        else:
            at[last] = op["value"]
    return o


def build(folder):
    """Returns the objects that kustomize would make of a folder."""
    k = yaml.safe_load((folder / "kustomization.yaml").read_text())
    objs = {}
    for r in k["resources"]:
        if (folder / r).is_dir():
            objs |= build(folder / r)
        else:
            o = yaml.load((folder / r).read_text(), c.Loader)
            objs[f"{o['kind']}/{o['metadata']['name']}".lower()] = o
    for p in k.get("patches", []):
        key = f"{p['target']['kind']}/{p['target']['name']}".lower()
        what = yaml.safe_load(p["patch"])
        if isinstance(what, dict):
            assert what["$patch"] == "delete"
            del objs[key]
        else:
            objs[key] = applied(objs[key], what)
    return objs


def test_files_are_current():
    subprocess.run([sys.executable, HERE / "render", "--check"], check=True)


def test_the_base_is_the_chart_without_helm():
    objs = build(HERE / "base")
    assert objs == render.objects(render.SECRETS)
    assert not any(o["kind"] == "Secret" for o in objs.values())
    for o in objs.values():
        assert "Helm" not in str(o["metadata"]) and "helm.sh" not in str(o["metadata"])
        c.validate(o)


@pytest.mark.parametrize("name", render.OVERLAYS)
def test_an_overlay_is_the_chart_with_those_values(name):
    assert build(HERE / "overlays" / name) == wanted(name)
    assert not any(o["kind"] == "Secret" for o in wanted(name).values()), "keys in a file of the repository"


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl: scripts/setup --k8s builds one")
@pytest.mark.parametrize("name", ["base", *(f"overlays/{n}" for n in render.OVERLAYS)])
def test_kustomize_says_the_same(name):
    out = subprocess.run([KUBECTL, "kustomize", HERE / name], check=True, capture_output=True, text=True).stdout
    objs = {f"{o['kind']}/{o['metadata']['name']}".lower(): o for o in yaml.load_all(out, c.Loader)}
    assert without_last_newlines(objs) == without_last_newlines(build(HERE / name))


def without_last_newlines(objs):
    """Strips the last newlines of ConfigMap texts, which a kustomize patch loses."""
    return {k: {**o, "data": {n: t.rstrip("\n") for n, t in o["data"].items()}} if o["kind"] == "ConfigMap" else o
            for k, o in objs.items()}


def test_secrets_that_the_readme_makes_are_those_that_are_asked_for():
    text = (HERE / "README.md").read_text()
    for name in render.OVERLAYS:
        for o in wanted(name).values():
            for secret in [v["secret"]["secretName"] for v in volumes_of(o) if "secret" in v]:
                assert f"create secret generic {secret} " in text, secret


def volumes_of(o):
    spec = o.get("spec", {}).get("template", {}).get("spec", {})
    return spec.get("volumes", [])
