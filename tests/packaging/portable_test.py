"""Tests the build of portable programs without a compiler run of minutes: the lock file of sources, the compiler's wrapper, the
identities of libraries, NVIDIA's libraries, and the check that a program runs on older systems."""
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "packaging"))
import recipes  # noqa: E402
import sources  # noqa: E402
import toolchain  # noqa: E402
import nvidia  # noqa: E402 (of deploy/image, whose folder toolchain adds to the path)
from toolchain import Failed  # noqa: E402


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "packaging" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Sources(unittest.TestCase):
    def with_lock(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        lock = Path(folder.name) / "sources.txt"
        lock.write_text(f"# snapshot: 20260101T000000Z\n{text}\n")
        return mock.patch.object(sources, "LOCK", lock)

    def test_every_library_has_a_row_and_a_recipe(self):
        names = [s.name for s in sources.sources()]
        self.assertEqual(sorted(names), sorted(sources.WANTED))
        self.assertEqual(set(names), set(recipes.RECIPES))
        self.assertLess(names.index("openssl"), names.index("curl"))
        self.assertLess(names.index("libsodium"), names.index("libzmq"))

    def test_hostile_rows_are_refused(self):
        row = "zlib zlib trixie 1.3 {pool} {file} {sha} Zlib"
        good = {"pool": "pool/main/z/zlib", "file": "zlib_1.3.dsc", "sha": "a" * 64}
        for change in ({"pool": "../../etc"}, {"file": "../zlib.dsc"}, {"sha": "a" * 63}, {"sha": "Z" * 64}):
            with self.with_lock(row.format(**{**good, **change})), self.assertRaisesRegex(Failed, "zlib is not valid"):
                sources.sources()
        with self.with_lock(row.format(**good)):
            self.assertEqual(sources.sources()[0].licence, "Zlib")

    def test_a_file_with_another_hash_is_not_used(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sources, "download", lambda url, to: to.write_bytes(b"other")):
            with self.assertRaisesRegex(Failed, "another SHA-256"):
                sources.fetch_file("pool", "a.tar.gz", "0" * 64, Path(folder))
            self.assertFalse((Path(folder) / "a.tar.gz").exists())

    def test_the_parts_of_a_source_package_stay_in_its_folder(self):
        dsc = "Format: 3.0\nChecksums-Sha256:\n {} 12 {}\nFiles:\n"
        self.assertEqual(sources.parts(dsc.format("a" * 64, "zlib.tar.gz")), [("a" * 64, "12", "zlib.tar.gz")])
        for name in ("../zlib.tar.gz", "a/b.tar.gz"):
            with self.assertRaises(Failed):
                sources.parts(dsc.format("a" * 64, name))
        with self.assertRaises(Failed):
            sources.parts("Format: 3.0\n")

    def test_versions_of_debian_become_upstream_versions(self):
        for debian, upstream in (("1:1.3.dfsg+really1.3.1-1+deb13u1", "1.3.1"), ("3.5.7-1~deb13u2", "3.5.7"), ("1.5.7+dfsg-1", "1.5.7"),
                                 ("0.2.5-2", "0.2.5"), ("8.14.1-2+deb13u5", "8.14.1")):
            self.assertEqual(recipes.upstream(debian), upstream)


class Cache(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        environment = mock.patch.dict("os.environ", {"COX_PACKAGING_CACHE": made.name})
        environment.start()
        self.addCleanup(environment.stop)

    def test_objects_of_another_compiler_are_removed(self):
        at = self.folder / "programs"
        for change in ({"ZIG": toolchain.ZIG}, {"ZIG": "9"}, {"FLAGS": ("-O9",)}):
            with mock.patch.multiple(toolchain, **change):
                self.assertFalse((toolchain.of_this_compiler(at) / "libcoxrt.a").exists(), change)
                (at / "libcoxrt.a").touch()
                self.assertTrue((toolchain.of_this_compiler(at) / "libcoxrt.a").exists(), change)
        (at / "compiler").unlink()  # an older packaging/programs left no stamp
        self.assertFalse((toolchain.of_this_compiler(at) / "libcoxrt.a").exists())

    def test_a_missing_program_is_named(self):
        """Set-up installs the programs of packaging/ only with --packaging."""
        b = recipes.Build("x86_64", self.folder / "prefix", dict(os.environ), self.folder / "log", 1)
        for call in (lambda: toolchain.run("dpkg-source", "-x"), lambda: b.make(cwd=self.folder), lambda: b.run("autoreconf", "-fi", cwd=self.folder)):
            with mock.patch.dict("os.environ", {"PATH": ""}), mock.patch.object(b, "environment", {"PATH": ""}), self.assertRaisesRegex(
                    Failed, "is not installed. Run scripts/setup --packaging"):
                call()

    def test_two_builds_do_not_run_at_once(self):
        order = []

        def second():
            with toolchain.alone("x"):
                order.append("second")
        with mock.patch("sys.stderr", io.StringIO()) as said:
            with toolchain.alone("x"), toolchain.alone("y"):
                thread = threading.Thread(target=second)
                thread.start()
                while "waiting for another build" not in said.getvalue():
                    time.sleep(0.01)
                order.append("first")
            thread.join(10)
        self.assertEqual(order, ["first", "second"])


class Wrapper(unittest.TestCase):
    def arguments(self, arch, *given):
        """Returns what the wrapper passes to zig, which is a program here that prints its arguments."""
        with tempfile.TemporaryDirectory() as folder:
            fake = Path(folder) / "zig"
            toolchain.write_program(fake, '#!/bin/sh\nprintf "%s\\n" "$@"\n')
            with mock.patch.object(toolchain, "zig", lambda: fake), mock.patch.dict("os.environ", {"COX_PACKAGING_CACHE": folder}):
                toolchain.tools(arch, Path(folder) / "tools", [("/home/me", "/x")])
            return subprocess.run([Path(folder) / "tools/cox-cc", *given], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]

    def test_gcc_options_become_zig_options(self):
        got = self.arguments("aarch64", "-march=armv8.2-a+dotprod+i8mm", "-march=armv8-a", "-lgcc_s", "-m64", "--target=x", "a b.c")
        self.assertEqual(got[-3:], ["-mcpu=generic+v8_2a+dotprod+i8mm", "-lunwind", "a b.c"])
        self.assertIn("aarch64-linux-gnu." + toolchain.GLIBC, got)
        self.assertIn("-ffile-prefix-map=/home/me=/x", got)
        self.assertEqual(self.arguments("x86_64", "-lstdc++", "-mavx2")[-2:], ["-lc++", "-mavx2"])


class Names(unittest.TestCase):
    def test_folders_that_a_build_would_split(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a b", "a$b", "a;b", "a'b", "a:b", "a\nb"):
                with mock.patch.dict("os.environ", {"COX_PACKAGING_CACHE": f"{folder}/{name}"}), self.assertRaisesRegex(Failed, "COX_PACKAGING_CACHE whose"):
                    toolchain.cache()
                with mock.patch.dict("os.environ", {"COX_PACKAGING_CACHE": folder}), self.assertRaisesRegex(Failed, "a clone, a CARGO_HOME"):
                    toolchain.tools("x86_64", Path(folder) / "tools", [(f"/{name}/.cargo", "/x")])
            self.assertEqual(list(Path(folder).iterdir()), [])
            done = subprocess.run([ROOT / "packaging/deps"], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "COX_PACKAGING_CACHE": f"{folder}/a b"})
            self.assertEqual((done.returncode, done.stderr[:17], done.stderr.count("\n")), (1, "deps: the folder ", 1), done.stderr)


class Identities(unittest.TestCase):
    def test_a_change_builds_the_library_and_those_after_it_again(self):
        deps = script("deps")
        rows = sources.sources()
        before = deps.identities("x86_64")
        self.assertNotEqual(before, deps.identities("aarch64"))
        changed = [s._replace(version="9") if s.name == "curl" else s for s in rows]
        with mock.patch.object(deps, "sources", lambda: changed):
            after = deps.identities("x86_64")
        names = [s.name for s in rows]
        at = names.index("curl")
        self.assertEqual([before[n] == after[n] for n in names], [True] * at + [False] * (len(names) - at))


class Check(unittest.TestCase):
    def setUp(self):
        if not shutil.which("gcc") or not shutil.which("readelf"):
            self.skipTest("gcc or readelf is not installed")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.module = script("stage")
        self.check = self.module.check

    def program(self, code, *options):
        (self.folder / "a.c").write_text(code)
        subprocess.run(["gcc", "a.c", "-o", "a", *options], cwd=self.folder, check=True)
        return self.folder / "a"

    def test_other_libraries_and_newer_symbols_are_refused(self):
        plain = self.program("int main(void) { return 0; }", "-nostartfiles", "-Wl,-emain")
        self.check(plain)
        with self.assertRaisesRegex(Failed, "needs (glibc [0-9.]+, )?libz.so.1, which older systems do not have"):
            self.check(self.program("extern const char *zlibVersion(void); int main(void) { return zlibVersion() == 0; }", "-lz"))
        with mock.patch.object(self.module, "GLIBC", "2.1"), self.assertRaisesRegex(Failed, "needs glibc 2"):
            self.check(self.program("#include <stdlib.h>\nint main(int n, char **a) { return abs(atoi(a[n - 1])); }"))

    def test_the_build_id_depends_on_the_stripped_program_only(self):
        program = self.program("int main(void) { return 0; }", "-nostartfiles", "-Wl,-emain", f"-Wl,--build-id=0x{'00' * 20}")
        self.module.set_build_id(program, b"b" * 20)
        said = subprocess.run(["readelf", "-nW", program], capture_output=True, text=True, check=True).stdout
        self.assertIn("Build ID: " + "62" * 20, said)
        with self.assertRaisesRegex(Failed, "no build id of zeros"):
            self.module.set_build_id(program, b"c" * 20)

    def test_a_path_of_this_machine_is_refused(self):
        program = self.program(f'const char *at = "{ROOT}/common/a.c"; int main(void) {{ return !at; }}', "-nostartfiles", "-Wl,-emain")
        with self.assertRaisesRegex(Failed, "a folder of this machine"):
            self.check(program)


class Out(unittest.TestCase):
    """packaging/stage replaces its own folders, and deletes nothing else."""

    def setUp(self):
        self.stage = script("stage")
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = Path(holder.name).resolve() / "out"
        (self.out / "share/coxswain").mkdir(parents=True)
        (self.out / "bin").mkdir()
        (self.out / "bin/cox").write_text("")
        (self.out / "bin/vllm").symlink_to("cox")
        (self.out / "share/coxswain/SHA256SUMS").write_text(f"{'0' * 64}  bin/cox\n")
        (Path(f"{self.out}.debug") / ".build-id/ab").mkdir(parents=True)
        (Path(f"{self.out}.debug") / ".build-id/ab/cd.debug").write_text("")

    def test_its_own_folders(self):
        (self.out / "share/coxswain/SHA256SUMS.minisig").write_text("")
        self.assertEqual(self.stage.check_out(self.out), self.out)
        self.assertEqual(self.stage.check_out(self.out / "../new"), self.out.with_name("new"))
        self.out.with_name("empty").mkdir()
        self.stage.check_out(self.out.with_name("empty"))

    def test_files_of_others(self):
        for path in (self.out / "bin/ls", Path(f"{self.out}.debug/.build-id/notes"), Path(f"{self.out}.debug/a.debug")):
            path.write_text("")
            with self.assertRaisesRegex(Failed, "that packaging/stage did not make"):
                self.stage.check_out(self.out)
            path.unlink()
        (self.out / "share/coxswain/SHA256SUMS").unlink()
        (self.out.with_name("file")).write_text("")
        for out in (self.out, self.out.with_name("file")):
            with self.assertRaisesRegex(Failed, "that packaging/stage did not make"):
                self.stage.check_out(out)

    def test_folders_around(self):
        for out in (ROOT, *ROOT.parents, Path("."), Path.cwd().parent):
            with self.assertRaisesRegex(Failed, "has it in it"):
                self.stage.check_out(out)
        done = subprocess.run([ROOT / "packaging/stage", "--out", ""], capture_output=True, text=True)
        self.assertEqual((done.returncode, "the name is empty" in done.stderr), (2, True), done.stderr)


class Nvidia(unittest.TestCase):
    """Has an invented build of the variant cuda, which found invented libraries in packages of PyPI."""

    def setUp(self):
        if not shutil.which("gcc") or not shutil.which("readelf"):
            self.skipTest("gcc or readelf is not installed")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.site = self.folder / "site-packages"
        lines = []
        for variable, package, name in (("COX_CUBLAS", "nvidia_cublas-13.1", "libcublasLt.so.13"), ("COX_NCCL", "nvidia_nccl_cu13-2.28", "libnccl.so.2"),
                                        ("COX_CUDART", "nvidia_cuda_runtime-13.0", "libcudart_static.a")):
            at, info = self.site / "nvidia/lib" / name, self.site / f"{package}.dist-info"
            at.parent.mkdir(parents=True, exist_ok=True)
            (info / "licenses").mkdir(parents=True)
            (info / "licenses/License.txt").write_text(f"licence of {package}\n")
            (info / "RECORD").write_text(f"nvidia/lib/{name},sha256=x,1\n")
            at.write_bytes(b"")
            if not name.endswith(".a"):
                subprocess.run(["gcc", "-shared", "-nostdlib", f"-Wl,-soname={name}", "-x", "c", "/dev/null", "-o", at], check=True)
            lines.append(f"{variable}:FILEPATH={at}\n")
        (self.folder / "CMakeCache.txt").write_text("".join(lines))

    def test_a_stage_gets_what_a_worker_loads_by_name(self):
        stage = script("stage")
        found = nvidia.libraries(self.folder)
        self.assertEqual([(x.soname, x.package, x.version) for x in found], [
            ("libcublasLt.so.13", "nvidia-cublas", "13.1"), ("libnccl.so.2", "nvidia-nccl-cu13", "2.28"), (None, "nvidia-cuda-runtime", "13.0")])
        self.assertEqual(found[0].row("there")["externalRefs"][0]["referenceLocator"], "pkg:pypi/nvidia-cublas@13.1")
        stage.libraries(found[:2], self.folder / "out")
        self.assertEqual({p.name for p in (self.folder / "out/lib/coxswain").iterdir()}, {"libcublasLt.so.13", "libnccl.so.2"})
        with self.assertRaisesRegex(Failed, "a folder of this machine"), mock.patch.object(stage, "OF_THIS_MACHINE", ("libnccl",)):
            stage.libraries(found[:2], self.folder / "out")

    def test_a_library_without_its_licence_is_refused(self):
        (self.site / "nvidia_nccl_cu13-2.28.dist-info/licenses/License.txt").unlink()
        with self.assertRaisesRegex(Failed, "libnccl.so.2 must not be distributed without it"):
            nvidia.libraries(self.folder)
        shutil.rmtree(self.site / "nvidia_nccl_cu13-2.28.dist-info")
        with self.assertRaisesRegex(Failed, "belongs to no PyPI package"):
            nvidia.libraries(self.folder)

    def test_options_of_the_kernels(self):
        kernels = script("programs").kernels
        self.assertEqual(kernels("cpu", ""), ["-DCOX_CUDA=OFF"])
        self.assertEqual(kernels("cuda", "80,90a"), ["-DCOX_CUDA=ON", "-DCOX_CUDA_ARCHS=80;90a", "-DCOX_CUDA_PTX="])
        self.assertNotIn("-DCOX_CUDA_PTX=", kernels("cuda", ""))  # a release has PTX for later devices


if __name__ == "__main__":
    unittest.main()
