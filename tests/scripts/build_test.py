"""Tests scripts/build and scripts/test, with stand-ins for the programs that they call. An interrupted download of crates is
repeated before the build. `--long` runs every part, even after a failed one, and a single part when a preset, a label or tests
are named."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = '#!/bin/sh\necho "${0##*/} $*" >>"$LOG"\n'
# This stand-in fails CARGO_FAILS times.
CARGO = TOOL + 'test "$(grep -c ^cargo "$LOG")" -gt "${CARGO_FAILS:-0}" || { echo "error: curl failed"; exit 101; }\n'


def build(*args, fails=0, built=False, cache="", env=()):
    """Runs scripts/build, as a first build or with built crates; returns (exit status, output, calls)."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        for path in ("scripts/build", "scripts/steps.sh", "CMakePresets.json"):
            tree.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, tree / path)
        stubs = {"tree/scripts/setup": TOOL, "tree/scripts/prebuilt_text.py": TOOL + "exit ${PREBUILT_FAILS:-0}\n", "bin/cmake": TOOL, "bin/ninja": TOOL, "bin/ccache": TOOL,
                 "bin/sleep": "#!/bin/sh\n", "bin/cargo": CARGO}
        if cache:
            stubs["tree/build/release/CMakeCache.txt"] = cache
        if built:
            stubs["tree/build/text/release/libcoxtext.a"] = ""
        for name, text in stubs.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        log = Path(folder, "log")
        log.touch()
        env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "LOG": str(log), "CARGO_FAILS": str(fails), **dict(env)}
        done = subprocess.run([tree / "scripts/build", *args], text=True, timeout=60, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=env)
        return done.returncode, done.stdout, [line.replace(folder, "") for line in log.read_text().splitlines()]


def names(calls):
    return [call.split()[0] for call in calls]


class Build(unittest.TestCase):
    def test_a_download_that_breaks_off_is_tried_again(self):
        for fails in (0, 1, 2):
            got, out, calls = build(fails=fails)
            self.assertEqual((got, names(calls)), (0, ["setup", *["cargo"] * (fails + 1), "cmake", "ninja"]), out)

    def test_one_that_never_comes_is_the_build_s_to_judge(self):
        got, out, calls = build(fails=9)
        self.assertEqual((got, names(calls)), (0, ["setup", *["cargo"] * 3, "cmake", "ninja"]), out)
        self.assertIn("crates.io", out)

    def test_what_is_built_asks_nobody(self):
        self.assertEqual(names(build(built=True)[2]), ["setup", "cmake", "ninja"])

    def test_programs_need_less(self):
        got, out, calls = build("--programs", built=True)
        self.assertEqual((got, calls), (0, ["setup --no-tests", "cmake --preset release -DCOX_PREBUILT_TEXT= -DCOX_TESTS=OFF",
                                            "ninja -C build/release programs"]), out)
        self.assertEqual(build("--programs", "cuda", "--", "cox", built=True)[2][::2], ["setup --cuda --no-tests", "ninja -C build/cuda cox"])
        self.assertIn("-DCOX_TESTS=ON", build(built=True)[2][1])

    def test_programs_in_a_folder_with_tests_keep_them(self):
        calls = build("--programs", built=True, cache="x\n")[2]
        self.assertEqual(calls[1:], ["cmake --preset release -DCOX_PREBUILT_TEXT= -DCOX_TESTS=ON", "ninja -C build/release programs"])
        self.assertIn("-DCOX_TESTS=OFF", build("--programs", built=True, cache="COX_TESTS:BOOL=OFF\n")[2][1])

    def test_a_prebuilt_text_library_needs_no_rust(self):
        library = "build/text/prebuilt/libcoxtext.a"
        for args, env in ((("--prebuilt-text", "x.a"), {}), ((), {"COX_PREBUILT_TEXT": "x.a"})):
            got, out, calls = build(*args, env=env)
            self.assertEqual((got, calls), (0, ["setup --no-rust", f"prebuilt_text.py use {Path.cwd()}/x.a /tree/{library}",
                                                f"cmake --preset release -DCOX_PREBUILT_TEXT=/tree/{library} -DCOX_TESTS=ON",
                                                "ninja -C build/release"]), out)
        for what in ("/x.a@sha256:1:2", "https://x.example/x.a"):
            self.assertIn(f"prebuilt_text.py use {what} /tree/{library}", build("--prebuilt-text", what)[2])
        got, out, calls = build("--prebuilt-text", "x.a", env={"PREBUILT_FAILS": "1"})
        self.assertEqual((got, names(calls)), (1, ["setup", "prebuilt_text.py"]), out)

    def test_two_presets(self):
        self.assertEqual(build("release", "asan")[0], 2)

    def test_a_whole_build_of_a_clean_tree_leaves_its_commit(self):
        with tempfile.TemporaryDirectory() as folder:
            tree, tools = Path(folder, "tree"), Path(folder, "bin")
            stamp = tree / "build/release/built-commit"
            for path in ("scripts/build", "scripts/steps.sh", "CMakePresets.json"):
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, tree / path)
            (tree / ".gitignore").write_text("/build/\n")
            tools.mkdir()
            for path in (tree / "scripts/setup", *(tools / name for name in ("cmake", "ninja", "cargo"))):
                path.write_text("#!/bin/sh\nmkdir -p build/release\nexit ${NINJA_FAILS:-0}\n" if path.name == "ninja" else "#!/bin/sh\n")
                path.chmod(0o755)
            git = ["git", "-C", tree, "-c", "user.name=x", "-c", "user.email=x@x"]
            for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
                subprocess.run([*git, *command], check=True, stdout=subprocess.DEVNULL)
            commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, text=True, capture_output=True).stdout

            def built(*args, **env):
                subprocess.run([tree / "scripts/build", *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60,
                               env={"PATH": f"{tools}:{os.environ['PATH']}", **env})
                return stamp.read_text() if stamp.exists() else ""

            self.assertEqual(built(), commit)
            self.assertEqual(built("release", "--", "cox"), "", "a part")
            self.assertEqual(built(), commit)
            self.assertEqual(built(NINJA_FAILS="1"), "", "a build that failed")
            (tree / "scripts/steps.sh").write_text((tree / "scripts/steps.sh").read_text() + "\n")
            self.assertEqual(built(), "", "a changed tree")


class Setup(unittest.TestCase):
    def test_a_changed_list_is_installed_after_a_run_without_tests(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder, "tree")
            program = {"scripts/setup": (ROOT / "scripts/setup").read_text(), "scripts/steps.sh": (ROOT / "scripts/steps.sh").read_text(),
                       ".venv/bin/python": TOOL, ".venv/bin/pytest": "", "bin/cargo": "#!/bin/sh\necho cargo 9.9.9\n", "bin/apt-get": "",
                       "bin/dpkg-query": '#!/bin/sh\nfor p; do echo "installed $p"; done\n', ".deps/llhttp/llhttp.c": "", "tests/requirements.txt": "tea",
                       "text/Cargo.toml": "", "scripts/unpack-arm64": ""}
            for name, text in program.items():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_text(text)
                (tree / name).chmod(0o755)

            def setup(*options):
                (tree / "log").write_text("")
                done = subprocess.run([tree / "scripts/setup", *options], capture_output=True, text=True, timeout=60,
                                      env={**os.environ, "PATH": f"{tree}/bin:{os.environ['PATH']}", "LOG": f"{tree}/log"})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                return "-r tests/requirements.txt" in (tree / "log").read_text()
            self.assertEqual([setup(), setup()], [True, False])
            (tree / "tests/requirements.txt").write_text("coffee")
            self.assertEqual([setup("--no-tests"), setup(), setup(), setup("--no-tests"), setup()], [False, True, False, False, False])


def test_script(*args, fails=""):
    """Runs scripts/test; returns (exit status, output, calls). The call that begins with the words `fails` ends with status 1."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        tool = f'#!/bin/sh\necho "${{0##*/}} $*" >>"$LOG"\ncase "${{0##*/}} $*" in {fails or "-"}*) exit 1 ;; esac\n'
        for name in ("tree/scripts/build", "tree/scripts/make-goldens", "tree/scripts/lint", "tree/scripts/fuzz", "tree/scripts/setup", "bin/ctest"):
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(tool)
            path.chmod(0o755)
        shutil.copy(ROOT / "scripts/test", tree / "scripts/test")
        log = Path(folder, "log")
        done = subprocess.run([tree / "scripts/test", *args], text=True, timeout=60, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={"PATH": f"{folder}/bin:{os.environ['PATH']}", "LOG": str(log), "COX_TEST_JOBS": "2"})
        return done.returncode, done.stdout, log.read_text().splitlines() if log.exists() else []


class Test(unittest.TestCase):
    def test_long_is_every_part(self):
        for verbose in ((), ("--verbose",)):
            got, out, calls = test_script("--long", *verbose)
            self.assertEqual(got, 0, out)
            suites = [call for call in calls if call.startswith("ctest")]
            self.assertEqual([call.split()[2] for call in suites], ["build/release", "build/asan", "build/tsan", "build/cuda"])
            self.assertEqual(["--verbose" in call for call in suites], [bool(verbose)] * 4)
            self.assertEqual(calls[-3:], ["build clang", "lint --analyze", "fuzz "])
            self.assertIn("skipped: scripts/test --preset arm64", out)

    def test_parts_behind_one_that_fails_run(self):
        got, out, calls = test_script("--long", fails="ctest?--test-dir?build/asan")
        self.assertEqual((got, calls[-1]), (1, "fuzz "), out)
        self.assertIn("1 parts failed", out)
        self.assertIn("    scripts/test --long --preset asan\n", out)

    def test_long_of_one_part(self):
        for args in (("--preset", "asan"), ("--label", "e2e"), ("--tests", "x"), ()):
            long = ("--long",) if args else ()
            got, out, calls = test_script(*long, *args)
            self.assertEqual((got, len(calls)), (0, 3), out)
            self.assertEqual("-LE long" in calls[-1], not args)

    def test_wrong_usage(self):
        got, out, calls = test_script("--lnog")
        self.assertEqual((got, calls), (2, []), out)
        self.assertIn("unknown option --lnog", out)


if __name__ == "__main__":
    unittest.main()
