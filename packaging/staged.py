"""Reads a staged folder (docs/develop/packaging.md) for the scripts that make packages from it.

Stage checks the folder before a file of it enters a package: the names, the links, the four programs and their processor. It
also holds the version in the spelling of each kind of package.
"""
import argparse
import json
import os
import re
import shutil
import struct
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "deploy/image"))
from debian import Failed, run  # noqa: E402
from files import PROGRAMS, epoch  # noqa: E402,F401
from script import path as path_of, run_main  # noqa: E402
from toolchain import GLIBC  # noqa: E402,F401

VARIANTS = ("cpu", "cuda")
ARCHITECTURES = {  # name here: (name in Debian, e_machine of ELF)
    "x86_64": ("amd64", 62),
    "aarch64": ("arm64", 183),
}
MAINTAINER = "Coxswain maintainers <maintainers@coxswain.example>"
SUMMARY = "LLM inference server with an OpenAI-compatible API"
DESCRIPTION = """\
Coxswain serves large language models over the APIs of OpenAI and Anthropic.
A head schedules requests on workers, which compute on CPUs or GPUs, of one
machine or of several. Gateways speak HTTP with the clients. Streams continue
when a worker or the head dies."""
VERSION = re.compile(r"(\d{1,5}\.\d{1,5}\.\d{1,5})(?:-(alpha|beta|rc)\.(\d{1,5}))?", re.A)
SBOM = "share/coxswain/sbom.spdx.json"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]*", re.A)


class Version:
    """Holds a semantic version: MAJOR.MINOR.PATCH, optionally with -alpha.N, -beta.N or -rc.N."""

    def __init__(self, text):
        m = VERSION.fullmatch(text)
        if not m:
            raise Failed(f"the version is {text!r}, which is not MAJOR.MINOR.PATCH with an optional -alpha.N, -beta.N or -rc.N. "
                         "Correct it in CMakeLists.txt or in --version.")
        self.text, self.number, self.stage, self.n = text, m[1], m[2], m[3]

    @property
    def debian(self):
        """Returns the version for dpkg and rpm, for which only ~ sorts before the release."""
        return self.number + (f"~{self.stage}.{self.n}" if self.stage else "")

    @property
    def python(self):
        return self.number + (f"{ {'alpha': 'a', 'beta': 'b', 'rc': 'rc'}[self.stage]}{self.n}" if self.stage else "")


def version_of_tree():
    m = re.search(r"project\(coxswain VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    return m[1] if m else ""


class Stage:
    """A checked staged folder. The scripts compress the variant cuda quickly: NVIDIA's libraries, 760 of its 820 MB, have compressed code, for which
    stronger compression takes far longer: zstd -19 needs 29 times the processor time of -9 for a tarball that is 2 % smaller.

    `files` maps each path below it, as text, to the file; folders are not listed. `libraries` says
    whether packages of this kind carry NVIDIA's libraries in the variant cuda."""

    def __init__(self, folder, architecture, variant, version, libraries=True):
        self.folder, self.architecture, self.variant = Path(folder), architecture, variant
        self.version = Version(version)
        if not self.folder.is_dir():
            raise Failed(f"--stage: {self.folder} is not a folder. packaging/stage makes it.")
        self.files = {}
        for path in sorted(self.folder.rglob("*"), key=lambda p: os.fsencode(p.relative_to(self.folder))):
            self.check(path)
            if path.is_symlink() or not path.is_dir():
                self.files[path.relative_to(self.folder).as_posix()] = path
        for program in PROGRAMS:
            self.check_program(program)
        self.check_libraries(variant == "cuda" and libraries)
        for wanted in ("share/doc/coxswain/copyright", "share/coxswain/SHA256SUMS", SBOM):
            if wanted not in self.files:
                raise Failed(f"{self.folder} does not have {wanted}. Make the folder again with packaging/stage.")
        self.check_version()

    def check(self, path):
        relative = path.relative_to(self.folder)
        if not NAME.fullmatch(path.name):
            raise Failed(f"{self.folder} has a file with the name {str(relative)!r}. Names in packages may only have letters, digits and . _ + @ -.")
        if path.is_symlink():
            target = os.readlink(path)
            inside = os.path.normpath(os.path.join(self.folder.resolve(), relative.parent, target))
            resolved = Path(os.path.realpath(path))  # differs from `inside` if a folder of the target is a link
            if os.path.isabs(target) or not inside.startswith(str(self.folder.resolve()) + os.sep) or not resolved.is_file() \
                    or self.folder.resolve() not in resolved.parents:
                raise Failed(f"{path} links to {target}, which is not a file of the staged folder. Links in packages must be relative and stay inside.")
        elif not (path.is_file() or path.is_dir()):
            raise Failed(f"{path} is neither a file nor a folder nor a link. Remove it from the staged folder.")

    def check_program(self, name):
        path = self.files.get(f"bin/{name}")
        head = path.read_bytes()[:20] if path else b""
        if len(head) < 20 or head[:4] != b"\x7fELF" or not os.access(path, os.X_OK):
            raise Failed(f"{self.folder}/bin/{name} is not an executable program. Make the folder again with packaging/stage.")
        machine = struct.unpack("<H", head[18:20])[0]
        if machine != ARCHITECTURES[self.architecture][1]:
            raise Failed(f"{path} is not a program for {self.architecture} (its ELF machine is {machine}). Name the folder's processor with --arch.")

    def check_version(self):
        """Refuses a version that the programs do not have. The programs of a pre-release have the number of its release."""
        try:
            number = next(p["versionInfo"] for p in json.loads(self.files[SBOM].read_bytes())["packages"] if p["name"] == "coxswain")
        except (ValueError, KeyError, TypeError, StopIteration):
            raise Failed(f"{self.files[SBOM]} does not name the version of coxswain. Make the folder again with packaging/stage.") from None
        if self.version.number != number:
            raise Failed(f"the programs of {self.folder} have version {number}, and the package would have {self.version.text}. "
                         "Correct --version, or stage the programs of that version.")

    def check_libraries(self, wanted):
        """Refuses a folder whose list of sums would name libraries that the package does not have, and a package that lacks its libraries."""
        found = any(name.startswith("lib/coxswain/") for name in self.files)
        if found and not wanted:
            raise Failed(f"{self.folder} has lib/coxswain, which this package does not carry. For a wheel of the variant cuda, make the folder with "
                         "packaging/stage --variant cuda --no-libraries; otherwise correct --variant.")
        if wanted and not found:
            raise Failed(f"{self.folder} does not have lib/coxswain with NVIDIA's libraries. Make the folder with packaging/stage --variant cuda.")

    def copy(self, relative, to):
        """Copies one file or link to the path `to`, with mode 0755 for programs and 0644 for others."""
        source = self.files[relative]
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            to.symlink_to(os.readlink(source))
        else:
            shutil.copyfile(source, to)
            to.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def normalise(tree, time):
    """Sets modes that do not depend on the umask, and one time for every file, link and folder."""
    for path in [tree, *tree.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
        os.utime(path, (time, time), follow_symlinks=False)


def add_options(parser):
    """Adds the options that all kinds of package share."""
    parser.add_argument("--stage", required=True, type=path_of, metavar="DIR", help="staged folder, made by packaging/stage")
    parser.add_argument("--out", required=True, type=path_of, metavar="FOLDER", help="folder for the package; the script makes it")
    parser.add_argument("--arch", choices=sorted(ARCHITECTURES), default="x86_64", help="processor of the programs (default %(default)s)")
    parser.add_argument("--variant", choices=VARIANTS, default="cpu", help="variant of the programs (default %(default)s)")
    parser.add_argument("--version", default=version_of_tree(), help="version of the package (default: that of CMakeLists.txt, %(default)s)")


def stage_of(args, libraries=True):
    return Stage(args.stage, args.arch, args.variant, args.version, libraries)


def make_package(kind, doc, make, libraries=True):
    """Is the main function of packaging/KIND. make(stage, folder) makes the package in a folder and returns its path. The folder is
    a temporary one, so --out never has a part of a package."""
    def main():
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        add_options(parser)
        args = parser.parse_args()
        stage = stage_of(args, libraries)
        try:
            args.out.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise Failed(f"--out: cannot make the folder {args.out}: {e.strerror}. Name another folder.") from None
        with tempfile.TemporaryDirectory(dir=args.out, prefix=f".{kind}-") as work:
            made = make(stage, Path(work))
            to = made.replace(args.out / made.name)
        print(f"{kind}: {to}: {to.stat().st_size / 1e6:.1f} MB")

    run_main(kind, main, Failed)


def need(program, package):
    if not shutil.which(program):
        raise Failed(f"the program {program} is not installed. Run: apt-get install -y {package}")


__all__ = ["ARCHITECTURES", "DESCRIPTION", "Failed", "GLIBC", "MAINTAINER", "PROGRAMS", "ROOT", "SUMMARY", "Stage", "Version",
           "add_options", "epoch", "make_package", "need", "normalise", "run", "stage_of"]
