"""Tests packaging/deb, packaging/rpm and packaging/wheel on a small staged folder: the same bytes twice, what dpkg and rpm read from
the packages, and that hostile versions and folders are refused before a file is written."""
import base64
import hashlib
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("deb", "rpm", "wheel")
LIBRARIES = ("libcublasLt.so.13", "libnccl.so.2")
TOOLS = {"deb": "dpkg-deb", "rpm": "rpmbuild"}
ARCH = platform.machine()
TIME = 1700000000
CONFFILES = {"/etc/coxswain/up.yaml", "/etc/coxswain/worker.yaml"}
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "packaging"))
import system  # noqa: E402
from staged import SBOM, Failed, Stage, Version, version_of_tree  # noqa: E402
import sbom  # noqa: E402  # staged adds its folder


def make_stage(folder, program="/bin/true", version=version_of_tree()):
    """Writes a staged folder whose programs are small programs of this machine."""
    for name in ("cox", "cox-head", "cox-gateway", "cox-worker"):
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(program, folder / "bin" / name)
        (folder / "bin" / name).chmod(0o700)
    (folder / "bin/vllm").symlink_to("cox")
    for path in ("share/man/man1/cox.1.gz", "share/doc/coxswain/copyright", "share/doc/coxswain/third-party-licences.txt",
                 "share/zsh/site-functions/_cox", "share/coxswain/SHA256SUMS"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{path}\n")
    (folder / SBOM).write_text(sbom.document("coxswain", version, TIME, []))
    return folder


def add_libraries(stage):
    """Adds what packaging/stage has for the variant cuda, as small files."""
    (stage / "lib/coxswain").mkdir(parents=True)
    for name in LIBRARIES:
        (stage / "lib/coxswain" / name).write_text(f"{name}\n")
    return stage


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, **more)


class Packages(unittest.TestCase):
    def setUp(self):
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)
        self.stage = make_stage(self.tmp / "stage")

    def make(self, kind, *options, stage=None, out="out", umask=0o022):
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(TIME), "PYTHONDONTWRITEBYTECODE": "1"}
        return run(sys.executable, ROOT / "packaging" / kind, "--stage", stage or self.stage, "--out", self.tmp / out, "--arch", ARCH,
                   *options, env=env, preexec_fn=lambda: os.umask(umask))

    def package(self, kind, *options, **more):
        """Makes a package and returns its path. Skips the test when the tool of this kind is missing."""
        if kind in TOOLS and not shutil.which(TOOLS[kind]):
            self.skipTest(f"{TOOLS[kind]} is not installed")
        done = self.make(kind, *options, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        made = list((self.tmp / more.get("out", "out")).iterdir())
        self.assertEqual(len(made), 1, made)
        return made[0]

    def test_the_same_bytes_from_two_folders(self):
        other = make_stage(self.tmp / "another/folder")
        for path in other.rglob("*"):
            os.utime(path, (1, 1), follow_symlinks=False)
        for kind in KINDS:
            with self.subTest(kind):
                first = self.package(kind, out=f"{kind}-1")
                second = self.package(kind, out=f"{kind}-2", stage=other, umask=0o077)
                self.assertEqual(first.name, second.name)
                self.assertEqual(first.read_bytes(), second.read_bytes())
                self.assertNotIn(str(self.tmp).encode(), first.read_bytes())

    def test_what_dpkg_reads(self):
        deb = self.package("deb", "--version", "1.2.3-rc.4", stage=make_stage(self.tmp / "next", version="1.2.3"))
        field = {name: run("dpkg-deb", "-f", deb, name).stdout.strip() for name in ("Package", "Version", "Depends", "Conflicts")}
        self.assertEqual(field, {"Package": "coxswain", "Version": "1.2.3~rc.4", "Depends": "adduser, libc6 (>= 2.28)", "Conflicts": "coxswain-cuda"})
        self.assertEqual(run("dpkg", "--compare-versions", "1.2.3~rc.4", "lt", "1.2.3").returncode, 0)
        to = self.tmp / "unpacked"
        self.assertEqual(run("dpkg-deb", "-R", deb, to).returncode, 0)
        self.assertTrue(CONFFILES < set((to / "DEBIAN/conffiles").read_text().split()))
        self.assertEqual(run("md5sum", "--quiet", "-c", "DEBIAN/md5sums", cwd=to).stdout, "")
        for script in ("postinst", "prerm", "postrm"):
            self.assertEqual(run("sh", "-n", to / "DEBIAN" / script).returncode, 0)
        listed = run("dpkg-deb", "-c", deb).stdout.splitlines()
        self.assertTrue(all(" root/root " in line for line in listed), listed)
        self.assertIn("-rwxr-xr-x", next(line for line in listed if line.endswith("./usr/bin/cox-head")))
        self.assertTrue(any(line.endswith("./usr/bin/vllm -> cox") for line in listed), listed)

    def test_the_variant_cuda_takes_the_place_of_the_other(self):
        deb = self.package("deb", "--variant", "cuda", stage=add_libraries(make_stage(self.tmp / "cuda")))
        self.assertTrue(deb.name.startswith("coxswain-cuda_"), deb.name)
        self.assertEqual(run("dpkg-deb", "-f", deb, "Conflicts").stdout.strip(), "coxswain")
        wheel = zipfile.ZipFile(self.package("wheel", "--variant", "cuda", out="wheel"))
        metadata = wheel.read(next(n for n in wheel.namelist() if n.endswith("METADATA"))).decode()
        self.assertIn("Provides-Extra: cuda\n", metadata)
        built_with = (ROOT / "scripts/cuda-requirements.txt").read_text()
        for name in ("nvidia-cublas", "nvidia-nccl-cu13"):
            least = next(line for line in metadata.splitlines() if line.startswith(f"Requires-Dist: {name}>=")).split(">=")[1].split(",")[0]
            self.assertIn(f"{name}=={least}", built_with)

    def test_the_variant_cuda_carries_nvidias_libraries(self):
        stage = add_libraries(make_stage(self.tmp / "cuda"))
        deb = self.package("deb", "--variant", "cuda", stage=stage)
        listed = run("dpkg-deb", "-c", deb).stdout
        for name in LIBRARIES:
            self.assertRegex(listed, rf"(?m)^-rw-r--r-- root/root .* ./usr/lib/coxswain/{re.escape(name)}$")
        self.assertEqual(run("dpkg-deb", "-f", deb, "Depends").stdout.strip(), "adduser, libc6 (>= 2.28), libgcc-s1 | libgcc1, libstdc++6 (>= 5.2)")
        if shutil.which("zstd"):
            tarball = self.package("tarball", "--variant", "cuda", stage=stage, out="tarball")
            names = run("tar", "-I", "zstd", "-tf", tarball).stdout.split()
            self.assertEqual([n.partition("/lib/coxswain/")[2] for n in names if "/lib/coxswain/l" in n], list(LIBRARIES))
        rpm = self.package("rpm", "--variant", "cuda", stage=stage, out="rpm")
        self.assertTrue({f"/usr/lib/coxswain/{n}" for n in LIBRARIES} < set(run("rpm", "-qpl", rpm).stdout.split()))
        self.assertIn("libstdc++.so.6(CXXABI_1.3.9)(64bit)\n", run("rpm", "-qpR", rpm).stdout)

    def test_libraries_where_the_list_of_sums_does_not_expect_them(self):
        stage = add_libraries(make_stage(self.tmp / "cuda"))
        for kind, folder, variant, said in (("wheel", stage, "cuda", "packaging/stage --variant cuda --no-libraries"), ("deb", stage, "cpu", "correct --variant"),
                                            ("deb", self.stage, "cuda", "does not have lib/coxswain"), ("tarball", self.stage, "cuda", "does not have lib/coxswain")):
            done = self.make(kind, "--variant", variant, stage=folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)
            self.assertFalse((self.tmp / "out").exists())

    def test_only_listed_files_are_where_verify_looks(self):
        """`cox version --verify` reports files of lib/coxswain, and programs of bin, that the list does not have."""
        stage = add_libraries(make_stage(self.tmp / "cuda"))
        system.lay_out(Stage(stage, ARCH, "cuda", version_of_tree()), self.tmp / "tree")
        for folder in ("bin", "lib/coxswain"):
            self.assertEqual({p.name for p in (self.tmp / "tree/usr" / folder).iterdir()}, {p.name for p in (stage / folder).iterdir()})

    def test_what_rpm_reads(self):
        rpm = self.package("rpm", "--version", "1.2.3-rc.4", stage=make_stage(self.tmp / "next", version="1.2.3"))
        said = run("rpm", "-qp", "--qf", "%{NAME} %{VERSION}-%{RELEASE} %{ARCH} %{BUILDHOST} %{BUILDTIME} %{PAYLOADCOMPRESSOR}", rpm).stdout
        self.assertEqual(said, f"coxswain 1.2.3~rc.4-1 {ARCH} reproducible {TIME} xz")
        self.assertIn("glibc >= 2.28", run("rpm", "-qpR", rpm).stdout)
        self.assertEqual(set(run("rpm", "-qpc", rpm).stdout.split()), CONFFILES)
        files = run("rpm", "-qplv", rpm).stdout
        self.assertRegex(files, r"-rwxr-xr-x +1 root +root .* /usr/bin/cox-worker\n")
        self.assertIn("/usr/bin/vllm -> cox\n", files)

    def test_what_pip_reads(self):
        path = self.package("wheel", "--version", "1.2.3-rc.4", stage=make_stage(self.tmp / "next", version="1.2.3"))
        self.assertEqual(path.name, f"coxswain_llm-1.2.3rc4-py3-none-manylinux_2_28_{ARCH}.whl")
        with zipfile.ZipFile(path) as wheel:
            record = [line.split(",") for line in wheel.read("coxswain_llm-1.2.3rc4.dist-info/RECORD").decode().splitlines()]
            self.assertEqual([name for name, _, _ in record], wheel.namelist())
            for name, digest, size in record[:-1]:
                content = wheel.read(name)
                want = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                self.assertEqual((digest, int(size)), (f"sha256={want}", len(content)), name)
            modes = {e.filename: e.external_attr >> 16 for e in wheel.infolist()}
            self.assertEqual(modes["coxswain_llm-1.2.3rc4.data/scripts/cox"], 0o100755)
            self.assertEqual(modes["coxswain_llm-1.2.3rc4.data/data/share/coxswain/SHA256SUMS"], 0o100644)
            metadata = wheel.read("coxswain_llm-1.2.3rc4.dist-info/METADATA").decode()
            self.assertIn("\nVersion: 1.2.3rc4\n", metadata)
            self.assertNotIn("Provides-Extra", metadata)
            self.assertFalse([n for n in wheel.namelist() if n.endswith("/vllm")])

    def test_the_module_runs_the_program(self):
        site = self.tmp / "env/lib/python3/site-packages"
        shutil.copytree(ROOT / "packaging/python/coxswain_llm", site / "coxswain_llm")
        (self.tmp / "env/bin").mkdir()
        cox = self.tmp / "env/bin/cox"
        env = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self.tmp)}
        done = run(sys.executable, "-m", "coxswain_llm", "version", env=env)
        if not shutil.which("cox"):  # else a cox that is installed beside this Python is found
            self.assertIn("Install coxswain-llm again", done.stderr)
            self.assertEqual(done.returncode, 1)
        cox.write_text("#!/bin/sh\necho ran \"$@\"\nexit 3\n")
        cox.chmod(0o755)
        done = run(sys.executable, "-m", "coxswain_llm", "up", "a model", env=env)
        self.assertEqual((done.stdout, done.returncode), ("ran up a model\n", 3))

    def test_hostile_versions(self):
        for version in ("", "1.0", "1.0.0.0", "v1.0.0", "../1.0.0", "1.0.0/x", "1.0.0\nDepends: evil", "1.0.0-rc.1;id", "1.0.0-nightly.1", "%{x}.0.0",
                        "1.0.0+b", " 1.0.0", "1.0.0\n", "١.٠.٠", "100000.0.0", "1.0.0-rc.-1"):
            with self.subTest(version), self.assertRaises(Failed):
                Version(version)
        for kind in KINDS:
            done = self.make(kind, "--version=1.0.0\nDepends: evil")
            self.assertEqual(done.returncode, 1)
            self.assertIn("not MAJOR.MINOR.PATCH", done.stderr)
            self.assertFalse((self.tmp / "out").exists())

    def test_hostile_stages(self):
        def pipe(stage):
            os.mkfifo(stage / "share/pipe")

        def of_another_processor(stage):
            program = bytearray((stage / "bin/cox").read_bytes())
            program[18:20] = b"\x02\x00"
            (stage / "bin/cox").write_bytes(program)

        def through_a_link(stage):
            """Makes a link whose text stays inside, but which leads outside, since a folder of its text is a link."""
            (stage / "share/nested").mkdir()
            (stage / "share/nested/link").symlink_to(self.tmp)
            (stage / "share/a").symlink_to("nested/link/stage/bin/cox")

        cases = {
            "may only have letters": lambda s: (s / "share/a\nb").write_text(""),
            "names in packages": lambda s: (s / "share/%{name}").write_text(""),
            "links to /etc/passwd": lambda s: (s / "share/link").symlink_to("/etc/passwd"),
            "links to ../../stage-0": lambda s: (s / "share/link").symlink_to("../../stage-0"),
            "links to nothing": lambda s: (s / "share/link").symlink_to("nothing"),
            "links to ../bin, which is not a file": lambda s: (s / "share/link").symlink_to("../bin"),
            "links to nested/link/stage": through_a_link,
            "neither a file": pipe,
            "does not name the version": lambda s: (s / SBOM).write_text("{}"),
            "have version 99.0.0, and the package would have": lambda s: (s / SBOM).write_text(sbom.document("coxswain", "99.0.0", TIME, [])),
            "is not a program for": of_another_processor,
            "bin/cox-head is not an executable": lambda s: (s / "bin/cox-head").chmod(0o644),
            "does not have share/coxswain/SHA256SUMS": lambda s: (s / "share/coxswain/SHA256SUMS").unlink(),
        }
        for i, (said, spoil) in enumerate(cases.items()):
            with self.subTest(said):
                stage = make_stage(self.tmp / f"stage-{i}")
                spoil(stage)
                done = self.make("wheel", stage=stage)
                self.assertEqual(done.returncode, 1)
                self.assertIn(said.lower(), done.stderr.lower())
                self.assertFalse((self.tmp / "out").exists())


    def test_folders_that_cannot_be_used(self):
        (self.tmp / "file").write_text("")
        for kind in (*KINDS, "tarball"):
            for out, said in (("file", "--out: cannot make the folder"), ("/proc/foo/bar", "--out: cannot make the folder /proc/foo/bar"), ):
                done = self.make(kind, out=out)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
                self.assertIn(said, done.stderr)
            for option in ("--stage", "--out"):
                self.assertIn("the name is empty", self.make(kind, option, "").stderr)

    def test_a_full_disk_leaves_nothing(self):
        limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))}
        command = (sys.executable, ROOT / "packaging/wheel", "--stage", self.stage, "--out", self.tmp / "out", "--arch", ARCH)
        done = run(*command, **limited)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("File too large. Check that", done.stderr)
        self.assertEqual(list((self.tmp / "out").iterdir()), [])

    def test_a_signal_leaves_nothing(self):
        """A tool that does not end stands for the packing of a large package."""
        tools, work, out = self.tmp / "tools", self.tmp / "tmp", self.tmp / "out"
        for folder in (tools, work):
            folder.mkdir()
        for name in TOOLS.values():
            (tools / name).write_text(f"#!/bin/sh\ntouch {self.tmp}/started\nexec sleep 60\n")
            (tools / name).chmod(0o755)
        env = {**os.environ, "TMPDIR": str(work), "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
        for kind, number in (("deb", signal.SIGTERM), ("rpm", signal.SIGINT), ("deb", signal.SIGHUP)):
            process = subprocess.Popen([ROOT / "packaging" / kind, "--stage", self.stage, "--out", out, "--arch", ARCH], env=env, stderr=subprocess.PIPE, text=True)
            until = time.monotonic() + 60
            while not (self.tmp / "started").exists() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
            process.send_signal(number)
            said = process.communicate(timeout=60)[1]
            self.assertEqual((process.returncode, said), (128 + number, f"{kind}: stopped by {number.name}\n"))
            self.assertEqual([*work.iterdir(), *out.iterdir()], [])
            (self.tmp / "started").unlink()

    def test_rpmbuild_gets_no_folder_with_a_space(self):
        work = self.tmp / "a b"
        work.mkdir()
        env = {**os.environ, "TMPDIR": str(work)}
        done = run(ROOT / "packaging/rpm", "--stage", self.stage, "--out", self.tmp / "out", "--arch", ARCH, env=env)
        if shutil.which("rpmbuild"):
            self.assertRegex(done.stderr, "^rpm: rpmbuild would work in .*a b/.* Set TMPDIR")
            self.assertEqual([*work.iterdir(), *(self.tmp / "out").iterdir()], [])


    def test_try_looks_for_packages_before_it_makes_a_root(self):
        for kind, said in (("rpm", f"has no package coxswain-[0-9]*.{ARCH}.rpm"), ("tarball,service", f"has no package coxswain-*-linux-{ARCH}.tar.zst"),
                           ("upgrade", "does not have exactly two files coxswain_*.deb")):
            done = run(ROOT / "packaging/try", kind, "--packages", self.tmp)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)

    def test_try_another_processor(self):
        for words, status, said in ((["deb", "--arch", "arm64"], 2, "--arch tries only tarballs"),
                                    (["tarball", "noble", "--arch", "arm64"], 2, "takes releases of Debian only"), (["tarball", "--arch", "riscv64"], 2, "--arch riscv64 is unknown"),
                                    (["tarball", "--arch", "arm64"], 1, "has no package coxswain-*-linux-aarch64.tar.zst|there is no QEMU|is for x86-64 machines|zstd is not")):
            done = run(ROOT / "packaging/try", *words, "--packages", self.tmp)
            self.assertEqual(done.returncode, status)
            self.assertRegex(done.stderr, said.replace("*", r"\*"))


class Units(unittest.TestCase):
    def test_each_difference_is_made(self):
        for name in system.UNIT_CHANGES:
            unit = system.unit(name)
            self.assertIn("\nUser=coxswain\n", unit)
            self.assertIn("\nExecStart=/usr/bin/cox ", unit)
            self.assertNotIn("Credential", unit)  # RHEL 8's systemd knows no credentials
        self.assertIn("\nExecReload=/usr/libexec/coxswain/replace-processes /run/coxswain/pids $MAINPID\n", system.unit("coxswain.service"))

    def test_a_unit_that_changed_is_not_packaged(self):
        was = system.UNIT_CHANGES["coxswain.service"]
        system.UNIT_CHANGES["coxswain.service"] = (*was, ("NotThere=", ""))
        try:
            with self.assertRaisesRegex(Failed, "NotThere="):
                system.unit("coxswain.service")
            system.UNIT_CHANGES["coxswain.service"] = was[1:]
            with self.assertRaisesRegex(Failed, "/usr/local"):
                system.unit("coxswain.service")
        finally:
            system.UNIT_CHANGES["coxswain.service"] = was

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_takes_them(self):
        with tempfile.TemporaryDirectory() as tmp:
            for name in system.UNIT_CHANGES:
                unit = Path(tmp) / name.replace("@", "@0")
                text = system.unit(name).replace("User=coxswain", "User=daemon")
                for program in ("/usr/bin/cox", "/usr/libexec/coxswain/replace-processes"):
                    text = text.replace(f"={program} ", "=/bin/true ")
                unit.write_text(text)
                unit.chmod(0o644)
                done = run("systemd-analyze", "verify", "--man=no", unit)
                said = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
                self.assertFalse(said, said)


if __name__ == "__main__":
    unittest.main()
