"""Defines custom kinds that the chart's objects use and a plain Kubernetes does not know, such as those of KEDA and LeaderWorkerSet."""
import contextlib
import re
import subprocess
from pathlib import Path

import pytest
from kube import CLUSTER


@contextlib.contextmanager
def definitions(kube):
    """Makes the cluster accept objects of these kinds for the duration of the context. No controller acts on them."""
    asked = subprocess.run([str(CLUSTER.parent / "tools/crds"), "--where"], capture_output=True, text=True)
    if asked.returncode != 0:
        pytest.skip(f"SKIPPED: {asked.stderr.strip()}")
    files = sorted(Path(asked.stdout.strip()).glob("*.yaml"))
    kube.kubectl("apply", "--server-side", *[part for file in files for part in ("-f", file)])
    names = re.findall(r"^  name: (\S+\.\S+)$", "\n".join(file.read_text() for file in files), re.M)
    kube.kubectl("wait", "--for=condition=Established", *[f"crd/{name}" for name in names])
    try:
        yield
    finally:
        kube.kubectl("delete", *[f"crd/{name}" for name in names])
