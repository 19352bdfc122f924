"""Tests tests/cuda/first-run on simulated hosts: its parts, failures, limits and table, and the changes that merge makes in the docs.
The page's table of predicted times must be the output of predict.py. tests/scripts/first_run_pack_test.py tests the real pack."""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/cuda/first-run"
CARRIED = "first-run rows.sh tests.sh serve.sh multi.sh ask.py merge.py".split()
HAS_DEVICE = any(os.path.exists(node) for node in ("/dev/nvidiactl", "/dev/dxg"))
PASSES = "echo 3 cases"
BENCH = "echo '| cuda_model_bench | llama31_8b, decode at batch 1, a step | 5.61 ms |  |  |'; echo '2 of 2 bars held'"
# COX replaces cox: `cox up` answers each completion, has two workers and reports a killed one; `cox bench serve` prints its table.
COX = r'''#!/usr/bin/env python3
import http.server, json, os, signal, subprocess, sys, threading, time
args = sys.argv[1:]
if args[0] == "bench":
    time.sleep(float(os.environ.get("FAKE_LOAD_SECONDS", "0")))
    n = int(args[args.index("--num-prompts") + 1]) * int(args[args.index("--random-output-len") + 1])
    print(f"Output token throughput (tok/s):   123.4\nTotal token throughput (tok/s):  456.7\nMedian TTFT (ms):   5.0\nMedian TPOT (ms):  1.5\nTotal generated tokens:   {n}  ")
    sys.exit(0)
class Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = "a b c" if "--enforce-eager" not in args else os.environ.get("FAKE_EAGER", "a b c")
        body = json.dumps({"choices": [{"text": text}]}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_):
        pass
workers = [subprocess.Popen([os.environ["FAKE_WORKER"], "60"]) for _ in range(int(args[args.index("--workers") + 1]))]
def watch():
    while True:
        if any(w.poll() == -9 for w in workers):
            print("info collective_aborted ms=12", flush=True)
            return
        time.sleep(0.05)
threading.Thread(target=watch, daemon=True).start()
http.server.ThreadingHTTPServer(("127.0.0.1", int(args[args.index("--port") + 1])), Server).serve_forever()
'''


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Host:
    """`Host` is a folder as prepare makes it, with stand-ins for programs {path in the pack: lines of bash}, and a PATH."""

    def __init__(self, folder, programs, devices=1, tools=None):
        self.folder = Path(folder)
        self.first, self.out, self.bin = (self.folder / name for name in ("first", "out", "bin"))
        pack = self.folder / "pack"
        for path in (self.first, self.bin, pack / "bench/models", pack / "goldens/few/llama_tiny", pack / "lib", pack / "bin", pack / "tests"):
            path.mkdir(parents=True)
        (pack / "goldens/few/llama_tiny/expected.json").touch()
        (pack / "commit").write_text("abcd1234\n")
        for model in ("llama31_8b", "gemma3_270m"):
            shutil.copytree(ROOT / "bench/models" / model, pack / "bench/models" / model)
        (pack / "make_model.py").write_text("import os, sys; os.makedirs(sys.argv[3])")
        self.script(pack / "bin/cox", COX)
        for name, text in programs.items():
            self.script(pack / name, text if name.endswith(".py") else "#!/usr/bin/env bash\n" + text + "\n")
        smi = "case $1 in -L) for i in $(seq 0 %d); do echo \"GPU $i: GPU X (UUID: 1)\"; done ;; *) echo GPU X, 580 ;; esac" % (devices - 1)
        for name, text in {**({"nvidia-smi": smi} if devices else {}), **(tools or {})}.items():
            self.script(self.bin / name, "#!/usr/bin/env bash\n" + text + "\n")
        (self.bin / "cox-worker").symlink_to(shutil.which("sleep"))
        with tarfile.open(self.first / "pack.tar.xz", "w:xz", preset=0) as tar:
            tar.add(pack, ".")
        for name in CARRIED:
            shutil.copy(HERE / name, self.first / name)

    @staticmethod
    def script(path, text):
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *args, **env):
        done = subprocess.run(["bash", self.first / "first-run", *args], timeout=120, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              env={"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.folder), "OUT": str(self.out),
                                   "TMPDIR": str(self.folder), "FAKE_WORKER": str(self.bin / "cox-worker"), **env})
        table = self.out / "table.md"
        return done.returncode, done.stdout, table.read_text() if table.exists() else ""


class FirstRun(unittest.TestCase):
    def check(self, status, wanted, programs, *args, devices=1, tools=None, **env):
        with tempfile.TemporaryDirectory() as folder:
            got, out, table = Host(folder, programs, devices, tools).run(*args, **env)
            left = [name for name in os.listdir(folder) if name.startswith("first-gpu.")]
        self.assertEqual(got, status, out)
        table = re.sub(r"\| \d+ s \|", "| 0 s |", table)  # seconds vary with the load of the machine
        for text in wanted:
            self.assertIn(text, table or out, out)
        self.assertEqual(left, [], "a temporary folder was left behind")
        return table

    @unittest.skipIf(HAS_DEVICE, "this host has a device")
    def test_no_device(self):
        begin = time.monotonic()
        self.check(77, ["this machine has no device"], {"tests/cuda_copy_test": PASSES}, devices=0)
        self.assertLess(time.monotonic() - begin, 10)

    def test_a_device_without_nvidia_smi(self):
        """The driver's device nodes show a device without nvidia-smi. The table then has a device name that --merge accepts."""
        made_up = {"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": "",
                   "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA H100\nIRQ: 5\n"}
        for names, said in ((list(made_up), ", NVIDIA H100, "), (["dev/nvidia0"], ", a device without a name, "), (["dev/nvidiactl"], ", a device without a node, ")):
            with tempfile.TemporaryDirectory() as nodes:
                for name in names:
                    Path(nodes, name).parent.mkdir(parents=True, exist_ok=True)
                    Path(nodes, name).write_text(made_up[name])
                table = self.check(0, [said, "| `cuda_copy_test` | passed |", f"number of devices: {max(1, len(names) - 2)}"], {"tests/cuda_copy_test": PASSES, "tests/model_golden": PASSES},
                                   "--parts", "env,tests", devices=0, tools={"nvidia-smi": "exit 9"}, COX_FIRST_RUN_NODES=nodes)
            self.assertTrue(load("merge").Table(table).when)

    def test_library_folders_have_no_empty_one(self):
        """The script adds no empty folder to LD_LIBRARY_PATH. With an empty folder the loader would read the working folder."""
        for before in ("", "/before"):
            table = self.check(0, ["| `cuda_copy_test` | passed |"], {"tests/cuda_copy_test": "echo \"folders $LD_LIBRARY_PATH.\"",
                               "tests/model_golden": PASSES}, "--parts", "env,tests", LD_LIBRARY_PATH=before)
            folders = re.search(r"folders (\S*)\.", table)[1].split(":")
            self.assertNotIn("", folders)
            self.assertEqual(folders[:1] == ["/before"], bool(before))

    def test_wrong_arguments(self):
        self.check(2, ["unknown part 'tset'."], {}, "--parts", "tset")
        self.check(2, ["--seconds"], {}, "--seconds")
        self.check(2, ["must be whole numbers"], {}, "--seconds", "soon")

    def test_results_that_cannot_be_written(self):
        self.check(2, ["first-run: cannot write the results to /proc/nowhere/out. Set OUT to another folder."], {"tests/cuda_copy_test": PASSES}, OUT="/proc/nowhere/out")

    def test_a_host_that_is_taken_away(self):
        """A killed run leaves a table of the parts that have ended, without the line that marks a complete table."""
        with tempfile.TemporaryDirectory() as folder:
            host = Host(folder, {"tests/cuda_moe_bench": f"touch {folder}/begun; sleep 60", "tests/cuda_linear_bench": PASSES})
            p = subprocess.Popen(["bash", host.first / "first-run", "--parts", "env,linear,moe"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 start_new_session=True,
                                 env={"PATH": f"{host.bin}:{os.environ['PATH']}", "HOME": folder, "OUT": str(host.out), "TMPDIR": folder})
            while not (host.folder / "begun").exists():
                self.assertIsNone(p.poll())
                time.sleep(0.05)
            os.killpg(p.pid, 9)
            p.wait()
            table = (host.out / "table.md").read_text()
            self.assertTrue((host.out / "logs.tar.gz").exists())
        self.assertIn("| `linear` | passed |", table)
        self.assertNotIn("End of the table.", table)

    def test_parts_and_the_table(self):
        programs = {"tests/cuda_copy_test": PASSES, "tests/cuda_norm_test": "echo 'sum | difference'", "tests/model_golden": "echo got: $*",
                    "tests/cuda_model_bench": BENCH, "torch_peers.py": "print('| torch | copy | 3000 GB/s | | |'); print('done')"}
        table = self.check(0, ["First run: commit abcd1234, ", "Z, GPU X, ", "| `env` | passed |", "| `cuda_copy_test` | passed | 0 s | 3 cases |",
                               "| `small-norm` | passed | 0 s | sum \\| difference |", "| `cuda_norm_test` | passed |",
                               "| `golden-few` | passed | 0 s | got: --device cuda --longest 45 goldens/few/llama_tiny/ |",
                               "| `golden-tp2` | passed |", "| `model8b` | passed | 0 s | 2 of 2 bars held |", "| `torch` | passed |",
                               "| cuda_model_bench | llama31_8b, decode at batch 1, a step | 5.61 ms |", "| torch | copy | 3000 GB/s | | |",
                               "| `multi` | skipped | 0 s | needs 2 devices, this host has 1 |", "End of the table."],
                           programs, "--parts", "env,tests,model8b,torch,multi")
        self.assertNotIn("golden-more", table)  # the pack has no such model

    def test_failures(self):
        """Parts that fail, skip, hang or miss their bar each get a row, and the other parts still run."""
        programs = {"tests/cuda_copy_test": PASSES, "tests/cuda_norm_test": "[ $1 = --small ] || { echo 'row 7: error'; exit 1; }",
                    "tests/cuda_linear_test": "echo 'SKIPPED: no cuBLASLt'; exit 77", "tests/cuda_model_bench": "echo 'nothing'; exit 75",
                    "tests/cuda_nccl_test": "echo 'SKIPPED: needs 2 devices, here is 1'; exit 77",
                    "tests/cuda_attention_bench": "echo '1 of 2 bars held; below: decode'; exit 1", "tests/cuda_moe_bench": "echo begun; sleep 60"}
        self.check(1, ["| `cuda_norm_test` | FAILED (1) |", "| `cuda_norm_test-blocking` | FAILED (1) |", "| `small-linear` | FAILED: skipped |",
                       "| `cuda_nccl_test` | skipped |", "| `model8b` | cut short |", "| `attention` | BELOW A BAR |", "| `moe` | NOT DONE in "],
                   programs, "--parts", "tests,model8b,attention,moe", "--seconds", "15")

    def test_no_time(self):
        table = self.check(1, ["| `small-norm` | NOT DONE in ", "| `model8b` | no time left | 0 s |  |", "| `serve-llama31_8b` | no time left |"],
                           {"tests/cuda_copy_test": PASSES, "tests/cuda_norm_test": "sleep 30", "tests/cuda_model_bench": PASSES},
                           "--parts", "tests,model8b,serve", "--seconds", "10")
        self.assertIn("End of the table.", table)

    def test_serving(self):
        """Each load gets its figures. A different answer without graphs is a named failure. Started processes are ended."""
        wanted = ["| `serve-gemma3_270m` | passed |", "| serve | gemma3_270m: 1 streams, 64 in, 512 out | 123.4 tok/s out, 456.7 all, TTFT 5.0 ms",
                  "| `same-ids-early-launches` | passed | 0 s | the same ids |"]
        of = {"COX_FIRST_RUN_SERVE": "gemma3_270m,gemma3_no_early,gemma3_eager"}
        self.check(0, [*wanted, "| `same-ids-graphs` | passed |"], {}, "--parts", "serve", "--seconds", "400", **of)
        self.check(1, [*wanted, "| `same-ids-graphs` | DIFFERENT IDS | 0 s | from token 1 of 3 |"], {}, "--parts", "serve", "--seconds", "400",
                   FAKE_EAGER="a x c", **of)

    def test_several_devices(self):
        programs = {"tests/cuda_nccl_test": PASSES, "tests/model_golden": "echo got: $*", "tests/cuda_oneshot_bench": PASSES}
        self.check(0, ["| `multi-nccl` | passed |", "got: --device cuda --longest 45 --tp 2 goldens/few/llama_tiny |",
                       "| `multi-golden-tp4` | skipped | 0 s | needs 4 devices, this host has 2 |", "| `multi-oneshot` | passed |",
                       "| `multi-killed-rank` | passed |", "6400 tokens of 6400; collective_aborted ms=12"],
                   programs, "--parts", "multi", devices=2, FAKE_LOAD_SECONDS="6")

    def test_checkers(self):
        tools = {"compute-sanitizer": 'echo "$2: 0 errors"; [[ $2$7 != racecheck*moe* ]] || exit $4; shift 6; "$@"', "ncu": "echo profiled"}
        self.check(1, ["| `memcheck-cuda_linear_test` | passed |", "| `racecheck-cuda_sample_test` | passed |",
                       "| `racecheck-cuda_moe_test` | FAILED (99) |", "| `ncu-attention` | passed |", "| `ncu-prefill` | passed |"],
                   {f"tests/cuda_{name}_test": "[ $1 = --small ]" for name in ("linear", "attention", "moe", "steps", "sample")},
                   "--parts", "ncu,sanitize", tools=tools)


class Prepare(unittest.TestCase):
    """Tests that prepare refuses wrong arguments and trees before it compiles anything."""

    def check(self, wanted, *args, size=0, ignored=True):
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder, "tree")
            tree.mkdir()
            (tree / "data").write_bytes(b"x" * size)
            (tree / ".gitignore").write_text("/.gpu-first/\n" if ignored else "")
            git = ["git", "-C", tree, "-c", "user.name=x", "-c", "user.email=x@x"]
            for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
                subprocess.run([*git, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            done = subprocess.run([HERE / "prepare", "--from", tree, "--work", f"{folder}/work", *args], text=True, timeout=60,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertIn(wanted, done.stdout)
            self.assertNotEqual(done.returncode, 0)
            self.assertFalse((tree / ".gpu-first").exists())

    def test_a_tree_that_is_too_large(self):
        self.check("have 2 MiB, and the limit is 1 MiB", "--mib", "1", size=2 << 20)

    def test_a_pack_that_git_does_not_ignore(self):
        self.check("git does not ignore it", ignored=False)

    def test_a_release_that_is_not_one(self):
        self.check("has no bin/cox. Run scripts/build release", "--release", "build/release")

    def test_a_work_folder_with_blanks(self):
        self.check("link commands cannot contain this path", "--work", "/tmp/cox gpu pack")

    def test_which_release_is_taken(self):
        """prepare uses a release that scripts/build made of the packed commit, if nothing has been built in that release since."""
        text = (HERE / "prepare").read_text()
        function = text[text.index("is_of_commit() {"):text.index('if [ -z "$release" ]')]
        with tempfile.TemporaryDirectory() as folder:
            def git(*args):
                done = subprocess.run(["git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x@x", *args], check=True, text=True, capture_output=True)
                return done.stdout.strip()

            def is_taken():
                return subprocess.run(["bash", "-euo", "pipefail", "-c", f"{function}\nis_of_commit release"], cwd=folder).returncode == 0

            build = Path(folder, "release")
            (build / "bin").mkdir(parents=True)
            for name in ("bin/cox", ".ninja_log"):
                (build / name).touch()
                os.utime(build / name, (1000, 1000))
            os.utime(build / "bin", (1000, 1000))
            git("init", "-q")
            git("commit", "-q", "--allow-empty", "-m", "x")
            self.assertFalse(is_taken())
            (build / "built-commit").write_text(git("rev-parse", "HEAD") + "\n")
            self.assertTrue(is_taken())
            for name in ("bin/cox", ".ninja_log"):  # a later time means that the file may have been built again from another state
                os.utime(build / name, (time.time() + 10,) * 2)
                self.assertFalse(is_taken())
                os.utime(build / name, (1000, 1000))
            git("commit", "-q", "--allow-empty", "-m", "y")
            self.assertFalse(is_taken())

    def test_wrong_arguments(self):
        self.check("--out .gpu-first", "--release")
        self.check("--out .gpu-first", "--no-such", "1")


HEAD = "First run: commit abcd1234, 2027-01-02T03:04Z, NVIDIA H100 80GB HBM3, 530 s\n"
TABLES = "\n| part | result | time | its last line |\n|---|---|---|---|\n%s\n| program | what | figure | bar | verdict |\n|---|---|---|---|---|\n%s\nEnd of the table.\n"
STATUS = ("# Status\n\n| thing | what | how | last run | result |\n|---|---|---|---|---|\n| `cuda_norm_test` | norms \\| sums | `run-all` | never | |\n"
          "| `cuda_moe_test` | mixtures | `run-all` | never | |\n| `emulated-norm` | norms, emulated | `norm` | 2026-11-21 | passed |\n\nThe end.\n")
DAY = "# Day\n\n| key | floor, ms | before, ms | after, ms | floor / after | measured |\n|---|---|---|---|---|---|\n| `cuda_model_bench: m, a step` | 5 | 6 | 7 | 0.7 | |\n"


def table_of(rows="", figures="", head=HEAD):
    return head + TABLES % (rows, figures)


class Merge(unittest.TestCase):
    def merge(self, table, *args, status=STATUS, day=DAY):
        """Runs merge on the table and two documents; returns (exit status, output, status document, page)."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder, name) for name in ("table.md", "status.md", "day.md")]
            for path, text in zip(paths, (table, status, day)):
                path.write_text(text)
            done = subprocess.run(["bash", HERE / "first-run", "--merge", paths[0], "--status", paths[1], "--day", paths[2], *args], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
            return done.returncode, done.stdout, paths[1].read_text(), paths[2].read_text()

    def test_rows_and_figures(self):
        code, out, status, day = self.merge(table_of("| `cuda_norm_test` | passed | 3 s | 136 cases |\n",
                                                     "| cuda_model_bench | m, a step | 5.61 ms | | |\n| torch | copy | 3000 GB/s |  |  |\n"))
        self.assertEqual(code, 0, out)
        by = "2027-01-02 03:04, abcd1234, NVIDIA H100 80GB HBM3"
        self.assertEqual(status, STATUS.replace("| `run-all` | never | |\n| `cuda_moe", f"| `run-all` | {by} | passed in 3 s: 136 cases |\n| `cuda_moe"))
        self.assertEqual(day, DAY.replace("| 0.7 | |", f"| 0.7 | 5.61 ms ({by}) |"))

    def test_torch_rows_of_three_cells(self):
        """Rows of figures have five cells, also those of torch_peers.py. merge refuses rows of three cells."""
        self.assertIn('| {figure} | | |"', (HERE / "torch_peers.py").read_text())
        self.assertEqual(self.merge(table_of("", "| torch | copy | 3000 GB/s |\n"))[0], 1)

    def test_the_same_twice(self):
        table = table_of("| `cuda_norm_test` | FAILED (1) | 3 s | row 7 |\n| `new` | passed | 1 s | |\n", "| cuda_model_bench | m, a step | 5.61 ms | | |\n")
        _, _, status, day = self.merge(table)
        code, out, again, day_again = self.merge(table, status=status, day=day)
        self.assertEqual((code, again, day_again), (0, status, day), out)

    def test_a_new_key(self):
        _, out, status, _ = self.merge(table_of("| `ncu-linear` | passed | 9 s | 62 % |\n"))
        row = [line for line in status.split("\n") if "ncu-linear" in line]
        self.assertEqual(len(row), 1, out)
        self.assertLess(status.index("ncu-linear"), status.index("The end."))
        self.assertIn("1 added (ncu-linear)", out)

    def test_what_was_not_run(self):
        rows = "| `cuda_norm_test` | skipped | 0 s | needs 2 devices |\n| `cuda_moe_test` | no time left | 0 s |  |\n"
        code, out, status, _ = self.merge(table_of(rows))
        self.assertEqual((code, status), (0, STATUS), out)
        self.assertIn("2 not run", out)

    def test_an_earlier_run(self):
        later = table_of("| `cuda_norm_test` | FAILED (1) | 3 s | |\n", "| cuda_model_bench | m, a step | 5.61 ms | | |\n")
        earlier = table_of("| `cuda_norm_test` | passed | 3 s | |\n", "| cuda_model_bench | m, a step | 9 ms | | |\n", HEAD.replace("2027", "2026"))
        _, _, status, day = self.merge(later)
        code, out, kept, day_kept = self.merge(earlier, status=status, day=day)
        self.assertEqual((code, kept, day_kept), (0, status, day), out)
        self.assertIn("1 kept because they are newer", out)

    def test_no_device(self):
        """merge refuses the table of a trial without a GPU."""
        code, out, status, _ = self.merge(table_of("| `cuda_norm_test` | passed | 3 s | |\n", head=HEAD.replace("NVIDIA H100 80GB HBM3", "")))
        self.assertEqual((code, status), (1, STATUS), out)
        self.assertIn("without a device", out)

    def test_cut_off(self):
        table = table_of("| `cuda_norm_test` | passed | 3 s | 136 cases |\n| `cuda_moe_test` | passed | 4 s | 52 cases |\n")
        for end in (0, 20, len(HEAD), table.index("cuda_moe_test") + 20, table.index("End")):
            code, out, status, day = self.merge(table[:end])
            self.assertEqual((code, status, day), (1, STATUS, DAY), out)
        cut = table[:table.index("52 cases")]
        code, out, status, _ = self.merge(cut, "--partial")
        self.assertEqual(code, 0, out)
        self.assertIn("136 cases", status)
        self.assertIn("| `cuda_moe_test` | mixtures | `run-all` | never | |", status)

    def test_hostile(self):
        """Markup, bars and control characters become plain text. An invalid key and a repeated key are refused."""
        row = "| `cuda_norm_test` | <script>x</script> | 3 s | [a](http://b) `c` \\| d \x1b[31m<!-- |\n"
        code, out, status, _ = self.merge(table_of(row))
        self.assertEqual(code, 0, out)
        self.assertEqual(len(status.split("\n")), len(STATUS.split("\n")))
        line = next(line for line in status.split("\n") if line.startswith("| `cuda_norm_test`"))
        self.assertEqual(len(re.split(r"(?<!\\)\|", line)), 7, line)
        for bad in ("<", ">", "[", "]", "\x1b", "!--"):
            self.assertNotIn(bad, line.replace("!--", "") if bad == "!--" else line)
        for bad in ("| `a`b` | passed | 3 s | |\n", "| `` | passed | 3 s | |\n", "| `../x<` | passed | 3 s | |\n", "| `a` | passed |\n",
                    "| `a` | passed | 3 s | x | y |\n", "| `a` | passed | 1 s | |\n| `a` | passed | 1 s | |\n", "| `" + "a" * 90 + "` | passed | 1 s | |\n",
                    "| `emulated-norm` | passed | 1 s | |\n", "| `cuda_norm_test` |  | 1 s | |\n", "| `cuda_norm_test` | <> | 1 s | |\n"):
            code, out, status, _ = self.merge(table_of(bad))
            self.assertEqual((code, status), (1, STATUS), bad)
        code, _, status, _ = self.merge(table_of("| `cuda_norm_test` | passed | 3 s | " + "x" * 5000 + " |\n"))
        self.assertEqual(code, 0)
        self.assertLess(len(status), len(STATUS) + 400)

    def test_the_real_documents(self):
        """Each key that first-run can print has a well-formed row in the documents, so a merge adds no row."""
        text = (ROOT / "docs/gpu-status.md").read_text()
        merge = load("merge")
        keys = {re.fullmatch(r"`([^`]+)`", cells[0])[1] for cells in map(merge.cells_of, text.split("\n"))
                if cells and len(cells) == merge.STATUS_CELLS and cells[0].startswith("`")}
        sources = "".join((HERE / name).read_text() for name in ("first-run", "tests.sh", "serve.sh", "multi.sh"))
        wanted = set(re.findall(r"^ *(?:! has_part \w+ \|\| )?(?:bench|run|row|goldens|golden_ranks) ([a-z][\w-]*)", sources, re.M))
        wanted |= {f"serve-{name}" for name in re.findall(r"^ *serve ([a-z]\w*)", sources, re.M)}
        wanted |= set(re.findall(r"^ *same_ids ([a-z-]+)", sources, re.M)) | {"multi-killed-rank"}
        for group in re.findall(r"for name in ([a-z_ ]+); do\n +(?:case|\[).*?done", sources, re.S):
            wanted |= {f"cuda_{name}_test" for name in group.split() if not name.startswith("cuda_")}
        wanted -= {"name", "sanitize", "ncu", "multi"}  # sanitize, ncu and multi are printed only when they are skipped
        self.assertGreater(len(wanted), 40)
        self.assertEqual(wanted - keys, set(), "docs/gpu-status.md has no row for these")
        rows = "".join(f"| `{key}` | passed | 1 s | fine |\n" for key in sorted(wanted))
        code, out, _, _ = self.merge(table_of(rows), status=text, day=(ROOT / "docs/develop/gpu-day.md").read_text())
        self.assertEqual(code, 0, out)
        self.assertIn(f"{len(wanted)} rows replaced, 0 added", out)


class Predict(unittest.TestCase):
    def setUp(self):
        self.predict = load("predict")

    def test_the_page(self):
        done = subprocess.run([sys.executable, HERE / "predict.py", "--check", ROOT / "docs/develop/gpu-day.md"], text=True, capture_output=True,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_keys_are_the_bench_s(self):
        """The keys of predict.py equal the names that bench/gpu/model.c gives its figures."""
        source = (ROOT / "bench/gpu/model.c").read_text()
        self.assertIn('"decode at batch ", d->batch, ", a step"', source)
        self.assertIn('"prefill of ", b->n_tokens, " tokens, time"', source)

    def test_figures_by_hand(self):
        """Weights and operations equal the values computed by hand in tests/unit/bench/gpu/cuda_work_test.c."""
        hand = {}
        for name, value in re.findall(r"^#define ([A-Z_0-9]+) +\(?(.*?)\)?$", (ROOT / "tests/unit/bench/gpu/cuda_work_test.c").read_text(), re.M):
            hand[name] = eval(value + ")" * (value.count("(") - value.count(")")), {}, hand)  # eval is called only with products and sums of numbers
        llama, awq, lite, lite_awq, gemma = map(self.predict.Shape, ("llama31_8b", "llama31_8b_awq", "deepseek_coder_v2_lite",
                                                                   "deepseek_coder_v2_lite_awq", "gemma3_270m"))
        near = lambda a, b: self.assertAlmostEqual(a / b, 1, 9)
        near(llama.layers_bytes(), 2 * hand["LLAMA_LAYERS"])
        near(awq.layers_bytes(), hand["LLAMA_LAYERS"] * hand["AWQ_128"] / 8)
        near(lite.layers_bytes(), 2 * hand["LITE_LAYERS"])
        near(lite_awq.layers_bytes(), (hand["LITE_LAYERS"] - hand["LITE_ROUTERS"]) * hand["AWQ_64"] / 8 + 2 * hand["LITE_ROUTERS"])
        near(lite.expert, hand["LITE_EXPERT"])
        near(sum(lite.token_ops()), 2 * (hand["LITE_LAYERS"] + 26 * 6 * hand["LITE_EXPERT"]))
        near(gemma.layers_bytes(), 2 * hand["GEMMA_LAYERS"])
        near(lite.experts_bytes(1), 26 * 6 * hand["LITE_EXPERT"] * 2)
        near(llama.kv_step(1, 1), 131072)
        near(lite.kv_step(1, 1), 27 * 576 * 2)
        near(gemma.kv_step(1, 1000), 1024 * (3 * 1000 + 15 * 512))
        near(llama.pair_ops, 2 * 32 * 256)
        near(lite.pair_ops, 2 * 16 * (192 + 128))
        near(lite.absorbed_pair_ops, 2 * 16 * 1088)
        near(gemma.pairs(600), 3 * 600 * 601 / 2 + 15 * (512 * 513 / 2 + 88 * 512))

    def test_beside_the_review(self):
        """The prediction for the code at the time of the review is within 12 % of the review's own prediction, and no time is below
        its floor."""
        for key, floor, before, given, after in self.predict.rows():
            self.assertLess(floor, after, key)
            self.assertLessEqual(after, before, key)
            if given:
                least, most = self.predict.review_range(floor, given)
                self.assertTrue(0.88 * least <= before <= 1.12 * most, f"{key}: {before}, review {least} to {most}")


if __name__ == "__main__":
    unittest.main()
