"""Lists the steps of a release: which command makes which file, for each processor and variant.

`steps` decides everything before the first command runs, so --dry-run prints what a release does. A step is a command, or a
function of this file with the text that --dry-run prints.
"""
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import checks
import versions

ARCHS = ("x86_64", "aarch64")
VARIANTS = ("cpu", "cuda")
KINDS = ("tarball", "deb", "rpm", "wheel", "symbols", "image", "chart")
PRESETS = {"cpu": "release", "cuda": "cuda"}  # presets of scripts/build for the image
PROGRAMS = ("cox", "cox-head", "cox-gateway", "cox-worker")
RETRY = "correct what the output above names, then run scripts/release again; finished programs are not built again"


@dataclass
class Release:
    """`out` is the folder while it is made; `work` has what is not released, such as the staged folders."""
    root: Path
    version: str
    out: Path
    work: Path
    commit_time: int
    archs: tuple
    variants: tuple
    kinds: tuple
    key: Path | None = None
    password_file: Path | None = None
    public_key: Path | None = None
    audit: bool = True

    def targets(self):
        """Returns the (processor, variant) pairs. nvcc of scripts/setup compiles for x86-64 hosts only."""
        return [(a, v) for a in self.archs for v in self.variants if (a, v) != ("aarch64", "cuda")]

    def image_targets(self):
        """Returns the pairs that get an image: its libraries are Debian packages of this machine's processor."""
        return [(a, v) for a, v in self.targets() if a == platform.machine()]

    def name(self, arch, variant, ending):
        return f"coxswain-{self.version}-linux-{arch}{'-cuda' if variant == 'cuda' else ''}{ending}"


@dataclass
class Step:
    title: str
    command: list | None = None
    action: object = None  # a function without arguments, in place of a command
    says: str = ""  # text of --dry-run for an action
    hint: str = RETRY


def left_out(r):
    """Returns the lines for what the options name and no machine or not this machine can make."""
    said = []
    if "aarch64" in r.archs and "cuda" in r.variants:
        said.append("cuda for aarch64: the CUDA toolchain of scripts/setup compiles for x86-64 hosts only")
    others = [a for a in r.archs if a != platform.machine()]
    if "image" in r.kinds and others:
        said.append(f"image for {', '.join(others)}: deploy/image/build makes images for its own processor; run scripts/release --kinds image there")
    return said


def copy(source, to):
    return Step(f"copy {to.name}", action=lambda: (to.parent.mkdir(parents=True, exist_ok=True), shutil.copyfile(source, to)),
                says=f"cp {source} {to}")


def move(source, to):
    return Step(f"move {to.name}", action=lambda: source.replace(to), says=f"mv {source} {to}")


def signature(r, sums):
    command = ["packaging/sign", "--key", r.key]
    command += ["--public-key", r.public_key] if r.public_key else []
    command += ["--password-file", r.password_file] if r.password_file else []
    return Step(f"sign {sums.relative_to(r.out.parent)}", [*command, sums], hint="correct what packaging/sign says about the key, then run scripts/release again")


def public_key(r):
    return r.public_key or r.key.with_suffix(".pub")


def try_key(r):
    """Signs an invented list first, because a wrong password should not be found after an hour."""
    trial = r.work / "key/SHA256SUMS"
    def write():
        trial.parent.mkdir(parents=True)
        trial.write_text(f"{'0' * 64}  trial\n")
    return [Step("write a list to try the key", action=write, says=f"write {trial}"), signature(r, trial)]


def stage_for(r, kind, arch, variant):
    """Returns the staged folder of a kind of package. A wheel of the variant cuda has no copies of NVIDIA's libraries, so it has another list of sums."""
    return r.work / f"stage-{arch}-{variant}{'-wheel' if (kind, variant) == ('wheel', 'cuda') else ''}"


def stage(r, kind, arch, variant):
    """Stages the programs of one processor and variant for a kind of package, and signs their list if there is a key."""
    folder = stage_for(r, kind, arch, variant)
    command = ["packaging/stage", "--arch", arch, "--variant", variant, "--out", folder]
    yield Step(f"stage {folder.name.removeprefix('stage-').replace('-', ' ')}", [*command, *(("--public-key", public_key(r)) if r.key else ()),
                *(["--no-libraries"] if folder.name.endswith("-wheel") else [])],
               hint="look at the build log that the output names; the third-party sources must be reachable")
    if r.key:
        yield signature(r, folder / "share/coxswain/SHA256SUMS")


def symbols(r, folder, name):
    """Packs debug symbols with one order, one owner and one time, so that the bytes are the same everywhere."""
    return Step(f"pack {name}", ["tar", "--sort=name", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX",
                                 f"--mtime=@{r.commit_time}", "-I", "zstd -q -10 -T1", "-cf", r.out / name, "-C", folder, ".build-id"])


def has_wheel(r, arch, variant):
    """A wheel's name has no variant. The variant cuda also serves without a GPU, so it is the wheel where it is built."""
    return variant == "cuda" or (arch, "cuda") not in r.targets()


def packages(r, arch, variant):
    folder = stage_for(r, "tarball", arch, variant)
    yield from stage(r, "tarball", arch, variant)
    for kind in ("tarball", "deb", "rpm", "wheel"):
        if kind in r.kinds and (kind != "wheel" or has_wheel(r, arch, variant)):
            if stage_for(r, kind, arch, variant) != folder:
                yield from stage(r, kind, arch, variant)
            yield Step(f"{kind} {arch} {variant}", [f"packaging/{kind}", "--stage", stage_for(r, kind, arch, variant), "--arch", arch, "--variant", variant, "--out", r.out])
    if "symbols" in r.kinds:
        yield symbols(r, Path(f"{folder}.debug"), r.name(arch, variant, "-debug.tar.zst"))
    yield copy(folder / "share/coxswain/sbom.spdx.json", r.out / r.name(arch, variant, ".spdx.json"))


def image(r, arch, variant):
    name = r.name(arch, variant, "-image.tar")
    made = r.work / name
    yield Step(f"build {PRESETS[variant]} for the image", ["scripts/build", PRESETS[variant], "--", *PROGRAMS])
    yield Step(f"image {arch} {variant}", ["deploy/image/build", "--variant", variant, "--out", made],
               hint="Debian's mirror must be reachable; deploy/image/build says what else is wrong")
    for suffix in ("", ".spdx.json"):
        yield move(Path(f"{made}{suffix}"), r.out / f"{name}{suffix}")
    if "symbols" in r.kinds:
        yield symbols(r, Path(f"{made}.debug"), r.name(arch, variant, "-image-debug.tar.zst"))


def write_notes(r):
    text = versions.notes_of(r.root, r.version)
    if r.key:
        key = public_key(r).read_text().strip()
        text += f"\n\n## The release key\n\n`SHA256SUMS.minisig` is a signature with this public key of minisign. SECURITY.md in the repository has it too. " \
                f"To check a download, save the two lines as `coxswain.pub`:\n\n```\n{key}\n```"
    (r.out / checks.NOTES).write_text(f"# Coxswain {r.version}\n\n{text}\n")


def audit_of_images(r):
    options = [word for a, v in r.image_targets() for word in ("--sbom", r.out / r.name(a, v, "-image.tar.spdx.json"))]
    return Step("audit the images' Debian packages", ["scripts/audit", "debian", "--require-all", *options],
                hint="upgrade the packages of this machine, which the image takes, or see docs/develop/supply-chain.md")


def steps(r):
    """Returns the steps of a release in their order."""
    made = try_key(r) if r.key else []
    if r.audit:
        made.append(Step("audit", ["scripts/audit", "--require-all"],
                         hint="docs/develop/supply-chain.md says what to do about a finding; --no-audit leaves the audit out"))
    if set(r.kinds) & set(checks.STAGED):
        for target in r.targets():
            made += packages(r, *target)
    if "image" in r.kinds:
        for target in r.image_targets():
            made += image(r, *target)
        if r.audit and r.image_targets():
            made.append(audit_of_images(r))
    if "chart" in r.kinds:
        made.append(Step("chart", [checks.python_with_yaml(r.root) or "python3", "packaging/chart", "--out", r.out]))
    made.append(Step("write the release notes", action=lambda: write_notes(r), says=f"write {r.out / checks.NOTES}: the section {r.version} of CHANGELOG.md"))
    made.append(Step("list all files", ["packaging/sums", r.out]))
    if r.key:
        made.append(signature(r, r.out / checks.SUMS))
    return made


def next_steps(r, out, commit):
    """Returns the commands that publish the release. The owner runs them."""
    names = sorted(p.name for p in out.iterdir())
    lines = [f"git tag -s v{r.version} -m 'Coxswain {r.version}' {commit} && git push origin v{r.version}"]
    images = [f"{out}/{n}" for n in names if n.endswith("-image.tar")]
    if images:
        lines.append(f"packaging/push REGISTRY/PATH {' '.join(images)}")
    elif "chart" in r.kinds:
        lines.append("packaging/push REGISTRY/PATH")
    if any(n.endswith(".whl") for n in names):
        lines.append(f"python3 -m twine upload {out}/*.whl")
    return lines
