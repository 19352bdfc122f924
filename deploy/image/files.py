"""Selects the files of an image, their places and modes. Both `rootfs` and `build` use this module.

An image has three layers, the least changed first: Debian's packages, NVIDIA's libraries (cuda only), Coxswain's programs.
Every file belongs to root and is readable by all. A process with any UID in group 0 may write to the folders of WRITABLE.
"""
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

import crates
import nvidia
import sbom
from debian import Failed, Packages, is_elf, needed, run

ROOT = Path(__file__).resolve().parents[2]
VARIANTS = {"cpu": "release", "cuda": "cuda"}  # CMake preset of each variant of the image
LAYERS = ("debian", "nvidia", "coxswain")
PROGRAMS = ("cox", "cox-head", "cox-gateway", "cox-worker")
WRITABLE = {"tmp": 0o1777, "cache": 0o775, "state": 0o775, "models": 0o775, "dev/shm": 0o1777}
MOUNTED = ("dev", "proc", "sys")  # mount points for the container engine
# Libraries that glibc's resolver and backtrace() load by name.
BY_NAME = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2", "libgcc_s.so.1")
BASE = ("base-files", "ca-certificates")
STATIC = {  # nologin: the image has no shell
    "etc/passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
                  "coxswain:x:65532:0:Coxswain:/tmp:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def version():
    """Returns the project's version and its commit ("" without git), with "-dirty" appended when files differ."""
    number = re.search(r"project\(coxswain VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    revision = os.environ.get("COX_IMAGE_REVISION", "")
    if not revision and (ROOT / ".git").exists():
        revision = run("git", "-C", ROOT, "rev-parse", "HEAD").strip()
        if run("git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no").strip():
            revision += "-dirty"
    return number, revision


def epoch():
    """Returns the time of everything in an image: SOURCE_DATE_EPOCH, else the commit's time, else 0."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        if not given.isdigit():
            raise Failed(f"SOURCE_DATE_EPOCH is \"{given}\", which is not a number. Set it to seconds since 1970.")
        return int(given)
    if (ROOT / ".git").exists():
        return int(run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip())
    return 0


class Files:
    """Puts the files of one variant into one folder for each layer."""

    def __init__(self, variant, folders, *, build=None, debug=None, cache=None):
        self.variant, self.folders = variant, {name: Path(f) for name, f in folders.items()}
        self.build = Path(build) if build else ROOT / "build" / VARIANTS[variant]
        self.debug = Path(debug) if debug else None
        self.cache = Path(cache) if cache else ROOT / "build/image/packages"

    def write(self):
        with tempfile.TemporaryDirectory(prefix="cox-image-") as work:
            self.packages = Packages(self.cache, Path(work) / "trees")
            self.work, self.parts, self.lib = Path(work), [], f"usr/lib/{self.packages.multiarch}"
            for folder in self.folders.values():
                folder.mkdir(parents=True, exist_ok=True)
            programs = self.programs()
            libraries = self.nvidia() if self.variant == "cuda" else []
            self.debian([*programs, *libraries])
            self.documents()
        for folder in set(self.folders.values()):
            normalise(folder)

    def put(self, layer, path, content):
        to = self.folders[layer] / path
        to.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, to)
            to.chmod(0o755 if os.access(content, os.X_OK) else 0o644)
        else:
            to.write_text(content) if isinstance(content, str) else to.write_bytes(content)
            to.chmod(0o644)

    def link(self, layer, path, target):
        at = self.folders[layer] / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(target)

    def programs(self):
        """Installs Coxswain's programs, stripped. Debug symbols go to self.debug by build id. The crash lines of the log name the
        build id."""
        preset = self.build.name
        lacking = [p for p in PROGRAMS if not (self.build / "bin" / p).exists()]
        if lacking:
            raise Failed(f"{self.build}/bin does not have {', '.join(lacking)}. Run scripts/build {preset}.")
        run("cmake", "--install", self.build, "--prefix", self.work / "installed", "--component", "programs")
        for name in PROGRAMS:
            whole, stripped = self.work / "installed/bin" / name, self.work / name
            if not whole.exists():
                raise Failed(f"cmake --install did not install {name}, because {self.build} was configured by an older tree. Run scripts/build {preset}.")
            run("objcopy", "--strip-all", whole, stripped)
            if self.debug:
                build_id = re.search(r"Build ID: ([0-9a-f]+)", run("readelf", "-nW", whole))[1]
                at = self.debug / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
                at.parent.mkdir(parents=True, exist_ok=True)
                run("objcopy", "--only-keep-debug", whole, at)
            self.put("coxswain", f"usr/bin/{name}", stripped)
        self.link("coxswain", "usr/bin/vllm", "cox")  # under the name vllm, cox accepts vLLM's command lines
        return [self.folders["coxswain"] / "usr/bin" / name for name in PROGRAMS]

    def debian(self, programs):
        p = self.packages
        p.fetch(BASE)
        own = {os.path.basename(path) for path in programs}
        libraries = p.closure(programs, BY_NAME)
        for soname, (_, path) in sorted(libraries.items()):
            real = path.resolve()  # the file must be in the package's tree, because libraries only link to files beside them
            if soname in own or real.parent != path.parent.resolve():
                raise Failed(f"{soname} links to {real}, which is in another folder, or it has the name of one of Coxswain's programs. Report this as a bug.")
            self.put("debian", f"{self.lib}/{real.name}", real)
            if real.name != soname:
                self.link("debian", f"{self.lib}/{soname}", real.name)
        self.loader(next(filter(None, (needed(x)[1] for x in programs))))
        self.link("debian", "lib", "usr/lib")
        tree = p.by_name["base-files"].tree
        self.put("debian", "usr/lib/os-release", tree / "usr/lib/os-release")
        self.link("debian", "etc/os-release", "../usr/lib/os-release")
        self.put("debian", "etc/debian_version", tree / "etc/debian_version")  # NVIDIA's hook reads this file
        for path in sorted((tree / "usr/share/common-licenses").iterdir()):  # the copyright files of packages refer to these files
            relative = path.relative_to(tree)
            self.link("debian", relative, os.readlink(path)) if path.is_symlink() else self.put("debian", relative, path)
        self.certificates(p.by_name["ca-certificates"].tree)
        for path, text in STATIC.items():
            self.put("debian", path, text)
        for path, mode in {**dict.fromkeys(MOUNTED, 0o755), **WRITABLE}.items():
            (self.folders["debian"] / path).mkdir(parents=True, exist_ok=True)
            (self.folders["debian"] / path).chmod(mode)
        self.package_documents()

    def loader(self, interpreter):
        """Creates the path that programs name as their loader: /lib64/… on x86-64, where /lib64 is a link as on Debian, else /lib/…"""
        name = os.path.basename(interpreter)
        if interpreter.startswith("/lib64/"):
            self.link("debian", "lib64", "usr/lib64")
            self.link("debian", f"usr/lib64/{name}", f"../lib/{self.packages.multiarch}/{name}")
        else:
            self.link("debian", f"usr/lib/{name}", f"{self.packages.multiarch}/{name}")
        (self.folders["debian"] / self.lib / name).chmod(0o755)

    def certificates(self, tree):
        """Joins all certificates into one file, as update-ca-certificates does, without a shell."""
        found = sorted((tree / "usr/share/ca-certificates/mozilla").glob("*.crt"))
        if len(found) < 50:
            raise Failed(f"the package ca-certificates has only {len(found)} files in usr/share/ca-certificates/mozilla, at least 50 are expected. "
                         "Use another version of the package.")
        bundle = "".join(c.read_text().rstrip("\n") + "\n" for c in found)
        self.put("debian", "etc/ssl/certs/ca-certificates.crt", bundle)

    def package_documents(self):
        """Writes copyright files, dpkg's description of each package (scanners read status.d), and rows of the SBOM."""
        p = self.packages
        os_release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', (self.folders["debian"] / "usr/lib/os-release").read_text(), re.M))
        distribution = f"{os_release['ID']}-{os_release.get('VERSION_ID', '')}"
        done = {}
        while set(p.by_name) - set(done):  # a copyright file may belong to another package
            for name in sorted(set(p.by_name) - set(done)):
                done[name] = p.copyright(name)
        for name, path in sorted(done.items()):
            self.put("debian", f"usr/share/doc/{name}/copyright", path.read_bytes())
            self.put("debian", f"var/lib/dpkg/status.d/{name}", p.by_name[name].control + "\n")
            self.parts.append(sbom.debian_package(p.by_name[name], distribution, path.read_text(errors="replace")))

    def nvidia(self):
        """Copies cuBLASLt and NCCL as found by the build; a worker loads them by name. Returns the copies."""
        paths = []
        for library in nvidia.libraries(self.build):
            licence = f"usr/share/doc/{library.package}/copyright"
            self.put("nvidia", licence, library.licence.read_bytes())
            self.parts.append(library.row(f"in the image at /{licence}"))
            if library.soname:
                self.put("nvidia", f"{self.lib}/{library.soname}", library.path)
                paths.append(self.folders["nvidia"] / self.lib / library.soname)
        return paths

    def documents(self):
        """Writes licence, notices, the crates' licence texts, and the SBOM. The SBOM covers all layers, so it is written last."""
        number, _ = version()
        self.put("coxswain", "usr/share/doc/coxswain/copyright", (ROOT / "LICENSE").read_bytes())
        self.put("coxswain", "usr/share/doc/coxswain/THIRD_PARTY_NOTICES.md", (ROOT / "THIRD_PARTY_NOTICES.md").read_bytes())
        linked = crates.linked(ROOT)
        self.put("coxswain", "usr/share/doc/coxswain/crates-licences.txt", crates.texts(linked))
        for name, number_, licence in linked:
            self.parts.append(sbom.package(f"crate-{name}-{number_}", name, number_, "NOASSERTION", licence, f"pkg:cargo/{name}@{number_}"))
        for name, number_, licence in (("llhttp", self.llhttp(), "MIT"), ("rust-std", crates.compiler(), "MIT OR Apache-2.0")):
            self.parts.append(sbom.package(name, name, number_, "NOASSERTION", licence, f"pkg:generic/{name}@{number_}",
                                           comment="linked statically"))
        text = sbom.document(f"coxswain-{number}-{self.variant}-{self.packages.architecture}", number, epoch(), self.parts)
        self.put("coxswain", "usr/share/coxswain/sbom.spdx.json", text)

    def llhttp(self):
        """Returns the version of the HTTP parser, which scripts/setup installs as generated C."""
        for header in (ROOT / ".deps/llhttp/llhttp.h", Path("/usr/include/llhttp.h")):
            if header.exists():
                return ".".join(re.findall(r"#define LLHTTP_VERSION_\w+ (\d+)", header.read_text()))
        raise Failed("found no llhttp.h in .deps/llhttp and /usr/include. Run scripts/setup.")


def normalise(folder):
    """Sets modes independent of the umask: folders 0755, files 0644 or 0755. Folders of WRITABLE keep their modes."""
    kept = {folder / path for path in WRITABLE}
    for at, _, names in os.walk(folder):
        if Path(at) not in kept:
            os.chmod(at, 0o755)
        for name in names:
            path = Path(at) / name
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)


def size(*folders):
    """Returns the bytes of the regular files: the size of an unpacked image, without unused parts of disk blocks."""
    return sum(p.lstat().st_size for folder in folders for p in Path(folder).rglob("*") if p.is_file() and not p.is_symlink())
