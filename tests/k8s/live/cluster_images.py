"""Makes the images of the tests' cluster: tar files in docker's archive format, which `ctr images import` reads.

    pause: holds the namespaces of a pod; twenty lines of C (cluster_pause.c).
    probe: a small server and client (cluster_probe.c) with the C library's files, because getaddrinfo loads them.
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
    """Returns the files that the dynamic loader opens for a program, by the names that the program asks for. The loader itself is
    one of these files."""
    said = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    return sorted(set(re.findall(r"(?:=> )?(/\S+) \(0x", said)))


def archive(out, name, files, entry):
    """Writes an image of one layer to `out`. `files` maps a path in the image to a path on this machine."""
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
