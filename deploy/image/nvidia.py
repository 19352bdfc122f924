"""Finds NVIDIA's libraries of a CUDA build, with the licence and the version of each. Images and packages take them from here.

The build found them in PyPI's packages, whose versions and hashes scripts/cuda-requirements.txt fixes. The driver comes from the
machine that runs the programs.
"""
import re
from pathlib import Path
from typing import NamedTuple

import sbom
from debian import Failed, run

# Variables of cmake/Cuda.cmake. A worker loads the first two by name. COX_CUDART is linked statically.
VARIABLES = ("COX_CUBLAS", "COX_NCCL", "COX_CUDART")


class Library(NamedTuple):
    path: Path
    soname: str | None  # None = linked statically
    package: str  # PyPI's package
    version: str
    licence: Path

    def row(self, where):
        """Returns the row of an SBOM. `where` is the place of the licence."""
        more = {} if self.soname else {"comment": "linked statically"}
        return sbom.package(f"pypi-{self.package.replace('-', '_')}", self.package, self.version, "Organization: NVIDIA Corporation", "NOASSERTION",
                            f"pkg:pypi/{self.package}@{self.version}", licenseComments=where, **more)


def libraries(build):
    """Returns the libraries that the build in the folder `build` found."""
    cache = (Path(build) / "CMakeCache.txt").read_text()
    found = []
    for variable in VARIABLES:
        m = re.search(rf"^{variable}:FILEPATH=(.+)$", cache, re.M)
        if not m or not Path(m[1]).exists():
            raise Failed(f"{build} was configured without {variable}. Run scripts/setup --cuda, then build the variant cuda again.")
        path = Path(m[1])
        soname = None if path.suffix == ".a" else re.search(r"Library soname: \[([^]]+)]", run("readelf", "-dW", path))[1]
        found.append(Library(path.resolve(), soname, *owner(path.resolve())))
    return found


def owner(library):
    """Returns the PyPI package that has a library, its version and its licence's file."""
    for site in (f for f in library.parents if f.name.endswith("-packages")):
        for record in site.glob("nvidia_*.dist-info/RECORD"):
            if f"{library.relative_to(site)}," not in record.read_text():
                continue
            name, number = record.parent.name.removesuffix(".dist-info").split("-")
            texts = sorted(f for f in record.parent.rglob("*") if re.match(r"licen[cs]e", f.name, re.I) and f.is_file())
            if not texts:
                raise Failed(f"{record.parent} has no licence file, and {library.name} must not be distributed without it. "
                             "Run scripts/setup --cuda, then build the variant cuda again.")
            return name.replace("_", "-"), number, texts[0]
    raise Failed(f"{library} belongs to no PyPI package, so its licence and version are unknown. Run scripts/setup --cuda, then build the variant cuda again.")
