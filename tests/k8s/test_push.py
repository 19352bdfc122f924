"""Tests packaging/chart and packaging/push against a registry on loopback. Helm reads the chart from there, and skopeo the images."""
import base64
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import urllib.request

import chart as c
import helm_python as helm
import pytest

sys.path.insert(0, str(c.ROOT / "tests/image"))
sys.path.insert(0, str(c.ROOT / "deploy/image"))
sys.path.insert(0, str(c.ROOT / "packaging"))
import archive  # noqa: E402
import helm_chart  # noqa: E402
import oci_registry as oci  # noqa: E402
from registry import Registry  # noqa: E402

PUSH, CHART = c.ROOT / "packaging/push", c.ROOT / "packaging/chart"
VERSION = helm_chart.read_yaml((c.CHART / "Chart.yaml").read_text())["version"]
_loader = importlib.machinery.SourceFileLoader("push", str(PUSH))
push = importlib.util.module_from_spec(importlib.util.spec_from_loader("push", _loader))
_loader.exec_module(push)


def run(*words, status=0, **env):
    """Runs a script of packaging/ and returns its output. The home folder is an empty one, so no login of this machine is used."""
    home = {k: v for k, v in os.environ.items() if k not in ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR")} | {"HOME": "/nonexistent"}
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=120, env=home | env)
    assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def sent(registry, *words, path="team", **env):
    return run(PUSH, f"{registry.address}/{path}", "--plain-http", *words, **env)


def image(folder, architecture="amd64", tag="1.2.3", text="hello"):
    """Writes a small OCI archive as deploy/image/build does, with an SBOM beside it, and returns its path."""
    files = folder / f"files-{architecture}"
    (files / "etc").mkdir(parents=True, exist_ok=True)
    (files / "etc/said").write_text(text)
    layer = archive.write_layer(files, folder / f"layer-{architecture}.tar", 0, "a test")
    to = folder / f"image-{tag}-{architecture}.tar"
    config = archive.config_of([layer], {"Cmd": ["x"]}, architecture, "1980-01-01T00:00:00Z")
    archive.write_oci(to, [layer], config, f"coxswain:{tag}", 0)
    (folder / f"{to.name}.spdx.json").write_text(json.dumps({"spdxVersion": "SPDX-2.3", "name": architecture}))
    return to


def manifest_of(path):
    with tarfile.open(path) as tar:
        return json.loads(tar.extractfile("index.json").read())["manifests"][0]


def rendered(source, values=None):
    """Returns the rendered objects without the random data of Secrets."""
    objs = c.objects(values, chart=source)
    return {i: {**o, "data": sorted(o["data"])} if o["kind"] == "Secret" else o for i, o in zip(objs.ids(), objs)}


# ---- the chart ----

def test_the_chart_has_the_same_bytes_twice(tmp_path):
    """A second run gives the same bytes, whatever the folder, umask, time zone and locale. The files are those of `helm package`."""
    for name, env, mask in (("a", {}, 0o022), ("b", {"TZ": "Pacific/Auckland", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "7"}, 0o077)):
        done = subprocess.run([sys.executable, CHART, "--out", tmp_path / name], cwd=tmp_path, umask=mask, env=os.environ | env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    one, two = (tmp_path / name / f"coxswain-{VERSION}.tgz" for name in ("a", "b"))
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as ours, tarfile.open(helm.package(str(c.CHART), destination=str(tmp_path))) as theirs:
        assert {m.name for m in ours} == {m.name for m in theirs if m.isreg()}
        for m in ours:
            assert m.name == "coxswain/Chart.yaml" or ours.extractfile(m).read() == theirs.extractfile(m.name).read(), m.name
            assert (m.mode, m.uid, m.gid, m.uname) == (0o644, 0, 0, "")
    run(CHART, "--out", tmp_path / "c", SOURCE_DATE_EPOCH="1")
    assert (tmp_path / f"c/coxswain-{VERSION}.tgz").read_bytes() != one.read_bytes()
    assert not helm.lint(str(one), strict=True)["errors"]


def test_a_chart_from_the_registry_renders_the_same(tmp_path):
    """Helm pulls the chart that was pushed. The chart has its registry as the default of image.registry; all else is as in the folder."""
    with Registry() as registry:
        out = sent(registry, image(tmp_path))
        assert f"{registry.address}/team/charts/coxswain:{VERSION}@sha256:" in out
        helm.pull(f"oci://{registry.address}/team/charts/coxswain", version=VERSION, destination=str(tmp_path), plain_http=True)
        digest = manifest_of(tmp_path / "image-1.2.3-amd64.tar")["digest"]
    pulled = tmp_path / f"coxswain-{VERSION}.tgz"
    place = {"image": {"registry": f"{registry.address}/team"}}
    everything = c.merged(c.values_of("ci/everything.yaml"), {"redis": {"existingSecret": "r"}})  # a generated password would change a checksum
    for values in ({}, everything):
        assert rendered(pulled, values) == rendered(c.CHART, c.merged(place, values))
    head = rendered(pulled)["StatefulSet", "demo-coxswain-head"]["spec"]["template"]["spec"]["containers"][0]
    assert head["image"] == f"{registry.address}/team/coxswain:{VERSION}"
    listed = helm_chart.read_yaml(helm_chart.metadata(pulled.read_bytes())["annotations"]["artifacthub.io/images"])
    assert listed == [{"name": "coxswain", "image": f"{registry.address}/team/coxswain:1.2.3@{digest}"}]


def test_a_chart_has_the_digests_of_its_images(tmp_path):
    """The chart of a release installs by digest. A value that names another image still counts, as does a mirror that may have other digests."""
    paths = [image(tmp_path, tag=tag) for tag in (VERSION, f"{VERSION}-cuda", "0.0.1")]
    digests = [manifest_of(p)["digest"] for p in paths]
    with Registry() as registry:
        sent(registry, *paths)
        helm.pull(f"oci://{registry.address}/team/charts/coxswain", version=VERSION, destination=str(tmp_path), plain_http=True)
        name = f"{registry.address}/team/coxswain"
    cuda = {"worker": {"device": "cuda", "gpus": 1}}
    for values, head, worker in (({}, f"{name}@{digests[0]}", f"{name}@{digests[0]}"), (cuda, f"{name}@{digests[0]}", f"{name}@{digests[1]}"),
                                 ({"image": {"tag": "own"}, **cuda}, f"{name}:own", f"{name}:own-cuda"),
                                 ({"image": {"registry": "mirror.example"}}, f"mirror.example/coxswain:{VERSION}", f"mirror.example/coxswain:{VERSION}"),
                                 ({"image": {"digest": digests[2]}}, f"{name}@{digests[2]}", f"{name}@{digests[2]}")):
        found = {o["metadata"]["name"]: o["spec"]["template"]["spec"]["containers"][0]["image"] for i, o in rendered(tmp_path / f"coxswain-{VERSION}.tgz", values).items()
                 if i[0] in ("StatefulSet", "Deployment")}
        assert (found["demo-coxswain-head"], found["demo-coxswain-worker"]) == (head, worker), values


def test_a_given_chart_is_pushed_unchanged_and_described_as_helm_does(tmp_path):
    """Helm's own push of the same file makes an equal manifest, except for the time."""
    run(CHART, "--out", tmp_path)
    file = tmp_path / f"coxswain-{VERSION}.tgz"
    with Registry() as registry:
        sent(registry, "--chart", file)
        helm.push(str(file), f"oci://{registry.address}/theirs", plain_http=True)
        ours, theirs = registry.manifest("team/charts/coxswain", VERSION), registry.manifest("theirs/coxswain", VERSION)
        configs = [json.loads(registry.blob(*at)) for at in (("team/charts/coxswain", ours["config"]["digest"]), ("theirs/coxswain", theirs["config"]["digest"]))]
    created = "org.opencontainers.image.created"
    assert ours["annotations"].pop(created).endswith("Z") and theirs["annotations"].pop(created)
    assert ours["annotations"] == theirs["annotations"] and ours["layers"][0]["digest"] == theirs["layers"][0]["digest"]
    assert ours["layers"][0]["mediaType"] == theirs["layers"][0]["mediaType"] and ours["config"]["mediaType"] == theirs["config"]["mediaType"]
    assert configs[0] == configs[1]


HELMS = [p for p in (shutil.which(n, path=":".join(map(str, (c.Path(os.environ.get("COX_CACHE", os.path.expanduser("~/.cache/coxswain"))) / "k8s").glob("*/bin"))))
                     for n in ("helm", "helm4")) if p]


@pytest.mark.skipif(not HELMS, reason="no program helm: scripts/setup --k8s builds two")
def test_the_programs_helm_install_from_the_registry(tmp_path):
    with Registry() as registry:
        sent(registry)
        for program in HELMS:
            out = subprocess.run([program, "template", "demo", f"oci://{registry.address}/team/charts/coxswain", "--version", VERSION, "--plain-http",
                                  "--kube-version", "1.31"], capture_output=True, text=True, env={"HOME": str(tmp_path), "PATH": ""})
            assert out.returncode == 0 and f"image: {registry.address}/team/coxswain:{VERSION}" in out.stdout, out.stderr


# ---- images ----

def test_an_image_keeps_its_digest_and_has_its_sbom(tmp_path):
    path = image(tmp_path)
    with Registry() as registry:
        out = sent(registry, path, "--no-chart")
        digest = manifest_of(path)["digest"]
        assert out == f"{registry.address}/team/coxswain:1.2.3@{digest}  (amd64)\n"
        found = json.load(urllib.request.urlopen(f"http://{registry.address}/v2/team/coxswain/referrers/{digest}"))["manifests"]
        assert [one["artifactType"] for one in found] == ["application/spdx+json"]
        sbom = registry.manifest("team/coxswain", found[0]["digest"])["layers"][0]
        assert registry.blob("team/coxswain", sbom["digest"]) == (tmp_path / f"{path.name}.spdx.json").read_bytes()
        uploads = len(registry.asked("POST"))
        assert sent(registry, path, "--no-chart") == out and len(registry.asked("POST")) == uploads == 4, "what is there is not sent again"


def test_images_of_two_processors_become_one_index(tmp_path):
    paths = [image(tmp_path, a, text=a) for a in ("arm64", "amd64")]
    with Registry() as registry:
        sent(registry, *paths, "--no-chart")
        index = registry.manifest("team/coxswain", "1.2.3")
        assert [m["platform"]["architecture"] for m in index["manifests"]] == ["amd64", "arm64"]
        assert {m["digest"] for m in index["manifests"]} == {manifest_of(p)["digest"] for p in paths}
        if shutil.which("skopeo"):
            for a, p in zip(("arm64", "amd64"), paths):
                subprocess.run(["skopeo", "copy", "--override-arch", a, "--src-tls-verify=false", f"docker://{registry.address}/team/coxswain:1.2.3",
                                f"oci-archive:{tmp_path}/back-{a}.tar"], check=True, capture_output=True)
                assert manifest_of(tmp_path / f"back-{a}.tar")["digest"] == manifest_of(p)["digest"]
        assert "are both 1.2.3 for arm64" in run(PUSH, registry.address, paths[0], shutil.copy(paths[0], tmp_path / "again.tar"), status=1)


def test_a_registry_without_the_referrers_api_gets_a_tag(tmp_path):
    """The list under the tag gets one entry for each SBOM, and the same SBOM once."""
    path = image(tmp_path)
    with Registry(has_referrers=False) as registry:
        for text in ('{"a": 1}', '{"a": 1}', '{"a": 2}'):
            (tmp_path / f"{path.name}.spdx.json").write_text(text)
            sent(registry, path, "--no-chart")
        listed = registry.manifest("team/coxswain", manifest_of(path)["digest"].replace(":", "-"))["manifests"]
        assert len(listed) == 2 and {one["artifactType"] for one in listed} == {"application/spdx+json"}


# ---- logins, faults, wrong input ----

def test_logins(tmp_path):
    path, secret = image(tmp_path), tmp_path / "login"
    secret.touch(0o600)
    with Registry(login=("me", "p:w")) as registry:
        assert "asks for a login" not in sent(registry, path, "--no-chart", status=1)  # without a login it asks for an anonymous token
        assert registry.server.store == {}
        secret.write_text("me:p:w\n")
        sent(registry, path, "--no-chart", "--login", secret)
        secret.write_text("me:wrong\n")
        assert "Check the name and the password" in sent(registry, path, "--no-chart", "--login", secret, status=1)
        for wrong in ("me\n", "me:\n", "me:p\nyou:p\n", ""):
            secret.write_text(wrong)
            assert "must have one line NAME:PASSWORD" in sent(registry, path, "--login", secret, status=1)
        secret.chmod(0o644)
        assert f"Run chmod 600 {secret}" in sent(registry, path, "--login", secret, status=1)
        assert "cannot read the login file" in sent(registry, path, "--login", tmp_path / "none", status=1)
        stored = {"auths": {registry.address: {"auth": base64.b64encode(b"me:p:w").decode()}}}
        (tmp_path / "config.json").write_text(json.dumps(stored))
        sent(registry, path, "--no-chart", path="other", DOCKER_CONFIG=str(tmp_path))
        (tmp_path / "config.json").write_text('{"auths": []}')
        sent(registry, path, "--no-chart", path="third", status=1, DOCKER_CONFIG=str(tmp_path))
        (tmp_path / "config.json").write_text(json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": base64.b64encode(b"a:b").decode()}}}))
        assert oci.login_of_tools("docker.io", {"DOCKER_CONFIG": str(tmp_path)}) == ("a", "b")
        assert oci.Registry("docker.io").base == "https://registry-1.docker.io" and oci.login_of_tools("x.io", {"DOCKER_CONFIG": str(tmp_path)}) is None
        assert {name for name, _, _ in registry.server.store} == {"team/coxswain", "other/coxswain"}


def test_a_password_goes_nowhere_else(tmp_path):
    """A token service without encryption gets no password, also with --plain-http, if it is on another machine. Another host that takes
    uploads gets no token."""
    secure = oci.Registry("registry.example", ("me", "pw"))
    secure.patient = lambda *request: pytest.fail(f"asked {request}")
    plain = oci.Registry("localhost:5000", ("me", "pw"), plain_http=True)
    plain.patient = secure.patient
    for client, realm in (*((secure, r) for r in ("http://registry.example/token", "ftp://x/", "file:///etc/passwd", "no address", "https://[x", "https://a..b/",
                                                  "https://x:99999/", "https://x\x1b/", "http://127.0.0.1/", "https://me@x/")),
                          (plain, "http://registry.example/token"), (plain, "http://127.0.0.1.example/")):
        with pytest.raises(oci.Failed, match="No password was sent"):
            client.authorize(f'Bearer realm="{realm}",service="x"', "a/b")
    for client, realm in ((secure, "https://auth.example/token"), (plain, "https://auth.example/token"), (plain, "http://[::1]:5000/token")):
        client.patient = lambda method, url, headers, body: (200, {}, json.dumps({"token": url.split("?")[0]}).encode())
        assert client.authorize(f'Bearer realm="{realm}"', "a/b") == f"Bearer {realm}"
    for host in ("registry.example", "10.0.0.1:5000", "localhost.example", "[2001:db8::1]:5000"):
        with pytest.raises(oci.Failed, match="--plain-http is only for a registry on this machine"):
            oci.Registry(host, plain_http=True)
    with pytest.raises(oci.Failed, match="asks for a login"):
        oci.Registry("registry.example").authorize("Basic realm=x", "a/b")
    login = tmp_path / "login"
    login.touch(0o600)
    login.write_text("me:pw")
    with Registry() as storage, Registry(login=("me", "pw")) as registry:
        registry.uploads_at = f"http://{storage.address}"
        sent(registry, image(tmp_path), "--no-chart", "--login", login, status=1)  # the blobs are on the other host, so the manifest is refused
        assert storage.asked("PUT") and {authorization for _, authorization in storage.asked("PUT")} == {None}
        storage.server.store.clear()


def test_trouble_that_passes_is_waited_for(tmp_path):
    path = image(tmp_path)
    with Registry() as registry:
        registry.faults = 5
        sent(registry, path)
        assert registry.faults == 0 and registry.manifest("team/coxswain", "1.2.3")
        waits, client = [], oci.Registry(registry.address, None, True, wait=lambda s: waits.append(s))
        registry.faults = 6
        with pytest.raises(oci.Failed, match="HTTP 503, 6 times in a row"):
            client.has_blob("a", "sha256:" + "0" * 64)
        assert waits == [0] * 5, "Retry-After is 0"
        registry.faults = 0
    waits.clear()
    with pytest.raises(oci.Failed, match="refused, 6 times in a row"):
        client.has_blob("a", "sha256:" + "0" * 64)
    assert waits == [1, 2, 4, 8, 16]


def repacked(path, to, change):
    """Writes an archive with the members that `change` returns for {name: bytes}. In place of bytes there may be a type of member."""
    with tarfile.open(path) as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar}
    with tarfile.open(to, "w") as tar:
        for name, data in change(members).items():
            info = tarfile.TarInfo(name)
            if isinstance(data, bytes):
                info.size = len(data)
            else:
                info.type, info.linkname, data = data, "index.json", b""
            tar.addfile(info, io.BytesIO(data))
    return to


def with_json(m, name, **more):
    """Returns the members with another manifest or config and right digests. `name` is the digest that it has in `m`."""
    def put(members, digest, value):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        members[f"blobs/sha256/{oci.digest_of(data)[7:]}"] = data
        return {**digest, "digest": oci.digest_of(data), "size": len(data)}
    m, index = dict(m), json.loads(m["index.json"])
    entry = index["manifests"][0]
    manifest = json.loads(m[f"blobs/sha256/{entry['digest'][7:]}"])
    if name == "config":
        config = json.loads(m[f"blobs/sha256/{manifest['config']['digest'][7:]}"])
        manifest["config"] = put(m, manifest["config"], more.get("data") or {**config, **more})
    index["manifests"][0] = put(m, entry, {**manifest, **(more if name == "manifest" else {})})
    return {**m, "index.json": json.dumps(index).encode()}


def test_archives_that_are_none(tmp_path):
    path = image(tmp_path)
    digest = manifest_of(path)["digest"]
    with tarfile.open(path) as tar:
        layer = "blobs/sha256/" + json.loads(tar.extractfile(f"blobs/sha256/{digest[7:]}").read())["layers"][0]["digest"][7:]
    index = lambda m, **more: json.dumps({"manifests": [{**json.loads(m["index.json"])["manifests"][0], **more}]}).encode()  # noqa: E731
    wrong = [
        lambda m: {**m, f"blobs/sha256/{digest[7:]}": m[f"blobs/sha256/{digest[7:]}"] + b" "},
        lambda m: {**m, "index.json": b"[]"},
        lambda m: {**m, "index.json": json.dumps({"manifests": []}).encode()},
        lambda m: {**m, "index.json": index(m, digest="sha256:../../etc/passwd")},
        lambda m: {**m, "index.json": index(m, annotations={})},
        lambda m: {k: v for k, v in m.items() if k != "index.json"},
        lambda m: {k: v for k, v in m.items() if k != layer},
        lambda m: {**m, layer: m[layer][:-1] + b"x"},
        *(lambda m, kind=kind: {**m, layer: kind} for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE)),
        lambda m: {**m, "index.json": tarfile.SYMTYPE},
        lambda m: {**m, "index.json": b"[" * 200000},
        lambda m: {**m, "index.json": index(m, annotations={"org.opencontainers.image.ref.name": 5})},
        lambda m: {**m, "index.json": index(m, digest=5)},
        lambda m: with_json(m, "manifest", layers={"a": 1}),
        lambda m: with_json(m, "manifest", layers=[{"digest": ["x"]}]),
        lambda m: with_json(m, "manifest", config="x"),
        *(lambda m, a=a: with_json(m, "config", architecture=a) for a in ({}, 5, None, "", "arm\x1b[31m64")),
        lambda m: with_json(m, "config", os=["linux"]),
        lambda m: with_json(m, "config", data=b"[" * 200000),
    ]
    for i, change in enumerate(wrong):
        with pytest.raises(oci.Failed, match="is not an OCI archive of one image") as said:
            push.Image(repacked(path, tmp_path / f"wrong-{i}.tar", change))
        assert str(said.value).isprintable(), i
    assert push.Image(repacked(path, tmp_path / "right.tar", lambda m: with_json(m, "config", os="linux"))).tag == "1.2.3"
    assert "is not an OCI archive of one image" in run(PUSH, "127.0.0.1:1", tmp_path / "wrong-7.tar", status=1)
    assert "leaves nothing to push" in run(PUSH, "127.0.0.1:1", "--no-chart", status=2)
    tagged = repacked(path, tmp_path / "tag.tar", lambda m: {**m, "index.json": index(m, annotations={"org.opencontainers.image.ref.name": "a b"})})
    assert "which no registry accepts" in run(PUSH, "127.0.0.1:1", tagged, status=1)
    (tmp_path / "text").write_text("no")
    assert "is not an OCI archive" in run(PUSH, "127.0.0.1:1", tmp_path / "text", status=1)
    assert "No such file" in run(PUSH, "127.0.0.1:1", "--chart", tmp_path / "none", status=1)
    with Registry() as registry:
        assert "is not a chart" in sent(registry, "--chart", tmp_path / "text", status=1)
        assert "is not a chart" in sent(registry, "--chart", path, status=1)
        for i, text in enumerate(("name: a", "name: a\nversion: 1", "- a", "name: A\nversion: 1.2.3", "name: a\nversion: 1.2.3\nannotations: [x]",
                                  "name: a\nversion: 1.2.3\nmaintainers: [x]", "name: a\nversion: 1.2.3\nsources: 5", "name: [")):
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w:gz") as tar:
                info = tarfile.TarInfo("a/Chart.yaml")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
            (tmp_path / "wrong.tgz").write_bytes(packed.getvalue())
            assert "is not a chart" in sent(registry, "--chart", tmp_path / "wrong.tgz", status=1), text
        assert registry.server.store == {}
    for address in ("https://r.example/x", "r.example/Upper", "r.example/a//b", "", "r.example/..", "a b"):
        assert "is not the address of a registry" in run(PUSH, address, status=1), address


def test_a_registry_that_lies_is_found(tmp_path):
    client = oci.Registry("r.example", wait=lambda s: None)
    client.once = lambda *request: (201, {"Docker-Content-Digest": "sha256:" + "1" * 64}, b"")
    with pytest.raises(oci.Failed, match="so it changes manifests"):
        client.push_manifest("a", "t", oci.MANIFEST, b"{}")
    client.has_blob = lambda *blob: False
    for where in ("http://elsewhere/x", "file:///etc/passwd", "https://[x", "http://a..b/", "https://x y/", "https://x:0/", "//x:y/"):
        client.once = lambda *request: (202, {"Location": where} if request[0] == "POST" else {}, b"")  # noqa: B023
        with pytest.raises(oci.Failed, match="which is not (encrypted|an address). Nothing was sent"):
            client.push_blob("a", "sha256:" + hashlib.sha256(b"").hexdigest(), b"")
    client.once = lambda *request: (403, {}, b'{"errors": [{"message": "no\\u001b[31m\\nright"}]}')
    with pytest.raises(oci.Failed, match=r"HTTP 403: no\?\[31m\?right"):
        client.push_blob("a", "sha256:" + hashlib.sha256(b"").hexdigest(), b"")
    for body in (b"[" * 200000, b'{"errors": 5}', b'{"errors": [[]]}', b"\xff"):
        assert oci.Registry.reason(body) == ""
    client.once = lambda *request: (200, {}, b"[" * 200000)
    with pytest.raises(oci.Failed, match="t.example gave no token"):
        client.authorize('Bearer realm="https://t.example/"', "a")
    client.once = lambda *request: (503, {}, b"")
    with pytest.raises(oci.Failed, match="t.example did not answer"):
        client.authorize('Bearer realm="https://t.example/"', "a")
    client.once = lambda *request: (200, {}, b"x" * (oci.LARGEST_ANSWER + 1))
    with pytest.raises(oci.Failed, match="Is this a registry"):
        client.ask("GET", "https://r.example/v2/", "a")


def served(answer):
    """Runs a server that gives every client the same bytes, again and again. Returns (address, server)."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                with server.accept()[0] as client:
                    for part in answer():
                        client.sendall(part)
            except ConnectionError:
                continue
            except OSError:
                return
    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}", server


def test_a_registry_that_speaks_no_http(monkeypatch):
    """A request ends after its time, though the server sends all the time. The error has no control characters of the server."""
    def endless():
        while True:
            yield b"HTTP/1.1 100 Continue\r\n\r\n"
    monkeypatch.setattr(oci, "LONGEST_REQUEST_S", 0.2)
    monkeypatch.setattr(oci, "TRIES", 2)
    for answer, said in ((endless, "no complete answer within 0 s"), (lambda: [b"\x1b[31m\x07no\r\n\r\n"], r"\?\[31m\?no"),
                         (lambda: [b"HTTP/1.1 302 Found\r\nLocation: https://[x\r\nContent-Length: 0\r\n\r\n"], "")):
        address, server = served(answer)
        with server:
            client = oci.Registry(address, None, True, wait=lambda s: None)
            if said:
                with pytest.raises(oci.Failed, match=said) as error:
                    client.has_blob("a", "sha256:" + "0" * 64)
                assert str(error.value).isprintable() and address in str(error.value)
            else:
                assert not client.has_blob("a", "sha256:" + "0" * 64)
