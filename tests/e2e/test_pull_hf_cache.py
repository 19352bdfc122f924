"""Tests `cox pull` and the cache of Python's huggingface_hub: each program uses files that the other has downloaded."""
import json
import os
import shutil
import subprocess

import pytest
from cluster import ROOT, SLOW
from hub_server import COMMIT, Hub, bytes_of, ids, tiny_model
from test_pull import WEIGHTS, World, bad, good, in_mounts, needs_mounts

PYTHON = ROOT / ".venv-clients/bin/python"
WANTED = ("config.json", "tokenizer.json", WEIGHTS)
needs_hub = pytest.mark.skipif(not PYTHON.exists(), reason="no huggingface_hub: scripts/setup --clients")


class Shared(World):
    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        self.hf = tmp_path / "hf home"
        self.env.pop("COX_HF_CACHE")
        self.env |= {"HF_HOME": str(self.hf), "HOME": str(tmp_path)}
        self.repo = self.hf / "hub/models--org--tiny"

    def python(self, hub, *words):
        """Runs snapshot_download in a separate process. Returns the folder that it prints."""
        script = f"from huggingface_hub import snapshot_download; print(snapshot_download('org/tiny', {', '.join(words)}))"
        done = subprocess.run([str(PYTHON), "-c", script], env=self.env | {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"},
                              capture_output=True, text=True, timeout=120 * SLOW, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def layout(self):
        return {str(p.relative_to(self.repo)): os.readlink(p) if p.is_symlink() else p.stat().st_size
                for p in self.repo.rglob("*") if not p.is_dir()}


def blob(name, body):
    said = ids(name, body)
    return said["lfs"]["sha256"] if "lfs" in said else said["blobId"]


@pytest.fixture
def world(tmp_path):
    return Shared(tmp_path)


@pytest.fixture
def hub():
    with Hub({"org/tiny": tiny_model() | {"1_Pooling/config.json": b"{}"}}) as h:
        yield h


def put(world, hub, names, change=lambda name, body: body):
    """Writes files into the cache as huggingface_hub does."""
    for name in names:
        body = hub.models["org/tiny"][name]
        at, link = world.repo / "blobs" / blob(name, body), world.repo / "snapshots" / COMMIT / name
        for p in (at, link):
            p.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(change(name, body))
        link.symlink_to(os.path.relpath(at, link.parent))


def test_what_is_fetched_is_there_too(world, hub):
    folder = good(world.pull(hub=hub))
    files = {n: hub.models["org/tiny"][n] for n in (*WANTED, "1_Pooling/config.json")}
    want = {f"blobs/{blob(n, b)}": len(b) for n, b in files.items()} | {"refs/main": 40} | {
        f"snapshots/{COMMIT}/{n}": "../" * (2 + n.count("/")) + f"blobs/{blob(n, b)}" for n, b in files.items()}
    assert world.layout() == want
    assert (world.repo / "refs/main").read_text() == COMMIT
    assert all((world.repo / "snapshots" / COMMIT / n).read_bytes() == b for n, b in files.items())
    # The files use disk space once, and either copy can be removed.
    assert os.path.samefile(folder / WEIGHTS, world.repo / "blobs" / blob(WEIGHTS, files[WEIGHTS]))
    shutil.rmtree(world.hf)
    good(world.pull("org/tiny", "--check", "--verify", hub=hub))
    # A pull by commit creates no name for that commit.
    good(world.pull(f"hf:org/tiny@{COMMIT}", hub=hub))
    assert world.layout().keys() == want.keys() - {"refs/main"}


def test_what_is_there_is_not_fetched(world, hub):
    put(world, hub, (WEIGHTS, "tokenizer.json"))
    folder = good(world.pull(hub=hub), "2 of 4 files")
    assert not hub.asked(WEIGHTS) and not hub.asked("tokenizer.json") and hub.asked("config.json")
    assert os.path.samefile(folder / WEIGHTS, world.repo / "snapshots" / COMMIT / WEIGHTS)
    good(world.pull("org/tiny", "--check", "--verify", hub=hub))
    assert (world.repo / "refs/main").read_text() == COMMIT


@pytest.mark.parametrize("change, words", [(lambda n, b: b[:-1] + b"?", "damaged"), (lambda n, b: b[:1000], "1000 bytes")])
def test_what_is_damaged_there(world, hub, change, words):
    put(world, hub, (WEIGHTS,), change)
    folder = good(world.pull(hub=hub), words)
    assert len(hub.asked(WEIGHTS)) == 1 and (folder / WEIGHTS).read_bytes() == hub.models["org/tiny"][WEIGHTS]
    # The downloaded files are published in that cache, not the files that were there before.
    snapshot = world.repo / "snapshots" / COMMIT
    assert all((snapshot / n).read_bytes() == hub.models["org/tiny"][n] for n in WANTED)
    assert (world.repo / "refs/main").read_text() == COMMIT


def test_a_damaged_one_that_nobody_links_to(world, hub):
    """The cache has only the blob, damaged but with the right size. The blob is replaced, and nothing else remains."""
    body = hub.models["org/tiny"][WEIGHTS]
    blobs = world.repo / "blobs"
    blobs.mkdir(parents=True)
    (blobs / blob(WEIGHTS, body)).write_bytes(bytes(len(body)))
    good(world.pull(hub=hub), "damaged")
    assert (world.repo / "snapshots" / COMMIT / WEIGHTS).read_bytes() == body
    assert len(list(blobs.iterdir())) == 4
    # A link without a target in the place of the blob is replaced too, and nothing else remains.
    (blobs / blob(WEIGHTS, body)).unlink()
    (blobs / blob(WEIGHTS, body)).symlink_to("../nowhere")
    shutil.rmtree(world.cache)
    good(world.pull(hub=hub))
    assert (world.repo / "snapshots" / COMMIT / WEIGHTS).read_bytes() == body


@pytest.mark.parametrize("relative", [True, False])
def test_blobs_that_are_links(world, hub, relative, tmp_path):
    """Blobs may be links into another folder. Their targets are used, and no link gets into our own cache."""
    put(world, hub, (WEIGHTS, "tokenizer.json"))
    store = tmp_path / "store"
    store.mkdir()
    for p in (world.repo / "blobs").iterdir():
        p.rename(store / p.name)
        p.symlink_to(os.path.relpath(store / p.name, p.parent) if relative else store / p.name)
    folder = good(world.pull(hub=hub), "2 of 4 files")
    assert not hub.asked(WEIGHTS) and not hub.asked("tokenizer.json")
    assert not [p for p in folder.rglob("*") if p.is_symlink()]
    assert os.path.samefile(folder / WEIGHTS, store / blob(WEIGHTS, hub.models["org/tiny"][WEIGHTS]))
    assert all(p.is_symlink() == (p.name in os.listdir(store)) for p in (world.repo / "blobs").iterdir())


def test_where_it_is(world, hub, tmp_path):
    """`auto` makes no folder in a home without one, a named folder is made, and `off` changes nothing."""
    at_home = tmp_path / ".cache/huggingface/hub"
    del world.env["HF_HOME"]
    good(world.pull(hub=hub))
    assert not at_home.exists()
    for i, (args, env, there) in enumerate([
            ((), {"XDG_CACHE_HOME": str(tmp_path / "xdg")}, None),
            (("--hf-cache", str(tmp_path / "named")), {"HF_HOME": str(tmp_path / "no")}, tmp_path / "named"),
            ((), {"HF_HUB_CACHE": "~/tilde", "HF_HOME": str(tmp_path / "no")}, tmp_path / "tilde"),
            (("--hf-cache", "off"), {"HF_HUB_CACHE": str(tmp_path / "no")}, None)]):
        good(world.pull("org/tiny", *args, hub=hub, COX_CACHE=str(tmp_path / f"cache{i}"), **env))
        assert there is None or (there / "models--org--tiny/refs/main").exists()
        assert not (tmp_path / "no").exists() and not (tmp_path / "xdg").exists()
    at_home.mkdir(parents=True)
    good(world.pull(hub=hub, COX_CACHE=str(tmp_path / "again")))
    assert (at_home / "models--org--tiny/refs/main").read_text() == COMMIT


def test_a_gguf_of_a_folder(world, hub):
    """A GGUF in a folder has a name with the folder in the cache."""
    hub.models["org/tiny"] = {"q4/m.gguf": bytes_of(5000)}
    bad(world.pull("hf:org/tiny/q4/m.gguf", hub=hub), 2, "not a GGUF")
    assert not world.hf.exists()  # a file that is not a model is not published


def test_one_that_cannot_be_written(world, hub):
    world.hf.write_text("no folder")
    good(world.pull(hub=hub), "was not added to huggingface_hub's cache")


@needs_mounts
@pytest.mark.parametrize("named", [False, True])
def test_another_file_system(world, hub, named, tmp_path):
    """Hard links do not work between file systems. A named cache gets a copy, an existing default cache gets none, and a pull from
    either cache makes a copy."""
    at = tmp_path / ".cache/huggingface/hub"
    at.mkdir(parents=True)
    del world.env["HF_HOME"]
    env = f"HF_HUB_CACHE={at}" if named else "COX=$COX"
    done = in_mounts(world, f"""mount -t tmpfs -o size=20m none {at}; {env} $COX pull org/tiny
        find {at} -type f | wc -l >&2; rm -r $COX_CACHE; {env} $COX pull org/tiny --hf-cache {at}""", hub)
    assert done.returncode == 0, done.stderr
    assert ("was not added to huggingface_hub's cache" in done.stderr) != named and ("another file system" in done.stderr) != named
    assert ("4 of 4 files" in done.stderr) == named and len(hub.asked(WEIGHTS)) == 1 + (not named)
    folder = done.stdout.splitlines()[-1]
    manifest = json.loads(open(f"{folder}/cox-pull.json").read())
    assert len(manifest["files"]) == 4


@needs_hub
def test_with_the_real_one(world, hub):
    good(world.pull(hub=hub))
    folder = world.python(hub, "local_files_only=True")
    assert folder == str(world.repo / "snapshots" / COMMIT)
    assert all((world.repo / "snapshots" / COMMIT / n).read_bytes() == hub.models["org/tiny"][n] for n in WANTED)
    hub.requests.clear()
    world.python(hub, "allow_patterns=['*.json', '*.safetensors']")
    assert not hub.asked(WEIGHTS) and not hub.asked("tokenizer.json")
    # This part tests the other direction, from huggingface_hub to `cox pull`.
    for p in (world.hf, world.cache):
        shutil.rmtree(p)
    world.python(hub, "revision='v1'")
    assert hub.asked(WEIGHTS)
    hub.requests.clear()
    good(world.pull("hf:org/tiny@v1", hub=hub), "4 of 4 files")
    assert [p for p, _ in hub.requests] == ["/api/models/org/tiny/revision/v1?blobs=true"]
    # huggingface_hub's own tool finds no fault.
    script = "from huggingface_hub import scan_cache_dir as s; i = s(); print(len(i.repos), len(i.warnings))"
    done = subprocess.run([str(PYTHON), "-c", script], env=world.env, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["1", "0"]
