"""Tests that deploy/examples/sagemaker/Dockerfile works on an image of this build. The container runs `serve` with the example's
variables, read-only and as a user that /etc/passwd does not have. It answers /ping and /invocations at the port that SageMaker
uses."""
import shutil

import pytest
from buildah import Buildah, why_no_buildah
from cluster import ROOT, SLOW, wait_for
from real_model import DEMO, needs_demo
from unpacked import Archive, Pod, build, why_not, why_not_inside

EXAMPLE = ROOT / "deploy/examples/sagemaker"
PULL = 'RUN ["/usr/bin/cox", "pull", "demo"]'
pytestmark = [pytest.mark.skipif(why_not() is not None, reason=f"SKIPPED: {why_not()}"),
              pytest.mark.skipif(why_not_inside() is not None, reason=f"SKIPPED: {why_not_inside()}"),
              pytest.mark.skipif(why_no_buildah() is not None, reason=f"SKIPPED: {why_no_buildah()}"), needs_demo, pytest.mark.timeout(900)]


def test_the_image_of_the_example(tmp_path):
    for at in (tmp_path, *tmp_path.parents[:2]):
        at.chmod(0o755)
    status, said = build(tmp_path / "ours.tar")
    assert status == 0, said
    buildah = Buildah(tmp_path)
    buildah("tag", buildah("pull", "-q", f"oci-archive:{tmp_path / 'ours.tar'}"), "localhost/coxswain:0.1.0")
    dockerfile = (EXAMPLE / "Dockerfile").read_text()
    assert dockerfile.startswith("FROM coxswain:0.1.0\n") and PULL in dockerfile
    # The build has no network. COPY puts the files there that `cox pull demo` would fetch, and the pull then finds them.
    dockerfile = dockerfile.replace("FROM ", "FROM localhost/").replace(PULL, f"COPY models /cache/models\n{PULL}")
    context = tmp_path / "context"
    shutil.copytree(DEMO.parent, context / "models" / DEMO.parent.name, ignore=shutil.ignore_patterns(".*"))
    (context / "Dockerfile").write_text(dockerfile)
    buildah("bud", "--isolation", "chroot", "-t", "localhost/my-endpoint", context)
    buildah("push", "-q", "localhost/my-endpoint", f"oci-archive:{tmp_path / 'endpoint.tar'}")
    shutil.rmtree(tmp_path / "store")
    endpoint = Archive(tmp_path / "endpoint.tar")
    config = endpoint.config["config"]
    assert config["Labels"]["com.amazonaws.sagemaker.capabilities.accept-bind-to-port"] == "true"
    assert config["Labels"]["com.amazonaws.sagemaker.capabilities.multi-models"] == "true"
    rootfs, logs = tmp_path / "rootfs", tmp_path / "logs"
    rootfs.mkdir()
    logs.mkdir()
    endpoint.unpack(rootfs)
    told = [line for line in (EXAMPLE / "environment").read_text().splitlines() if line[:1] not in ("#", "")]
    with Pod(rootfs, [*config["Env"], *told], logs, scratch=("tmp", "state", "dev/shm")) as pod:
        pod.start("serve", "serve")
        wait_for("/ping is 200", lambda: pod.ask("http://127.0.0.1:8080/ping")[0] == 200, 60)
        status, text = pod.ask("http://127.0.0.1:8080/invocations", {"inputs": "The capital of France is", "parameters": {"max_new_tokens": 4}})
        assert status == 200 and text.startswith('{"generated_text":'), text
        pod.started["serve"].terminate()
        assert pod.started["serve"].wait(30 * SLOW) == 0
