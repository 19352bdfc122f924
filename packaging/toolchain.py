"""Provides the compiler of the packages: zig, which is a clang that links against the symbols of a chosen glibc, for x86-64 and arm64.

PyPI's package `ziglang` has it. pip downloads the wheel from its configured index and checks its hash; nothing of it is installed.
"""
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "deploy/image"))
from debian import Failed, run  # noqa: E402

ZIG = "0.17.1"
HASHES = ("ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54",)  # the wheel for Linux on x86-64
GLIBC = "2.28"
ARCHS = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
# Options of every compilation. zig adds sanitizers and its own processor to compilations that do not choose them.
FLAGS = ("-fno-sanitize=undefined", "-gno-column-info")
WRAPPER = """#!/bin/sh
# Written by packaging/toolchain.py. Compiles for {target}. zig names arm64's instruction sets by -mcpu, where gcc has -march.
for a; do
    shift
    case $a in
    -march=armv8-a) continue ;;
    -march=armv8.2-a+*) a=-mcpu=generic+v8_2a+${{a#-march=armv8.2-a+}} ;;
    -Wl,--as-needed | -Wl,-Bsymbolic-functions | -lgcc | --sysroot= | --target=* | -m64) continue ;;
    -lgcc_s) a=-lunwind ;;
    -lstdc++) a=-lc++ ;;
    esac
    set -- "$@" "$a"
done
exec {zig} {language} -target {target}.{glibc} -mcpu={cpu} {flags} "$@"
"""
CPU = {"x86_64": "x86_64", "aarch64": "generic"}


def check_plain(folder):
    """Refuses a folder whose name configure, make, RUSTFLAGS or the compiler's wrapper would split."""
    if not re.fullmatch(r"[\w./+,@~-]+", str(folder)):
        raise Failed(f"the folder {str(folder)!r} has a space or a special character, which configure, make and cargo do not accept. "
                     "Use a clone, a CARGO_HOME and a COX_PACKAGING_CACHE whose paths have only letters, digits and . _ / + , @ ~ -.")


def cache():
    """Returns the folder of everything that is downloaded or built once: COX_PACKAGING_CACHE, default build/packaging."""
    folder = Path(os.environ.get("COX_PACKAGING_CACHE") or ROOT / "build/packaging")
    for path in (ROOT, folder.resolve()):
        check_plain(path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextlib.contextmanager
def alone(name):
    """Holds a lock of the cache, because two builds at once would write the same files."""
    with open(cache() / f"{name}.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"packaging: waiting for another build that uses {cache()}", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def of_this_compiler(folder):
    """Makes a folder of compiled files, and removes what another compiler, or the same one with other options, left there."""
    wanted = hashlib.sha256(repr((ZIG, HASHES, GLIBC, ARCHS, CPU, FLAGS, WRAPPER)).encode()).hexdigest()
    stamp = folder / "compiler"
    if folder.exists() and (not stamp.is_file() or stamp.read_text() != wanted):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stamp.write_text(wanted)
    return folder


def python_with_pip():
    for python in (ROOT / ".venv/bin/python", sys.executable):
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            return python
    raise Failed("found no Python with pip. Run scripts/setup, which makes .venv, or install python3-pip.")


def zig():
    """Returns the path of the compiler. It is downloaded first, if it is missing."""
    folder = cache() / f"zig-{ZIG}"
    program = folder / "ziglang/zig"
    if not program.exists():
        with alone("zig"):
            if not program.exists():
                fetch_zig(folder)
    return program


def fetch_zig(folder):
    new = cache() / f"zig-{ZIG}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    (new / "requirements.txt").write_text(f"ziglang=={ZIG} " + " ".join(f"--hash=sha256:{h}" for h in HASHES) + "\n")
    run(python_with_pip(), "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:", "-d", new, "-r", new / "requirements.txt")
    wheel = next(new.glob("*.whl"))
    with zipfile.ZipFile(wheel) as z:
        z.extractall(new)
    wheel.unlink()
    (new / "ziglang/zig").chmod(0o755)
    new.replace(folder)


def tools(arch, folder, maps=()):
    """Writes cox-cc, cox-c++, cox-ar and cox-ranlib into `folder`. The names of the folders in `maps` [(folder, name)] do not
    get into the programs. Returns the environment in which builds find the tools."""
    for at, _ in maps:
        check_plain(at)
    folder.mkdir(parents=True, exist_ok=True)
    program = zig()
    flags = " ".join([*FLAGS, *(f"-ffile-prefix-map={at}={name}" for at, name in maps)])
    for name, language in (("cox-cc", "cc"), ("cox-c++", "c++")):
        text = WRAPPER.format(zig=program, language=language, target=ARCHS[arch], glibc=GLIBC, cpu=CPU[arch], flags=flags)
        write_program(folder / name, text)
    for name in ("ar", "ranlib"):
        write_program(folder / f"cox-{name}", f'#!/bin/sh\nexec {program} {name} "$@"\n')
    return {**{k: v for k, v in os.environ.items() if k not in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS")},
            "PATH": f"{folder}:{os.environ['PATH']}", "CC": "cox-cc", "CXX": "cox-c++", "AR": "cox-ar", "RANLIB": "cox-ranlib",
            "ZIG_GLOBAL_CACHE_DIR": str(cache() / "zig-cache"), "ZIG_LOCAL_CACHE_DIR": str(cache() / "zig-cache"), "LC_ALL": "C",
            "SOURCE_DATE_EPOCH": "315532800"}


def objcopy(arch):
    """Returns the program that changes object files of a processor."""
    for name in (f"{arch}-linux-gnu-objcopy", ROOT / f".deps/arm64/bin/{arch}-linux-gnu-objcopy"):
        if shutil.which(name):
            return shutil.which(name)
    raise Failed(f"{arch}-linux-gnu-objcopy is not installed. Run scripts/setup --arm64, or apt-get install binutils-{arch.replace('_', '-')}-linux-gnu.")


def runtime(arch, folder, environment):
    """Makes libcoxrt.a: zig's compiler runtime, from which programs see only the helpers whose names begin with two underscores.

    The runtime is one object that also has memcpy, exp, sincosf and others. A program that needs one helper would get all of
    them, in place of glibc's, which are faster and give the same bits as in programs of other compilers."""
    library = folder / "libcoxrt.a"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=folder) as work:
        (Path(work) / "empty.c").write_text("int main(void) { return 0; }\n")
        done = subprocess.run(["cox-cc", "-v", "empty.c", "-o", "empty"], cwd=work, env=environment, capture_output=True, text=True, check=False)
        found = re.findall(r"\S+/libcompiler_rt\.a", done.stderr)
        if done.returncode != 0 or not found:
            raise Failed(f"zig did not say where its runtime library is: {done.stderr[-300:]}")
        run("ar", "x", found[-1], cwd=work)
        for i, path in enumerate(sorted(p for p in Path(work).iterdir() if p.suffix in (".o", ".obj"))):
            run(objcopy(arch), "--wildcard", "--keep-global-symbol=__*", path, Path(work) / f"cox-rt-{i}.o")
        run("ar", "crsD", library, *sorted(Path(work).glob("cox-rt-*.o")))
    return library


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)
