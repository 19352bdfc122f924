"""Tests that `cox models` and `cox rm` list and remove models of the cache, and change nothing else."""
import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from cluster import SLOW, Cluster, run_cox, wait_for
from hub_server import COMMIT, Hub, tiny_model
from test_pull import AT, NEVER_DONE, WEIGHTS, Screen, World, good
from test_pull_hf_cache import Shared

GGUF = "tiny-q4.gguf"


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def hub():
    with Hub({"org/tiny": tiny_model(), "org/other": tiny_model()}) as h:
        yield h


def cox(world, *args, **kw):
    return run_cox(*args, env=world.env, **kw)


def listed(world):
    done = cox(world, "models", "--json")
    assert done.returncode == 0 and not done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert found["cache"] == str(world.cache)
    return {m["name"]: m for m in found["models"]}


def test_models_and_rm(world, hub):
    done = cox(world, "models")
    assert done.returncode == 0 and f"No model is in the cache ({world.cache}). `cox pull MODEL` fetches one." in done.stdout and not world.cache.exists()
    folder = good(world.pull("org/tiny", hub=hub))
    good(world.pull("hf:org/tiny@v1", hub=hub))
    good(world.pull("org/other", hub=hub))
    found = listed(world)
    assert list(found) == ["org/other", "org/tiny", "org/tiny@v1"]
    m = found["org/tiny"]
    assert m | {"fetched": "", "last_used": ""} == {
        "name": "org/tiny", "reference": "hf:org/tiny@main", "state": "whole", "problem": None, "bytes": sum(len(tiny_model()[n]) for n in ("config.json", "tokenizer.json", WEIGHTS)),
        "files": 3, "format": "safetensors", "revision": "main", "commit": COMMIT, "fetched": "", "last_used": "", "path": str(folder)}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", m["fetched"])
    os.utime(folder / WEIGHTS, (4e9, (folder / WEIGHTS).stat().st_mtime))
    assert listed(world)["org/tiny"]["last_used"] == "2096-10-02T07:06:40Z"
    table = cox(world, "models").stdout.splitlines()
    assert table[0].split() == ["NAME", "SIZE", "FORMAT", "REVISION", "FETCHED", "LAST", "USED", "STATE"]
    assert re.match(rf"org/tiny +199\.7 KiB  safetensors  main \({COMMIT[:12]}\) +\d{{4}}-\d\d-\d\d \d\d:\d\d  2096-10-0\d .* whole$", table[2]), table
    # All spellings of a name work, and each argument is handled alone.
    done = cox(world, "rm", "hf:org/tiny@main", "org/other")
    assert done.returncode == 0 and re.fullmatch(r"hf:org/tiny@main: removed, \d+\.\d KiB freed\norg/other: removed, .* freed\n", done.stdout), done
    assert list(listed(world)) == ["org/tiny@v1"]
    done = cox(world, "rm", "org/tiny", "org/tiny@v1")
    assert done.returncode == 1 and "org/tiny@v1: removed" in done.stdout
    assert done.stderr == f"cox rm: model org/tiny is not in the cache ({world.cache}). The cache has these models: org/tiny@v1\n"
    assert world.names() == [] and listed(world) == {}
    assert "is empty" in cox(world, "rm", "org/tiny").stderr


def test_a_damaged_one_and_parts(world, hub):
    folder = good(world.pull("org/tiny", hub=hub))
    (folder / WEIGHTS).write_bytes(b"short")
    assert listed(world)["org/tiny"]["state"] == "damaged" and "5 bytes" in listed(world)["org/tiny"]["problem"]
    assert "damaged\ndamaged: run `cox pull MODEL` to download it again.\n" in cox(world, "models").stdout
    hub.faults[AT.replace("tiny", "other")] = [NEVER_DONE]
    p = world.start("org/other", hub=hub)
    try:
        wait_for("bytes", lambda: any(f.name == WEIGHTS + ".part" and f.stat().st_size >= 30_000 for f in world.parts()))
        m = listed(world)["org/other"]
        assert m["state"] == "fetching" and m["files"] >= 3 and m["bytes"] >= 30_000 and m["reference"] == "hf:org/other@main", m
        done = cox(world, "rm", "org/other")
        assert done.returncode == 1 and re.search(r"cannot remove model org/other: it is (in use \(cox, process \d+\)\. Stop that process first|being downloaded)", done.stderr), done
    finally:
        p.send_signal(signal.SIGKILL)
        p.communicate(timeout=20 * SLOW)
    assert listed(world)["org/other"]["state"] == "parts"
    for name in ("org/other", "org/tiny"):
        assert cox(world, "rm", name).returncode == 0
    assert world.names() == []


@pytest.mark.parametrize("columns", [30, 60, 80, 120])
def test_the_list_fits_the_terminal(world, hub, columns):
    long_name = "organisation-of-a-long-name/model-of-a-long-name-with-many-parts-instruct"
    hub.models[long_name] = tiny_model()
    for model in (long_name, "org/tiny"):
        good(world.pull(model, hub=hub))
    with Screen(columns, "models", env=world.env, stream="stdout") as s:
        lines = s.read().decode().replace("\r", "").splitlines()
    assert all(len(line) <= columns for line in lines) and len(lines) == 3, lines
    assert lines[1].startswith("org/tiny ") and (re.match(r"organis.*-instruct ", lines[2]) or columns == 30), lines
    shown = {30: "NAME STATE", 60: "NAME SIZE FETCHED STATE", 80: "NAME SIZE FORMAT FETCHED STATE", 120: "NAME SIZE FORMAT REVISION FETCHED LAST USED STATE"}[columns]
    assert (" ".join(lines[0].split()) == shown or columns == 30) and all(line.endswith("whole") for line in lines[1:]), lines


def test_one_that_is_served_stays(world, hub):
    good(world.pull("org/tiny", hub=hub))
    with Cluster("--device", "null", model="org/tiny", env=world.env):
        done = cox(world, "rm", "hf:org/tiny")
        assert done.returncode == 1 and re.search(r"cannot remove model org/tiny: it is in use \(cox[a-z-]*, process \d+\)\. Stop that process first", done.stderr), done
        assert listed(world)["org/tiny"]["state"] == "whole"
        # A second cache also has the model.
        other = world.cache.with_name("other cache")
        shutil.copytree(world.cache, other)
        assert run_cox("rm", "org/tiny", "--cache-dir", other, env=world.env).returncode == 0
    assert cox(world, "rm", "org/tiny").returncode == 0


@pytest.mark.parametrize("how", ["absolute", "relative"])
def test_one_that_is_served_by_its_path_stays(world, hub, how):
    """A model that is served by its path is not removed. With `cox up $(cox pull MODEL)` and the null device, no weights are mapped,
    so only the command line shows that the model is in use."""
    folder = good(world.pull("org/tiny", hub=hub))
    path = folder if how == "absolute" else os.path.relpath(folder)
    with Cluster("--device", "null", model=str(path), env=world.env):
        done = cox(world, "rm", "org/tiny")
        assert done.returncode == 1 and re.search(r"cannot remove model org/tiny: it is in use \(cox[a-z-]*, process \d+\)\. Stop that process first", done.stderr), done
    assert cox(world, "rm", "org/tiny").returncode == 0


def test_what_huggingface_hub_has_stays(tmp_path):
    world = Shared(tmp_path)
    with Hub({"org/tiny": tiny_model()}) as hub:
        good(world.pull("org/tiny", hub=hub))
    done = cox(world, "rm", "org/tiny")
    assert done.returncode == 0 and re.search(r"removed, .* freed \(2\d\d\.\d KiB are still in huggingface_hub's cache\)", done.stdout), done
    assert (world.repo / "snapshots" / COMMIT / WEIGHTS).read_bytes() == tiny_model()[WEIGHTS]


@pytest.mark.parametrize("name", ["..", ".", "/", "", "../..", "models/pulled", "../../outside", "org/tiny/../../..", "file:/etc", "null", "*", "org-tiny-*", "hf:../x", "\x1b[2J"])
def test_hostile_names(world, hub, tmp_path, name):
    good(world.pull("org/tiny", hub=hub))
    outside = tmp_path / "outside"
    outside.mkdir()
    before = world.names()
    done = cox(world, "rm", "--", name)
    assert done.returncode in (1, 2) and done.stderr.count("\n") == 1 and "\x1b" not in done.stderr, done
    assert world.names() == before and outside.is_dir()


def test_links_are_not_followed(world, hub, tmp_path):
    folder = good(world.pull("org/tiny", hub=hub))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("mine")
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "kept")
    assert cox(world, "rm", "org/tiny").returncode == 0 and world.names() == []
    # When a model's folder is a link, only the link is removed.
    folder = good(world.pull("org/tiny", hub=hub))
    moved = tmp_path / "moved"
    folder.rename(moved)
    folder.symlink_to(moved)
    assert listed(world)["org/tiny"]["state"] == "whole"
    assert cox(world, "rm", "org/tiny").returncode == 0 and world.names() == [] and (moved / WEIGHTS).exists()
    # The command works when the folder of all models is on another disk.
    good(world.pull("org/tiny", hub=hub))
    (world.cache / "models").rename(tmp_path / "disk")
    (world.cache / "models").symlink_to(tmp_path / "disk")
    done = cox(world, "rm", "org/tiny")
    assert done.returncode == 1 and "symbolic links are not followed" in done.stderr, done
    assert (outside / "kept").read_text() == "mine" and list((tmp_path / "disk/pulled").iterdir())


def test_folders_of_strangers(world):
    """Folders with names and manifests that Coxswain did not write are not changed."""
    at = world.cache / "models/pulled"
    for name in ("a\x1b[2Jb", "no manifest", "x.part-123", "reference"):
        (at / name).mkdir(parents=True)
    (at / "reference/cox-pull.json").write_text('{"reference": "hf:../../etc", "version": 1}')
    (at / "file").write_text("no folder")
    done = cox(world, "models")
    assert done.returncode == 0 and "\x1b" not in done.stdout and "file" not in done.stdout, done.stdout
    found = listed(world)
    assert {m["state"] for m in found.values()} == {"damaged", "parts"} and len(found) == 4
    for name in found:
        assert cox(world, "rm", name).returncode == 0, name
    assert world.names() == ["file"]


def test_the_demo_model(world):
    files = {"demo": "demo-instruct/SmolLM2-135M-Instruct.Q4_1.gguf", "demo-base": "demo/gemma-3-270m-q4_k_m.gguf"}
    paths = {name: world.cache / "models" / file for name, file in files.items()}
    for path in paths.values():
        path.parent.mkdir(parents=True)
        path.with_name(".lock").touch()
    assert listed(world) == {}
    for path in paths.values():
        path.write_bytes(b"GGUF" * 1000)
    assert {name: (m["format"], m["reference"], m["path"]) for name, m in listed(world).items()} == {
        name: ("gguf", name, str(path.parent)) for name, path in paths.items()}
    for name, left in (("demo", ["demo-base"]), ("demo-base", [])):
        assert cox(world, "rm", name).returncode == 0 and not paths[name].parent.exists() and list(listed(world)) == left
    assert Path(world.cache / "models").is_dir()
