"""Checks the image of this build (deploy/image): its content, that a second build gives the same bytes, and that a cluster runs from it."""
import hashlib
import json
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tarfile

import null_oracle as oracle
import pytest
from buildah import Buildah, why_no_buildah
from cluster import BIN, ROOT, wait_for
from real_model import DEMO, needs_demo
from registry import Registry
from unpacked import HIGH_UID, Archive, Pod, build, builder, needed, why_not, why_not_inside
import sbom as sbom_rules  # unpacked.py puts this module's folder into sys.path

sys.path.insert(0, str(ROOT / "tests/walk"))
from pages import read_page  # noqa: E402

pytestmark = [pytest.mark.skipif(why_not() is not None, reason=f"SKIPPED: {why_not()}"), pytest.mark.timeout(600)]
needs_root = pytest.mark.skipif(why_not_inside() is not None, reason=f"SKIPPED: {why_not_inside()}")
LIMIT = 120e6
KEYS, HEAD = ["--keys-dir", "/state/keys"], ["--head", "127.0.0.1:7000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    at = tmp_path_factory.mktemp("image")
    at.chmod(0o755)  # programs of another user run below this folder
    for parent in at.parents[:2]:
        parent.chmod(0o755)
    return at


@pytest.fixture(scope="module")
def path(folder):
    out = folder / "first.tar"
    status, said = build(out)
    assert status == 0, said
    return out


@pytest.fixture(scope="module")
def archive(path):
    return Archive(path)


@pytest.fixture(scope="module")
def rootfs(archive, folder):
    at = folder / "rootfs"
    at.mkdir(mode=0o755)
    return archive.unpack(at)


def test_digests_and_sizes_are_those_of_the_blobs(archive):
    described = [archive.index["manifests"][0], archive.manifest["config"], *archive.manifest["layers"]]
    for d in described:
        data = archive.blob(d["digest"])
        assert len(data) == d["size"] and "sha256:" + hashlib.sha256(data).hexdigest() == d["digest"]
    plain = ["sha256:" + hashlib.sha256(archive.layer(i)).hexdigest() for i in range(len(archive.manifest["layers"]))]
    assert plain == archive.config["rootfs"]["diff_ids"]


def test_configuration(archive):
    config = archive.config["config"]
    assert config["User"] == "65532:0" and config["Entrypoint"] == ["/usr/bin/cox"]
    assert {"PATH=/usr/bin", "HOME=/tmp", "COX_CACHE=/cache", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"} == set(config["Env"])
    assert config["Labels"]["org.opencontainers.image.version"] in subprocess.run([BIN / "cox", "version"], capture_output=True, text=True).stdout


def final_stages(text):
    """Returns {name: {instruction: [arguments]}} of the Dockerfile's stages that start FROM scratch."""
    stages, stage = {}, None
    for line in text.replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stage = stages.setdefault(rest.split()[-1], {}) if rest.startswith("scratch AS ") else {}
        elif word.isupper() and stage is not None:
            stage.setdefault(word, []).append(rest)
    return stages


@pytest.mark.parametrize("variant", ["cpu", "cuda"])
def test_the_dockerfile_says_the_same(variant, monkeypatch):
    monkeypatch.setenv("COX_IMAGE_REVISION", "${REVISION}")
    config = builder.settings(variant)
    stage = final_stages((ROOT / "deploy/image/Dockerfile").read_text())[variant]
    assert " ".join(stage["ENV"]).split() == config["Env"]
    assert json.loads(stage["ENTRYPOINT"][0]) == config["Entrypoint"] and json.loads(stage["CMD"][0]) == config["Cmd"]
    assert stage["USER"] == [config["User"]] and stage["WORKDIR"] == [config["WorkingDir"]]
    assert {f"{port}/tcp" for port in stage["EXPOSE"][0].split()} == set(config["ExposedPorts"])
    labels = dict(w.split("=", 1) for w in shlex.split(stage["LABEL"][0]))
    assert labels == {k: v for k, v in config["Labels"].items() if not k.endswith(".created")}
    layers = [c.split("/image/")[1].split("/")[0] for c in stage["COPY"]]
    assert layers == [name for name in builder.LAYERS if variant == "cuda" or name != "nvidia"]


def test_owners_and_modes(archive):
    for _, e, _ in archive.members():
        assert (e.uid, e.gid) == (0, 0), e.name
        assert not e.mode & (stat.S_ISUID | stat.S_ISGID), e.name
        if e.name in ("tmp", "dev/shm"):
            assert e.mode == 0o1777
        elif e.name in ("cache", "state", "models"):
            assert e.mode == 0o775
        elif e.isdir():
            assert e.mode == 0o755, e.name
        elif not e.issym():
            assert e.mode in (0o644, 0o755), e.name


def test_only_what_is_needed(archive):
    """The image has no shell, package manager or interpreter: only the programs and their loader can be executed."""
    runs = {e.name for _, e, data in archive.members() if e.isreg() and e.name.startswith(("usr/bin/", "usr/sbin/", "bin/", "sbin/"))}
    assert runs == {f"usr/bin/{p}" for p in ("cox", "cox-head", "cox-gateway", "cox-worker")}
    assert [e.linkname for _, e, _ in archive.members() if e.issym() and e.name == "usr/bin/vllm"] == ["cox"]
    for _, e, data in archive.members():
        if e.isreg() and not e.name.startswith("usr/share/doc/"):
            assert not data.startswith(b"#!"), e.name
            is_library = re.match(r"usr/lib/[\w-]+-linux-gnu/(lib|ld-linux)[\w.+-]*\.so", e.name)
            assert data.startswith(b"\x7fELF") == bool(is_library or e.name in runs), e.name


def test_a_layer_for_packages_and_one_for_our_programs(archive):
    where = {}
    for i, e, _ in archive.members():
        if not e.isdir():
            where.setdefault(i, set()).add(e.name)
    assert set(where) == {0, 1}
    ours = re.compile(r"usr/bin/(cox|vllm$)|usr/share/coxswain/|usr/share/doc/coxswain/")
    assert all(ours.match(name) for name in where[1]) and not any(ours.match(name) for name in where[0])


def test_every_library_is_inside(rootfs):
    """The image has the libraries of every ELF file in it, and no library that no file needs."""
    inside = {p.name: p for p in rootfs.glob("usr/lib/*-linux-gnu/*")}
    asked = {"libnss_dns.so.2", "libnss_files.so.2"}
    for path in [*inside.values(), *(rootfs / "usr/bin").iterdir()]:
        libraries, interpreter = needed(path)
        assert libraries <= set(inside), path
        asked |= libraries
        if interpreter:
            assert (rootfs / interpreter[1:]).exists()
    assert set(inside) - {p.resolve().name for p in inside.values() if p.is_symlink()} <= asked


def sections(path):
    return set(re.findall(r"\] (\.\S+)", subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout))


def test_programs_are_stripped(rootfs, path):
    for program in (rootfs / "usr/bin").iterdir():
        assert not {".debug_info", ".symtab"} & sections(program) and ".text" in sections(program)
    kept = list((path.parent / f"{path.name}.debug/.build-id").glob("*/*.debug"))
    assert len(kept) == 4 and all(".debug_info" in sections(p) for p in kept)
    ids = {p.parent.name + p.stem for p in kept}
    for program in ("cox", "cox-head", "cox-gateway", "cox-worker"):
        notes = subprocess.run(["readelf", "-n", BIN / program], capture_output=True, text=True).stdout
        assert re.search(r"Build ID: (\w+)", notes)[1] in ids


def test_size(archive):
    assert 20e6 < sum(len(data or b"") for _, _, data in archive.members()) <= LIMIT


def test_the_same_bytes_twice(path, folder):
    """A second build gives the same bytes, whatever the folder, umask, time zone and locale."""
    again = folder / "elsewhere" / "second.tar"
    status, said = build(again, cwd=folder, umask=0o077, TZ="Pacific/Auckland", LC_ALL="C.UTF-8", PYTHONHASHSEED="7")
    assert status == 0, said
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest()
    assert again.with_name("second.tar.spdx.json").read_bytes() == path.with_name("first.tar.spdx.json").read_bytes()


def test_another_time_leaves_the_packages_layer(path, folder):
    other = folder / "later.tar"
    status, said = build(other, SOURCE_DATE_EPOCH="2000000000")
    assert status == 0, said
    one, two = Archive(path), Archive(other)
    assert one.manifest["layers"][0] == two.manifest["layers"][0] and one.manifest["layers"][1] != two.manifest["layers"][1]
    assert two.config["created"] == "2033-05-18T03:33:20Z"
    assert {e.mtime for i, e, _ in two.members() if i == 1} == {2000000000}


def test_sbom_names_everything(archive, rootfs, path):
    text = (rootfs / "usr/share/coxswain/sbom.spdx.json").read_text()
    assert text == path.with_name("first.tar.spdx.json").read_text()
    doc = json.loads(text)
    assert doc["spdxVersion"] == "SPDX-2.3" and doc["dataLicense"] == "CC0-1.0" and doc["SPDXID"] == "SPDXRef-DOCUMENT"
    ids = [p["SPDXID"] for p in doc["packages"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", i) for i in ids)
    listed = {p["name"]: p for p in doc["packages"]}
    status_d = {p.name: p.read_text() for p in (rootfs / "var/lib/dpkg/status.d").iterdir()}
    for name, control in status_d.items():
        assert listed[name]["versionInfo"] == re.search(r"^Version: (.+)$", control, re.M)[1]
        assert (rootfs / f"usr/share/doc/{name}/copyright").stat().st_size > 100
    # The list must name the package of every library; dpkg of this machine, which built the image, knows the package.
    for p in rootfs.glob("usr/lib/*-linux-gnu/*"):
        if not p.is_symlink():
            owner = subprocess.run(["dpkg-query", "-S", f"*/{p.parent.name}/{p.name}"], capture_output=True, text=True).stdout
            owner = owner or subprocess.run(["dpkg-query", "-S", f"*/{p.name.split('.so')[0]}.so*"], capture_output=True, text=True).stdout
            assert {w.split(":")[0] for w in owner.split("\n")} & set(status_d), p
    for crate in ("tokenizers", "llguidance", "serde_json", "onig_sys"):
        assert listed[crate]["externalRefs"][0]["referenceLocator"].startswith(f"pkg:cargo/{crate}@")
        assert re.search(rf"^====.*\b{crate} ", (rootfs / "usr/share/doc/coxswain/crates-licences.txt").read_text(), re.M)
    known = {r["licenseId"] for r in doc["hasExtractedLicensingInfos"]}
    assert {r for p in doc["packages"] for r in re.findall(r"LicenseRef-[\w.-]+", p["licenseDeclared"])} == known
    assert {r["relatedSpdxElement"] for r in doc["relationships"]} == set(ids)


def test_names_of_licences():
    text = ("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: GPL-2+ or Expat\n\n"
            "Files: x\nLicense: BSD-3-clause, and LGPL-2.1\n\nFiles: y\nLicense: Odd name\n\nLicense: GPL-3+ with Bison exception\n")
    assert sbom_rules.debian_licences(text) == ["BSD-3-Clause", "GPL-2.0-or-later", "GPL-3.0-or-later", "LGPL-2.1-only",
                                                "LicenseRef-Debian-Odd-name", "MIT"]
    assert sbom_rules.debian_licences("This package was debianized by somebody.\nLicense: GPL-2\n") == []


def test_docker_archive(folder, path):
    out = folder / "docker.tar"
    status, said = build(out, "--format", "docker-archive", "--name", "example.org/x/cox:1")
    assert status == 0, said
    with tarfile.open(out) as tar:
        manifest, = json.loads(tar.extractfile("manifest.json").read())
        config = json.loads(tar.extractfile(manifest["Config"]).read())
        plain = [hashlib.sha256(tar.extractfile(n).read()).hexdigest() for n in manifest["Layers"]]
    assert manifest["RepoTags"] == ["example.org/x/cox:1"]
    assert [f"sha256:{h}" for h in plain] == config["rootfs"]["diff_ids"] == Archive(path).config["rootfs"]["diff_ids"]


def test_what_is_refused(folder, tmp_path):
    assert "does not exist" in build(folder / "no.tar", "--with-model", "/nonexistent")[1]
    model = tmp_path / "m.gguf"
    model.write_bytes(b"x")
    for bad in ("relative/m", "/models/../etc", "/mo dels/m"):
        status, said = build(folder / "no.tar", "--with-model", f"{model}:{bad}")
        assert status == 1 and "is not a valid path in the image" in said
    status, said = build(folder / "no.tar", "--build", tmp_path)
    assert status == 1 and "Run scripts/build" in said
    assert "SOURCE_DATE_EPOCH" in build(folder / "no.tar", SOURCE_DATE_EPOCH="yesterday")[1]
    status, said = build(folder / "no.tar", PATH="/nonexistent", SOURCE_DATE_EPOCH="0")  # with this PATH the machine has none of the tools
    assert status == 1 and "Traceback" not in said and "scripts/setup" in said
    full = subprocess.run([sys.executable, ROOT / "deploy/image/rootfs", "cpu", tmp_path], capture_output=True, text=True)
    assert full.returncode == 1 and "is not empty" in full.stderr
    assert not (folder / "no.tar").exists()


@pytest.mark.skipif(why_no_buildah() is not None, reason=f"SKIPPED: {why_no_buildah()}")
def test_buildah_reads_it(path, tmp_path):
    """buildah, an independent reader that checks every digest, can read the archive."""
    buildah = Buildah(tmp_path)
    said = buildah("inspect", "--type", "image", buildah("pull", "-q", f"oci-archive:{path}"))
    assert json.loads(said)["OCIv1"]["config"]["User"] == "65532:0"


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="SKIPPED: no skopeo: scripts/setup --image")
def test_a_registry_takes_it(path, archive, tmp_path):
    """The command of docs/how-to/build-image.md copies the archive to a registry; the registry then has the archive's own blobs."""
    command = next(c.text for c in read_page("docs/how-to/build-image.md")[0] if c.text.startswith("skopeo copy "))
    with Registry() as registry:
        words = shlex.split(command.replace("FILE", str(path)).replace("REGISTRY", registry.address))
        run = lambda *args: subprocess.run(args, check=True, capture_output=True, text=True).stdout  # noqa: E731
        run(*words[:2], "--dest-tls-verify=false", *words[2:])
        said = json.loads(run("skopeo", "inspect", "--raw", "--tls-verify=false", words[-1]))
        assert [one["digest"] for one in said["layers"]] == [one["digest"] for one in archive.manifest["layers"]]
        for one in [said["config"], *said["layers"]]:
            assert registry.blob("coxswain", one["digest"]) == archive.blob(one["digest"])


@needs_root
@pytest.mark.skipif(shutil.which("skopeo") is None, reason="SKIPPED: no skopeo: scripts/setup --image")
def test_packaging_push_brings_it_to_a_registry_and_back(path, archive, folder, tmp_path):
    """The image that is pulled back has the archive's digest, and its programs start."""
    with Registry() as registry:
        done = subprocess.run([sys.executable, ROOT / "packaging/push", f"{registry.address}/team", path, "--no-chart", "--plain-http"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        digest = archive.index["manifests"][0]["digest"]
        name, _, rest = done.stdout.partition("@")
        assert rest.startswith(f"{digest}  (")
        subprocess.run(["skopeo", "copy", "--src-tls-verify=false", f"docker://{name}", f"oci-archive:{tmp_path}/back.tar"], check=True, capture_output=True)
    back = Archive(tmp_path / "back.tar")
    assert back.index["manifests"][0]["digest"] == digest
    at = folder / "back"
    at.mkdir()
    with Pod(back.unpack(at), back.config["config"]["Env"], tmp_path) as pod:
        assert archive.config["config"]["Labels"]["org.opencontainers.image.version"] in pod.run("/usr/bin/cox", "version").stdout
    shutil.rmtree(at)


@needs_root
def test_programs_start_as_any_user(rootfs, archive, tmp_path):
    with Pod(rootfs, archive.config["config"]["Env"], tmp_path) as pod:
        for uid in (65532, HIGH_UID):
            for program in ("cox", "cox-head", "cox-gateway", "cox-worker"):
                done = pod.run(f"/usr/bin/{program}", "--version", uid=uid)
                assert done.returncode == 0 and re.match(r"cox[\w-]* \d+\.\d+", done.stdout), done.stderr
        assert pod.run("/usr/bin/cox").returncode == 2  # without arguments `cox` prints the list of commands and ends with 2
        assert "vLLM's command lines" in pod.run("/usr/bin/vllm", "--help").stdout


def start(pod, model, *worker):
    """Makes keys and starts a head, two workers and a gateway, each as a separate process, as pods do."""
    done = pod.run("/usr/bin/cox", "keys", *KEYS)
    assert done.returncode == 0, done.stderr
    pod.start("head", "head", "--tp", "2", "--host", "0.0.0.0", *KEYS)
    for i in range(2):
        pod.start(f"worker-{i}", "worker", "--model", model, "--tp", "2", "--http-port", 7001 + i, *KEYS, *HEAD, *worker)
    pod.start("gateway", "gateway", "--model", model, "--host", "0.0.0.0", "--served-model-name", "m", *KEYS, *HEAD)

    def ready():
        for name, p in pod.started.items():
            assert p.poll() is None, f"{name} ended with {p.returncode}"
        return pod.ask("http://127.0.0.1:8000/health")[0] == 200

    wait_for("/health is 200", ready, 60)


@needs_root
def test_a_cluster_from_the_image_alone(rootfs, archive, tmp_path):
    """A cluster runs from the image read-only, without a network, as a user that /etc/passwd does not have."""
    with Pod(rootfs, archive.config["config"]["Env"], tmp_path) as pod:
        start(pod, "null", "--device", "null")
        status, text = pod.ask("http://127.0.0.1:8000/v1/completions", {
            "model": "m", "prompt": "a", "max_tokens": 5, "temperature": 0, "ignore_eos": True})
        assert status == 200 and json.loads(text)["choices"][0]["text"] == oracle.text("a", 5, temperature=0)
        done = pod.run("/usr/bin/cox", "status", "--json")
        assert done.returncode == 0, done.stderr
        for p in pod.started.values():
            p.terminate()
        assert [p.wait(20) for p in pod.started.values()] == [0] * 4


@needs_root
@needs_demo
def test_the_demo_model_from_the_image_alone(folder, tmp_path):
    """A model that is baked in as a layer is found by its name "demo", and no file is fetched."""
    out = folder / "demo.tar"
    status, said = build(out, "--with-model", f"{DEMO.parent}:/cache/models/{DEMO.parent.name}")
    assert status == 0, said
    baked = Archive(out)
    assert len(baked.manifest["layers"]) == 3
    at = folder / "demo"
    at.mkdir()
    with Pod(baked.unpack(at), baked.config["config"]["Env"], tmp_path, scratch=("tmp", "state", "dev/shm")) as pod:
        assert pod.run("/usr/bin/cox", "pull", "demo").returncode == 0  # an init container runs this command too, and finds the model
        start(pod, "demo", "--device", "cpu", "--threads", "1", "--max-model-len", "512")
        status, text = pod.ask("http://127.0.0.1:8000/v1/completions", {
            "model": "m", "prompt": "The capital of France is", "max_tokens": 4, "temperature": 0})
        answer = json.loads(text)
        assert status == 200 and answer["usage"]["completion_tokens"] == 4 and answer["choices"][0]["text"].isascii(), text
    out.unlink()
    shutil.rmtree(at)
