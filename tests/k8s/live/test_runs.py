"""Tests that `cox run render | kubectl apply -f -` turns a run file into objects that serve on a real Kubernetes, in a restricted
namespace."""
import subprocess

import httpx
import pytest
from cluster import BIN

pytestmark = pytest.mark.usefixtures("image")
FILE = """name: null-server
model: "null"
options: {null-step-us: 1000, served-model-name: [mine]}
resources: {workers: 2, tp: 2, cpu: 50m, memory: 256Mi}
volumes: {/notes: {size: 16Mi}}
ports: [{name: api, port: 8100}]
env: {MY_TOKEN: "a $(HOME) $$", GREETING: hello}
"""


def test_a_rendered_run_serves_and_goes(kube, space, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(FILE)
    done = subprocess.run([BIN / "cox", "run", "render", "-f", file, "-n", space], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    objects = tmp_path / "objects.yaml"
    objects.write_text(done.stdout)
    kube.kubectl("apply", "-f", objects)
    kube.kubectl("-n", space, "rollout", "status", "deployment/null-server", "--timeout=120s")
    service = kube.get("service", space, "null-server")["spec"]
    answer = httpx.post(f"http://{service['clusterIP']}:{service['ports'][0]['port']}/v1/completions", timeout=60,
                        json={"model": "mine", "prompt": "hi", "max_tokens": 4})
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 4, answer.text
    [pod] = kube.get("pods", space, selector="app.kubernetes.io/name=null-server")
    assert "healthy" in kube.kubectl("-n", space, "exec", pod["metadata"]["name"], "--", "cox", "status")
    kube.kubectl("delete", "-f", objects, "--wait=true")
    kube.wait("the removal of the run's objects", lambda: "null-server" not in kube.kubectl("-n", space, "get", "all,secrets,configmaps,pvc", "-o", "name"))
