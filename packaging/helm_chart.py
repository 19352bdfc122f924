"""Packs the Helm chart as `helm package` does, but with the same bytes every time, and describes it as `helm push` does."""
import fnmatch
import gzip
import io
import json
import re
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "deploy/image"))
from debian import Failed  # noqa: E402
from files import ROOT, epoch  # noqa: E402

CHART = ROOT / "deploy/helm/coxswain"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
CONFIG = "application/vnd.cncf.helm.config.v1+json"
LARGEST = 8 << 20  # largest chart in bytes, packed or not
LABEL = "org.opencontainers.image."
PIN = "coxswain/image"  # annotation with REGISTRY/NAME@DIGEST of the image; with "-cuda" appended, of the image with CUDA


def read_yaml(text):
    """Returns the content of a YAML file. Only charts need PyYAML, so images can be pushed without it."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise Failed("the Python package PyYAML is missing. Run apt-get install python3-yaml, or use .venv-k8s/bin/python (scripts/setup --k8s-quick).") from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as e:
        raise ValueError(f"not YAML: {e}") from e


def ignored(path, patterns):
    """Returns whether .helmignore leaves a file out. Only the patterns that the chart uses are known: names, and folders with a "/"."""
    folders, name = path.parts[:-1], path.name
    return any(any(fnmatch.fnmatch(f, p[:-1]) for f in folders) if p.endswith("/") else any(fnmatch.fnmatch(x, p) for x in (*folders, name)) for p in patterns)


def files(folder):
    """Returns {path in the chart: bytes}, sorted, without what .helmignore leaves out."""
    patterns = [p for p in (folder / ".helmignore").read_text().split("\n") if p and not p.startswith("#")]
    if any("!" in p or "/" in p[:-1] for p in patterns):
        raise Failed(f"{folder}/.helmignore has a pattern that packaging/helm_chart.py does not know: {', '.join(patterns)}")
    out = {}
    for p in sorted(folder.rglob("*")):
        at = p.relative_to(folder)
        if ignored(at, patterns) or p.is_dir():
            continue
        if p.is_symlink():
            raise Failed(f"{p} is a link, which a packed chart cannot have")
        out[at.as_posix()] = p.read_bytes()
    return out


def with_registry(content, registry, images):
    """Makes a registry the default of image.registry, so that an installation needs no option, and names the images for catalogues.
    `images` has (tag, REGISTRY/NAME:TAG@DIGEST) pairs. The templates use the digests of the chart's own version (coxswain.image); they are
    annotations and not values, because `helm upgrade --reuse-values` would keep the values of the older chart."""
    values, n = re.subn(r'(?m)^(image:\n(?:  .*\n)*?  registry: )""$', lambda m: m[1] + json.dumps(registry), content["values.yaml"].decode(), count=1)
    if n != 1:
        raise Failed("deploy/helm/coxswain/values.yaml has no empty image.registry, so the registry cannot become its default")
    content = {**content, "values.yaml": values.encode()}
    if images:
        listed = "".join(f"    - name: coxswain{'-cuda' if tag.endswith('-cuda') else ''}\n      image: {reference}\n" for tag, reference in images)
        meta = content["Chart.yaml"].decode()
        version = read_yaml(meta)["appVersion"]
        pins = "".join(f"  {PIN}{tag.removeprefix(version)}: {reference.replace(f':{tag}@', '@')}\n" for tag, reference in images
                       if tag in (version, f"{version}-cuda"))
        if "\nannotations:\n" not in meta:
            raise Failed("deploy/helm/coxswain/Chart.yaml has no annotations. Run deploy/helm/metadata.")
        content["Chart.yaml"] = meta.replace("\nannotations:\n", f"\nannotations:\n{pins}  artifacthub.io/images: |\n{listed}", 1).encode()
    return content


def pack(registry="", images=(), folder=CHART):
    """Returns (name and version, bytes of the .tgz)."""
    content = files(Path(folder))
    if registry:
        content = with_registry(content, registry, images)
    meta = read_yaml(content["Chart.yaml"])
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in content.items():
            info = tarfile.TarInfo(f"{meta['name']}/{name}")
            info.size, info.mode, info.mtime = len(data), 0o644, epoch()
            tar.addfile(info, io.BytesIO(data))
    return (meta["name"], meta["version"]), out.getvalue()


def metadata(data):
    """Returns the Chart.yaml of a packed chart."""
    if len(data) > LARGEST:
        raise Failed(f"the chart has {len(data) / 1e6:.1f} MB, and the limit is {LARGEST >> 20} MiB. Is this a chart?")
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
            found = [m for m in tar if m.isreg() and re.fullmatch(r"[a-z0-9.-]+/Chart\.yaml", m.name) and m.size < 1 << 20]
            meta = read_yaml(tar.extractfile(found[0]).read())
        if re.fullmatch(r"[a-z0-9-]+", meta["name"]) and re.fullmatch(r"\d+\.\d+\.\d+[A-Za-z0-9.+-]*", meta["version"]):
            annotations(meta, "")  # raises when a field has another type
            return meta
    except (OSError, EOFError, tarfile.TarError, ValueError, IndexError, KeyError, TypeError, AttributeError):
        pass
    raise Failed("this file is not a chart: it has no NAME/Chart.yaml with a name and a version. packaging/chart writes one.")


def annotations(meta, created):
    """Returns the annotations of the chart's manifest: those of `helm push`."""
    out = {k: str(v) for k, v in meta.get("annotations", {}).items()}
    out.update({LABEL + "title": meta["name"], LABEL + "version": meta["version"], LABEL + "created": created})
    if meta.get("description"):
        out[LABEL + "description"] = meta["description"]
    if meta.get("home"):
        out[LABEL + "url"] = meta["home"]
    if meta.get("sources"):
        out[LABEL + "source"] = meta["sources"][0]
    if meta.get("maintainers"):
        out[LABEL + "authors"] = ", ".join(m["name"] + (f" ({m['email']})" if m.get("email") else "") for m in meta["maintainers"])
    return out
