"""Manages a release of the chart on the tests' cluster. Helm installs it; kubectl and the head's status show its state."""
import base64
import copy
import json
import os
import shutil
import subprocess
from pathlib import Path

import cluster_images
import httpx
from cluster import BIN  # this module of tests/e2e has the folder with the built programs
from kube import call
from steady import Steady

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy/helm/coxswain"
SMALL = {"resources": {"requests": {"cpu": "20m", "memory": "32Mi"}}}  # requests are small, because many pods share a node of two cores

# KINDS are the kinds of the objects that a release makes. By default it makes no custom and no cluster-wide objects.
KINDS = "pods,services,endpointslices,deployments,replicasets,statefulsets,jobs,configmaps,secrets,serviceaccounts,pdb,pvc,networkpolicies,controllerrevisions"
REDIS_IMAGE = "coxswain.test/redis:1"
REDIS = shutil.which("redis-check-rdb") or shutil.which("redis-server")  # both names are one binary, which acts by the name that it is called with


def load_image(kube, folder):
    """Builds an image of the built programs, loads it into the node and returns its file."""
    image = folder / "image.tar"
    call(ROOT / "deploy/image/build", "--build", BIN.parent, "--out", image)
    kube.cluster("load", image)
    return image


def load_redis(kube, folder):
    files = {"/usr/bin/redis-server": REDIS} | {path: path for path in cluster_images.libraries(REDIS)}
    kube.cluster("load", cluster_images.archive(folder / "redis.tar", REDIS_IMAGE, files, ["/usr/bin/redis-server"]))


def python_with_yaml():
    """Returns a Python with PyYAML, which packaging/push needs for a chart, or None."""
    for one in (ROOT / ".venv-k8s/bin/python", "/usr/bin/python3", "python3"):
        if shutil.which(one) and subprocess.run([one, "-c", "import yaml"], capture_output=True).returncode == 0:
            return one
    return None


def null_values(**worker):
    """Returns values for two gateways and two workers with the null model. A step takes 20 ms, so that streams last for a while."""
    return {"model": {"name": "null"}, "head": copy.deepcopy(SMALL), "gateway": SMALL | {"replicas": 2},
            "worker": SMALL | {"replicas": 2, "config": {"null_step_us": 20000}} | worker}


def more(load, kube):
    """Waits until so many further streams have ended that some of them must have begun after this call."""
    done = load.check().n_done
    kube.wait("more finished streams", lambda: load.check().n_done > done + 2 * load.n_users)


class Release:
    """`Release` is one release of the chart. Each Helm call passes all values, as if from a file that a person keeps. `chart` has Helm's
    words for the chart: its folder, or an address with options."""
    made = []  # releases of the running test; conftest.py prints their logs on failure

    def __init__(self, kube, namespace, name="demo", program="helm", **values):
        self.kube, self.namespace, self.name, self.program = kube, namespace, name, program
        self.values = copy.deepcopy(values)
        self.full, self.chart = f"{name}-coxswain", [CHART]
        self.selector = f"app.kubernetes.io/instance={name}"
        Release.made.append(self)

    def helm(self, *arguments):
        return self.kube.helm("-n", self.namespace, *arguments, program=self.program)

    def put(self, verb, *more, **changed):
        """Runs `helm install` or `helm upgrade` with the release's values, after merging `changed` into them."""
        merge(self.values, changed)
        file = self.kube.state / f"values-{self.name}.json"
        file.write_text(json.dumps(self.values))
        return self.helm(verb, self.name, *self.chart, "-f", file, "--timeout", "5m", *more)

    def install(self, *more):
        return self.put("install", "--wait", *more)

    def upgrade(self, **changed):
        return self.put("upgrade", "--wait", **changed)

    def url(self):
        service = self.kube.get("service", self.namespace, self.full)
        return f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"

    def auth(self):
        """Returns the headers with the API key that Helm has generated."""
        key = base64.b64decode(self.kube.get("secret", self.namespace, f"{self.full}-api-keys")["data"]["api-keys"]).decode()
        return {"Authorization": f"Bearer {key}"}

    def steady(self, urls=None, **more):
        """Returns streams to the release's Service, or to other addresses of its gateways, with the API key."""
        return Steady(urls or [self.url()], headers=self.auth(), **more)

    def pods(self, part=None):
        """Returns {name: pod}, without pods that are being deleted."""
        selector = self.selector + (f",app.kubernetes.io/component={part}" if part else "")
        return {pod["metadata"]["name"]: pod for pod in self.kube.get("pods", self.namespace, selector=selector)
                if "deletionTimestamp" not in pod["metadata"]}

    def uids(self, part=None):
        return {name: pod["metadata"]["uid"] for name, pod in self.pods(part).items()}

    def ask_head(self, i):
        """Returns the status of head i. Returns None when `cox status` fails, for example while the head is away or has no replica."""
        done = subprocess.run(["kubectl", "-n", self.namespace, "exec", f"{self.full}-head-{i}", "--", "cox", "status", "--json", "--no-follow"],
                              env=self.kube.env, capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def head_is(self, i, condition):
        """Returns the status of head i if `condition` holds for it, else None; for use in waits. The result is also None while the
        head does not answer, for example after a takeover, before the head has a replica."""
        status = self.ask_head(i)
        return status if status and condition(status) else None

    def serving_head(self):
        """Returns (number, status) of the serving head, or None when no head serves."""
        for i in range(2 if self.values.get("head", {}).get("standby") else 1):
            status = self.ask_head(i)
            if status and status.get("role", "serving") == "serving":
                return i, status
        return None

    def status(self):
        found = self.serving_head()
        return found[1] if found else {"groups": [], "workers": [], "gateways": []}

    def status_by_http(self):
        """Returns the status from the head's port, with the admin key. Unlike `kubectl exec` this needs no kubelet."""
        key = base64.b64decode(self.kube.get("secret", self.namespace, f"{self.full}-admin")["data"]["admin-key"]).decode()
        address = self.kube.get("pod", self.namespace, f"{self.full}-head-0")["status"]["podIP"]
        return httpx.get(f"http://{address}:8265/api/status", headers={"Authorization": f"Bearer {key}"}, timeout=60).raise_for_status().json()

    def wait_serving(self, n_groups, ask=None):
        """Waits until exactly `n_groups` replicas serve, each with all of its ranks, and no other workers exist."""
        def serve():
            status = (ask or self.status)()
            ready = [g for g in status["groups"] if g["state"] == "ready" and None not in g["workers"]]
            return len(ready) == len(status["groups"]) == n_groups and len(status["workers"]) == sum(len(g["workers"]) for g in ready)

        self.kube.wait(f"{n_groups} ready groups", serve)

    def wait_replaced(self, part, before):
        """Waits until the part has as many pods as before, and all of them are new and ready."""
        def ready(pod):
            return any(one["type"] == "Ready" and one["status"] == "True" for one in pod.get("status", {}).get("conditions", []))

        def replaced():
            now = self.pods(part)
            return len(now) == len(before) and all(ready(pod) for pod in now.values()) \
                and not set(before.values()) & {pod["metadata"]["uid"] for pod in now.values()}

        self.kube.wait(f"new pods of {part}", replaced)

    def log(self, pod, container):
        """Returns a container's log so far. The text is empty before the container starts."""
        done = subprocess.run(["kubectl", "-n", self.namespace, "logs", pod, "-c", container], env=self.kube.env, capture_output=True,
                              text=True, timeout=60)
        return done.stdout if done.returncode == 0 else ""

    def restarts(self):
        return sum(state["restartCount"] for pod in self.pods().values() for state in pod["status"].get("containerStatuses", []))

    def chat(self):
        answer = httpx.post(self.url() + "/v1/chat/completions", headers=self.auth(), timeout=120, json={
            "model": httpx.get(self.url() + "/v1/models", headers=self.auth(), timeout=60).json()["data"][0]["id"], "max_tokens": 16,
            "temperature": 0, "messages": [{"role": "user", "content": "Say something."}]})
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["message"]["content"]

    def first_token(self, model=None):
        """Sends requests until a stream begins. When a request fails (no Service, gateway or worker yet), the next request is sent."""
        body = {"model": model or self.values["model"].get("servedNames", ["null"])[0], "prompt": "Hello", "max_tokens": 4, "stream": True}

        def begun():
            try:
                with httpx.stream("POST", self.url() + "/v1/completions", json=body, headers=self.auth(), timeout=httpx.Timeout(120, connect=1)) as r:
                    return r.status_code == 200 and any(line.startswith("data: {") for line in r.iter_lines())
            except httpx.TransportError:
                return False

        self.kube.wait("the first token", begun)

    def explain(self):
        """Returns the pods, logs and events that a person would look at first after a failed test."""
        said = [self.kube.kubectl("-n", self.namespace, "get", "pods,pvc,jobs", "-o", "wide")]
        for name in self.pods():
            for more in ([], ["--previous"]):
                logs = subprocess.run(["kubectl", "-n", self.namespace, "logs", name, "--all-containers", "--tail=8", *more],
                                      env=self.kube.env, capture_output=True, text=True, timeout=60)
                said.append(f"-- {name} {' '.join(more)}\n{logs.stdout}" if logs.returncode == 0 else "")
        said.append(self.kube.kubectl("-n", self.namespace, "get", "events", "--sort-by=.lastTimestamp")[-4000:])
        return "\n".join(said)


def merge(into, changed):
    for key, value in changed.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def fill_claim(kube, namespace, claim, source):
    """Makes a claim with a volume that already holds the files of the folder `source`, at the place where the cache has models."""
    kube.apply(namespace, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim},
                           "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}})
    kube.wait(f"the volume of {claim}", lambda: kube.get("pvc", namespace, claim)["status"].get("phase") == "Bound")
    folder = kube.state / "volumes" / kube.get("pvc", namespace, claim)["spec"]["volumeName"]
    shutil.copytree(source, folder / "models" / source.name)


def demo_model():
    """Returns the folder of the demo model, as scripts/fetch-demo-model and `cox pull` make it, or None."""
    folder = Path(os.environ.get("COX_CACHE") or Path.home() / ".cache/coxswain") / "models/demo-instruct"
    return folder if list(folder.glob("*.gguf")) else None
