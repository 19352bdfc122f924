"""Tests that buildah builds deploy/image/Dockerfile from the sources, on a bare Debian from debootstrap. The image equals the image
of deploy/image/build. The test takes 15 minutes and needs the network, so its label is long."""
import json
import os
import re
import shutil
import subprocess

import pytest
from buildah import Buildah, why_no_buildah
from cluster import ROOT
from unpacked import Archive, Pod, build, builder, why_not, why_not_inside

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=f"SKIPPED: {why_not()}"),
              pytest.mark.skipif(why_not_inside() is not None, reason=f"SKIPPED: {why_not_inside()}"),
              pytest.mark.skipif(why_no_buildah("debootstrap") is not None, reason=f"SKIPPED: {why_no_buildah('debootstrap')}"),
              pytest.mark.timeout(7000)]
OUR_TIME = 1700000000


def base(buildah, folder):
    """Makes the base image: this machine's Debian release, bare, with the CA certificates that were added on this machine."""
    words = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', open("/etc/os-release").read(), re.M))
    if words["ID"] != "debian":
        pytest.skip(f"SKIPPED: {words['ID']} is not Debian")
    root = folder / "debian"
    done = subprocess.run(["debootstrap", "--variant=minbase", words["VERSION_CODENAME"], root], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    if os.path.isdir("/usr/local/share/ca-certificates"):
        shutil.copytree("/usr/local/share/ca-certificates", root / "usr/local/share/ca-certificates", dirs_exist_ok=True)
    subprocess.run(["tar", "-C", root, "--numeric-owner", "-cf", folder / "base.tar", "."], check=True)
    container = buildah("from", "scratch")
    buildah("add", "-q", container, folder / "base.tar", "/")
    buildah("commit", "-q", "--rm", container, "localhost/base")
    shutil.rmtree(root)


def files(archive):
    """Returns {path: (kind, mode, link)} of all layers. Modes of folders are left out: the engine sets them for COPY."""
    return {e.name.strip("./"): (e.type, e.mode & 0o7777 if e.isreg() else 0, e.linkname) for _, e, _ in archive.members() if e.name.strip("./")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bud")
    for at in (folder, *folder.parents[:2]):
        at.chmod(0o755)
    buildah = Buildah(folder)
    base(buildah, folder)
    buildah("bud", "--isolation", "chroot", "-f", ROOT / "deploy/image/Dockerfile", "--build-arg", "BASE=localhost/base", "--build-arg",
            f"SOURCE_DATE_EPOCH={OUR_TIME}", "--build-arg", "REVISION=0123abc", "-t", "localhost/coxswain:bud", ROOT)
    out = folder / "bud.tar"
    buildah("push", "-q", "localhost/coxswain:bud", f"oci-archive:{out}")
    shutil.rmtree(folder / "store")
    return Archive(out)


def test_the_same_files_as_without_an_engine(made, tmp_path):
    out = tmp_path / "ours.tar"
    status, said = build(out, SOURCE_DATE_EPOCH=str(OUR_TIME))
    assert status == 0, said
    assert files(made) == files(Archive(out))


def test_the_same_configuration(made, monkeypatch):
    monkeypatch.setenv("COX_IMAGE_REVISION", "0123abc")
    got, wanted = made.config["config"], builder.settings("cpu")
    for key in ("User", "Entrypoint", "Cmd", "WorkingDir", "Env", "ExposedPorts"):
        assert got[key] == wanted[key], key
    assert {k: v for k, v in wanted["Labels"].items() if not k.endswith(".created")}.items() <= got["Labels"].items()


def test_it_starts(made, tmp_path):
    at = tmp_path / "rootfs"
    at.mkdir()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    with Pod(made.unpack(at), made.config["config"]["Env"], tmp_path) as pod:
        for program in ("cox", "cox-head", "cox-gateway", "cox-worker"):
            assert pod.run(f"/usr/bin/{program}", "--version").returncode == 0
        sbom = json.loads((at / "usr/share/coxswain/sbom.spdx.json").read_text())
        assert sbom["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
