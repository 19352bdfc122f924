"""Upgrades a release from one version to the next, with real images of both versions and the chart from a registry, under 16 streams. The
pods run under the image's profile of system calls."""
import json
import re
import shutil
import subprocess
import sys
import time

import httpx
import pytest
from release import CHART, ROOT, Release, more, null_values, python_with_yaml

for folder in ("tests/image", "deploy/image"):
    sys.path.insert(0, str(ROOT / folder))
import archive  # noqa: E402
from registry import Registry  # noqa: E402
from unpacked import Archive  # noqa: E402

OLD = re.search(r"project\(coxswain VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
NEW = "9" + OLD[1:]  # the same length, because the version is replaced in the programs' bytes
PROGRAMS = ("cox", "cox-head", "cox-gateway", "cox-worker")
PROFILE = "coxswain-test.json"


def next_image(image, folder):
    """Writes the image of the next version: the same programs with another version number."""
    old, files = Archive(image), folder / "files"
    files.mkdir()
    old.unpack(files)
    for name in PROGRAMS:
        program = (files / "usr/bin" / name).read_bytes()
        assert OLD.encode() in program, f"{name} does not have its version"
        (files / "usr/bin" / name).write_bytes(program.replace(OLD.encode(), NEW.encode()))
    layer = archive.write_layer(files, folder / "layer.tar", 0, "the next version", compress=False)
    settings = old.config["config"]
    settings["Labels"]["org.opencontainers.image.version"] = NEW
    config = archive.config_of([layer], settings, old.config["architecture"], old.config["created"])
    archive.write_oci(folder / "next.tar", [layer], config, f"coxswain:{NEW}", 0)
    return folder / "next.tar"


def pushed(registry, folder, version):
    """Packs the chart under a version and pushes it. Returns Helm's words for it."""
    source = folder / f"chart-{version}" / "coxswain"
    shutil.copytree(CHART, source)
    meta = (source / "Chart.yaml").read_text()
    assert meta.count(f"ersion: {OLD}\n") == 2
    (source / "Chart.yaml").write_text(meta.replace(f"ersion: {OLD}\n", f"ersion: {version}\n"))
    file = folder / f"coxswain-{version}.tgz"
    script = "import sys; sys.path[:0] = sys.argv[1:2]; import helm_chart as h; open(sys.argv[3], 'wb').write(h.pack(folder=sys.argv[2])[1])"
    subprocess.run([python_with_yaml(), "-Bc", script, ROOT / "packaging", source, file], check=True)
    subprocess.run([python_with_yaml(), ROOT / "packaging/push", f"{registry.address}/team", "--chart", file, "--plain-http"], check=True, capture_output=True)
    return [f"oci://{registry.address}/team/charts/coxswain", "--version", version, "--plain-http"]


def versions(release):
    """Returns the versions of the head, of the workers, and of the gateways that answer at the Service."""
    status = release.status()
    asked = [httpx.get(release.url() + "/version", headers=release.auth(), timeout=60).json()["version"] for _ in range(8)]
    return sorted({status.get("version", "none"), *(w["version"] for w in status["workers"]), *asked})


@pytest.mark.parametrize("program", ["helm", "helm4"])
def test_the_next_version_replaces_every_pod_under_16_streams(kube, image, space, tmp_path, program):
    if python_with_yaml() is None:
        pytest.skip("SKIPPED: no Python has PyYAML: scripts/setup --k8s-quick")
    kube.cluster("load", next_image(image, tmp_path))
    kube.cluster("run", "mkdir", "-p", "/var/lib/kubelet/seccomp")
    kube.cluster("run", "cp", ROOT / "deploy/image/seccomp.json", f"/var/lib/kubelet/seccomp/{PROFILE}")
    with Registry() as registry:
        charts = {version: pushed(registry, tmp_path, version) for version in (OLD, NEW)}
        release = Release(kube, space, program=program, seccompProfile={"type": "Localhost", "localhostProfile": PROFILE}, **null_values())
        release.chart = charts[OLD]
        release.install()
        release.wait_serving(2)
        release.helm("test", release.name, "--timeout", "5m")
        assert versions(release) == [OLD]
        key, before = release.auth(), {part: release.uids(part) for part in ("head", "worker", "gateway")}
        with release.steady(n_users=16) as load:
            more(load, kube)
            begun = time.monotonic()
            release.chart = charts[NEW]
            release.upgrade()
            for part, uids in before.items():
                release.wait_replaced(part, uids)
            release.wait_serving(2)
            took = time.monotonic() - begun
            kube.wait(f"version {NEW} everywhere", lambda: versions(release) == [NEW])
            more(load, kube)
            between = {part: release.uids(part) for part in before}
            release.helm("rollback", release.name, "--wait", "--timeout", "5m")
            for part, uids in between.items():
                release.wait_replaced(part, uids)
            release.wait_serving(2)
            kube.wait(f"version {OLD} everywhere", lambda: versions(release) == [OLD])
            more(load, kube)
    print(f"\n{program}: {load.n_done} streams ended exactly, {len(load.wrong)} failed, {load.n_passed_by} connections were refused; the upgrade took {took:.0f} s")
    assert load.n_passed_by == 0 and release.restarts() == 0 and release.auth() == key
    pods = json.loads(kube.kubectl("-n", space, "get", "pods", "-o", "json"))["items"]
    assert {p["spec"]["securityContext"]["seccompProfile"]["localhostProfile"] for p in pods} == {PROFILE}
