"""Does what KEDA would do with a rendered ScaledObject, since KEDA itself does not run in the tests' cluster. Also has a client that
asks a model without workers."""
import base64
import json
import time

import httpx
from cluster import get


class Keda:
    """Scales the workers of one model by the ScaledObject and the head's /scale. `full` is the name of the model's objects."""

    def __init__(self, kube, release, full=None):
        self.kube, self.release = kube, release
        self.full = full or release.full
        self.name = f"{self.full}-worker"
        self.spec = kube.get("scaledobjects.keda.sh", release.namespace, self.name)["spec"]
        key = kube.get("secret", release.namespace, f"{release.full}-admin")["data"]["admin-key"]
        self.headers = {"Authorization": f"Bearer {base64.b64decode(key).decode()}"}
        self.active, self.scaled, self.replicas = time.monotonic(), [], None

    def turn(self):
        head = self.release.pods("head").get(f"{self.full}-head-0", {}).get("status", {}).get("podIP")
        code, text = get(f"http://{head}:8265/scale", headers=self.headers) if head else (0, "")
        if code != 200:
            return
        wanted = json.loads(text)["desired_workers"]
        if wanted > 0:
            self.active = time.monotonic()
            self.set(max(wanted, self.spec["minReplicaCount"]))
        elif time.monotonic() - self.active >= self.spec["cooldownPeriod"]:
            self.set(self.spec["idleReplicaCount"])

    def set(self, n):
        if n != self.replicas:
            self.kube.kubectl("-n", self.release.namespace, "scale", "statefulset", self.name, f"--replicas={n}")
            self.replicas = n
            self.scaled.append((time.time(), n))

    def has_no_pods(self):
        """Takes a turn, and returns true when none is wanted and the model has no worker pod, also none that is ending. A turn that has
        just asked for a worker finds no pod either, until the cluster has made it."""
        self.turn()
        pods = self.kube.get("pods", self.release.namespace, selector=f"{self.release.selector},app.kubernetes.io/component=worker")
        return self.replicas == 0 and not [pod for pod in pods if pod["metadata"]["name"].startswith(f"{self.name}-")]


def first_token(release, model, seen):
    """Appends (time of the first token, whole text) of one stream to `seen`. The request is sent once."""
    body = {"model": model, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0, "stream": True}
    with httpx.stream("POST", release.url() + "/v1/completions", json=body, headers=release.auth(), timeout=300) as r:
        assert r.status_code == 200, r.read()
        events = [(time.time(), json.loads(line[6:])) for line in r.iter_lines() if line.startswith("data: {")]
    seen.append((events[0][0], "".join(e["choices"][0]["text"] for _, e in events if e["choices"])))
