"""Copies a staged folder with another version in its programs and its SBOM, and prints that version.

next_version.py STAGE TO

The programs are the same except for the text of their version, as in tests/e2e/test_upgrade.py.
"""
import hashlib
import json
import shutil
import sys
from pathlib import Path

from test_upgrade import NEW, OLD

stage, to = map(Path, sys.argv[1:])
shutil.copytree(stage, to, symlinks=True)
for program in ("cox", "cox-head", "cox-gateway", "cox-worker"):
    path = to / "bin" / program
    content = path.read_bytes()
    if OLD not in content:
        sys.exit(f"next_version: {path} does not have the version {OLD.decode()}, so it cannot be replaced. Adapt OLD in tests/e2e/test_upgrade.py.")
    path.write_bytes(content.replace(OLD, NEW))
sbom = to / "share/coxswain/sbom.spdx.json"
content = json.loads(sbom.read_bytes())
next(p for p in content["packages"] if p["name"] == "coxswain")["versionInfo"] = NEW.decode()
sbom.write_text(json.dumps(content))
sums = to / "share/coxswain/SHA256SUMS"
names = [line.split(maxsplit=1)[1].lstrip("*") for line in sums.read_text().splitlines()]
sums.write_text("".join(f"{hashlib.sha256((to / name).read_bytes()).hexdigest()}  {name}\n" for name in names))
print(NEW.decode())
