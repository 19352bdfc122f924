"""Tests a release without workers while there are no requests, on a real Kubernetes. The test scales the StatefulSet as KEDA would
by the rendered ScaledObject; KEDA itself does not run here. Times are printed, not judged."""
import threading
import time
from datetime import datetime

import pytest
from keda import Keda, first_token
from release import SMALL, Release, demo_model, fill_claim

IDLE_S = 5


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
        kube.wait("the end of the worker pods", keda.has_no_pods)
        kube.wait("the resting state in the status", lambda: release.status().get("resting"))
        asked, seen = time.time(), []
        client = threading.Thread(target=first_token, args=(release, "demo", seen))
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
