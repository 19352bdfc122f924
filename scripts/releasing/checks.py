"""Checks before a release: the tree, the tag, the changelog, the folder of the release, and the programs that this machine lacks.

Each check returns lines that say what is wrong and what to do. A release names all of them at once.
"""
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import versions
from versions import Failed

PROGRAMS = {  # kind: [(program, package of Debian and Ubuntu)]
    "stage": [("cmake", "cmake"), ("ninja", "ninja-build"), ("readelf", "binutils"), ("pkg-config", "pkg-config"), ("protoc-c", "protobuf-c-compiler"),
              ("cc", "gcc"), ("make", "make"), ("dpkg-deb", "dpkg"), ("dpkg-source", "dpkg-dev"), ("autoreconf", "autoconf"), ("aclocal", "automake"),
              ("libtoolize", "libtool"), ("tclsh", "tcl")],  # packaging/deps needs the programs from "cc" on
    "tarball": [("zstd", "zstd")],
    "symbols": [("zstd", "zstd"), ("tar", "tar")],
    "deb": [("dpkg-deb", "dpkg")],
    "rpm": [("rpmbuild", "rpm")],
    "image": [("dpkg", "dpkg"), ("apt-get", "apt"), ("objcopy", "binutils")],
    "key": [("minisign", "minisign")],
}
OBJCOPY = {"x86_64": "binutils-x86-64-linux-gnu", "aarch64": "binutils-aarch64-linux-gnu"}
STAGED = ("tarball", "deb", "rpm", "wheel", "symbols")
SUMS, NOTES = "SHA256SUMS", "RELEASE_NOTES.md"
MARK = "made-by-scripts-release"  # a file of the folder that scripts/release works in, and may delete


def git(root, *words):
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, errors="replace", check=False)
    return done.returncode, done.stdout.strip()


def of_tree(root, version):
    """Checks that the tree is the commit of this version."""
    said = []
    rc, changed = git(root, "status", "--porcelain", "--untracked-files=normal")
    if rc != 0:
        return ["this is not a checkout of git, so the release would have no commit and no time. Clone the repository."]
    if changed:
        names = ", ".join(line[3:] for line in changed.splitlines()[:5])
        said.append(f"the tree has changes that no commit has ({names}). Commit them or run git stash -u.")
    if versions.current(root).text != version:
        said.append(f"CMakeLists.txt has version {versions.current(root).text}, not {version}. Run scripts/release --prepare {version}, and commit the result.")
    try:
        versions.notes_of(root, version)
    except Failed as e:
        said.append(str(e))
    rc, tagged = git(root, "rev-parse", "-q", "--verify", f"refs/tags/v{version}^{{commit}}")
    if rc == 0 and tagged != git(root, "rev-parse", "HEAD")[1]:
        said.append(f"the tag v{version} is commit {tagged[:12]}, which is not the one that is checked out. Check out v{version}, or choose the next version.")
    return said


def work_of(out):
    return out.with_name(f"{out.name}.work")


def of_out(root, out):
    """Checks that the folder of the release can be written, and that nothing is in it or in the folder of the work that would be lost."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        return [f"--out: {out} is not a folder. Give another one."]
    if out.exists() and any(out.iterdir()):
        return [f"--out: {out} has files. Give a folder that is new or empty, or delete this one if it is a release that you do not need."]
    work = work_of(out)
    if work.is_symlink() or (work.exists() and not (work / MARK).is_file()):
        return [f"--out: {work} would be the folder of the work, but it has files that scripts/release did not make. Move it, or give another --out."]
    if out == root or out in root.parents:
        return [f"--out: {out} has the repository in it. Give another folder."]
    if root in out.parents and git(root, "check-ignore", "-q", out)[0] != 0:
        return [f"--out: {out} is in the repository and git does not ignore it, so the tree would count as changed. Give a folder below build/."]
    return []


def python_with_yaml(root):
    """Returns a Python that can pack the chart, or None."""
    for python in (root / ".venv-k8s/bin/python", sys.executable, "/usr/bin/python3"):
        if shutil.which(python) and subprocess.run([python, "-c", "import yaml"], capture_output=True, check=False).returncode == 0:
            return python
    return None


def rust_has(root, arch):
    """Returns whether rustc has the standard library of a processor."""
    path = os.pathsep.join([str(root / ".deps/rust/bin"), os.environ.get("PATH", os.defpath)])
    rustc = shutil.which("rustc", path=path)
    if not rustc:
        return False
    done = subprocess.run([rustc, "--print", "target-libdir", "--target", f"{arch}-unknown-linux-gnu"], cwd=root, capture_output=True, text=True, check=False)
    return done.returncode == 0 and Path(done.stdout.strip()).is_dir()


def of_key(root, path):
    """Checks that SECURITY.md has the public key. Users read it there, because they do not download that page with the packages."""
    lines = path.read_text(errors="replace").strip().splitlines()
    if len(lines) != 2 or not lines[0].startswith("untrusted comment: "):
        return [f"--public-key: {path} is not a public key of minisign, which has two lines. Give the file that `minisign -G -p FILE` wrote."]
    policy = root / "SECURITY.md"
    if not policy.is_file() or lines[1] not in policy.read_text().split():
        return [f"SECURITY.md does not have the key of {path}, so users could not compare it. Put the file's two lines there, and commit it."]
    return []


def found(root, program):
    places = [os.environ.get("PATH", os.defpath), str(root / ".deps/bin"), str(root / ".deps/packaging/usr/bin"), str(root / ".deps/arm64/tools/usr/bin")]
    return shutil.which(program, path=os.pathsep.join(places)) is not None


def of_machine(root, kinds, targets, with_key):
    """Checks that this machine has what the chosen kinds need. `targets` has (processor, variant) pairs."""
    said, packages = [], {}
    wanted = [k for k in kinds if k in PROGRAMS] + (["stage"] if set(kinds) & set(STAGED) else []) + (["key"] if with_key else [])
    for kind in wanted:
        packages.update({program: package for program, package in PROGRAMS[kind]})
    archs = sorted({arch for arch, _ in targets}) if set(kinds) & set(STAGED) else []
    packages.update({f"{arch}-linux-gnu-objcopy": OBJCOPY[arch] for arch in archs})
    lacking = {program: package for program, package in packages.items() if not found(root, program)}
    if "chart" in kinds and not python_with_yaml(root):
        lacking["the Python package yaml"] = "python3-yaml"
    if lacking:
        said.append(f"this machine lacks {', '.join(sorted(lacking))}. Run: apt-get install -y {' '.join(sorted(set(lacking.values())))}")
    for arch in archs:
        if not rust_has(root, arch):
            what = "scripts/setup" if arch == platform.machine() else f"rustup target add {arch}-unknown-linux-gnu"
            said.append(f"Rust's standard library for {arch} is missing. Run: {what}")
    if any(variant == "cuda" for _, variant in targets) and set(kinds) & {*STAGED, "image"} and not (root / ".deps/cuda/bin/nvcc").exists():
        said.append("the CUDA toolchain is missing. Run: scripts/setup --cuda, or leave the variant out with --variant cpu.")
    return said
