"""Tests that a real API server that knows all kinds accepts the objects of the chart and of deploy/k8s, in a strict dry run.

The server refuses a field that a kind does not have, a wrong type, and a breach of a CustomResourceDefinition's rules. The
controllers of these kinds (KEDA, the Prometheus operator, gateways) do not run. OpenShift's Route has no definition here and is
left out.
"""
import json
import re
import subprocess

import pytest
from definitions import definitions
from release import CHART, ROOT

APPLY = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"]
FILES = sorted(str(path.relative_to(CHART)) for path in [*CHART.glob("values-*.yaml"), *CHART.glob("ci/*.yaml")])
MORE = {  # name of a case → --set options for features that no values file uses
    "defaults": "",
    "keda asks the head": "autoscaling.enabled=true",
    "keda, from no pods": "autoscaling.enabled=true,autoscaling.minGroups=0,worker.tp=2,metrics.rules=true",
    "keda, from no pods, by Prometheus": "autoscaling.enabled=true,autoscaling.minGroups=0,autoscaling.prometheusUrl=http://p:9090",
    "two models": "models.a.model.name=llama,models.b.model.name=demo,models.b.worker.replicas=3,autoscaling.enabled=true,httpRoute.enabled=true,httpRoute.parentRefs[0].name=gw",
    "inference pool": "inferencePool.enabled=true,inferencePool.endpointPicker.name=picker,gateway.config.metrics_public=true,httpRoute.enabled=true,httpRoute.parentRefs[0].name=gw",
    "pod monitors": "metrics.podMonitor=true,gateway.autoscaling.enabled=true,redis.enabled=true,head.standby=true",
    "one pod, several ranks": "worker.ranks=4,worker.tp=4,worker.gpus=4,worker.device=cuda,nccl.ipcLock=true,nccl.rdmaResource=rdma/ib",
}
OVERLAYS = ["base", *sorted(f"overlays/{path.name}" for path in (ROOT / "deploy/k8s/overlays").iterdir())]


@pytest.fixture(scope="module")
def space(kube):
    """Yields a namespace that admits every pod, in a cluster with the custom definitions."""
    with definitions(kube):
        kube.apply("default", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dry"}},
                   {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1})
        yield "dry"
        kube.remove_namespace("dry")
        kube.kubectl("delete", "priorityclass/high")


def documents(text):
    """Returns {kind/name: text} of all documents except Routes."""
    out = {}
    for one in re.split(r"^---.*$", text, flags=re.M):
        kind, name = re.search(r"^kind: (\S+)", one, re.M), re.search(r"^metadata:\n(?:  .*\n)*?  name: (\S+)", one, re.M)
        if kind and kind[1] != "Route":
            assert f"{kind[1]}/{name[1]}" not in out
            out[f"{kind[1]}/{name[1]}"] = one
    return out


def rendered(kube, *options):
    version = json.loads(kube.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]  # by itself Helm assumes another version
    return documents(kube.helm("template", "demo", CHART, "--namespace", "dry", "--kube-version", version, *options))


def applied(kube, space, objects, *command):
    """Returns (lines for the accepted objects, the server's messages about the other objects)."""
    done = subprocess.run(["kubectl", "-n", space, *command], env=kube.env, input="\n---\n".join(objects.values()), capture_output=True,
                          text=True, timeout=360)
    return done.stdout.splitlines(), done.stderr


def check(kube, space, objects):
    accounts = {name: text for name, text in objects.items() if name.startswith("ServiceAccount/")}
    applied(kube, space, accounts, "apply", "--server-side", "-f", "-")  # the accounts are made first, because a pod needs its account
    made, refused = applied(kube, space, objects, *APPLY)
    assert not refused and len(made) == len(objects), refused


@pytest.mark.parametrize("file", FILES)
def test_every_values_file(kube, space, file):
    check(kube, space, rendered(kube, "-f", CHART / file))


@pytest.mark.parametrize("what", MORE)
def test_what_no_values_file_has(kube, space, what):
    check(kube, space, rendered(kube, "--set", MORE[what]))


@pytest.mark.parametrize("folder", OVERLAYS)
def test_manifests_without_helm(kube, space, folder):
    check(kube, space, documents(kube.kubectl("kustomize", ROOT / "deploy/k8s" / folder)))


@pytest.mark.parametrize("file", ["ci/everything.yaml", "ci/leaderworkerset.yaml"])
def test_a_field_of_no_kind_is_refused_in_every_one(kube, space, file):
    """The server refuses an unknown field in every kind, also in the kinds of the custom definitions. This proves that the tests
    above check each kind."""
    objects = {name: text.replace("\nspec:\n", "\nspec:\n  noSuchField: 1\n", 1) for name, text in rendered(kube, "-f", CHART / file).items()
               if "\nspec:\n" in text}
    made, refused = applied(kube, space, objects, *APPLY)
    assert not made and refused.count("noSuchField") >= len(objects), refused
    kinds = {name.split("/")[0] for name in objects}
    assert kinds >= ({"ScaledObject", "HTTPRoute", "ServiceMonitor", "PrometheusRule"} if "everything" in file
                     else {"LeaderWorkerSet", "PodMonitor", "HorizontalPodAutoscaler"})
