"""Tests `cox version`: its lines, its JSON, and --verify in a prefix that packaging/sums has listed. No cluster runs."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from cluster import BIN, ROOT, SLOW


def run(program, *words, **more):
    p = subprocess.run([program, *words], capture_output=True, text=True, timeout=60 * SLOW, check=False, **more)
    return p.returncode, p.stdout, p.stderr


@pytest.fixture
def prefix(tmp_path):
    """Makes an installed tree with a copy of the program, and its list."""
    for folder in ("bin", "lib/coxswain", "share/coxswain", "share/man/man1"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(BIN / "cox", tmp_path / "bin/cox")
    (tmp_path / "bin/cox-head").write_text("a program")
    (tmp_path / "bin/vllm").symlink_to("cox")
    (tmp_path / "lib/coxswain/libnccl.so.2").write_text("a library")
    (tmp_path / "share/man/man1/cox.1").write_text("a page")
    write_list(tmp_path)
    return tmp_path


def write_list(prefix):
    subprocess.run([sys.executable, ROOT / "packaging/sums", "--installed", prefix], check=True, timeout=60 * SLOW)


def test_lines():
    number = re.search(r"project\(coxswain VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    code, out, _ = run(BIN / "cox", "version")
    assert code == 0 and out.splitlines()[0] == f"cox {number}"
    assert re.search(r"^build id: [0-9a-f]{40}$", out, re.M) and re.search(r"^platform: linux-\w+, (cpu|cuda)$", out, re.M)
    assert run(BIN / "cox", "--version")[:2] == (0, f"cox {number}\n")
    code, out, _ = run(BIN / "cox", "version", "--json", env=dict(os.environ, COX_VERIFY="1"))
    said = json.loads(out)
    assert code == 0 and said["version"] == number and "verify" not in said


def test_a_build_folder_has_nothing_to_verify_with():
    code, _, err = run(BIN / "cox", "version", "--verify")
    assert code == 2 and "nothing to verify with" in err


def test_an_installed_tree(prefix, tmp_path_factory):
    links = tmp_path_factory.mktemp("links")
    (links / "cox").symlink_to(prefix / "bin/cox")
    for program, more in ((prefix / "bin/cox", {}), (links / "cox", {}), ("cox", {"env": {"PATH": str(prefix / "bin")}}), ("./cox", {"cwd": prefix / "bin"})):
        code, out, err = run(program, "version", "--verify", **more)
        assert code == 0 and f"verified: 4 files below {prefix} are as in share/coxswain/SHA256SUMS" in out and not err


def test_wrong_files(prefix):
    (prefix / "bin/cox-head").write_text("another program")
    (prefix / "bin/cox-worker").write_text("")
    (prefix / "lib/coxswain/libcublasLt.so.13").write_text("")
    (prefix / "lib/coxswain/libnccl.so.2").write_text("another library")
    (prefix / "share/man/man1/cox.1").unlink()
    code, out, err = run(prefix / "bin/cox", "version", "--verify")
    assert code == 1 and "4 of them are wrong" in err
    assert re.search(r"^bin/cox-head has changed: its SHA-256 is [0-9a-f]{64}, and the list has [0-9a-f]{64}$", out, re.M)
    assert "bin/cox-worker is not in the list\n" in out and "lib/coxswain/libcublasLt.so.13 is not in the list\n" in out
    assert "completions that are not installed: 1\n" in out
    code, out, _ = run(prefix / "bin/cox", "version", "--verify", "--json")
    said = json.loads(out)["verify"]
    assert code == 1 and not said["ok"] and [(f["path"], f["state"]) for f in said["findings"]] == [
        ("bin/cox-head", "changed"), ("lib/coxswain/libnccl.so.2", "changed"), ("bin/cox-worker", "unlisted"), ("lib/coxswain/libcublasLt.so.13", "unlisted")]


def test_a_missing_library_is_reported_except_in_a_wheel(prefix):
    shutil.rmtree(prefix / "lib")
    code, out, _ = run(prefix / "bin/cox", "version", "--verify")
    assert code == 1 and "lib/coxswain/libnccl.so.2 is missing\n" in out
    write_list(prefix)  # the list of a wheel does not have the libraries (packaging/stage --no-libraries)
    code, out, err = run(prefix / "bin/cox", "version", "--verify")
    assert code == 0 and "verified: 3 files" in out and not err


def test_vllm_must_be_a_link_to_cox(prefix):
    def verified():
        code, out, err = run(prefix / "bin/cox", "version", "--verify")
        return code, [line for line in out.splitlines() if "bin/vllm" in line], err

    vllm = prefix / "bin/vllm"
    for target in ("./cox", prefix / "bin/cox", None):
        vllm.unlink()
        if target:
            vllm.symlink_to(target)
        assert verified() == (0, [], "")
    for spoil in (lambda: vllm.write_text("#!/bin/sh\n"), lambda: vllm.symlink_to("cox-head"), lambda: vllm.symlink_to("nothing"), vllm.mkdir):
        spoil()
        code, lines, err = verified()
        assert code == 1 and lines == ["bin/vllm is not a link to cox"] and "1 of them are wrong" in err
        if not vllm.is_symlink() and vllm.is_dir():
            vllm.rmdir()
        else:
            vllm.unlink()
    vllm.write_text("#!/usr/bin/python3\n")  # the package vllm has this file, beside a wheel
    (prefix / "bin/coxswain-llm").write_text("")
    assert verified() == (0, ["note: bin/vllm is a file of another package, because the wheel has none"], "")


def test_a_prefix_cannot_write_to_the_terminal(prefix):
    hostile = prefix.rename(prefix.with_name("a\x1b[31m\n\x9b"))
    for words in ((), ("--json",)):
        code, out, err = run(hostile / "bin/cox", "version", "--verify", *words)
        assert code == 0 and "a?[31m??" in out and not re.search(r"[^\x20-\x7e\n]", out + err)
    shutil.rmtree(hostile / "share")
    code, _, err = run(hostile / "bin/cox", "version", "--verify")
    assert code == 2 and "a?[31m??" in err and not re.search(r"[^\x20-\x7e\n]", err)


def test_the_files_of_a_system_package(prefix, tmp_path_factory):
    """A .deb and an .rpm add units, configuration and replace-processes to the staged files."""
    tree = tmp_path_factory.mktemp("root")
    code = ("import sys, pathlib, staged, system\n"
            "stage = staged.Stage.__new__(staged.Stage)\n"
            "folder = pathlib.Path(sys.argv[1])\n"
            "stage.files = {p.relative_to(folder).as_posix(): p for p in folder.rglob('*') if p.is_symlink() or not p.is_dir()}\n"
            "system.lay_out(stage, pathlib.Path(sys.argv[2]))\n")
    subprocess.run([sys.executable, "-c", code, prefix, tree], check=True, timeout=60 * SLOW, env=dict(os.environ, PYTHONPATH=str(ROOT / "packaging")))
    code, out, err = run(tree / "usr/bin/cox", "version", "--verify")
    assert code == 0 and f"verified: 4 files below {tree}/usr are as in" in out and not err


def test_keys_and_lists(prefix, tmp_path_factory):
    key = tmp_path_factory.mktemp("keys") / "release.pub"
    words = (prefix / "bin/cox", "version", "--verify", "--public-key", key)
    assert "cannot open the public key" in run(*words)[2]
    key.write_text("no key")
    code, _, err = run(*words)
    assert code == 2 and "is not a public key of minisign" in err
    key.write_text("untrusted comment: minisign public key 7499551B1133D6D4\nRWTU1jMRG1WZdHwyji4k1VOinKdpEBr37M7WpvPOMZJ5w9ZvxN6W25H/\n")
    code, _, err = run(*words)  # a caller with a key asks for a signature, so its absence is a failure
    assert code == 1 and "SHA256SUMS.minisig is missing" in err
    (prefix / "share/coxswain/SHA256SUMS").write_text("0" * 64 + "  ../../etc/passwd\n")
    code, _, err = run(prefix / "bin/cox", "version", "--verify")
    assert code == 1 and "line 1 is not a SHA-256" in err
