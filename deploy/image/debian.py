"""Finds, fetches and unpacks the Debian packages with the shared libraries that programs of an image need.

apt-get and dpkg-deb do the work, for any user: nothing is installed, and packages stay in a folder for the next run. Needed
libraries are read from the fetched files and not from this machine's, which may be older.
"""
import contextlib
import fcntl
import hashlib
import os
import re
import subprocess
from pathlib import Path


OF_PACKAGING = ("dpkg-source", "rpmbuild", "zstd")  # scripts/setup --packaging installs these


class Failed(Exception):
    """Reports an error. Its text says in one sentence what went wrong, and in another sentence what to do."""


def run(*command, **kwargs):
    """Returns stdout of a command. Raises Failed with the end of its stderr."""
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                              env={**os.environ, "LC_ALL": "C"}, **kwargs)
    except FileNotFoundError:
        option = " --packaging" if command[0] in OF_PACKAGING else ""
        raise Failed(f"the program {command[0]} is not installed. Run scripts/setup{option} on Debian or Ubuntu first.") from None
    except OSError as e:
        raise Failed(f"cannot start {command[0]}: {e.strerror}") from None
    if done.returncode != 0:
        raise Failed(f"this command failed: {' '.join(map(str, command[:4]))} …: {done.stderr.strip()[-600:] or f'exit status {done.returncode}'}")
    return done.stdout


def needed(path):
    """Returns the sonames that an ELF file needs (DT_NEEDED), and its program interpreter or None."""
    out = run("readelf", "-dlW", path)
    interpreter = re.search(r"Requesting program interpreter: ([^]]+)]", out)
    return set(re.findall(r"\(NEEDED\)\s+Shared library: \[([^]]+)]", out)), interpreter and interpreter[1]


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


class Package:
    """Holds one package, unpacked in .tree."""

    def __init__(self, deb, sha256, tree):
        self.deb, self.sha256, self.tree = deb, sha256, tree
        tree.mkdir(parents=True)
        run("dpkg-deb", "-x", deb, tree)
        self.control = run("dpkg-deb", "-f", deb)
        fields = dict(line.split(": ", 1) for line in self.control.splitlines() if re.match(r"[\w-]+: ", line))
        self.name, self.version, self.architecture = fields["Package"], fields["Version"], fields["Architecture"]
        self.source = fields.get("Source", self.name).split()[0]


class Packages:
    """Holds the packages fetched so far, by name. `folder` keeps .deb files between runs; `work` is an empty folder."""

    def __init__(self, folder, work):
        self.folder, self.work, self.by_name, self.lists = Path(folder), Path(work), {}, []
        self.files, self.owner_of = {}, {}  # the answers of apt and dpkg are kept, because each question takes half a second
        self.folder.mkdir(parents=True, exist_ok=True)
        self.multiarch = run("gcc", "-print-multiarch").strip()
        self.architecture = run("dpkg", "--print-architecture").strip()

    def _apt(self, *args, **kwargs):
        return run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3", *self.lists, *args, **kwargs)

    @contextlib.contextmanager
    def _alone(self):
        """Holds the folder's lock. A second build would otherwise read half-written files, or find apt's lists locked."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _where(self, names):
        """Returns [(file name, algorithm, digest)] of packages from apt's lists. If this machine has no lists, the function
        downloads them."""
        asked = sorted(set(names) - set(self.files))
        if asked:
            self.files.update(self._ask(asked))
        return [self.files[name] for name in sorted(names)]

    def _ask(self, names):
        command = ["--print-uris", "download", *names]
        try:
            out = self._apt(*command)
        except Failed:
            if self.lists:
                raise
            private = self.folder / "apt"
            for part in ("lists/partial", "cache/archives/partial"):
                (private / part).mkdir(parents=True, exist_ok=True)
            self.lists = ["-o", f"Dir::State::Lists={private}/lists", "-o", f"Dir::Cache={private}/cache"]
            with self._alone():
                self._apt("update")
                out = self._apt(*command)
        found = re.findall(r"^'[^']+' (\S+) \d+ (\w+):([0-9a-f]+)$", out, re.M)
        if len(found) != len(names):
            raise Failed(f"apt-get finds only {len(found)} of these {len(names)} packages: {' '.join(names)}. Run apt-get update.")
        return {entry[0].split("_")[0]: entry for entry in found}

    def fetch(self, names):
        """Downloads and unpacks the packages that are not fetched yet."""
        names = set(names) - set(self.by_name)
        if not names:
            return
        files = self._where(names)
        with self._alone():
            self._complete(files)
        for name, _, _ in sorted(files):
            deb = self.folder / name
            package = Package(deb, hashlib.sha256(deb.read_bytes()).hexdigest(), self.work / name)
            self.by_name[package.name] = package

    def _complete(self, files):
        """Downloads the files that are missing in the folder or incomplete."""
        for attempt in range(2):
            lacking = [name for name, algorithm, digest in files if not self._is_whole(name, algorithm, digest)]
            if not lacking:
                break
            if attempt == 1:
                raise Failed(f"the downloaded {lacking[0]} does not have the checksum in the lists of apt. Run apt-get update.")
            self._apt("download", *sorted({n.split("_")[0] for n in lacking}), cwd=self.folder)

    def _is_whole(self, name, algorithm, digest):
        path = self.folder / name
        algorithm = algorithm.lower().removesuffix("sum")
        return path.exists() and hashlib.new(algorithm, path.read_bytes()).hexdigest() == digest

    def owners(self, sonames):
        """Returns {soname: name of the package on this machine that has the library}."""
        asked = set(sonames) - set(self.owner_of)
        if asked:
            out = run("sh", "-c", 'dpkg-query -S "$@" 2>/dev/null || true', "sh", *(f"*/{self.multiarch}/{s}" for s in sorted(asked)))
            for line in out.splitlines():
                names, _, path = line.partition(": ")
                if os.path.basename(path) in asked:
                    self.owner_of[os.path.basename(path)] = names.split(",")[0].split(":")[0]
        lacking = sorted(set(sonames) - set(self.owner_of))
        if lacking:
            raise Failed(f"no installed package has {', '.join(lacking)}, and an image takes libraries only from Debian packages. "
                         "Install the libraries with apt-get and build Coxswain again.")
        return {soname: self.owner_of[soname] for soname in sonames}

    def foresee(self, programs, extra):
        """Looks up in one query the packages that ldd on this machine predicts. This only saves time: the fetched files decide."""
        said = run("sh", "-c", 'ldd "$@" 2>/dev/null || true', "sh", *programs)
        sonames = set(extra) | {os.path.basename(name) for name in re.findall(r"^\s+(\S+\.so\S*) ", said, re.M) if "vdso" not in name}
        own = {os.path.basename(p) for p in programs}
        self._where(set(self.owners(sonames - own).values()))

    def library(self, name, soname):
        """Returns the path of a library in a package's tree."""
        for folder in ("usr/lib", "lib"):
            path = self.by_name[name].tree / folder / self.multiarch / soname
            if path.is_symlink() or path.exists():
                return path
        raise Failed(f"{name} {self.by_name[name].version} does not have {soname}, because this machine has another version of the package. "
                     "Run apt-get upgrade and build Coxswain again.")

    def closure(self, programs, extra=()):
        """Returns {soname: (package, file)} of all libraries that programs need, directly or through others. `extra` has sonames
        that are loaded by name."""
        self.foresee(programs, extra)
        libraries, wanted = {}, set(extra)
        for program in programs:
            wanted |= needed(program)[0]
        while wanted:
            owners = self.owners(wanted)
            self.fetch(owners.values())
            for soname, name in owners.items():
                libraries[soname] = (name, self.library(name, soname))
            wanted = set().union(*(needed(path)[0] for _, path in (libraries[s] for s in wanted))) - set(libraries)
        return libraries

    def copyright(self, name):
        """Returns a package's copyright file. If it is a link into another package, that package is fetched."""
        package = self.by_name[name]
        doc = package.tree / "usr/share/doc" / name
        for link in (doc, doc / "copyright"):
            if link.is_symlink():
                target = os.path.normpath(os.path.join(os.path.dirname(f"/usr/share/doc/{link.relative_to(doc.parent)}"),
                                                       os.readlink(link)))
                other = target.split("/")[4]
                self.fetch([other])
                return self.copyright(other)
        if not (doc / "copyright").exists():
            raise Failed(f"the package {name} {package.version} has no /usr/share/doc/{name}/copyright, which the image must contain. "
                         "Use another version of the package.")
        return doc / "copyright"
