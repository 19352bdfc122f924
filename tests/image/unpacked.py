"""Builds an image for the tests of this folder, unpacks its files, and starts programs from these files alone."""
import gzip
import importlib.machinery
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import findings
from cluster import BIN, ROOT, SLOW, end_all

BUILD = ROOT / "deploy/image/build"
sys.path.insert(0, str(BUILD.parent))
from debian import needed  # noqa: E402, F401
from files import size  # noqa: E402, F401

_loader = importlib.machinery.SourceFileLoader("image_build", str(BUILD))
builder = importlib.util.module_from_spec(importlib.util.spec_from_loader("image_build", _loader))
_loader.exec_module(builder)
ENVIRONMENT = builder.ENVIRONMENT
HIGH_UID = 1000650000  # OpenShift assigns user IDs like this one to a namespace
# INSIDE is the script of a mount and network namespace: the image is read-only, scratch folders are writable, and the only network is loopback.
INSIDE = r"""
set -e
mount --make-rprivate /
ip link set lo up
mount --bind "$ROOTFS" "$ROOTFS"
for at in $SCRATCH; do mount -t tmpfs -o mode=$(stat -c %a "$ROOTFS/$at") scratch "$ROOTFS/$at"; done
mount -o remount,bind,ro "$ROOTFS"
mount -t proc proc "$ROOTFS/proc"
echo made
exec sleep infinity
"""


def why_not():
    """Returns the reason why this machine cannot build an image, with the remedy; None when it can."""
    for program, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("readelf", "binutils"), ("cmake", "cmake"), ("cargo", "cargo")):
        if not shutil.which(program) and not (ROOT / ".deps/rust/bin" / program).exists():
            return f"no {program} ({package}): images are made of Debian packages"
    return None


def why_not_inside():
    """Returns the reason why this machine cannot start programs from the image; None when it can."""
    if os.geteuid() != 0:
        return "chroot and mounts need root"
    for program in ("unshare", "nsenter", "setpriv", "chroot", "ip"):
        if not shutil.which(program):
            return f"no {program}: apt-get install util-linux coreutils iproute2"
    tried = subprocess.run(["unshare", "--mount", "--net", "sh", "-c", "mount -t tmpfs x /mnt && ip link set lo up"], capture_output=True)
    return None if tried.returncode == 0 else "no right to make mount and network namespaces (CAP_SYS_ADMIN)"


def build(out, *args, cwd="/", umask=0o022, **env):
    """Runs deploy/image/build on the programs under test; returns (exit status, output)."""
    done = subprocess.run([sys.executable, BUILD, "--out", out, "--build", BIN.parent, *map(str, args)], capture_output=True, text=True,
                          cwd=cwd, umask=umask, env={**os.environ, **env})
    return done.returncode, done.stdout + done.stderr


class Archive:
    """`Archive` is an OCI archive, read as a container engine reads it."""

    def __init__(self, path):
        self.tar = tarfile.open(path)
        self.index = json.loads(self.read("index.json"))
        self.manifest = json.loads(self.blob(self.index["manifests"][0]["digest"]))
        self.config = json.loads(self.blob(self.manifest["config"]["digest"]))

    def read(self, name):
        return self.tar.extractfile(name).read()

    def blob(self, digest):
        return self.read("blobs/" + digest.replace(":", "/"))

    def layer(self, i):
        """Returns layer i as an uncompressed tar."""
        data = self.blob(self.manifest["layers"][i]["digest"])
        return gzip.decompress(data) if self.manifest["layers"][i]["mediaType"].endswith("+gzip") else data

    def members(self):
        """Yields (layer, tar entry, its bytes) of all layers. The bytes are None for an entry that is not a file."""
        for i in range(len(self.manifest["layers"])):
            with tarfile.open(fileobj=io.BytesIO(self.layer(i))) as tar:
                for entry in tar:
                    yield i, entry, tar.extractfile(entry).read() if entry.isreg() else None

    def unpack(self, folder):
        for _, entry, data in self.members():
            at = Path(folder) / entry.name
            if entry.isdir():
                at.mkdir(exist_ok=True)
                at.chmod(entry.mode)
            elif entry.issym():
                at.symlink_to(entry.linkname)
            else:
                at.write_bytes(data)
                at.chmod(entry.mode)
        return Path(folder)


class Pod:
    """`Pod` is a network and mount namespace around an unpacked image. The image is read-only, except for the folders in `scratch`."""

    def __init__(self, rootfs, environment, folder, scratch=("tmp", "cache", "state", "dev/shm")):
        self.rootfs, self.folder, self.started = Path(rootfs), Path(folder), {}
        self.environment = dict(e.split("=", 1) for e in environment)
        self.holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "sh", "-c", INSIDE],
                                       env={**os.environ, "ROOTFS": str(rootfs), "SCRATCH": " ".join(scratch)}, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        first = self.holder.stdout.readline()
        assert first == "made\n", first + self.holder.stdout.read()

    def command(self, args, uid=HIGH_UID):
        return ["nsenter", "--mount", "--net", "--target", str(self.holder.pid), "setpriv", "--pdeathsig", "KILL", "--no-new-privs",
                shutil.which("chroot"), f"--userspec={uid}:0", "--groups=", str(self.rootfs), *map(str, args)]

    def run(self, *args, timeout=60, **kwargs):
        return subprocess.run(self.command(args, **kwargs), capture_output=True, text=True, timeout=timeout * SLOW, env=self.environment,
                              stdin=subprocess.DEVNULL)

    def start(self, name, *args):
        """Starts a role as Kubernetes does: the image's entry point with the role's name and options."""
        self.started[name] = subprocess.Popen(self.command(["/usr/bin/cox", *args]), env=self.environment, stdin=subprocess.DEVNULL,
                                              stdout=subprocess.DEVNULL, stderr=(self.folder / f"{name}.log").open("wb"))

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def ask(self, url, body=None, timeout=60):
        """Sends an HTTP request from within the pod's network; returns (status, body). Status 0 means that there was no answer."""
        client = ("import sys,urllib.request,urllib.error\n"
                  "data=sys.stdin.buffer.read() or None\n"
                  "q=urllib.request.Request(sys.argv[1],data,{'Content-Type':'application/json'})\n"
                  "try:\n r=urllib.request.urlopen(q,timeout=float(sys.argv[2]))\n print(r.status,r.read().decode())\n"
                  "except urllib.error.HTTPError as e: print(e.code,e.read().decode())\n"
                  "except OSError as e: print(0,e)\n")
        done = subprocess.run(["nsenter", "--net", "--target", str(self.holder.pid), sys.executable, "-c", client, url, str(timeout * SLOW)],
                              input=json.dumps(body).encode() if body else b"", capture_output=True)
        status, _, text = done.stdout.decode().partition(" ")
        return int(status), text

    def end(self):
        end_all(self.started.values())
        self.holder.send_signal(signal.SIGKILL)
        self.holder.wait()
        for name in self.started:
            findings.look_at_log(self.log(name))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.end()
        if kind is not None:
            for name in self.started:
                print(f"---- {name}\n" + "\n".join(self.log(name).splitlines()[-30:]))
