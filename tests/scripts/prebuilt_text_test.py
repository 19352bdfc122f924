"""Tests scripts/prebuilt_text.py: which prebuilt text libraries it accepts, and scripts/build --prebuilt-text with it."""
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = b"!<arch>\nthe objects"
SUM = hashlib.sha256(LIBRARY).hexdigest()


class Prebuilt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name, "tree")
        for name in ("Cargo.toml", "Cargo.lock", "rustc-wrapper", "src/lib.rs", "templates/a.jinja"):
            path = self.tree / "text" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"content of {name}\n")
        self.library = Path(folder.name, "libcoxtext.a")
        self.library.write_bytes(LIBRARY)
        self.out = self.tree / "build/text/prebuilt/libcoxtext.a"
        self.sources = self.run_script("sources")[1].strip()
        self.target = f"{os.uname().machine}-unknown-linux-gnu"

    def run_script(self, *args):
        """Runs the script; returns (exit status, output)."""
        done = subprocess.run([sys.executable, ROOT / "scripts/prebuilt_text.py", *args], text=True, timeout=60, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={**os.environ, "COX_ROOT": str(self.tree)})
        return done.returncode, done.stdout

    def use(self, what):
        return self.run_script("use", str(what), str(self.out))

    def list_it(self, *words):
        (self.tree / "text/prebuilt.txt").write_text("# a comment\n" + " ".join(words) + "\n")

    def refused(self, what, why):
        status, said = self.use(what)
        self.assertEqual(status, 1, said)
        self.assertRegex(said, why)
        self.assertFalse(self.out.exists())
        self.assertEqual(list(self.out.parent.iterdir()) if self.out.parent.exists() else [], [], "an unverified file stays")

    def test_a_listed_library_is_used(self):
        self.list_it(SUM, self.sources, self.target, "rustc-1.85.0")
        for what in (self.library, f"file://{self.library}"):
            self.assertEqual(self.use(what)[0], 0)
            self.assertEqual(self.out.read_bytes(), LIBRARY)
            self.out.unlink()

    def test_a_library_whose_hashes_are_given_is_used(self):
        self.assertEqual(self.use(f"{self.library}@sha256:{SUM}:{self.sources}")[0], 0)
        self.assertEqual(self.out.read_bytes(), LIBRARY)

    def test_a_library_that_is_there_stays_and_a_damaged_one_is_replaced(self):
        what = f"{self.library}@sha256:{SUM}:{self.sources}"
        self.use(what)
        os.utime(self.out, (1, 1))
        self.assertEqual((self.use(what)[0], self.out.stat().st_mtime), (0, 1))
        self.out.write_bytes(b"damaged")
        self.assertEqual((self.use(what)[0], self.out.read_bytes()), (0, LIBRARY))

    def test_an_unknown_or_changed_library_is_refused(self):
        self.refused(self.library, "text/prebuilt.txt does not list it")
        self.list_it(SUM, self.sources, self.target, "rustc-1.85.0")
        self.library.write_bytes(LIBRARY + b"!")
        self.refused(self.library, "does not list it")
        self.refused(f"{self.library}@sha256:{SUM}:{self.sources}", f"expected is {SUM}")

    def test_a_library_of_other_sources_is_refused(self):
        self.list_it(SUM, self.sources, self.target, "rustc-1.85.0")
        (self.tree / "text/src/new.rs").write_text("a new file\n")
        self.refused(self.library, "other sources")
        self.refused(f"{self.library}@sha256:{SUM}:{self.sources}", "other sources")

    def test_a_library_for_another_processor_is_refused(self):
        self.list_it(SUM, self.sources, "sparc-unknown-linux-gnu", "rustc-1.85.0")
        self.refused(self.library, "is for sparc")

    def test_wrong_words(self):
        self.list_it(SUM, "short", self.target)
        self.refused(self.library, "line 2 of .*prebuilt.txt")
        self.refused(f"{self.library}@sha256:{SUM}", "two hashes of 64 digits")
        self.refused(self.library.parent / "absent", "cannot read")
        self.assertEqual(self.run_script("make")[0], 2)

    def test_errors_of_servers_and_disks(self):
        def answer(server):
            while True:
                try:
                    client = server.accept()[0]
                except OSError:
                    return
                with client:
                    client.sendall(b"\x1b[31mno http\r\n\r\n")
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=answer, args=(server,), daemon=True)
            thread.start()
            address = f"http://127.0.0.1:{server.getsockname()[1]}/big.a"
            for what in (address, "http://a b/x", "http://a..b/x"):
                self.refused(what, f"^prebuilt_text: cannot read {re.escape(what)}: [^\x1b]*Check the name")
        whole = subprocess.run(["sh", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$@"', "sh", sys.executable, ROOT / "scripts/prebuilt_text.py", "use",
                                self.library, self.out], text=True, capture_output=True, env={**os.environ, "COX_ROOT": str(self.tree)})
        self.assertRegex(whole.stderr, f"^prebuilt_text: cannot write into {self.out.parent}: .*File too large.*Free some space")

    def test_a_file_that_is_no_library(self):
        self.library.write_bytes(b"text")
        self.list_it(hashlib.sha256(b"text").hexdigest(), self.sources, self.target, "rustc-1.85.0")
        self.refused(self.library, "not a static library")

    def test_the_tree_itself_has_a_hash_and_a_valid_list(self):
        done = subprocess.run([sys.executable, ROOT / "scripts/prebuilt_text.py", "sources"], text=True, timeout=60, capture_output=True)
        self.assertRegex(done.stdout, "^[0-9a-f]{64}\n$", done.stderr)
        shutil.copy(ROOT / "text/prebuilt.txt", self.tree / "text/prebuilt.txt")
        self.refused(self.library, "does not list it")


if __name__ == "__main__":
    unittest.main()
