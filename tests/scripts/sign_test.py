"""Tests packaging/sums and packaging/sign: lists of hostile folders, keys that others can read, and real signatures.

Tests that sign need Debian's minisign (scripts/setup --packaging) and are skipped without it. They make a throw-away key.
"""
import hashlib
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(ROOT / "packaging"))
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "packaging" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


SIGN = load("sign")
try:
    MINISIGN = SIGN.minisign()
except SIGN.Failed:
    MINISIGN = None


def run(script, *words, stdin=b""):
    p = subprocess.run([sys.executable, ROOT / "packaging" / script, *words], input=stdin, capture_output=True, timeout=300, check=False)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name) / "tree"
        (self.folder / "bin").mkdir(parents=True)
        (self.folder / "share/coxswain").mkdir(parents=True)
        (self.folder / "bin/cox").write_text("program")
        (self.folder / "bin/vllm").symlink_to("cox")
        self.list = self.folder / "share/coxswain/SHA256SUMS"


class Sums(Folder):
    def refused(self, words):
        code, _, err = run("sums", "--installed", self.folder)
        self.assertEqual(code, 1)
        self.assertIn(words, err)

    def test_list(self):
        for _ in range(2):  # a list and its signature are not in the list
            self.assertEqual(run("sums", "--installed", self.folder)[0], 0)
            self.assertEqual(self.list.read_text(), f"{hashlib.sha256(b'program').hexdigest()}  bin/cox\n")
            self.list.with_name("SHA256SUMS.minisig").write_text("old")
        self.assertEqual(run("sums", self.folder)[0], 0)
        self.assertEqual(len((self.folder / "SHA256SUMS").read_text().splitlines()), 3)
        check = subprocess.run(["sha256sum", "-c", "--strict", "share/coxswain/SHA256SUMS"], cwd=self.folder, capture_output=True, check=False)
        self.assertEqual(check.returncode, 0)

    def test_an_old_signature_goes(self):
        old = self.list.with_name("SHA256SUMS.minisig")
        old.write_text("old")
        run("sums", "--installed", self.folder)
        self.assertFalse(old.exists())

    def test_links(self):
        for target in ("/etc/passwd", "../../outside", "nothing", "/"):
            (self.folder / "bin/link").symlink_to(target)
            self.refused("the link bin/link leads to")
            (self.folder / "bin/link").unlink()

    def test_names_and_kinds(self):
        for name in ("a\nb", "ö", "a\\b", "a\x1bb"):
            (self.folder / name).write_text("")
            self.refused("not printable ASCII")
            (self.folder / name).unlink()
        os.mkfifo(self.folder / "fifo")
        self.refused("fifo is neither a file")

    def test_what_a_killed_script_left(self):
        for name in (".deb-ab_c1234", ".sign-abcdefgh", "coxswain.deb.new"):
            (self.folder / name).mkdir()
            self.refused(f"{name} is an unfinished file")
            (self.folder / name).rmdir()
        (self.folder / "share/coxswain/SHA256SUMS").mkdir()  # the list cannot be written
        self.refused("Check that the folders of the command")
        self.assertEqual([p.name for p in (self.folder / "share/coxswain").iterdir()], ["SHA256SUMS"])

    def test_no_files(self):
        self.assertIn("the name is empty", run("sums", "")[2])
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertIn("has 0 files", run("sums", empty)[2])
        self.assertIn("is not a folder", run("sums", self.folder / "absent")[2])
        self.assertIn("is not a folder", run("sums", "--installed", empty)[2])


class Keys(Folder):
    def setUp(self):
        super().setUp()
        self.key = self.folder.parent / "release.key"
        self.key.write_text("secret")
        self.key.chmod(0o600)

    def refused(self, words, *more):
        code, _, err = run("sign", "--key", self.key, *more, self.list)
        self.assertEqual(code, 1)
        self.assertIn(words, err)

    def test_who_can_read_it(self):
        for mode in (0o640, 0o604, 0o620, 0o602, 0o644):
            self.key.chmod(mode)
            self.refused(f"can be read by other users (mode {mode:04o})")
        self.key.chmod(0o600)
        self.refused("no public key")
        if os.geteuid() == 0:
            os.chown(self.key, 12345, 12345)
            self.refused("belongs to another user (12345)")

    def test_who_can_replace_it(self):
        folder = self.key.parent / "keys"
        folder.mkdir()
        self.key = self.key.rename(folder / "release.key")
        link = folder.parent / "link"
        link.symlink_to(self.key)
        for mode in (0o777, 0o775, 0o757):
            folder.chmod(mode)
            self.refused(f"other users can replace files in {folder} (mode {mode:04o})")
        self.key = link
        self.refused(f"other users can replace files in {folder} (mode 0757)")
        folder.chmod(0o1777)
        self.refused("no public key")
        folder.chmod(0o755)
        self.refused("no public key")
        if os.geteuid() == 0:
            os.chown(folder, 12345, -1)
            self.refused("belongs to another user (12345), who can replace")

    def test_places(self):
        self.key.unlink()
        self.refused("cannot read the key")
        self.key.mkdir(0o700)
        self.refused("not a regular file")
        with tempfile.NamedTemporaryFile(dir=ROOT / "build") as inside:
            self.key = Path(inside.name)
            self.refused("inside the repository")

    def test_passwords_and_comments(self):
        public = self.key.with_suffix(".pub")
        public.write_text("public")
        empty = self.folder / "empty"
        empty.write_text("\nsecond line")
        self.refused("is empty", "--password-file", empty)
        self.refused("longer than", "--password-file", "/dev/zero")
        self.refused("cannot read the password file", "--password-file", self.folder / "absent")
        self.refused("there is no list", "--comment", "x")
        self.list.write_text("x")
        self.refused("not printable ASCII", "--comment", "a\nb")


@unittest.skipUnless(MINISIGN, "minisign is not installed (scripts/setup --packaging)")
class Signatures(Folder):
    def make_key(self, password):
        key = self.folder.parent / "throw-away.key"
        words = [MINISIGN, "-G", "-f", "-s", key, "-p", key.with_suffix(".pub")] + ([] if password else ["-W"])
        subprocess.run(words, input=password + b"\n" + password + b"\n", capture_output=True, timeout=300, check=True)
        return key

    def verified(self, key):
        return subprocess.run([MINISIGN, "-V", "-p", key.with_suffix(".pub"), "-m", self.list], capture_output=True, timeout=60, check=False)

    def test_a_signal_leaves_nothing(self):
        """A program that does not end stands for minisign, which takes seconds for a key with a password."""
        key, tool, begun = self.make_key(b""), self.folder.parent / "minisign", self.folder.parent / "begun"
        tool.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 60\n")
        tool.chmod(0o755)
        self.list.write_text("x")
        process = subprocess.Popen([ROOT / "packaging/sign", "--key", key, self.list], stderr=subprocess.PIPE,
                                   env={**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"})
        until = time.monotonic() + 60
        while not begun.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        process.terminate()
        self.assertEqual((process.communicate(timeout=60)[1], process.returncode), (b"sign: stopped by SIGTERM\n", 143))
        self.assertEqual(sorted(p.name for p in self.list.parent.iterdir()), ["SHA256SUMS"])

    def test_without_a_password(self):
        key = self.make_key(b"")
        run("sums", "--installed", self.folder)
        code, out, err = run("sign", "--key", key, self.list)
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"SHA256SUMS.minisig: coxswain \d+\.\d+\.\d+ SHA256SUMS")
        said = self.verified(key)
        self.assertEqual(said.returncode, 0)
        self.assertIn(b"coxswain ", said.stdout)
        self.list.write_text(self.list.read_text() + "x")
        self.assertNotEqual(self.verified(key).returncode, 0)
        self.assertEqual([p.name for p in self.list.parent.iterdir() if p.name.startswith(".")], [])

    def test_another_public_key_is_noticed(self):
        key = self.make_key(b"")
        other = self.folder.parent / "other.pub"
        other.write_bytes(key.with_suffix(".pub").read_bytes())
        key.unlink()
        key = self.make_key(b"")
        self.list.write_text("x")
        code, _, err = run("sign", "--key", key, "--public-key", other, self.list)
        self.assertEqual(code, 1)
        self.assertIn("verify the new signature", err)
        self.assertFalse(self.list.with_name("SHA256SUMS.minisig").exists())

    @unittest.skipUnless(os.environ.get("COX_WHOLE"), "deriving a key from a password takes minisign 1 GiB and seconds (COX_WHOLE=1)")
    def test_with_a_password(self):
        key = self.make_key(b"a pass word")
        self.list.write_text("x")
        self.assertEqual(run("sign", "--key", key, "--password-file", "-", self.list, stdin=b"a pass word\n")[0], 0)
        self.assertEqual(self.verified(key).returncode, 0)
        for words, stdin in (([], b""), (["--password-file", "-"], b"wrong\n")):
            code, _, err = run("sign", "--key", key, *words, self.list, stdin=stdin)
            self.assertEqual(code, 1)
            self.assertIn("Check the key and the password", err)
            self.assertIn("Wrong password" if words else "get_password", err)


if __name__ == "__main__":
    unittest.main()
