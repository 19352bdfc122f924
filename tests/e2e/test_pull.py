"""Tests `cox pull` from a local hub on loopback, with every fault that may happen on the way."""
import fcntl
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

import pytest
from cluster import BIN, SLOW, run_cox, wait_for
from hub_server import COMMIT, CONFIG, Hub, Server, bytes_of, tiny_model

TOKEN = "hf_SECRETSECRETSECRET"
WEIGHTS = "model.safetensors"
AT = f"/org/tiny/resolve/{COMMIT}/{WEIGHTS}"
NEVER_DONE = "slow", 10, 40_000  # this fault is for a process that a test ends before the download does, even on a busy machine
FOREIGN = ("HF_", "HUGGINGFACE_", "XDG_", "AWS_", "COX_", "PIP_", "HTTP", "http", "ALL_PROXY", "all_proxy", "SSL_CERT_FILE", "CURL_CA", "REQUESTS_CA")


class World:
    def __init__(self, tmp_path):
        self.cache = tmp_path / "cache"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)} | {
            "COX_CACHE": str(self.cache), "COX_HF_CACHE": "off", "AWS_EC2_METADATA_DISABLED": "true",
            # This environment excludes the settings in the user's own home.
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_CONFIG_FILE": "/dev/null"}

    def pull(self, model="hf:org/tiny", *args, hub=None, timeout=60, **env):
        if hub:
            env["HF_ENDPOINT"] = hub.url
        return run_cox("pull", model, "--retry-wait", "0.01", *args, env=self.env | env, timeout=timeout)

    def start(self, model="hf:org/tiny", *args, hub=None, said=subprocess.PIPE, **env):
        if hub:
            env["HF_ENDPOINT"] = hub.url
        return subprocess.Popen([str(BIN / "cox"), "pull", model, "--retry-wait", "0.01", *args], text=True,
                                env=self.env | env, stdout=subprocess.PIPE, stderr=said)

    def names(self):
        """Returns the names of everything below models/pulled."""
        at = self.cache / "models/pulled"
        return sorted(str(p.relative_to(at)) for p in at.rglob("*")) if at.exists() else []

    def parts(self):
        return [p for p in (self.cache / "models/pulled").glob("*.part-*/*.part")] if self.cache.exists() else []


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def hub():
    with Hub({"org/tiny": tiny_model()}) as h:
        yield h


def good(done, words=""):
    assert done.returncode == 0 and words in done.stderr, (done.returncode, done.stderr)
    return Path(done.stdout.strip())


def bad(done, code, *words):
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == "" and all(w in done.stderr for w in words), done.stderr
    assert TOKEN not in done.stderr


def test_a_model_comes_whole_and_once(world):
    model = tiny_model()
    with Server("localhost") as cdn, Hub({"org/tiny": model}, cdn=cdn, token=TOKEN) as hub:
        folder = good(world.pull(hub=hub, HF_TOKEN=TOKEN))
        wanted = {"config.json", "tokenizer.json", WEIGHTS}
        assert {p.name for p in folder.iterdir()} == wanted | {"cox-pull.json"}
        assert all((folder / n).read_bytes() == model[n] for n in wanted)
        manifest = json.loads((folder / "cox-pull.json").read_text())
        assert manifest["commit"] == COMMIT and manifest["reference"] == "hf:org/tiny@main"
        assert {f["name"]: f["sha256"] for f in manifest["files"]} == {
            n: hashlib.sha256(model[n]).hexdigest() for n in wanted}
        assert world.names() == sorted([folder.name, *(f"{folder.name}/{n}" for n in wanted | {"cox-pull.json"})])
        # The token is sent only to the hub, never to a host that the hub redirects to.
        assert all(h.get("Authorization") == f"Bearer {TOKEN}" for _, h in hub.requests)
        assert cdn.requests and all("Authorization" not in h and TOKEN not in str(h) for _, h in cdn.requests)
        hub.requests.clear()
        for name in ("hf:org/tiny", "org/tiny", "hf:org/tiny@main"):
            assert good(world.pull(name, hub=hub), "it is there") == folder
        assert hub.requests == []
        good(world.pull("hf:org/tiny@v1", hub=hub, HF_TOKEN=TOKEN))
        assert hub.asked("/revision/v1")


def test_check_and_verify(world, hub):
    bad(world.pull("org/tiny", "--check", hub=hub), 1, "not in the cache")
    assert hub.requests == [] and not world.cache.exists()
    folder = good(world.pull(hub=hub))
    good(world.pull("org/tiny", "--check", hub=hub))
    good(world.pull("org/tiny", "--check", "--verify", hub=hub))
    weights = folder / WEIGHTS
    damaged = bytearray(weights.read_bytes())
    damaged[1000] ^= 1
    weights.write_bytes(damaged)
    good(world.pull("org/tiny", "--check", hub=hub))  # only --verify reads all bytes
    bad(world.pull("org/tiny", "--check", "--verify", hub=hub), 1, WEIGHTS, "damaged")
    assert good(world.pull("org/tiny", "--verify", hub=hub), "damaged") == folder
    good(world.pull("org/tiny", "--check", "--verify", hub=hub))
    weights.write_bytes(b"short")
    bad(world.pull("org/tiny", "--check", hub=hub), 1, WEIGHTS, "5 bytes")
    good(world.pull("org/tiny", hub=hub))
    good(world.pull("org/tiny", "--check", hub=hub))
    assert len(world.names()) == 5  # no part of the damaged files is left


@pytest.mark.parametrize("name, faults, n_asked", [
    ("cut", [("cut", 50_000)] * 3, 4),
    ("cut-anywhere", [("cut", 1), ("cut", 7), ("cut", 0)], 4),
    ("no-ranges", [("cut", 150_000), ("norange",)], 2),
    ("500", [("status", 500), ("status", 502), ("status", 503)], 4),
    ("429", [("status", 429, {"Retry-After": "1"})], 2),
    ("slow", [("slow", 0.02, 10_000)], 1),
    ("wrong-once", [("garbage",)], 2),
    ("cut-and-wrong", [("cut", 50_000), ("garbage",), ()], 3),
])
def test_what_passes(world, hub, name, faults, n_asked):
    hub.faults[AT] = list(faults)
    begin = time.monotonic()
    folder = good(world.pull(hub=hub))
    assert (folder / WEIGHTS).read_bytes() == hub.models["org/tiny"][WEIGHTS]
    asked = hub.asked(WEIGHTS)
    assert len(asked) == n_asked, asked
    if name == "cut":
        assert [h.get("Range") for _, h in asked] == [None, "bytes=50000-", "bytes=100000-", "bytes=150000-"]
    if name == "429":
        assert time.monotonic() - begin >= 1  # the server's Retry-After is one second


def test_silence_is_not_waited_for(world, hub):
    hub.faults[AT] = [("stall",)]
    good(world.pull("hf:org/tiny", "--stall-timeout", "1", hub=hub))
    assert [h.get("Range") for _, h in hub.asked(WEIGHTS)] == [None, "bytes=100-"]


@pytest.mark.parametrize("faults, code, words", [
    ([("status", 500)] * 9, 1, ["500", "retry in"]),
    ([("status", 429)] * 9, 1, ["429"]),
    ([("garbage",)] * 9, 1, ["was downloaded twice, both times with SHA-256"]),
    ([("longer",)] * 9, 1, ["200001 bytes", "the list of files says 200000"]),
    ([("status", 403)], 2, ["403", "HF_TOKEN"]),
    ([("status", 404)], 2, ["404"]),
    ([("norange",)] + [("cut", 10)] * 9, 0, []),
    ([("cut", 0)] * 9, 1, [WEIGHTS]),
])
def test_what_does_not_pass(world, hub, faults, code, words):
    hub.faults[AT] = list(faults)
    done = world.pull("hf:org/tiny", "--retries", "3", hub=hub)
    if code == 0:
        good(done)
        return
    bad(done, code, *words)
    assert not [n for n in world.names() if "cox-pull" in n or n.endswith(".lock")]
    hub.faults.clear()
    good(world.pull("hf:org/tiny", hub=hub))


@pytest.mark.parametrize("model, words", [
    ("hf:org/absent", ["org/absent", "404"]),
    ("hf:org/tiny@nowhere", ["org/tiny", "404"]),
    ("hf:org/tiny/absent.gguf", ["no file absent.gguf"]),
    ("hf:org/tiny/../x.gguf", ["hf:ORG/NAME"]),
    ("hf:", ["hf:ORG/NAME"]),
    ("https://example.com/x.bin", [".gguf"]),
    ("/no/such/model", ["/no/such/model", "The model must be"]),
])
def test_wrong_names(world, hub, model, words):
    bad(world.pull(model, hub=hub), 2, *words)


def test_who_may_not(world):
    with Hub({"org/tiny": tiny_model()}, token="another") as hub:
        bad(world.pull(hub=hub), 2, "401", "set HF_TOKEN")
        bad(world.pull(hub=hub, HF_TOKEN=TOKEN), 2, "401", "owner of HF_TOKEN")
        bad(world.pull(hub=hub, HF_TOKEN=TOKEN + "\r\nX: y"), 2, "line break")


def test_no_network(world, hub):
    with Server() as gone:
        url = gone.url
    bad(world.pull("hf:org/tiny", "--retries", "1", HF_ENDPOINT=url), 1, "cannot reach", "HTTPS_PROXY")
    bad(world.pull("hf:org/tiny", HF_ENDPOINT="ftp://h"), 2, "--hf-endpoint")
    bad(world.pull("hf:org/tiny", HF_ENDPOINT=f"http://u:{TOKEN}@h"), 2, "without a user name")


def test_a_redirect_from_https_to_http_is_not_followed(world, tmp_path):
    import ssl
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out",
                    cert], check=True, capture_output=True)
    with Server("localhost") as cdn, Hub({"org/tiny": tiny_model()}, cdn=cdn, token=TOKEN) as hub:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        hub.socket = context.wrap_socket(hub.socket, server_side=True)
        url = f"https://localhost:{hub.server_address[1]}"
        bad(world.pull(HF_ENDPOINT=url, HF_TOKEN=TOKEN), 2, "certificate", "--cacert")
        bad(world.pull(HF_ENDPOINT=url, HF_TOKEN=TOKEN, SSL_CERT_FILE=str(cert)), 2, "from https to http")
        assert cdn.requests == []
        hub.cdn = None
        good(world.pull("hf:org/tiny", "--cacert", cert, HF_ENDPOINT=url, HF_TOKEN=TOKEN))


def test_redirects_have_an_end(world):
    class Round(Server):
        def answer(self, h, path, action):
            h.say(302, Location=path + "x")
    with Round() as hub:
        bad(world.pull(hub=hub), 2, "redirects")
        assert len(hub.requests) < 12


@pytest.mark.parametrize("name", ["../up.safetensors", "/etc/up.safetensors", "a\n.safetensors", "\x1b[2Jb.safetensors",
                                  ".hidden.safetensors", "a\\b.safetensors", "x" * 300 + ".safetensors"])
def test_hostile_names(world, hub, name):
    before = set(world.cache.parent.rglob("*"))

    def change(listing):
        listing["siblings"].append({"rfilename": name, "size": 4, "blobId": "0" * 40})
        return listing
    hub.change = change
    done = world.pull(hub=hub)
    if "/" in name:  # such a name cannot be in a model's folder, so it is ignored
        good(done)
    else:
        bad(done, 1, "unsafe name")
    assert "\x1b" not in done.stderr
    outside = {p for p in set(world.cache.parent.rglob("*")) - before if not str(p).startswith(str(world.cache))}
    assert not outside


@pytest.mark.parametrize("change, code, words", [
    (lambda s: s[2].update(size=1 << 62, lfs={"size": 1 << 62, "sha256": "0" * 64}), 1, "is too large to download: the server reports"),
    (lambda s: s[2].update(lfs={"size": 1 << 41, "sha256": "0" * 64}), 1, "are free"),
    (lambda s: s[2].update(lfs={"size": 200_000, "sha256": "zz"}), 1, "invalid SHA-256"),
    (lambda s: s[2].update(lfs={"size": 199_999, "sha256": "0" * 64}), 1, "200000 bytes"),
    (lambda s: s.append(dict(s[2])), 1, "twice"),
    (lambda s: s.extend({"rfilename": f"{i}.safetensors", "size": 1} for i in range(10_001)), 1, "more than 10000"),
    (lambda s: s.pop(0), 2, "neither config.json with safetensors files nor a GGUF file"),
    (lambda s: s.pop(2), 2, "neither config.json with safetensors files nor a GGUF file"),
    (lambda s: s.clear(), 2, "neither config.json with safetensors files nor a GGUF file"),
])
def test_hostile_listings(world, hub, change, code, words):
    def changed(listing):
        change(listing["siblings"])
        return listing
    hub.change = changed
    bad(world.pull(hub=hub), code, words)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"sha": "main", "siblings": []}', b"<html>", b"[" * 100_000,
                                  b'{"sha": "' + COMMIT.encode() + b'", "siblings": 7}'])
def test_no_hub_at_all(world, body):
    class Other(Server):
        def answer(self, h, path, action):
            h.say(200, body)
    with Other() as hub:
        bad(world.pull(hub=hub), 1, "HF_ENDPOINT")


def test_what_is_not_supported_is_not_fetched(world, hub):
    hub.models["org/tiny"]["config.json"] = json.dumps(CONFIG | {
        "architectures": ["NoSuchForCausalLM"], "model_type": "no_such"}).encode()
    bad(world.pull(hub=hub), 2, "not supported")
    assert not hub.asked(WEIGHTS)


def test_weights_in_two_formats_and_twice(world, hub):
    hub.models["org/tiny"] |= {"pytorch_model.bin": b"x" * 1000, "consolidated.safetensors": b"y" * 1000,
                               "pytorch_model.bin.index.json": b"{}", "adapter_model.safetensors": b"z"}
    folder = good(world.pull(hub=hub))
    assert {p.name for p in folder.iterdir()} == {"config.json", "tokenizer.json", WEIGHTS, "cox-pull.json"}


def test_a_mirror_without_sizes(world):
    with Hub({"org/tiny": tiny_model()}, sizes=False) as hub:
        folder = good(world.pull(hub=hub))
        assert (folder / WEIGHTS).read_bytes() == hub.models["org/tiny"][WEIGHTS]


def test_a_collection_of_ggufs(world, hub):
    hub.models["org/many"] = {f"m-{q}.gguf": b"GGUF" + q.encode() for q in ("q4", "q8")} | {"README.md": b""}
    bad(world.pull("hf:org/many", hub=hub), 2, "hf:org/many/m-q4.gguf", "hf:org/many/m-q8.gguf")
    bad(world.pull("hf:org/many/m-q4.gguf", hub=hub), 2, "hf:org/many/m-q4.gguf")  # the file is not a GGUF
    hub.models["org/many"] |= {f"q2/m-0000{i}-of-00003.gguf": bytes_of(1000 + i, i) for i in (1, 2, 3)}
    hub.models["org/many"] |= {"q2/m-00001-of-00004.gguf": b"of another", "q2/m-0000x-of-00003.gguf": b"no part"}
    world.pull("hf:org/many/q2/m-00002-of-00003.gguf", hub=hub)
    assert sorted(p.rsplit("/", 1)[1] for p, _ in hub.requests if "/q2/" in p) == [
        f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


def test_many_at_once_fetch_once(world, hub, tmp_path):
    plain, go_on, said = hub.answer, threading.Event(), [tmp_path / f"said{i}" for i in range(5)]

    def answer(h, path, action):
        if path.endswith(WEIGHTS):
            go_on.wait(60 * SLOW)
        return plain(h, path, action)

    def n_waiting():
        return sum("waiting for it" in s.read_text() for s in said)
    hub.answer = answer
    running = [world.start(hub=hub, said=s.open("w")) for s in said]
    try:
        wait_for("all but one wait", lambda: n_waiting() == 4)
    finally:
        go_on.set()
    outs = [p.communicate(timeout=60 * SLOW)[0] for p in running]
    assert [p.returncode for p in running] == [0] * 5, [s.read_text() for s in said]
    assert len(set(outs)) == 1
    assert len(hub.asked(WEIGHTS)) == 1 and len(hub.asked("/revision/main")) == 1
    assert n_waiting() == 4
    assert not [n for n in world.names() if ".lock" in n or ".part" in n]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_killed_in_the_middle_and_again(world, hub, how, tmp_path):
    hub.faults[AT] = [NEVER_DONE]
    p = world.start(hub=hub)
    waiting, said = None, tmp_path / "said"
    try:
        wait_for("bytes", lambda: any(f.name == WEIGHTS + ".part" and f.stat().st_size >= 30_000 for f in world.parts()))
        waiting = world.start(hub=hub, said=said.open("w"))  # this process takes over from the killed one
        wait_for("the other one waits", lambda: "waiting for it" in said.read_text())
        p.send_signal(how)
        _, err = p.communicate(timeout=20 * SLOW)
        assert p.returncode == (-9 if how == signal.SIGKILL else 1)
        assert how == signal.SIGKILL or "is kept" in err
        out, _ = waiting.communicate(timeout=60 * SLOW)
        assert waiting.returncode == 0, said.read_text()
    finally:
        for q in (p, waiting):
            if q and q.poll() is None:
                q.kill()
                q.communicate()
    assert (Path(out.strip()) / WEIGHTS).read_bytes() == hub.models["org/tiny"][WEIGHTS]
    ranges = [h.get("Range") for _, h in hub.asked(WEIGHTS)]
    assert len(ranges) == 2 and int(ranges[1].removeprefix("bytes=").rstrip("-")) >= 30_000
    assert len(hub.asked("config.json")) == 1  # complete files are not requested again
    assert not [n for n in world.names() if ".lock" in n or ".part" in n]


class Machine:
    """Runs processes that see another boot id of the kernel, as on another node. There flock has no effect."""

    def __init__(self, world, number):
        self.boot = world.cache.parent / f"boot{number}"
        self.boot.write_text(f"00000000-0000-0000-0000-{number:012d}\n")
        self.world = world

    def start(self, *args, hub):
        script = f'mount --bind {self.boot} /proc/sys/kernel/random/boot_id && exec "$@"'
        return subprocess.Popen(["unshare", "--mount", "sh", "-c", script, "sh", str(BIN / "cox"), "pull", "hf:org/tiny", *args],
                                text=True, env=self.world.env | {"HF_ENDPOINT": hub.url}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.skipif(os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
                    reason="SKIPPED: namespaces need root")
def test_machines_that_share_a_volume(world, hub):
    """One process downloads for all. When its machine is lost, a process of another machine continues."""
    hub.faults[AT] = [NEVER_DONE, ("slow", 0.05, 10_000)]
    one, two, three = (Machine(world, i) for i in (1, 2, 3))
    first, others = one.start(hub=hub), []
    try:
        wait_for("bytes", lambda: any(f.name == WEIGHTS + ".part" and f.stat().st_size >= 30_000 for f in world.parts()))
        others = [m.start("--lock-silence", "3", hub=hub) for m in (two, two, three)]
        time.sleep(0.3)
        first.kill()
        first.communicate()
        outs = [p.communicate(timeout=60 * SLOW) for p in others]
        assert [p.returncode for p in others] == [0, 0, 0], outs
        assert all("waiting for it" in err for _, err in outs)
    finally:
        for q in (first, *others):
            if q.poll() is None:
                q.kill()
                q.communicate()
    ranges = [h.get("Range") for _, h in hub.asked(WEIGHTS)]
    assert len(ranges) == 2 and ranges[0] is None and int(ranges[1].removeprefix("bytes=").rstrip("-")) >= 30_000
    good(world.pull("org/tiny", "--check", "--verify", hub=hub))
    assert not [n for n in world.names() if ".lock" in n or ".part" in n]


def test_a_model_that_came_meanwhile_is_left(world, hub, tmp_path):
    """A model that was published meanwhile is kept, because it may already be in use. Replacing the model would remove its files for
    readers on NFS."""
    other = World(tmp_path / "other")
    folder = good(other.pull(hub=hub))
    hub.faults[AT] = [("slow", 0.05, 10_000)]
    running = world.start(hub=hub)
    wait_for("bytes", lambda: any(f.name == WEIGHTS + ".part" and f.stat().st_size >= 30_000 for f in world.parts()))
    shutil.copytree(folder, there := world.cache / "models/pulled" / folder.name)
    before = (there / WEIGHTS).stat().st_ino
    out, err = running.communicate(timeout=60 * SLOW)
    assert running.returncode == 0 and Path(out.strip()) == there, err
    assert (there / WEIGHTS).stat().st_ino == before
    assert not [n for n in world.names() if ".lock" in n or ".part" in n or ".old" in n]


def test_who_stood_still_writes_nothing_more(world, hub):
    """A process is stopped, as on a paused machine. Another process takes over, and the first one ends when it continues."""
    hub.faults[AT] = [("slow", 0.05, 10_000)]
    first = world.start("org/tiny", "--lock-silence", "3", hub=hub)
    second = None
    try:
        wait_for("bytes", lambda: any(f.name == WEIGHTS + ".part" and f.stat().st_size >= 30_000 for f in world.parts()))
        first.send_signal(signal.SIGSTOP)
        lock = next((world.cache / "models/pulled").glob("*.lock"))
        # The lock is changed to name another machine, because on this machine its holder is alive.
        lock.write_text(lock.read_text().replace(Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "boot"))
        second = world.start("org/tiny", "--lock-silence", "3", hub=hub)
        out, err = second.communicate(timeout=60 * SLOW)
        assert second.returncode == 0 and "waiting for it" in err, err
        first.send_signal(signal.SIGCONT)
        _, err = first.communicate(timeout=60 * SLOW)
        assert first.returncode == 1 and "another process has taken over the download" in err, err
    finally:
        for q in (first, second):
            if q and q.poll() is None:
                q.kill()
                q.communicate()
    good(world.pull("org/tiny", "--check", "--verify", hub=hub))
    assert not [n for n in world.names() if ".lock" in n or ".part" in n]


def test_a_branch_that_moved_meanwhile(world, hub):
    hub.faults[AT] = [("cut", 70_000)] + [("status", 500)] * 2
    bad(world.pull("hf:org/tiny", "--retries", "1", hub=hub), 1, "500")
    assert world.parts()
    hub.faults.clear()
    hub.models["org/tiny"][WEIGHTS] = bytes_of(200_000, seed=2)
    hub.requests.clear()
    folder = good(world.pull(hub=hub))
    assert (folder / WEIGHTS).read_bytes() == bytes_of(200_000, seed=2)
    assert [h.get("Range") for _, h in hub.asked(WEIGHTS)] == [None]
    assert not [n for n in world.names() if ".part" in n]


def test_a_file_by_its_url(world):
    body = bytes_of(300_000)
    sha256 = hashlib.sha256(body).hexdigest()
    with Server() as s:
        s.files["/models/x.gguf"] = body
        url = f"{s.url}/models/x.gguf?signature={TOKEN}"
        bad(world.pull(f"{s.url}/models/x.gguf"), 2, "sha256")  # an http: URL needs a sha256
        bad(world.pull(f"{url}#sha256={'0' * 64}"), 1, "was downloaded twice")
        s.faults["/models/x.gguf"] = [(), ("cut", 100_000)]
        bad(world.pull(f"{url}#sha256={sha256}"), 2, "not a GGUF")  # the file is complete and correct, but it is not a model
        assert [h.get("If-Range") for _, h in s.requests[-1:]] == [f'"{hashlib.md5(body).hexdigest()}"']
        s.files.clear()
        bad(world.pull(f"{s.url}/models/y.gguf#sha256={sha256}"), 2, "404", "check the URL")


needs_mounts = pytest.mark.skipif(os.geteuid() != 0 or subprocess.run(
    ["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0, reason="no mount namespace here")


def in_mounts(world, script, hub, timeout=60):
    env = world.env | {"HF_ENDPOINT": hub.url, "COX": str(BIN / "cox")}
    return subprocess.run(["unshare", "-m", "bash", "-ec", script], env=env, capture_output=True, text=True,
                          timeout=timeout * SLOW, check=False)


@needs_mounts
def test_a_full_disk(world, hub):
    world.cache.mkdir()
    hub.models["org/tiny"][WEIGHTS] = bytes_of(30 << 20)
    done = in_mounts(world, "mount -t tmpfs -o size=20m none $COX_CACHE; $COX pull org/tiny", hub)
    bad(done, 1, "not enough disk space", "Free some space, or set COX_CACHE")
    assert not hub.asked(WEIGHTS)
    # Here the disk fills up during the download.
    hub.faults[AT] = [("slow", 0.02, 1 << 18)]
    done = in_mounts(world, """mount -t tmpfs -o size=52m none $COX_CACHE
        $COX pull org/tiny & pid=$!
        until [ -s "$(echo $COX_CACHE/models/pulled/*.part-*/model.safetensors.part)" ]; do sleep 0.05; done
        head -c 60000000 /dev/zero > $COX_CACHE/full || true
        rc=0; wait $pid || rc=$?
        rm $COX_CACHE/full
        ls $COX_CACHE/models/pulled/*/cox-pull.json >&2 || echo none >&2
        [ $rc -ne 0 ] || exit 9
        $COX pull org/tiny >/dev/null || exit 8
        exit $rc""", hub)
    bad(done, 1, "No space left", "Free some disk space", "none")


@needs_mounts
def test_a_part_s_room_is_its_own(world, hub):
    """A part reserves its disk space only once, even when no range of it is complete."""
    world.cache.mkdir()
    hub.models["org/tiny"][WEIGHTS] = bytes_of(30 << 20)  # the file has ranges of 16 and 14 MiB
    hub.faults[AT] = [("cut", 13 << 20)] * 2 + [("status", 403)] * 2
    done = in_mounts(world, """mount -t tmpfs -o size=52m none $COX_CACHE
        $COX pull org/tiny && exit 9
        for i in 1 2 3; do $COX pull org/tiny && exit 0; done
        exit 8""", hub)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert not hub.faults[AT]


@needs_mounts
def test_a_cache_that_cannot_be_written(world, hub):
    script = "mount --bind $COX_CACHE $COX_CACHE; mount -o remount,ro,bind $COX_CACHE; $COX pull org/tiny"
    world.cache.mkdir()
    bad(in_mounts(world, script, hub), 1, "Read-only", "Set COX_CACHE to a writable folder")
    good(world.pull(hub=hub))
    hub.requests.clear()
    done = in_mounts(world, script + " && $COX pull org/tiny --check --verify", hub)
    assert done.returncode == 0 and hub.requests == [], done.stderr


def test_a_second_pull_is_quick_and_asks_nobody(world, hub):
    folder = good(world.pull(hub=hub))
    stamps = {p: p.stat().st_mtime_ns for p in [folder, folder.parent, *folder.iterdir()]}
    good(world.pull("org/tiny", HF_ENDPOINT="http://127.0.0.1:1"))
    assert stamps == {p: p.stat().st_mtime_ns for p in stamps}


def test_how_far_it_is(world, hub):
    """Progress is a line every five seconds. On a terminal it is a bar that disappears at the end."""
    hub.faults[AT] = [("slow", 0.7, 20_000)]
    done = world.pull(hub=hub)
    good(done, f"s left: {WEIGHTS}")
    assert "\x1b" not in done.stderr and "\r" not in done.stderr
    shutil.rmtree(world.cache)
    assert world.pull("hf:org/tiny", "--quiet", hub=hub).stderr == ""


class Screen:
    """Runs `cox ARGS` in a terminal of this many columns. Tests check the drawn bytes."""

    def __init__(self, columns, *args, env, stream="stderr"):
        self.ours, theirs = pty.openpty()
        self.resize(columns)
        self.process = subprocess.Popen([str(BIN / "cox"), *args], env=env, **({"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | {stream: theirs}))
        os.close(theirs)
        self.said = b""

    def resize(self, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self, until=lambda: False):
        """Reads to the end, or until the condition is true."""
        try:
            while not until():
                piece = os.read(self.ours, 4096)
                if not piece:
                    break
                self.said += piece
        except OSError:  # the other end is closed
            pass
        return self.said

    def bars(self, begin=0):
        """Returns the texts of the drawn bars, without cursor movements."""
        return [re.sub(rb"\x1b\[[0-9]*[A-Z]", b"", s).decode() for s in self.said[begin:].split(b"\r") if b" %" in s]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.mark.parametrize("columns", [12, 30, 60, 80, 120])
def test_the_bar_fits_the_terminal(world, hub, columns):
    long_name = "model-of-a-name-that-is-cut-in-its-middle-00001-of-00001.safetensors"
    hub.models["org/tiny"] = {long_name if n == WEIGHTS else n: b for n, b in hub.models["org/tiny"].items()}
    hub.faults[AT.replace(WEIGHTS, long_name)] = [("slow", 0.11, 25_000)]
    with Screen(columns, "pull", "org/tiny", env=world.env | {"HF_ENDPOINT": hub.url}) as s:
        s.read()
        assert s.process.wait(20 * SLOW) == 0
        bars = s.bars()
        assert bars and all(0 < len(b) < columns and "\n" not in b for b in bars), bars
        assert s.said.endswith(b"\r\x1b[K"), s.said
    assert all(re.match(r"\[[#.]{10}", b) for b in bars) == (columns >= 30), bars
    if columns == 120:
        assert any(re.search(r" % +[0-9.]+ KiB of 199.7 KiB  [0-9.]+ [KM]?i?B/s  \d+ s left  model-of-.*\.\.\..*safetensors$", b) for b in bars), bars
    if columns == 60:
        assert all("KiB of 199.7 KiB" in b for b in bars), bars


def test_the_bar_follows_the_terminal(world, hub):
    hub.models["org/tiny"] |= tiny_model(weights=8_000_000)
    plain, go_on = hub.answer, threading.Event()

    def answer(h, path, action):
        """Sends small pieces until the test has read enough."""
        body = hub.models["org/tiny"][WEIGHTS]
        if not path.endswith(WEIGHTS):
            return plain(h, path, action)
        h.send_response(200)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        for at in range(0, len(body), 2000):
            h.wfile.write(body[at:at + 2000])
            go_on.wait(0.05)
        return None

    hub.answer = answer
    with Screen(120, "pull", "org/tiny", env=world.env | {"HF_ENDPOINT": hub.url}) as s:
        s.read(until=lambda: b"left  model" in s.said)
        s.resize(40)
        begin = len(s.said)  # the bar was wrapped into several lines, and all of them are erased
        s.read(until=lambda: b"A\r\x1b[J" in s.said[begin:] and len(s.bars(begin)) > 3)
        narrow = s.bars(s.said.index(b"A\r\x1b[J"))[1:-1]
        s.resize(100)
        begin = len(s.said)
        s.read(until=lambda: any(len(b) > 45 for b in s.bars(begin)[:-1]))
        go_on.set()
        s.read()
        assert s.process.wait(20 * SLOW) == 0
        assert narrow and all(len(b) < 40 for b in narrow), narrow
        assert any(40 < len(b) < 100 for b in s.bars(begin)), s.bars(begin)


def test_paths_are_models_already(world, tmp_path):
    good(world.pull("null"))
    folder = tmp_path / "m"
    folder.mkdir()
    bad(world.pull(str(folder)), 2, "config.json")
    for name, body in tiny_model().items():
        (folder / name).write_bytes(body)
    assert good(world.pull(f"file:{folder}"), "it is there") == folder
