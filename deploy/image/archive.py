"""Writes layers and images as tar files: an OCI image layout, or the format of `docker load` for older tools.

Entries are sorted, folders before their contents, with one time and with owner and group 0. Nothing here depends on the
time, the machine or the user of the run: the same files give the same digest.
"""
import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


class Digests:
    """Writes to a file and hashes the bytes on the way."""

    def __init__(self, file):
        self.file, self.hash, self.size = file, hashlib.sha256(), 0

    def write(self, data):
        self.hash.update(data)
        self.size += len(data)
        return self.file.write(data)

    def flush(self):
        self.file.flush()

    @property
    def digest(self):
        return "sha256:" + self.hash.hexdigest()


class Layer:
    """Describes a layer in a file: .path; .digest and .size as stored; .diff_id of the uncompressed tar; .says for the image's
    history."""

    def __init__(self, path, media_type, stored, plain, says):
        self.path, self.media_type, self.says = path, media_type, says
        self.digest, self.size, self.diff_id = stored.digest, stored.size, plain.digest


def entries(folder):
    """Returns the paths below a folder, parents first, sorted by their bytes."""
    return sorted(Path(folder).rglob("*"), key=lambda p: os.fsencode(p.relative_to(folder)))


def add(tar, path, name, epoch):
    info = tar.gettarinfo(path, arcname=name)
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = epoch
    if info.islnk():  # a hard link is stored as a separate file
        info.type, info.size = tarfile.REGTYPE, os.path.getsize(path)
    if info.isreg():
        with open(path, "rb") as f:
            tar.addfile(info, f)
    else:
        tar.addfile(info)


def write_layer(folder, to, epoch, says, compress=True):
    """Writes the files below a folder as a layer into the file `to`."""
    with open(to, "wb") as out:
        stored = Digests(out)
        # gzip's header has no name and no time; zlib at level 6 gives the same bytes everywhere
        packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=stored, mtime=0) if compress else stored
        plain = Digests(packed)
        with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path in entries(folder):
                add(tar, path, path.relative_to(folder).as_posix(), epoch)
        if compress:
            packed.close()
    return Layer(Path(to), LAYER + ("+gzip" if compress else ""), stored, plain, says)


def dump(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def config_of(layers, settings, architecture, created):
    """Returns the image's configuration; `settings` is its "config" (user, entry point, environment, labels)."""
    return dump({"architecture": architecture, "os": "linux", "created": created, "config": settings,
                 "rootfs": {"type": "layers", "diff_ids": [x.diff_id for x in layers]},
                 "history": [{"created": created, "created_by": x.says} for x in layers]})


class Writer:
    """Writes a tar file of blobs and small texts."""

    def __init__(self, out, epoch):
        self.tar, self.epoch = tarfile.open(out, mode="w", format=tarfile.PAX_FORMAT), epoch

    def info(self, name, size):
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = size, self.epoch, 0o644
        return info

    def text(self, name, data):
        self.tar.addfile(self.info(name, len(data)), io.BytesIO(data))

    def file(self, name, stream, size):
        self.tar.addfile(self.info(name, size), stream)


def write_oci(out, layers, config, name, epoch):
    """Writes an OCI image layout; `name` has the form of a registry's names (coxswain:0.1.0). Returns the manifest's digest."""
    def described(media_type, data, **more):
        return {"mediaType": media_type, "digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data), **more}

    manifest = dump({"schemaVersion": 2, "mediaType": MANIFEST, "config": described(CONFIG, config),
                     "layers": [{"mediaType": x.media_type, "digest": x.digest, "size": x.size} for x in layers]})
    # containerd uses the first annotation at an import; podman and skopeo use the second one.
    entry = described(MANIFEST, manifest, annotations={"io.containerd.image.name": f"docker.io/library/{name}" if "/" not in name else name,
                                                       "org.opencontainers.image.ref.name": name.rpartition(":")[2]})
    blobs = {entry["digest"]: manifest, described(CONFIG, config)["digest"]: config, **{x.digest: x for x in layers}}
    w = Writer(out, epoch)
    for digest, blob in sorted(blobs.items()):
        at = "blobs/" + digest.replace(":", "/")
        if isinstance(blob, Layer):
            with open(blob.path, "rb") as f:
                w.file(at, f, blob.size)
        else:
            w.text(at, blob)
    w.text("index.json", dump({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}))
    w.text("oci-layout", dump({"imageLayoutVersion": "1.0.0"}))
    w.tar.close()
    return entry["digest"]


def write_docker(out, layers, config, name, epoch):
    """Writes the format of `docker save`: manifest.json, the configuration, uncompressed layers. Returns the configuration's digest."""
    digest = hashlib.sha256(config).hexdigest()
    w = Writer(out, epoch)
    w.text(f"{digest}.json", config)
    for x in layers:
        opened = gzip.open if x.media_type.endswith("+gzip") else open
        with opened(x.path, "rb") as f:
            size = sum(len(piece) for piece in iter(lambda: f.read(1 << 20), b""))
        with opened(x.path, "rb") as f:
            w.file(f"{x.diff_id[7:]}.tar", f, size)
    w.text("manifest.json", dump([{"Config": f"{digest}.json", "RepoTags": [name], "Layers": [f"{x.diff_id[7:]}.tar" for x in layers]}]))
    w.tar.close()
    return "sha256:" + digest
