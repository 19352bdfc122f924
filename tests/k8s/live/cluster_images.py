"""Images of the tests' cluster, made by hand: a tar in docker's archive format, read by `ctr images import`.

    pause: what holds a pod's namespaces, twenty lines of C. probe: a server and a client of a few lines
    (cluster_probe.c) with the C library's files, since a name is looked up by getaddrinfo.
"""
import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAUSE, PROBE = "coxswain.test/pause:1", "coxswain.test/probe:1"


def compile_c(source, target, *flags):
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-o", str(target), str(source), *flags], check=True)
    return target


def libraries(program):
    """Files that the loader opens for it, by the names that it asks for: libc.so.6 and the loader itself."""
    said = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    return sorted(set(re.findall(r"(?:=> )?(/\S+) \(0x", said)))


def archive(out, name, files, entry):
    """Writes OUT: an image of one layer. files: path in the image → path here."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for inside, outside in sorted(files.items()):
            info = tarfile.TarInfo(inside.lstrip("/"))
            data = Path(outside).read_bytes()
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    layer = layer.getvalue()
    config = json.dumps({
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[subprocess.check_output(["uname", "-m"], text=True).strip()],
        "os": "linux", "config": {"Entrypoint": entry, "User": "65532:0"},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
    }).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(out, "w") as tar:
        for inside, data in (("config.json", config), ("layer.tar", layer), ("manifest.json", manifest)):
            info = tarfile.TarInfo(inside)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out


def pause(folder):
    program = compile_c(HERE / "cluster_pause.c", folder / "pause", "-static")
    return archive(folder / "pause.tar", PAUSE, {"/pause": program}, ["/pause"])


def probe(folder):
    program = compile_c(HERE / "cluster_probe.c", folder / "probe")
    files = {"/probe": program} | {path: path for path in libraries(program)}
    return archive(folder / "probe.tar", PROBE, files, ["/probe"])
