"""Gives tests access to the cluster: this module starts the cluster when it does not run, and uses it through kubectl and helm."""
import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

CLUSTER = Path(__file__).resolve().parent.parent / "cluster"
PATIENCE_S = 360  # seconds until a step without a time-out of its own counts as hung


class NoCluster(Exception):
    """`NoCluster` is raised when this machine cannot run a cluster; the message says why."""


def call(*command, env=None):
    """Runs a command and returns its output. The exception of a failed command has the output too."""
    done = subprocess.run([str(part) for part in command], env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode == 77:
        raise NoCluster(done.stderr.strip())
    assert done.returncode == 0, f"{' '.join(map(str, command))} ended with exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


class Kube:
    """`Kube` is a running cluster. close() ends the cluster if this object has started it."""

    def __init__(self, state=None):
        self.own = dict(os.environ, **({"COX_K8S_STATE": str(state)} if state else {}))
        self.started = subprocess.run([str(CLUSTER), "env"], env=self.own, capture_output=True).returncode != 0
        call(CLUSTER, "up", env=self.own)
        lines = dict(line.removeprefix("export ").split("=", 1) for line in self.cluster("env").splitlines())
        lines["PATH"] = lines["PATH"].replace("$PATH", os.environ["PATH"])
        self.env = self.own | lines
        self.state, self.node = Path(lines["COX_K8S_STATE"]), lines["COX_K8S_NODE"]

    def close(self):
        if self.started:
            self.cluster("down")

    def cluster(self, *arguments):
        return call(CLUSTER, *arguments, env=self.own)

    def kubectl(self, *arguments):
        return call("kubectl", *arguments, env=self.env)

    def helm(self, *arguments, program="helm"):
        return call(program, *arguments, env=self.env)

    def apply(self, namespace, *objects):
        """Creates or changes objects. A refusal raises AssertionError with kubectl's message."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        done = subprocess.run(["kubectl", "-n", namespace, "apply", "-f", "-"], env=self.env, input=text, capture_output=True,
                              text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr

    def get(self, kind, namespace, name=None, selector=None):
        """Returns the object `name`, or without a name the list of objects."""
        what = [kind] + ([name] if name else []) + (["-l", selector] if selector else [])
        found = json.loads(self.kubectl("-n", namespace, "get", *what, "-o", "json"))
        return found if name else found["items"]

    def wait(self, what, ready):
        """Waits until ready() returns a true value, and returns that value."""
        end = time.monotonic() + PATIENCE_S
        while not (result := ready()):
            assert time.monotonic() < end, f"waited {PATIENCE_S} s in vain for {what}"
            time.sleep(0.3)
        return result

    @contextlib.contextmanager
    def cordoned(self):
        """Keeps the node from taking new pods within this context, so that deleted pods stay away."""
        self.kubectl("cordon", "node-1")
        try:
            yield
        finally:
            self.kubectl("uncordon", "node-1")

    def evict(self, namespace, pod):
        """Evicts a pod as `kubectl drain` does. Returns None, or the message of a refusal."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        done = subprocess.run(["kubectl", "create", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", "-f", "-"],
                              env=self.env, input=json.dumps(body), capture_output=True, text=True, timeout=PATIENCE_S)
        return None if done.returncode == 0 else done.stderr

    def ctr(self, *arguments):
        return self.cluster("run", "ctr", "--address", self.state / "containerd.sock", "-n", "k8s.io", *arguments)

    def container(self, namespace, pod, name):
        """Returns the ID of a pod's running container. This method asks the container runtime, so it works without a kubelet too.
        The runtime may still list containers that have ended."""
        found = self.ctr("containers", "ls", "-q", f'labels."io.kubernetes.pod.namespace"=={namespace},'
                         f'labels."io.kubernetes.pod.name"=={pod},labels."io.kubernetes.container.name"=={name}').split()
        running = {words[0] for words in map(str.split, self.ctr("tasks", "ls").splitlines()) if words and words[-1] == "RUNNING"}
        return next(one for one in found if one in running)

    def namespace(self, name):
        """Makes a namespace that admits only pods of the Pod Security level "restricted"."""
        self.apply("default", {"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
        self.wait(f"the service account of {name}", lambda: self.get("serviceaccounts", name))
        return name

    def remove_namespace(self, name):
        """Removes a namespace, its pods first. When pods are left, the namespace controller looks again only after half of their
        grace period (half an hour) or at its next resync (five minutes), even when the pods end at once."""
        kinds = "deployments,statefulsets,jobs,pods"
        if self.kubectl("get", "crd", "leaderworkersets.leaderworkerset.x-k8s.io", "--ignore-not-found"):
            kinds = f"leaderworkersets.leaderworkerset.x-k8s.io,{kinds}"
        self.kubectl("-n", name, "delete", kinds, "--all", "--wait=true")
        self.kubectl("delete", "namespace", name, "--wait=true", "--ignore-not-found")
