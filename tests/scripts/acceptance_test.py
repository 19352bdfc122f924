"""Tests that scripts/acceptance gives the right verdict for each line, and can fail. Its tests and benchmarks are stand-ins here."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# TEST replaces scripts/test: it writes the requested tests as if ctest had run them. STUB_FAILS names failing tests, STUB_SKIPS a skipped one.
TEST = r"""#!/usr/bin/env python3
import os, sys, time
names = sys.argv[sys.argv.index("--tests") + 1].strip("^()$").split("|")
fails, skips = os.environ.get("STUB_FAILS", "").split(), os.environ.get("STUB_SKIPS")
def body(n):
    if n in fails:
        return '<failure message=""/>'
    if n == skips:
        return '<skipped message=""/>'
    if n == "proto_frame_fuzz_mutated":
        return f"<system-out>38 corpus files, {os.environ.get('STUB_FRAMES', '100000000')} inputs made of them, seed 1</system-out>"
    if n == "examples_newcomer":
        return f"<system-out>{os.environ.get('STUB_NEWCOMER', 'newcomer: quickstart: 15.3 s')}\n</system-out>"
    return "<system-out>faults: kill 1\n9 faults, 8 streams, 7 tokens, pause p50 1 s p99 1 s max 1 s, 0 failures</system-out>"
print("5000000 of 100000000 inputs", flush=True)
time.sleep(float(os.environ.get("STUB_SECONDS", 0)))
with open(sys.argv[sys.argv.index("--junit") + 1], "w") as f:
    f.write("<testsuite>" + "".join(f'<testcase name="{n}" status="run">{body(n)}</testcase>' for n in names) + "</testsuite>")
sys.exit(any(f in names for f in fails))
"""
# BENCH replaces a benchmark: it prints its arguments. STUB_EXITS="NAME STATUS" sets the exit status of NAME.
BENCH = r"""#!/usr/bin/env bash
echo "started: ${0##*/} $*"
echo "${STUB_SAYS:-}"
case ${STUB_EXITS:-} in "${0##*/} "*) exit "${STUB_EXITS##* }" ;; esac
"""
DOC = "docs/develop/recovery.md"
REPORT = "| 42, 120 | 2300 | 28000 | 7,500,000 | 2400 | 0.7 s, 9 s, 12 s | 0 |\n"


def acceptance(*lines, files=(), **env):
    """Runs scripts/acceptance in a tree of stand-ins; returns (exit status, output)."""
    with tempfile.TemporaryDirectory() as folder:
        for path in ("scripts/acceptance", "scripts/steps.sh", ".ci/count_junit.py"):
            Path(folder, path).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / path, Path(folder, path))
        stubs = {"scripts/test": TEST, DOC: "", "cache/peers/llama/llama-server": "", "cache/peers/vllm/bin/python": "",
                 "build/goldens/llama_tiny/x": "", "tests/chaos/run": BENCH, "scripts/setup": BENCH, "deploy/grafana/render": BENCH, **dict(files)}
        stubs |= {f"bench/{b}": BENCH for b in ("takeover", "elastic", "recovery", "dashboard", "shapes", "degrees", "clients")}
        for path, text in stubs.items():
            if text is not None:
                Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, path).write_text(text)
                Path(folder, path).chmod(0o755)
        done = subprocess.run([Path(folder, "scripts/acceptance"), *lines], text=True, timeout=60, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={"PATH": os.environ["PATH"], "COX_CACHE": f"{folder}/cache", **env})
    return done.returncode, done.stdout


class Acceptance(unittest.TestCase):
    def check(self, line, status, verdict, *wanted, **more):
        got, out = acceptance(line, **more)
        self.assertEqual(got, status, out)
        self.assertIn(f"line {line}: {verdict}", out)
        for text in wanted:
            self.assertIn(text, out)

    def test_every_line_has_a_function_and_a_title(self):
        text = (ROOT / "scripts/acceptance").read_text()
        listed = [line.split()[0] for line in acceptance("--list")[1].splitlines()]
        self.assertEqual(sorted(listed), sorted(re.findall(r"^line_(\w+)\(\)", text, re.M)))
        self.assertEqual(len(listed), len(set(listed)))
        self.assertEqual([n for n in listed if n.startswith("f")], [f"f{i}" for i in range(1, 8)])

        self.assertEqual([n for n in listed if n.startswith("h")], [f"h{i}" for i in range(1, 7)])

    def test_a_line_that_is_none(self):
        self.assertEqual(acceptance("f8")[0], 2)
        self.assertEqual(acceptance("h7")[0], 2)

    def test_what_holds(self):
        got, out = acceptance("f2", "f3", "f4", "f5", "f6", "f7")
        self.assertEqual((got, out.count(": held (")), (0, 6), out)

    def test_who_uses_it(self):
        got, out = acceptance("h1", "h2", "h3", "h4", "h5", "h6")
        self.assertEqual((got, out.count(": held (")), (0, 6), out)
        self.assertIn("newcomer: quickstart: 15.3 s", out)
        self.check("h1", 1, "FELL SHORT", "no figures", STUB_NEWCOMER="nothing")
        for line, bench in (("h2", "dashboard"), ("h3", "shapes"), ("h4", "degrees"), ("h4", "clients"), ("h5", "render"), ("h5", "setup")):
            self.check(line, 1, "FELL SHORT", STUB_EXITS=f"{bench} 1")
        self.check("h4", 0, "held, but for what was skipped", files={"cache/peers/vllm/bin/python": None})
        self.check("h6", 1, "FELL SHORT", STUB_FAILS="e2e_errors")

    def test_a_test_that_fails_is_seen(self):
        got, out = acceptance("f1", "f2", "f3", "f4", "f6", "f7", files={DOC: REPORT}, STUB_FAILS="chaos_hosts_whole "
                              "e2e_standby e2e_elastic e2e_upgrade proto_frame_fuzz_mutated e2e_bad_frames")
        self.assertEqual((got, out.count(": FELL SHORT (")), (1, 6), out)

    def test_a_bench_beyond_its_bars_is_seen(self):
        for line, bench in (("f2", "takeover"), ("f3", "elastic"), ("f5", "recovery")):
            self.check(line, 1, "FELL SHORT", STUB_EXITS=f"{bench} 1")

    def test_what_is_skipped_is_told(self):
        self.check("f7", 0, "held, but for what was skipped", STUB_SKIPS="security_.*")
        self.check("f2", 0, "held, but for what was skipped", STUB_SAYS="standby: skipped, no redis-server here")

    def test_the_frames_are_counted(self):
        self.check("f6", 0, "held (", "38 corpus files, 100000000 inputs made of them, seed 1", "9 faults, 8 streams")
        self.check("f6", 1, "FELL SHORT", "no figures", STUB_FRAMES="3000000")

    def test_a_long_line_says_how_far_it_is(self):
        self.check("f6", 0, "held (", "s so far: 5000000 of 100000000 inputs", STUB_SECONDS="3", COX_TICK_S="0.2")

    def test_two_hours_are_a_report_or_a_run(self):
        self.check("f1", 1, "FELL SHORT", "has no report of a run of 120 minutes")
        self.check("f1", 1, "FELL SHORT", files={DOC: REPORT.replace("| 0 |", "| 1 |")})
        self.check("f1", 0, "held (", "7,500,000", files={DOC: REPORT})
        self.check("f1", 0, "held (", "started: run --minutes 120", COX_CHAOS_MINUTES="120")
        self.check("f1", 1, "FELL SHORT", STUB_EXITS="run 1", COX_CHAOS_MINUTES="120")

    def test_peers_that_are_not_here(self):
        self.check("f5", 0, "held (", "--bars --only cox,vllm,llama")
        self.check("f5", 0, "held, but for what was skipped", "--only cox,llama", "vllm is not there",
                   files={"cache/peers/vllm/bin/python": None})

    def test_a_skip_does_not_hide_a_failure(self):
        """Line d5 fails when its tests fail, even if its run on a host without a device is skipped afterwards."""
        self.check("d5", 1, "FELL SHORT", files={"tests/cuda/run-all": "#!/bin/sh\nexit 77\n"}, STUB_FAILS="cuda_comm_emulated")


if __name__ == "__main__":
    unittest.main()
