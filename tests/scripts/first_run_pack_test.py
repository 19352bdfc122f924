"""Tests the pack of tests/cuda/first-run, made from this tree's release build, without a device. prepare makes the pack, and
first-run reports that there is no device. Each program starts and finds its libraries in the pack, also in bare roots of
Debian 12 and Ubuntu 24.04.
  first_run_pack_test.py [--objects DIR] [--pack FOLDER] [--roots DIR] [--both-roots] [--make]
--objects: folder of kernels that a build has compiled; compiling them again takes minutes. Without it they are compiled for sm_90a only.
--pack: a folder that prepare has made. --roots: folder of the bare roots (default build/roots). debootstrap makes a missing root of
Debian, as root, and of Ubuntu if its archive can be reached. --both-roots: fail when one of the two cannot be made.
--make: only make the pack and the bare roots. The next run uses them, as long as no commit is made in between.
Exit status 77: there is no release build or no nvcc, or neither root could be made, so that the programs started on this machine only."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "build/release"
GLIBC = (2, 36)  # Debian 12 has this version of glibc, and Ubuntu 24.04 has 2.39
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|librt|libresolv|libutil|ld-linux-x86-64|libstdc\+\+|libgcc_s)\.so")
LIMIT_MIB = 60
MADE = ROOT / "build/first-run-pack"  # holds the pack of --make, and the commit that it was made from
ROOTS = {"Debian 12": ("bookworm", "http://deb.debian.org/debian"), "Ubuntu 24.04": ("noble", "http://archive.ubuntu.com/ubuntu")}
KEYRINGS = {"bookworm": "/usr/share/keyrings/debian-archive-keyring.gpg", "noble": "/usr/share/keyrings/ubuntu-archive-keyring.gpg"}
failures = []


def check(holds, what, detail=""):
    print(f"{'ok    ' if holds else 'FAILED'} {what}{': ' + detail if detail else ''}", flush=True)
    if not holds:
        failures.append(what)


def run(*command, **options):
    return subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def prepare(folder, objects):
    begin = time.monotonic()
    more = ["--objects", objects] if objects else []
    done = run(ROOT / "tests/cuda/first-run/prepare", "--release", RELEASE, "--out", folder / "first", "--work", folder / "work", "--jobs", 2, *more)
    check(done.returncode == 0, f"prepare in {time.monotonic() - begin:.0f} s", done.stdout.strip().split("\n")[-2] if done.returncode == 0 else done.stdout[-1500:])
    return folder / "first"


def head():
    return run("git", "-C", ROOT, "rev-parse", "HEAD").stdout.strip()


def make(objects, roots):
    """Makes the pack and the bare roots for a later run."""
    shutil.rmtree(MADE, ignore_errors=True)
    prepare(MADE, objects)
    shutil.rmtree(MADE / "work", ignore_errors=True)
    if not failures:
        (MADE / "commit").write_text(head() + "\n")
    for name, (suite, mirror) in ROOTS.items():
        why = bare_root(roots, suite, mirror)[1]
        print(f"{name}: {why or 'made'}")


def made_before():
    """Returns the pack that make() has made from this commit, or None."""
    commit = MADE / "commit"
    return MADE / "first" if commit.is_file() and commit.read_text().strip() == head() else None


def check_no_device(first):
    begin = time.monotonic()
    done = run("bash", first / "first-run", env={**os.environ, "PATH": "/usr/bin:/bin"})
    seconds = time.monotonic() - begin
    check(done.returncode == 77 and seconds < 10, f"no device: exit status {done.returncode} in {seconds:.1f} s", done.stdout.strip()[:80])


def programs(pack):
    return sorted(p for folder in ("bin", "tests") for p in (pack / folder).iterdir() if os.access(p, os.X_OK) and p.suffix != ".so")


def check_needs(pack):
    """Checks that each needed library is in the pack or in every system, and that no symbol is newer than GLIBC."""
    here, newest = {p.name for p in (pack / "lib").iterdir()}, (0, 0)
    for file in [*programs(pack), *(pack / "lib").iterdir(), *(pack / "tests").glob("*.so")]:
        needed = re.findall(r"NEEDED +(\S+)", run("objdump", "-p", file).stdout)
        absent = [name for name in needed if name not in here and not SYSTEM.match(name)]
        if absent:
            check(False, f"{file.name} needs what is not there", " ".join(absent))
        for version in re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", file).stdout):
            newest = max(newest, tuple(map(int, version)))
    check(newest <= GLIBC, f"the newest symbol is of glibc {newest[0]}.{newest[1]}", f"at most {GLIBC[0]}.{GLIBC[1]}")


def start_all(pack, title, command=(), at=None):
    """Checks that each program starts: it prints its version, or ends with 77 because there is no device. Two programs fail without
    NVIDIA's libraries, and their message about that counts as a start too."""
    at, bad = at or pack, []
    for p in programs(pack):
        args = ["--version"] if p.parent.name == "bin" else ["--device", "cuda", "own"] if p.name == "model_golden" else []
        done = run(*command, "/usr/bin/env", f"LD_LIBRARY_PATH={at}/lib", at / p.relative_to(pack), *args, cwd=pack, timeout=120)
        wants_libraries = p.name in ("cuda_libraries_test", "cuda_nccl_test") and done.returncode == 1 and re.search("lib(cublasLt|nccl).so", done.stdout)
        if not (done.returncode in (0, 77) or wants_libraries) or "while loading shared libraries" in done.stdout:
            bad.append(f"{p.name} ({done.returncode}): {done.stdout.strip()[:200]}")
    check(not bad, f"{len(programs(pack))} programs start {title}", "; ".join(bad))


def bare_root(roots, suite, mirror):
    """Returns (path of a bare root of a distribution, ""), or (None, reason)."""
    roots.mkdir(parents=True, exist_ok=True)
    root = roots / suite
    if (root / "usr/bin/env").exists():
        return root, ""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        return None, "this needs root and debootstrap"
    # An older debootstrap does not know the release. The script of an older release works as well (scripts/clean-root).
    script = [] if Path("/usr/share/debootstrap/scripts", suite).exists() else ["/usr/share/debootstrap/scripts/gutsy"]
    keyring = KEYRINGS[suite]
    if not Path(keyring).exists():
        return None, f"{keyring} is not here"
    done = run("debootstrap", "--variant=minbase", f"--keyring={keyring}", suite, root, mirror, *script)
    if done.returncode != 0:
        shutil.rmtree(root, ignore_errors=True)
        return None, done.stdout.strip().split("\n")[-1][:160]
    return root, ""


def check_roots(pack, roots):
    """Starts the programs in bare roots; returns the roots that could not be made, with the reasons."""
    not_run = []
    for name, (suite, mirror) in ROOTS.items():
        root, why = bare_root(roots, suite, mirror)
        if not root:
            not_run.append(f"{name} ({why})")
            continue
        inside = root / "pack"
        shutil.rmtree(inside, ignore_errors=True)
        shutil.copytree(pack, inside, symlinks=True)
        start_all(pack, f"in a bare {name}", ("chroot", root), Path("/pack"))
        shutil.rmtree(inside, ignore_errors=True)
    return not_run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=Path)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--roots", type=Path, default=ROOT / "build/roots")
    parser.add_argument("--both-roots", action="store_true")
    parser.add_argument("--make", action="store_true")
    args = parser.parse_args()
    if not args.pack and not (RELEASE / "bin/cox").exists():
        print("SKIPPED: no build/release (scripts/build release)")
        return 77
    if not args.pack and not (ROOT / ".deps/cuda/bin/nvcc").exists():
        print("SKIPPED: no nvcc (scripts/setup --cuda)")
        return 77
    if args.make:
        make(args.objects, args.roots)
        return 1 if failures else 0
    with tempfile.TemporaryDirectory(prefix="first-run-") as name:
        folder = Path(name)
        first = args.pack or made_before() or prepare(folder, args.objects)
        if failures:
            return 1
        tree = sum((ROOT / f).stat().st_size for f in run("git", "-C", ROOT, "ls-files", "-z").stdout.split("\0") if f and (ROOT / f).is_file())
        size = sum(f.stat().st_size for f in first.iterdir())
        check(tree + size <= LIMIT_MIB << 20, f"the pack is {size >> 10} KiB, the tree {tree >> 10}", f"at most {LIMIT_MIB} MiB together")
        check_no_device(first)
        pack = folder / "unpacked"
        with tarfile.open(first / "pack.tar.xz") as tar:
            tar.extractall(pack)
        check_needs(pack)
        start_all(pack, "here")
        not_run = check_roots(pack, args.roots)
        if args.both_roots:
            check(not not_run, "both bare roots", "; ".join(not_run))
    said = f"{len(failures)} checks failed" if failures else "all held"
    print(said + (f"; not run in a bare root of {', '.join(not_run)}" if not_run else ""))
    if len(not_run) == 2 and not failures:
        print("SKIPPED: no bare root, so that only this system has started the programs")
        return 77
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
