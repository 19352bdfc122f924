"""Tests scripts/release: on an invented repository whose scripts only write small files, on a clone of this one, and on this tree."""
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/releasing"))
import checks  # noqa: E402
import plan  # noqa: E402
import prepare  # noqa: E402
import versions  # noqa: E402

NATIVE = platform.machine()
TARGETS = ("x86_64-cpu", "x86_64-cuda", "aarch64-cpu")
# Every script of the invented repository. It notes its call, and writes what the real one writes: the file depends on its options and on the time.
TOY = f"""#!{sys.executable}
import os, sys
from pathlib import Path
me, words = sys.argv[0].removeprefix("./"), sys.argv[1:]
given = dict(zip(words[::2], words[1::2]))
with open(os.environ["TOY_CALLS"], "a") as f:
    f.write(f"{{me}} {{' '.join(words)}}\\n")
if os.environ.get("TOY_FAILS") == me:
    sys.exit(f"{{me}}: there is no bread")
arch, variant, text = given.get("--arch"), given.get("--variant"), f"{{me}} {{os.environ['SOURCE_DATE_EPOCH']}} {{os.environ.get('CFLAGS')}}\\n"
def put(path, text=text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
out = Path(given.get("--out", "."))
if me.endswith("stage"):
    for name in ("bin/cox", "share/coxswain/sbom.spdx.json", "share/coxswain/SHA256SUMS"):
        put(out / name)
    put(Path(f"{{out}}.debug/.build-id/ab/cd.debug"))
    if "--public-key" in given:
        put(out / "share/coxswain/release.pub", Path(given["--public-key"]).read_text())
elif me.endswith("sign"):
    if "right" not in Path(given["--key"]).read_text():
        sys.exit("packaging/sign: wrong password")
    put(Path(words[-1] + ".minisig"), "signed " + Path(words[-1]).read_text())
elif me == "deploy/image/build":
    put(out), put(Path(f"{{out}}.spdx.json")), put(Path(f"{{out}}.debug/.build-id/ab/ef.debug"))
elif me.startswith("packaging/"):
    kind = me.rpartition("/")[2]
    put(out / ("coxswain-1.2.3.tgz" if kind == "chart" else f"{{arch}}.whl" if kind == "wheel" else f"{{kind}}-{{arch}}-{{variant}}"))
"""
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Fixed\n\n- Tea is hot.\n\n## 1.2.3 (2026-11-30)\n\n### Added\n\n- Tea.\n\n## 1.2.2 (2026-10-01)\n\n- Water.\n"


def git(folder, *words):
    return subprocess.run(["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false", *words],
                          capture_output=True, text=True, check=True).stdout.strip()


class Toy:
    """A repository of version 1.2.3, and programs in PATH in place of those that a machine may lack."""

    def __init__(self, work):
        self.work, self.root, self.bin = work, work / "repo", work / "bin"
        self.write({"CMakeLists.txt": "project(coxswain VERSION 1.2.3 LANGUAGES C)\n", "CHANGELOG.md": CHANGELOG, "SECURITY.md": "RWTEA\n", ".gitignore": "/build/\n/.deps\n/.venv-k8s\n"})
        for name in ("packaging/stage", "packaging/tarball", "packaging/deb", "packaging/rpm", "packaging/wheel", "packaging/chart", "packaging/sign",
                     "deploy/image/build", "scripts/build", "scripts/audit"):
            self.program(self.root / name, TOY)
        shutil.copy(ROOT / "scripts/release", self.root / "scripts/release")
        shutil.copytree(ROOT / "scripts/releasing", self.root / "scripts/releasing", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("sums", "script.py"):
            shutil.copy(ROOT / "packaging" / name, self.root / "packaging" / name)
        self.program(self.root / ".deps/cuda/bin/nvcc", "")
        self.program(self.root / ".venv-k8s/bin/python", f'#!/bin/sh\n[ "$1" = -c ] || exec {sys.executable} "$@"\n')
        for name in (*(program for programs in checks.PROGRAMS.values() for program, _ in programs), *(f"{a}-linux-gnu-objcopy" for a in plan.ARCHS)):
            self.program(self.bin / name, "#!/bin/sh\nexit 9\n")
        (self.bin / "tar").unlink()
        self.program(self.bin / "zstd", "#!/bin/sh\nexec cat\n")
        self.program(self.bin / "rustc", "#!/bin/sh\necho /\n")
        for name in ("git", "tar", "sh", "cat", "python3"):
            (self.bin / name).symlink_to(shutil.which(name))
        git(self.root.parent, "init", "-q", "-b", "main", self.root)
        self.commit("tea: begin")

    def write(self, files):
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def commit(self, subject):
        git(self.root, "add", "-A")
        git(self.root, "commit", "-qm", subject)

    def calls(self):
        path = self.work / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def release(self, *words, **environment):
        """Runs scripts/release. Returns its exit status and all that it printed."""
        env = {"PATH": str(self.bin), "HOME": str(self.work), "TOY_CALLS": str(self.work / "calls"), "CFLAGS": "-Otea", **environment}
        done = subprocess.run([sys.executable, self.root / "scripts/release", *map(str, words)], env=env, cwd=self.work, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def key(self, text="right"):
        key = self.work / "tea.key"
        key.write_text(text)
        key.with_suffix(".pub").write_text("untrusted comment: tea\nRWTEA\n")
        return key


def verified(folder):
    """Returns the names in SHA256SUMS after each sum was compared."""
    lines = [line.split("  ", 1) for line in (folder / "SHA256SUMS").read_text().splitlines()]
    for digest, name in lines:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    return {name for _, name in lines}


class InToy(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="cox-release-")
        self.addCleanup(made.cleanup)
        self.toy = Toy(Path(made.name))
        self.out = self.toy.root / "build/dist/1.2.3"

    def refused(self, *words, of="1.2.3", **environment):
        """Runs a release that must fail before its first step. Returns the message."""
        rc, said = self.toy.release(of, *words, **environment)
        self.assertEqual((rc, self.toy.calls()), (1, []), said)
        self.assertFalse(self.out.exists())
        return said


class Release(InToy):
    def expected(self):
        files = {"RELEASE_NOTES.md", "coxswain-1.2.3.tgz", "x86_64.whl", "aarch64.whl"}
        for target in TARGETS:
            arch, variant = target.split("-")
            name = f"coxswain-1.2.3-linux-{arch}{'-cuda' if variant == 'cuda' else ''}"
            files |= {f"{kind}-{target}" for kind in ("tarball", "deb", "rpm")} | {f"{name}.spdx.json", f"{name}-debug.tar.zst"}
            if arch == NATIVE:
                files |= {f"{name}-image.tar", f"{name}-image.tar.spdx.json", f"{name}-image-debug.tar.zst"}
        return files

    def test_everything_is_made_listed_and_signed(self):
        rc, said = self.toy.release("1.2.3", "--key", self.toy.key())
        self.assertEqual(rc, 0, said)
        self.assertEqual(verified(self.out), self.expected())
        self.assertEqual({p.name for p in self.out.iterdir()}, self.expected() | {"SHA256SUMS", "SHA256SUMS.minisig"})
        self.assertEqual((self.out / "SHA256SUMS.minisig").read_text(), "signed " + (self.out / "SHA256SUMS").read_text())
        time = git(self.toy.root, "log", "-1", "--format=%ct")
        self.assertEqual((self.out / "deb-x86_64-cpu").read_text(), f"packaging/deb {time} None\n")
        for target in (*TARGETS, "x86_64-cuda-wheel"):  # the packages were made after the signature of the staged list
            staged = self.toy.root / f"build/dist/1.2.3.work/stage-{target}/share/coxswain"
            self.assertEqual((staged / "SHA256SUMS.minisig").read_text(), "signed " + (staged / "SHA256SUMS").read_text())
            self.assertIn("RWTEA", (staged / "release.pub").read_text())
            calls = [i for i, call in enumerate(self.toy.calls()) if f"stage-{target}" in call]
            self.assertIn("packaging/sign", self.toy.calls()[calls[1]])
        wheels = [call for call in self.toy.calls() if call.startswith("packaging/wheel")]
        self.assertEqual([("--variant cuda" in w, "--arch aarch64" in w) for w in wheels], [(True, False), (False, True)])
        self.assertEqual(["stage-x86_64-cuda-wheel " in f"{c} " for c in self.toy.calls() if "--variant cuda" in c and "--stage" in c],
                         [False, False, False, True])  # the tarball, the .deb and the .rpm have NVIDIA's libraries
        notes = (self.out / "RELEASE_NOTES.md").read_text()
        self.assertIn("- Tea.", notes)
        self.assertIn("\n```\nuntrusted comment: tea\nRWTEA\n```\n", notes)  # minisign -p needs both lines
        self.assertFalse("Water" in notes or "hot" in notes, notes)
        self.assertIn("left out: cuda for aarch64", said)
        for command in ("git tag -s v1.2.3", "packaging/push REGISTRY/PATH", "twine upload"):
            self.assertIn(command, said)
        self.assertRegex(said, r"\n +[\d,]+ +\d+\.\d  deb-x86_64-cpu\n")
        self.assertIn("signed", said)

    def test_the_same_commit_gives_the_same_sums_in_an_empty_folder(self):
        words = ("--kinds", "tarball,symbols", "--arch", "x86_64", "--variant", "cpu", "--no-audit")
        self.assertEqual(self.toy.release("1.2.3", *words)[0], 0)
        first = (self.out / "SHA256SUMS").read_text()
        rc, said = self.toy.release("1.2.3", *words, "--out", self.toy.work / "other")
        self.assertEqual((rc, (self.toy.work / "other/SHA256SUMS").read_text()), (0, first))
        (self.out / "image-of-another-machine").write_text("")
        rc, again = self.toy.release("1.2.3", *words)
        self.assertEqual((rc, f"{self.out} has files. Give a folder that is new or empty" in again), (1, True), again)
        self.assertTrue((self.out / "image-of-another-machine").exists())
        shutil.rmtree(self.out)
        self.out.mkdir()
        self.assertEqual(self.toy.release("1.2.3", *words)[0], 0)
        self.assertEqual((self.out / "SHA256SUMS").read_text(), first)
        self.assertIn("NOT signed", said)
        self.assertNotIn("scripts/audit", "".join(self.toy.calls()))

    def test_a_step_that_fails_is_named_and_makes_no_release(self):
        words = ("--kinds", "deb,rpm", "--arch", "x86_64", "--variant", "cpu")
        rc, said = self.toy.release("1.2.3", *words, TOY_FAILS="packaging/rpm")
        self.assertEqual(rc, 1)
        for part in ('the step "rpm x86_64 cpu" failed with exit status 1: packaging/rpm --stage', "| packaging/rpm: there is no bread", "What to do:"):
            self.assertIn(part, said)
        self.assertIn("packaging/deb", Path(re.search(r"The whole output is in (\S+)\. ", said)[1]).read_text())
        self.assertFalse(self.out.exists())
        self.assertEqual(self.toy.release("1.2.3", *words)[0], 0)
        self.assertIn("rpm-x86_64-cpu", verified(self.out))

    def test_a_wrong_key_is_found_before_anything_is_built(self):
        rc, said = self.toy.release("1.2.3", "--key", self.toy.key("wrong"))
        self.assertEqual(rc, 1)
        self.assertIn("wrong password", said)
        self.assertEqual([call.split()[0] for call in self.toy.calls()], ["packaging/sign"])

    def test_a_dry_run_prints_the_commands_and_makes_nothing(self):
        rc, said = self.toy.release("1.2.3", "--dry-run", "--key", self.toy.key())
        self.assertEqual((rc, self.toy.calls()), (0, []), said)
        self.assertFalse((self.toy.root / "build").exists())
        for command in ("scripts/audit --require-all", "packaging/stage --arch aarch64 --variant cpu --out", f"packaging/sums {self.out}.work/made", "packaging/chart --out",
                        f"packaging/sign --key {self.toy.work}/tea.key", f"mv {self.out}.work/made {self.out}"):
            self.assertIn(command, said)


class Refusals(InToy):
    def test_trees(self):
        self.toy.write({"tea": "cold"})
        self.assertIn("the tree has changes that no commit has (tea)", self.refused())
        self.toy.commit("tea: add")
        said = self.refused("--kinds", "chart", of="1.2.4")
        self.assertIn("CMakeLists.txt has version 1.2.3, not 1.2.4. Run scripts/release --prepare 1.2.4", said)
        self.assertIn("CHANGELOG.md has no section of 1.2.4", said)
        git(self.toy.root, "tag", "v1.2.3", "HEAD~1")
        self.assertIn("the tag v1.2.3 is commit", self.refused())
        git(self.toy.root, "tag", "-f", "v1.2.3")
        self.assertEqual(self.toy.release("1.2.3", "--dry-run")[0], 0)
        for heading, says in (("## 1.2.3\n", "has no date"), ("## 1.2.3 (2026-11-30)\n\n## Tea (2026-11-30)\n", "has no text"),
                              ("## 1.2.3 (2026-11-30)\n\n- Tea.\n\n## 1.2.3 (2026-11-30)\n", "two sections")):
            self.toy.write({"CHANGELOG.md": CHANGELOG.replace("## 1.2.3 (2026-11-30)\n", heading)})
            self.assertIn(says, self.refused())

    def test_versions(self):
        for text in ("1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.2.3\n", "1.2.x", "1.2.3 ", "", "१.२.३", "1.2.100000", "1.2.3+build"):
            with self.assertRaisesRegex(versions.Failed, "is not a semantic version", msg=text):
                versions.Version(text)
        self.assertIn("is not a semantic version", self.refused(of="../1.2.3"))
        self.assertIn("is a pre-release", self.refused(of="1.2.3-rc.1"))

    def test_folders(self):
        full = self.toy.work / "full"
        full.mkdir()
        (full / "tea").touch()
        (self.toy.work / "new.work").mkdir()
        (self.toy.work / "new.work/release.log").touch()
        for out, says in ((full, "has files. Give"), (full / "tea", "is not a folder"), (self.toy.root / "packages", "git does not ignore it"),
                          (self.toy.root, "has files. Give"), (self.toy.work, "has files. Give"), (self.toy.work / "new", "did not make")):
            self.assertIn(says, self.refused("--out", out))

    def test_machines_and_keys(self):
        for name in ("rpmbuild", "autoreconf", "tclsh", "dpkg-source"):
            (self.toy.bin / name).unlink()
        (self.toy.bin / "aarch64-linux-gnu-objcopy").unlink()
        shutil.rmtree(self.toy.root / ".deps")
        (self.toy.bin / "rustc").unlink()
        said = self.refused("--key", self.toy.work / "absent", "--password-file", self.toy.work / "none")
        for part in ("this machine lacks aarch64-linux-gnu-objcopy, autoreconf, dpkg-source, rpmbuild, tclsh. "
                     "Run: apt-get install -y autoconf binutils-aarch64-linux-gnu dpkg-dev rpm tcl",
                     "the CUDA toolchain is missing. Run: scripts/setup --cuda", "Rust's standard library for x86_64 is missing", "absent is not a file",
                     "none is not a file"):
            self.assertIn(part, said)
        key = self.toy.key()
        for text in ("RWTEA\n", "untrusted comment: coffee\nRWCOFFEE\n"):
            key.with_suffix(".pub").write_text(text)
            self.assertIn("SECURITY.md does not have the key of" if "\n" in text[:-1] else "is not a public key of minisign", self.refused("--key", key))
        self.assertEqual(self.toy.release("1.2.3", "--dry-run", "--kinds", "chart")[0], 0)
        self.assertIn("nothing is left to make", self.refused("--arch", "aarch64", "--variant", "cuda"))
        rc, said = self.toy.release("1.2.3", "--kinds", "teapot")
        self.assertEqual(rc, 2)
        self.assertIn("'teapot' is none of tarball, deb", said)


class Prepare(unittest.TestCase):
    def setUp(self):
        if not (ROOT / prepare.PYTHON).exists() or not (ROOT / ".git").exists():
            self.skipTest("no .venv-k8s (scripts/setup --k8s-quick), or no checkout")
        made = tempfile.TemporaryDirectory(prefix="cox-release-")
        self.addCleanup(made.cleanup)
        self.root = Path(made.name) / "clone"
        git(ROOT, "clone", "-q", "--shared", "--no-tags", ROOT, self.root)
        (self.root / ".venv-k8s").symlink_to((ROOT / ".venv-k8s").resolve())
        log = self.root / "CHANGELOG.md"
        if versions.UNRELEASED not in versions.sections(log.read_text()):
            log.write_text(log.read_text().replace("\n## ", f"\n## {versions.UNRELEASED}\n\n- Tea.\n\n## ", 1))
            git(self.root, "commit", "-qam", "docs: add tea")

    def prepare(self, version, *words):
        done = subprocess.run([sys.executable, self.root / "scripts/release", "--prepare", version, *words], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def changed(self):
        return set(git(self.root, "diff", "--name-only").split("\n")) - {""}

    def test_every_place_has_the_next_version(self):
        old = versions.current(self.root)
        patch, minor, major = old.next_ones()
        changes = dict.fromkeys(prepare.files_with(self.root, old.text))
        rc, said = self.prepare(minor, "--date", "2026-12-01")
        self.assertEqual(rc, 0, said)
        self.assertEqual(versions.current(self.root).text, minor)
        self.assertEqual(prepare.strays(self.root, old.text), [])
        self.assertEqual(versions.sections((self.root / "CHANGELOG.md").read_text())[minor][0], "2026-12-01")
        self.assertNotIn(versions.UNRELEASED, versions.sections((self.root / "CHANGELOG.md").read_text()))
        for line in prepare.before_the_first(self.root):
            self.assertIn(f"\n  {line}\n", said)  # a person has to change them
        lock = tomllib.loads((self.root / "text/Cargo.lock").read_text())
        self.assertEqual([p["version"] for p in lock["package"] if p["name"] == "coxtext"], [minor])
        self.assertEqual(tomllib.loads((self.root / "text/Cargo.toml").read_text())["package"]["version"], minor)
        self.assertIn(f"image.version={minor} ", (self.root / "deploy/image/Dockerfile").read_text())
        self.assertIn(f"\nappVersion: {minor}\n", (self.root / "deploy/helm/coxswain/Chart.yaml").read_text())
        self.assertIn(f"image: coxswain:{minor}-cuda\n", (self.root / "deploy/k8s/overlays/gpu/kustomization.yaml").read_text())
        stale = [path for path, text in prepare.files_with(self.root, old.text).items() if prepare.replaced(path, text, old.text, "") != text]
        self.assertEqual(stale, [], "these files still name the old version")
        others = {p for p in self.changed() if p not in changes and p != "CHANGELOG.md" and not prepare.matches(p, prepare.GENERATED)}
        self.assertEqual(others, set(), "these files had no version, but changed")
        self.check_repeated(minor, old.text)

    def check_repeated(self, version, old):
        """A second run changes nothing, and no run goes back or skips a version."""
        before = git(self.root, "diff")
        self.assertEqual(self.prepare(version)[0], 0)
        self.assertEqual(git(self.root, "diff"), before)
        for other, says in ((old, "A version never goes back"), ("90.0.0", "skips versions"), ("1.2.3-rc.1", "pre-release")):
            rc, said = self.prepare(other)
            self.assertEqual((rc, says in said), (1, True), said)
        self.assertEqual(git(self.root, "diff"), before)

    def test_unknown_places_and_changelogs_are_refused(self):
        old = versions.current(self.root)
        patch = old.next_ones()[0]
        (self.root / "docs/index.md").write_text(f"Tea of version {old.text}\n")
        rc, said = self.prepare(patch)
        self.assertEqual((rc, f"docs/index.md:1: Tea of version {old.text}" in said), (1, True), said)
        git(self.root, "checkout", "-q", "docs/index.md")
        log = self.root / "CHANGELOG.md"
        log.write_text(re.sub(r"## Unreleased\n.*", "## Unreleased\n", log.read_text(), flags=re.S))
        rc, said = self.prepare(patch)
        self.assertEqual((rc, "has no text in a section" in said), (1, True), said)
        git(self.root, "checkout", "-q", "CHANGELOG.md")
        git(self.root, "tag", f"v{patch}")
        rc, said = self.prepare(patch)
        self.assertEqual((rc, f"the tag v{patch} exists" in said), (1, True), said)
        rc, said = self.prepare(old.next_ones()[1], "--date", "1.12.2026")
        self.assertEqual((rc, "is not a date" in said), (1, True), said)
        self.assertEqual(self.changed(), set())


class ThisTree(unittest.TestCase):
    def test_the_version_is_only_where_prepare_finds_it(self):
        if not (ROOT / ".git").exists():
            self.skipTest("no checkout")
        self.assertEqual(prepare.strays(ROOT, versions.current(ROOT).text), [], "add them to PLACES or OTHERS of scripts/releasing/prepare.py")

    def test_the_workflow_pins_its_actions_and_installs_what_is_checked(self):
        text = (ROOT / ".github/workflows/release.yml").read_text()
        used = re.findall(r"uses: (\S+)", text)
        self.assertEqual([u for u in used if not re.fullmatch(r"\./\.github/workflows/\w+\.yml|[\w-]+/[\w-]+@[0-9a-f]{40}", u)], [])
        self.assertGreaterEqual(len(used), 3)
        self.assertNotIn("secrets.", text)  # the key stays with its owner
        packages = {p for programs in checks.PROGRAMS.values() for _, p in programs} | set(checks.OBJCOPY.values())
        setup, options = (ROOT / "scripts/setup").read_text(), re.search(r"scripts/setup ([-a-z ]+)", text)[1].split()
        arrays = ["PACKAGES", "TEST_PACKAGES", *(f"{option[2:].upper()}_PACKAGES" for option in options)]
        installed = {word for name in arrays for found in re.findall(rf"^{name}=\(([^)]*)\)", setup, re.M) for word in found.split()}
        self.assertEqual(packages - set(text.split()) - installed, set())
        programs = {word for word in re.search(r"^PACKAGING_PACKAGES=\(([^)]*)\)", setup, re.M)[1].split()}
        self.assertEqual(programs - packages, set(), "a release does not look for these programs before its first step")

    def test_the_steps_are_options_of_the_scripts(self):
        r = plan.Release(ROOT, versions.current(ROOT).text, ROOT / "build/x.new", ROOT / "build/x.work", 0, plan.ARCHS, plan.VARIANTS, plan.KINDS,
                         key=Path("/k.key"), public_key=Path("/k.pub"), password_file=Path("/p"))
        helps = {}
        for step in plan.steps(r):
            if not step.command or step.command[0] == "tar":
                continue
            words = [str(w) for w in step.command]
            program = words.pop(0) if "/" in words[0] and not words[0].endswith("python") else words.pop(1)
            if program not in helps:
                done = subprocess.run([ROOT / program, "--help"], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, f"{program} --help: {done.stderr}")
                helps[program] = done.stdout
            for option in (w for w in words if w.startswith("--") and w != "--"):
                self.assertRegex(helps[program], rf"(?m){option}\b", program)
        self.assertGreaterEqual(len(helps), 9)


if __name__ == "__main__":
    unittest.main()
