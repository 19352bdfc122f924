"""Tests a release without workers while there are no requests, on a real Kubernetes. The test scales the StatefulSet as KEDA would
by the rendered ScaledObject; KEDA itself does not run here. Times are printed, not judged."""
import base64
import json
import threading
import time
from datetime import datetime

import httpx
import pytest
from cluster import get
from definitions import definitions
from release import SMALL, Release, demo_model, fill_claim

IDLE_S = 5


@pytest.fixture(scope="module")
def kinds(kube):
    with definitions(kube):
        yield


class Keda:
    def __init__(self, kube, release):
        self.kube, self.release = kube, release
        self.name = f"{release.full}-worker"
        self.spec = kube.get("scaledobjects.keda.sh", release.namespace, self.name)["spec"]
        key = kube.get("secret", release.namespace, f"{release.full}-admin")["data"]["admin-key"]
        self.headers = {"Authorization": f"Bearer {base64.b64decode(key).decode()}"}
        self.active, self.scaled, self.replicas = time.monotonic(), [], None

    def turn(self):
        head = next(iter(self.release.pods("head").values()))["status"].get("podIP")
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


def first_token(release, seen):
    """Appends (time of the first token, whole text) of one stream to `seen`."""
    body = {"model": "demo", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0, "stream": True}
    with httpx.stream("POST", release.url() + "/v1/completions", json=body, headers=release.auth(), timeout=300) as r:
        assert r.status_code == 200, r.read()
        events = [(time.time(), json.loads(line[6:])) for line in r.iter_lines() if line.startswith("data: {")]
    seen.append((events[0][0], "".join(e["choices"][0]["text"] for _, e in events if e["choices"])))


def at(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_from_no_pods_to_a_group_and_back(kube, image, kinds, space):
    source = demo_model()
    if source is None:
        pytest.skip("SKIPPED: the demo model is missing; run scripts/fetch-demo-model")
    fill_claim(kube, space, "models", source)
    release = Release(kube, space, model={"name": "demo", "servedNames": ["demo"]}, cache={"existingClaim": "models"},
                      head=SMALL | {"config": {"scale_idle_s": IDLE_S}}, worker=SMALL, gateway=SMALL | {"replicas": 1},
                      autoscaling={"enabled": True, "minGroups": 0, "maxGroups": 2, "cooldownSeconds": 1, "pollingSeconds": 1})
    release.put("install")
    keda = Keda(kube, release)
    keda.set(0)
    kube.kubectl("-n", space, "rollout", "status", f"deployment/{release.full}-gateway", "--timeout=5m")
    said = []
    for _ in range(3):
        kube.wait("the end of the worker pods", lambda: keda.turn() or not kube.get("pods", space, selector=f"{release.selector},app.kubernetes.io/component=worker"))
        kube.wait("the resting state in the status", lambda: release.status().get("resting"))
        asked, seen = time.time(), []
        client = threading.Thread(target=first_token, args=(release, seen))
        client.start()
        kube.wait("the answer", lambda: keda.turn() or not client.is_alive())
        came, text = seen[0]
        said.append(text)
        pod = next(iter(release.pods("worker").values()))
        container = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        print(f"\nscaled after {keda.scaled[-1][0] - asked:.1f} s, the pod was made after {at(pod['metadata']['creationTimestamp']) - asked:.0f}, "
              f"its worker began after {at(container) - asked:.0f} (whole seconds), the first token came after {came - asked:.1f} s")
    assert said[0].strip() and said == [said[0]] * 3
    assert [n for _, n in keda.scaled] == [0, 1, 0, 1, 0, 1]
    assert release.status()["requests"]["failed"] == 0 and release.restarts() == 0
