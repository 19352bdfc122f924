"""Types the commands of a walk (tests/walk) on the tests' cluster, and implements the steps that walks wait for."""
import hashlib
import json
import re
import shutil
import socket
import sys

import httpx
from cluster import BIN
from release import REDIS_IMAGE, ROOT, Release, demo_model, fill_claim, merge, python_with_yaml

for parts in ("tests/image", "tests/walk"):
    sys.path.insert(0, str(ROOT / parts))
from registry import Registry  # noqa: E402
from walker import Shell, reader_folder, substituted  # noqa: E402
from walks import SUBSTITUTIONS  # noqa: E402

IMAGE = "docker.io/library/coxswain:0.1.0"
FEW = {"resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}}  # small requests, because many pods share a node of two cores
VALUES = {"head": FEW, "worker": FEW, "gateway": FEW, "redis": FEW | {"image": REDIS_IMAGE}, "model": {"pullResources": FEW["resources"]}}
NULL = {"model": {"name": "null", "servedNames": ["demo"]}}
# The API server must accept these kinds of OpenShift; no controller acts on them.
OPENSHIFT = [("route.openshift.io", "v1", "Route"), ("security.openshift.io", "v1", "SecurityContextConstraints"),
             ("monitoring.coreos.com", "v1", "ServiceMonitor"), ("monitoring.coreos.com", "v1", "PrometheusRule")]


def definition(group, version, kind):
    plural = kind.lower() + ("" if kind.endswith("s") else "s")
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [{
                "name": version, "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


class Typist:
    """`Typist` is one shell in a folder that looks like the repository. Its own kubeconfig selects the walk's namespace."""

    def __init__(self, kube, namespace, folder, model):
        self.kube, self.namespace, self.folder, self.model = kube, namespace, reader_folder(folder), model
        self.before, self.undo, self.releases = {}, [], {}
        config = folder / "kubeconfig"
        shutil.copyfile(kube.env["KUBECONFIG"], config)
        env = kube.env | {"KUBECONFIG": str(config), "PATH": f"{BIN}:{kube.env['PATH']}", "PAGER": "cat"}
        self.shell = Shell(folder, env)
        assert self.shell(f"kubectl config set-context --current --namespace={namespace}")[0] == 0
        (folder / "values.json").write_text(json.dumps(merged(VALUES, {"demo": {}, "null": NULL}[model])))
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]

    def close(self):
        self.shell.close()
        for what in reversed(self.undo):
            what()

    # Actions of a walk -----------------------------------------------------------------------------------------------

    def type(self, command, capitals):
        text = command.bare
        for word, value in capitals.items():
            text = text.replace(word, value)
        service = self.release("demo").url() if "http://llm.example.org" in text else ""
        text = substituted(text, SUBSTITUTIONS, {"values": self.folder / "values.json", "kustomize": "small", "port": self.port, "python": python_with_yaml(),
                                                 "service": service.removeprefix("http://")})
        print(f"$ {text}", flush=True)
        if text.startswith("helm upgrade") or text.startswith("helm rollback"):
            self.before = {part: self.release("demo").uids(part) for part in ("head", "worker", "gateway")}
        for moved in ("kubectl create namespace ", "oc new-project "):
            if moved in command.typed:
                self.namespace = command.typed.split(moved)[1].split()[0]
        status, said = self.shell(text)
        print(said, flush=True)
        assert status == 0, f"{command}\nran as `{text}` and ended with exit code {status}:\n{said}"
        return said

    def release(self, name):
        key = (self.namespace, name)
        if key not in self.releases:
            self.releases[key] = Release(self.kube, *key, head={"standby": True})  # with "standby", the release also asks a standby, if one exists
        return self.releases[key]

    def install(self, name, more=""):
        """Installs a release before the walk begins; returns Helm's output."""
        status, said = self.shell(f"helm install {name} deploy/helm/coxswain -f values.json {more}")
        assert status == 0, said
        return said

    def types_in(self, namespace):
        """Switches to another namespace. At the end the namespace stays, and the release in it is uninstalled."""
        self.namespace = namespace
        self.undo.append(lambda: self.kube.helm("uninstall", "demo", "-n", namespace, "--wait"))

    # Conditions and preparations of a walk ---------------------------------------------------------------------------

    def serves(self, name, n_groups, n_spares=0):
        def there():
            status = self.release(name).status()
            ready = [g for g in status["groups"] if g["state"] == "ready" and None not in g["workers"]]
            return len(ready) == n_groups and len(status["workers"]) == sum(len(g["workers"]) for g in ready) + n_spares

        self.kube.wait(f"{n_groups} ready groups of {name}", there)

    def replaced(self, name, part):
        self.release(name).wait_replaced(part, self.before[part])

    def has_pods(self, name, part, count):
        self.kube.wait(f"{count} pods of {name}", lambda: len(self.release(name).pods(part)) == count)

    def has_secrets(self, names, release):
        """Checks that the release's pods mount these Secrets and that Helm made no Secret for the release."""
        mounted = {v["secret"]["secretName"] for pod in self.release(release).pods().values() for v in pod["spec"]["volumes"] if "secret" in v}
        assert set(names) <= mounted, mounted
        made = [s["metadata"]["name"] for s in self.kube.get("secrets", self.namespace) if s["metadata"]["name"].startswith(f"{release}-coxswain")]
        assert not made, made

    def answers(self, name):
        """Waits until every gateway asks for a key, which shows that the upgrade has reached all of them."""
        url = self.release(name).url() + "/v1/models"
        self.kube.wait("all gateways to require a key", lambda: [httpx.get(url, timeout=60).status_code for _ in range(8)] == [401] * 8)

    def listens(self):
        def there():
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", self.port)) == 0

        self.kube.wait("the forwarded port to listen", there)

    def has_demo_model(self):
        """Makes a claim with the demo model and sets the values that use it."""
        fill_claim(self.kube, self.namespace, "models", demo_model())
        (self.folder / "values.json").write_text(json.dumps(merged(VALUES, {"cache": {"kind": "pvc", "existingClaim": "models"}})))

    def has_pulled(self, cache):
        """Copies the demo model to where `cox pull demo` would download it. The image then contains the model."""
        shutil.copytree(demo_model(), self.folder / cache / "models" / demo_model().name)
        (self.folder / "values.json").write_text(json.dumps(VALUES))

    def has_base(self):
        """Makes a smaller deploy/k8s/base with the model on an existing claim, so that nothing is fetched."""
        small = self.folder / "small"
        small.mkdir()
        pods = {"Deployment": ["gateway"], "StatefulSet": ["head", "worker"]}
        patches = [{"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": f"coxswain-{part}"}, "spec": {"template": {"spec": {
            "containers": [{"name": part} | FEW],
            "volumes": [{"name": "cache", "emptyDir": None, "persistentVolumeClaim": {"claimName": "models"}}]}}}}
            for kind, parts in pods.items() for part in parts]
        for job in (ROOT / "deploy/k8s/base").glob("job-*.yaml"):
            name = re.search(r"^  name: (\S+)$", job.read_text(), re.M)[1]
            patches.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "$patch": "delete"})
        (small / "kustomization.yaml").write_text(json.dumps({"resources": ["../deploy/k8s/base"], "patches": [
            {"patch": json.dumps(patch)} for patch in patches]}))

    def is_named(self, name):
        """Gives the image another name on the node, as if the node had pulled it."""
        ctr = ("run", "ctr", "--address", str(self.kube.state / "containerd.sock"), "-n", "k8s.io", "images", "tag", "--force", IMAGE, name)
        self.kube.cluster(*ctr)

    def is_pulled(self, path):
        """Gives the image the name of the registry's chart, which has the digest of the pushed image, as if the node had pulled it."""
        _, data = self.registry.server.store[path + "/coxswain", "manifests", IMAGE.rpartition(":")[2]]
        self.is_named(f"{self.registry.address}/{path}/coxswain@sha256:{hashlib.sha256(data).hexdigest()}")

    def has_registry(self):
        """Starts a registry on loopback and returns its address."""
        self.registry = Registry()
        self.registry.__enter__()
        self.undo.append(lambda: self.registry.__exit__(None, None, None))
        return self.registry.address

    def is_pushed(self, path):
        """Checks that the registry has the image with its SBOM, and the chart, below the path."""
        store, version = self.registry.server.store, IMAGE.rpartition(":")[2]
        image, chart = ((path + name, "manifests", version) for name in ("/coxswain", "/charts/coxswain"))
        assert {image, chart} <= store.keys(), sorted(store)
        subjects = [json.loads(data).get("subject") for (name, kind, _), (_, data) in store.items() if (name, kind) == (path + "/coxswain", "manifests")]
        assert any(subjects), "the image has no SBOM"

    def load(self, archive):
        self.kube.cluster("load", self.folder / archive)

    def needs_namespace(self, name):
        self.undo.append(lambda: self.kube.remove_namespace(name))

    def knows_openshift(self):
        made = [definition(*kind) for kind in OPENSHIFT]
        self.kube.apply("default", *made)
        self.undo.append(lambda: self.kube.kubectl("delete", *[f"crd/{one['metadata']['name']}" for one in made]))
        for one in made:
            self.kube.kubectl("wait", "--for=condition=Established", f"crd/{one['metadata']['name']}")


def merged(a, b):
    out = json.loads(json.dumps(a))
    merge(out, b)
    return out
