"""Provides the chart's objects to tests: Helm renders the chart, and this module parses the result. It needs no cluster and starts
no programs."""
import functools
import json
import re
import subprocess
from pathlib import Path

import helm_python as helm
import jsonschema
import yaml
from helm_python import _native
from kubernetes_validate import utils as schemas

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "coxswain"
OPENSHIFT = ["security.openshift.io/v1", "route.openshift.io/v1"]
POD_PATH = {"Pod": ("spec",), "Job": ("spec", "template", "spec"), "Deployment": ("spec", "template", "spec"),
            "StatefulSet": ("spec", "template", "spec"),
            "LeaderWorkerSet": ("spec", "leaderWorkerTemplate", "workerTemplate", "spec")}
# The library would read a version's schemas, some megabytes, again for each object.
for reader in ("schema_contents", "all_versions"):
    setattr(schemas, reader, functools.cache(getattr(schemas, reader)))


class Loader(yaml.CSafeLoader):
    """`Loader` is a YAML loader that rejects a mapping with a repeated key, which Kubernetes would accept silently."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice in one mapping: {sorted(keys)} {node.start_mark}"
        return super().construct_mapping(node, deep)


def values_of(name):
    """Returns the values in a file of the chart's folder, such as values-gpu.yaml or ci/everything.yaml."""
    return yaml.load((CHART / name).read_text(), Loader) or {}


def values_files():
    return sorted(str(p.relative_to(CHART)) for p in [*CHART.glob("values-*.yaml"), *CHART.glob("ci/*.yaml")])


def merged(*parts):
    out = {}
    for part in parts:
        for k, v in part.items():
            out[k] = merged(out[k], v) if isinstance(v, dict) and isinstance(out.get(k), dict) else v
    return out


def texts(values=None, name="demo", namespace="ns", kube="v1.31.0", apis=(), chart=CHART):
    """Returns {template: rendered text}. Raises helm.HelmError with Helm's message when the chart refuses the values."""
    options = {"name": name, "namespace": namespace, "kube_version": kube, "api_versions": list(apis)}
    with helm.Chart.load(str(chart)) as ch:
        ch.validate_schema(values or {})
        rendered = _native.call_string("helm_render", ch._raw(), json.dumps(values or {}), json.dumps(options))
    return json.loads(rendered)


class Objects(list):
    """Holds the rendered objects of a release."""

    def one(self, kind, name):
        found = [o for o in self if o["kind"] == kind and o["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} {kind} {name} among {sorted(self.ids())}"
        return found[0]

    def kinds(self, kind):
        return [o for o in self if o["kind"] == kind]

    def ids(self):
        return [(o["kind"], o["metadata"]["name"]) for o in self]

    def pods(self):
        """Yields (kind/name, pod spec) of every object that makes pods."""
        for o in self:
            if o["kind"] in POD_PATH:
                spec = o
                for step in POD_PATH[o["kind"]]:
                    spec = spec[step]
                yield f"{o['kind']}/{o['metadata']['name']}", spec

    def templates(self):
        """Yields (labels, pod spec) of every object that makes pods, except plain Pods."""
        for o in self:
            if o["kind"] in POD_PATH and o["kind"] != "Pod":
                for step in POD_PATH[o["kind"]][:-1]:
                    o = o[step]
                yield o["metadata"]["labels"], o["spec"]

    def config(self, part, f="demo-coxswain"):
        return yaml.load(self.one("ConfigMap", f"{f}-{part}")["data"][f"{part}.yaml"], Loader)


def objects(values=None, **kw):
    out = Objects()
    for name, text in texts(values, **kw).items():
        if not name.endswith(".txt"):
            out += [o for o in yaml.load_all(text, Loader) if o]
    return out


def validate(o, version="1.31"):
    """Raises ValidationError unless the object is valid in this version of Kubernetes."""
    schemas.validate(o, version, strict=True)


@functools.cache
def custom_schemas():
    """Returns {(apiVersion, kind): schema} of the CustomResourceDefinitions that tests/k8s/tools/crds has fetched; empty if it has not."""
    asked = subprocess.run([str(ROOT / "tests/k8s/tools/crds"), "--where"], capture_output=True, text=True)
    found = {}
    for file in Path(asked.stdout.strip()).glob("*.yaml") if asked.returncode == 0 else []:
        spec = yaml.load(file.read_text(), Loader)["spec"]
        for version in spec["versions"]:
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = strict(version["schema"]["openAPIV3Schema"])
    return found


def strict(node):
    """Returns the schema of a definition, which refuses unknown properties as the API server does with --validate=strict."""
    if isinstance(node, list):
        return [strict(n) for n in node]
    if not isinstance(node, dict):
        return node
    out = {k: strict(v) for k, v in node.items()}
    if out.get("x-kubernetes-int-or-string") is True:
        out.pop("type", None)
    if out.get("type") == "object" and isinstance(out.get("properties"), dict) and not out.get("x-kubernetes-preserve-unknown-fields"):
        out.setdefault("additionalProperties", False)
    if "metadata" in out.get("properties", {}) and "apiVersion" in out.get("properties", {}):
        out["properties"]["metadata"] = {"type": "object"}
    return out


def validate_custom(o):
    """Raises ValidationError unless the object of a custom kind fits its definition."""
    jsonschema.Draft4Validator(custom_schemas()[o["apiVersion"], o["kind"]]).validate(o)


def notes(values=None, **kw):
    return next(t for n, t in texts(values, **kw).items() if n.endswith("NOTES.txt"))


def containers(spec):
    return [*spec.get("initContainers", []), *spec["containers"]]


def env_of(container):
    return {e["name"]: e for e in container.get("env") or []}


def metric_names():
    """Returns the names of all metrics in docs/reference/metrics.md; a histogram gives its _bucket, _sum and _count series."""
    names = set()
    for row in re.findall(r"^\| `([a-z0-9_:]+)` \| (\w+) \|", (ROOT / "docs/reference/metrics.md").read_text(), re.M):
        names |= {row[0] + s for s in ("_bucket", "_sum", "_count")} if row[1] == "histogram" else {row[0]}
    return names


def metrics_in(expression):
    """Returns the metrics that a query selects: the words before a label selector."""
    return set(re.findall(r"\b([a-z_]+:?[a-z0-9_]+)\s*\{", expression))
