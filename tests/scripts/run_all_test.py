"""Tests tests/cuda/run-all on simulated hosts: run-all fails when a host has a device and a program did not use it."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# cmake is left out, so that run-all uses the existing programs.
TOOLS = ("bash env dirname basename realpath mkdir rm ls cat head tail sed grep cut sleep timeout date git "
         "nproc").split()
HAS_DEVICE = any(os.path.exists(node) for node in ("/dev/nvidiactl", "/dev/dxg"))


def run_all(programs, has_device, args=("--only", "test"), tools=(), seconds=480, models=()):
    """Runs run-all; returns (exit status, output). `programs` is {name: lines of bash}, `tools` are further programs in PATH, and
    `models` are the models in build/goldens."""
    with tempfile.TemporaryDirectory() as folder:
        bin_folder = Path(folder, "bin")
        built = Path(folder, "build/cuda-tests/tests")
        for path in (bin_folder, built, Path(folder, "tests/cuda")):
            path.mkdir(parents=True)
        for tool in TOOLS:
            path = shutil.which(tool)
            if path:
                (bin_folder / tool).symlink_to(path)
        if has_device:
            programs = {**programs, "../../../bin/nvidia-smi": 'case $1 in -L) echo "GPU 0" ;; *) echo 9.0 ;; esac'}
        programs = {**programs, **{f"../../../bin/{name}": text for name, text in dict(tools).items()}}
        for model in models:
            expected = Path(folder, "build/goldens", model, "expected.json")
            expected.parent.mkdir(parents=True)
            expected.touch()
        for name, text in programs.items():
            path = built / name
            path.write_text("#!/usr/bin/env bash\n" + text + "\n")
            path.chmod(0o755)
        shutil.copy(ROOT / "tests/cuda/run-all", Path(folder, "tests/cuda/run-all"))
        done = subprocess.run([Path(folder, "tests/cuda/run-all"), *args], timeout=60, text=True,
                              env={"PATH": str(bin_folder), "HOME": folder, "COX_GOLDENS": f"{folder}/none",
                                   "COX_RUN_ALL_SECONDS": str(seconds)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


PASSES = "echo 'device: GPU X, 9.0'; echo 3 cases"
BUILDS = {"nvcc": "exit 0", "cmake": "[ $1 != --build ] || { echo built >&2; sleep 30; }"}  # this build takes longer than the time limit


class RunAll(unittest.TestCase):
    def check(self, status, wanted, programs, has_device=True, **more):
        got, out = run_all(programs, has_device, **more)
        self.assertEqual(got, status, out)
        for text in wanted:
            self.assertIn(text, out)

    def test_passes(self):
        self.check(0, ["1 passed, 0 failed, 0 skipped"], {"cuda_a_test": PASSES})

    def test_fails(self):
        self.check(1, ["FAILED (1)"], {"cuda_a_test": "echo FAILED; exit 1", "cuda_b_test": PASSES})

    def test_a_device_that_was_not_used(self):
        self.check(1, ["skipped with a device", "no cuBLASLt", "1 passed, 1 failed"],
                   {"cuda_a_test": PASSES, "cuda_b_test": "echo 'SKIPPED: no cuBLASLt'; exit 77"})

    def test_a_second_device_that_is_not_there(self):
        self.check(0, ["1 passed, 0 failed, 1 skipped"],
                   {"cuda_a_test": PASSES, "cuda_b_test": "echo 'SKIPPED: needs 2 devices, here is 1'; exit 77"})

    @unittest.skipIf(HAS_DEVICE, "this host has a device")
    def test_no_device(self):
        skips = {"cuda_a_test": "echo 'SKIPPED: no CUDA device found'; exit 77"}
        self.check(77, ["This machine has no device: 1 programs skipped, 0 failed"], skips, has_device=False)
        self.check(1, ["1 failed"], {**skips, "cuda_b_test": "exit 1"}, has_device=False)

    @unittest.skipIf(HAS_DEVICE, "this host has a device")
    def test_no_device_and_nothing_is_built_for_it(self):
        self.check(77, ["SKIPPED: this machine has no device"], {}, has_device=False, tools=BUILDS)

    def test_a_build_that_is_not_done(self):
        self.check(1, ["**not done in 2 s**"], {}, tools=BUILDS, seconds=3)

    def test_libraries_of_python(self):
        """Copied programs find cuBLASLt and NCCL in the folders of Python's packages."""
        with tempfile.TemporaryDirectory() as site:
            for name, library in (("cu13", "libcublasLt.so.13"), ("nccl", "libnccl.so.2")):
                Path(site, "nvidia", name, "lib").mkdir(parents=True)
                Path(site, "nvidia", name, "lib", library).touch()
            shows = "echo 'device: GPU X'; echo path: $LD_LIBRARY_PATH"
            self.check(0, [f"path: {site}/nvidia/cu13/lib:{site}/nvidia/nccl/lib\n"], {"cuda_a_test": shows},
                       tools={"python3": f"echo {site}"})

    def test_a_misspelt_program(self):
        self.check(2, ["unknown program cuda_b_tset."], {"cuda_a_test": PASSES}, tools=BUILDS,
                   args=("--program", "cuda_b_tset"))
        self.check(0, ["1 passed"], {"cuda_a_test": PASSES, "cuda_b_test": "exit 1"}, args=("--program", "cuda_a_test"))

    def test_the_checkers_alone(self):
        """The memory checkers run without models, whether or not models exist."""
        checker = {"compute-sanitizer": '[ $1 = --version ] || { shift 4; "$@"; }'}
        self.check(0, ["memcheck cuda_a_test", "racecheck cuda_a_test", "2 passed, 0 failed, 0 skipped, 0 not available"],
                   {"cuda_a_test": PASSES}, args=("--only", "sanitize"), tools=checker)

    def test_models(self):
        """Each way of running the models is a row of the table, and its failures count."""
        of = {"args": ("--only", "models"),
              "models": ("llama_tiny", "gemma3_caps", "gpt_oss_bf16", "olmo2_whole",
                         "at_load/llama_tiny_int8", "at_load/llama_tiny_int4", "at_load/llama_tiny_fp8")}
        says = "echo 'device: GPU X, 9.0'; echo got: $*"
        wanted = [f"got: --device cuda {text}" for text in (
            "build/goldens/gemma3_caps build/goldens/gpt_oss_bf16 build/goldens/llama_tiny", "--longest 45 --kv fp8 build/goldens/gemma3_caps build/goldens/llama_tiny build",
            "--longest 45 --kv int8 build/goldens/gemma3_caps build/goldens/gpt_oss_bf16 build",
            "--quantization int4 build/goldens/at_load/llama_tiny_int4\n",
            "--tp 2 --nccl build/cuda-tests/tests/libfakenccl.so build/goldens/llama_tiny",
            "--tp 2 --pp 2 --nccl build/")]
        self.check(1, [*wanted, "8 passed, 0 failed, 0 skipped, 1 not available", "model_golden reference", "left out: the demo model, because"],
                   {"cuda_a_test": PASSES, "model_golden": says}, **of)
        self.check(1, ["7 passed, 1 failed"], {"cuda_a_test": PASSES, "model_golden": says + "; [[ $* != *int4* ]]"}, **of)

    @unittest.skipIf(HAS_DEVICE, "this host has a device")
    def test_no_programs(self):
        self.check(77, ["there are no built programs"], {}, has_device=False)
        self.check(1, ["there are no built programs"], {})


if __name__ == "__main__":
    unittest.main()
