"""The cluster for a test: starts it when it does not run, speaks to it through kubectl and helm."""
import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

CLUSTER = Path(__file__).resolve().parent.parent / "cluster"
PATIENCE_S = 360  # of what has no clock of its own: a hang, not a measure


class NoCluster(Exception):
    """This machine cannot have one; the sentence says why."""


def call(*command, env=None):
    """Runs it, and returns what it printed; what went wrong is in the exception's text."""
    done = subprocess.run([str(part) for part in command], env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode == 77:
        raise NoCluster(done.stderr.strip())
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


class Kube:
    """A running cluster; one that this object started ends with close()."""

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
        """Creates or changes objects; a refusal is kubectl's sentence in the exception."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        done = subprocess.run(["kubectl", "-n", namespace, "apply", "-f", "-"], env=self.env, input=text, capture_output=True,
                              text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr

    def get(self, kind, namespace, name=None, selector=None):
        """The object, or the list of them."""
        what = [kind] + ([name] if name else []) + (["-l", selector] if selector else [])
        found = json.loads(self.kubectl("-n", namespace, "get", *what, "-o", "json"))
        return found if name else found["items"]

    def wait(self, what, ready):
        """Until ready() says something true, which is returned."""
        end = time.monotonic() + PATIENCE_S
        while not (result := ready()):
            assert time.monotonic() < end, f"{what} did not come in {PATIENCE_S} s"
            time.sleep(0.3)
        return result

    @contextlib.contextmanager
    def cordoned(self):
        """The node takes no further pod meanwhile: what is deleted stays away."""
        self.kubectl("cordon", "node-1")
        try:
            yield
        finally:
            self.kubectl("uncordon", "node-1")

    def evict(self, namespace, pod):
        """What `kubectl drain` asks for each pod: None, or the sentence of the refusal."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        done = subprocess.run(["kubectl", "create", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", "-f", "-"],
                              env=self.env, input=json.dumps(body), capture_output=True, text=True, timeout=PATIENCE_S)
        return None if done.returncode == 0 else done.stderr

    def ctr(self, *arguments):
        return self.cluster("run", "ctr", "--address", self.state / "containerd.sock", "-n", "k8s.io", *arguments)

    def container(self, namespace, pod, name):
        """The id of the one that runs: what the runtime knows of it, whether or not a kubelet is there. It may still have those
        that have ended, of pods of that name in other namespaces too."""
        found = self.ctr("containers", "ls", "-q", f'labels."io.kubernetes.pod.namespace"=={namespace},'
                         f'labels."io.kubernetes.pod.name"=={pod},labels."io.kubernetes.container.name"=={name}').split()
        running = {words[0] for words in map(str.split, self.ctr("tasks", "ls").splitlines()) if words and words[-1] == "RUNNING"}
        return next(one for one in found if one in running)

    def namespace(self, name):
        """A namespace that admits nothing but restricted pods."""
        self.apply("default", {"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
        self.wait("its service account", lambda: self.get("serviceaccounts", name))
        return name

    def remove_namespace(self, name):
        """Its pods first: who deletes a namespace that has some looks again when half of their grace of an hour is over, or at
        the next resync (five minutes), however soon they have ended."""
        kinds = "deployments,statefulsets,jobs,pods"
        if self.kubectl("get", "crd", "leaderworkersets.leaderworkerset.x-k8s.io", "--ignore-not-found"):
            kinds = f"leaderworkersets.leaderworkerset.x-k8s.io,{kinds}"
        self.kubectl("-n", name, "delete", kinds, "--all", "--wait=true")
        self.kubectl("delete", "namespace", name, "--wait=true", "--ignore-not-found")
