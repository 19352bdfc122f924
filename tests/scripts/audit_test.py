"""Tests scripts/audit with repositories and data of its own: pins without hashes, lock files of other hosts, hostile JSON.

The tracker's data has the shape that Debian publishes at https://security-tracker.debian.org/tracker/data/json; the packages and
CVEs in it are invented. cargo-audit and cargo-deny are replaced by programs that record their words.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/supply"))
import crates  # noqa: E402
import locks  # noqa: E402
import pins  # noqa: E402
import tracker  # noqa: E402
from report import Failed, NotRun, Part, read  # noqa: E402

HASH = " --hash=sha256:" + "a" * 64
SHA512 = "sha512-" + "A" * 86 + "=="
H1 = " h1:" + "B" * 43 + "="


class Holder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    def check(self, function, files, *wanted):
        """Runs a part on files, and compares its faults: each wanted text is in one fault."""
        for name, text in files.items():
            self.put(name, text)
        part = Part("part")
        function(self.root, sorted(files), part)
        self.assertEqual(len(part.wrong), len(wanted), part.wrong)
        for fault, words in zip(part.wrong, wanted):
            self.assertIn(words, fault)
        return part


class Pins(Holder):
    def lists(self, text, *wanted, source="a==1\n"):
        return self.check(pins.check, {"x/requirements.in": source, "x/requirements.txt": text}, *wanted)

    def test_good(self):
        self.lists(f"# comment\na==1 \\\n   {HASH} \\\n   {HASH}\nb-c[x]==2.0.post1 ; python_version < '3.12' \\\n  {HASH}\n", source="# people\nA==1\nB_C[x]==2.0.post1 # why\n")

    def test_missing_hashes(self):
        self.lists("a==1\n", "a has no hash", "a is missing")
        self.lists(f"a==1{HASH}\nb==2 \\\n\n", "b has no hash")
        self.lists("a==1 --hash=md5:" + "a" * 32 + "\n", "not SHA-256", "a is missing")
        self.lists(f"a==1{HASH} --hash=sha256:short\n", "not SHA-256", "a is missing")

    def test_other_lines(self):
        for line in ("--index-url https://x.example/", "-r other.txt", "-e .", "b>=2", "b", "b @ https://x.example/b.whl", "https://x.example/b.whl", "git+https://x.example/b"):
            self.lists(f"a==1{HASH}\n{line}{HASH}\n", "is not NAME==VERSION")
        self.lists(f"a==1{HASH}\nA==2{HASH}\n", "is there twice")

    def test_the_two_lists_agree(self):
        self.lists(f"a==2{HASH}\n", "a is 2, but x/requirements.in has 1")
        self.lists(f"a==1{HASH}\n", "line 1 is not NAME==VERSION", source="a>=1\n")
        self.check(pins.check, {"y/requirements.in": "a==1\n"}, "has not written y/requirements.txt")
        self.check(pins.check, {"z/requirements.txt": f"a==1{HASH}\n"}, "there is no z/requirements.in")

    def test_calls_of_pip(self):
        self.check(pins.check, {"scripts/a": "pip install --require-hashes \\\n  -r a/requirements.txt\npip install x\n", "docs/a.md": "pip install -r r.txt\n"})
        self.check(pins.check, {"scripts/b": "python -m pip install -q \\\n  -r a/requirements.txt\n"}, "without --require-hashes")
        self.check(pins.check, {"tests/c.py": 'run([python, "-m", "pip", "install", "-r", "requirements.txt"])\n'}, "without --require-hashes")

    def test_this_repository(self):
        p = subprocess.run([ROOT / "scripts/audit", "--offline", "cargo", "python", "npm", "go"], capture_output=True, text=True, check=False)
        self.assertEqual(p.returncode, 0, p.stdout)
        self.assertRegex(p.stdout.splitlines()[-1], "^audit: ok: cargo, python, npm, go; wrong: none; not run: none$")


class Locks(Holder):
    def npm(self, packages, *wanted, version=3):
        self.check(locks.check_npm, {"package-lock.json": {"lockfileVersion": version, "packages": packages}}, *wanted)

    def test_npm(self):
        good = {"integrity": SHA512, "resolved": "https://registry.npmjs.org/a/-/a-1.tgz"}
        self.npm({"": {"name": "x"}, "node_modules/a": good, "node_modules/a/b": {"inBundle": True}, "node_modules/c": {"integrity": SHA512}})
        self.npm({"node_modules/a": {"resolved": good["resolved"]}}, "has no SHA-512")
        self.npm({"node_modules/a": {**good, "integrity": "sha1-abc="}}, "has no SHA-512")
        self.npm({"node_modules/a": {**good, "integrity": [SHA512]}}, "has no SHA-512")
        for place in ("https://registry.npmjs.org.evil.example/a", "http://registry.npmjs.org/a", "git+ssh://git@x.example/a", "file:../a", 7):
            self.npm({"node_modules/a": {**good, "resolved": place}}, "comes from")
        self.npm({"node_modules/a": {"link": True}}, "is a link")
        self.check(locks.check_npm, {"y/package.json": "{}"}, "no package-lock.json")

    def test_npm_of_wrong_shapes(self):
        for text in ("", "[]", "7", "{", "[" * 200_000, '{"packages": []}', '{"packages": {}, "lockfileVersion": 1}', '{"packages": {"a": 1}, "lockfileVersion": 3}'):
            with self.assertRaises(Failed):
                locks.npm_lock("package-lock.json", text)

    def test_go(self):
        mod = "module x\n\nrequire (\n\tx.example/a v1.0.0\n\ty.example/b v2.0.0 // indirect\n)\n\nrequire z.example/c v3.0.0\n"
        sums = "".join(f"{m} {v}{H1}\n{m} {v}/go.mod{H1}\n" for m, v in (("x.example/a", "v1.0.0"), ("y.example/b", "v2.0.0"), ("z.example/c", "v3.0.0")))
        self.check(locks.check_go, {"go.mod": mod, "go.sum": sums})
        self.check(locks.check_go, {"go.mod": mod, "go.sum": sums.replace("y.example/b v2.0.0", "y.example/b v2.0.1")}, "y.example/b v2.0.0 has no hash")
        self.check(locks.check_go, {"go.mod": mod, "go.sum": sums + "junk\n"}, "go.sum:7: the line is not")
        self.check(locks.check_go, {"go.mod": mod + "replace x.example/a => ../a\n", "go.sum": sums}, "replaced by the folder ../a", "x.example/a v1.0.0 has no hash")
        self.check(locks.check_go, {"w/go.mod": mod}, "no go.sum")

    def test_cargo(self):
        row = '[[package]]\nname = "a"\nversion = "1"\n'
        source = f'source = "{locks.CRATES}"\n'
        self.check(locks.check_cargo, {"Cargo.lock": row + row + source + f'checksum = "{"0" * 64}"\n'})
        self.check(locks.check_cargo, {"Cargo.lock": row + source}, "a 1 has no checksum")
        self.check(locks.check_cargo, {"Cargo.lock": row + 'source = "git+https://x.example/a"\n'}, "not from crates.io")
        for text in ("package = 1", "[[package", "package = [1]", ""):
            with self.assertRaises(Failed):
                locks.cargo_lock("Cargo.lock", text)

    def test_files_are_bounded(self):
        path = self.put("big", "x" * 11)
        with self.assertRaisesRegex(Failed, "more than 10 bytes"):
            read(path, 10)
        os.mkfifo(self.root / "fifo")
        for place in ("fifo", "absent", "."):
            with self.assertRaisesRegex(Failed, "not a regular file"):
                read(self.root / place, 10)
        path.write_bytes(b"\xff")
        with self.assertRaisesRegex(Failed, "not UTF-8"):
            read(path, 10)


DATA = {
    "openssl": {
        "CVE-2031-0001": {"description": "invented", "scope": "local", "releases": {
            "trixie": {"status": "resolved", "repositories": {"trixie": "3.5.7-1"}, "fixed_version": "3.5.7-1~deb13u2", "urgency": "high"},
            "bookworm": {"status": "open", "repositories": {"bookworm": "3.0.17-1"}, "urgency": "high"}}},
        "CVE-2031-0002": {"releases": {"trixie": {"status": "open", "urgency": "low**"}}},
        "CVE-2031-0003": {"releases": {"trixie": {"status": "resolved", "fixed_version": "0", "urgency": "unimportant"}}}},
    "zlib": {"CVE-2031-0004": {"releases": {"trixie": {"status": "open", "urgency": "medium"}}},
             "TEMP-0000000-ABCDEF": {"releases": {"trixie": {"status": "undetermined", "urgency": "not yet assigned"}}}},
}


WHOLE = {f"tea{i}": {} for i in range(tracker.SOURCES_MIN)}  # the tracker's data has many packages


@unittest.skipUnless(shutil.which("dpkg"), "dpkg is not installed")
class Tracker(Holder):
    def audit(self, bom, data=None, release=None):
        part = Part("debian")
        data = DATA if data is None else data
        place = self.put("data.json", {**WHOLE, **data} if isinstance(data, dict) else data)
        tracker.check([bom], str(place), release, True, part)
        return part

    def sources(self, *rows):
        return self.put("sources.txt", "# columns\n" + "".join(f"lib {name} {suite} {version} pool file hash MIT\n" for name, version, suite in rows))

    def sbom(self, *packages):
        return self.put("sbom.json", {"packages": [{"name": "x", "sourceInfo": info, "externalRefs": [{"referenceLocator": purl}]} for purl, info in packages]})

    def test_a_fix_that_is_missing(self):
        part = self.audit(self.sources(("openssl", "3.5.7-1~deb13u1", "trixie")))
        self.assertEqual(len(part.wrong), 1)
        self.assertIn("CVE-2031-0001 (high): openssl 3.5.7-1~deb13u1 in trixie; 3.5.7-1~deb13u2 has the fix", part.wrong[0])
        for version in ("3.5.7-1~deb13u2", "3.5.7-1", "1:1.0-1"):  # Debian's order: ~ is before nothing, an epoch wins
            self.assertEqual(self.audit(self.sources(("openssl", version, "trixie"))).wrong, [])

    def test_open_ones_by_urgency(self):
        part = self.audit(self.sources(("openssl", "3.5.7-1", "trixie"), ("zlib", "1:1.3", "trixie"), ("libyaml", "0.2.5-2", "trixie")))
        self.assertEqual([line.split(":")[0] for line in part.notes],
                         ["CVE-2031-0004 (medium)", "CVE-2031-0002 (low**)", "TEMP-0000000-ABCDEF (not yet assigned)"])
        self.assertIn("3 source packages of Debian; open CVEs without a fix: 1 medium, 1 low**, 1 not yet assigned; without any CVE in the tracker: libyaml",
                      part.checked)
        self.assertEqual(len(self.audit(self.sources(("openssl", "3.0.17-1", "bookworm"))).notes), 1)
        self.assertEqual(len(self.audit(self.sources(("openssl", "3.5.7-1~deb13u1", "bookworm")), release="trixie").wrong), 1)

    def test_sboms(self):
        binary = "built from the Debian source package openssl"
        for purl, info, faults in (
                ("pkg:deb/debian/libssl3@3.5.7-1~deb13u1%2Bb1?arch=amd64&distro=debian-13", binary, 1),
                ("pkg:deb/debian/libssl3@3.5.7-1~deb13u2%2Bb1?arch=amd64&distro=debian-13", binary, 0),
                ("pkg:deb/debian/libssl3@9-1?arch=amd64&distro=debian-13", binary + " (3.5.7-1~deb13u1)", 1),
                ("pkg:deb/debian/openssl@3.5.7-1~deb13u1?arch=source&distro=trixie", "", 1),
                ("pkg:deb/debian/openssl@3.5.7-1~deb13u1?distro=debian-13.1", "", 1)):
            self.assertEqual(len(self.audit(self.sbom((purl, info), ("pkg:cargo/serde@1.0", ""))).wrong), faults, purl)

    def refused(self, words, bom, data=None):
        with self.assertRaisesRegex(Failed, words):
            self.audit(bom, data)

    def test_hostile_data(self):
        bom = self.sources(("openssl", "3.5.7-1", "trixie"))
        releases = {"trixie": {"status": "resolved", "fixed_version": "1; rm -rf /", "urgency": "x"}}
        for words, data in (("is not JSON", "["), ("is not JSON", "[" * 200_000), ("another shape", "[]"), ("another shape", '"x"'),
                            ("another shape", {"openssl": [1]}), ("another shape", {"openssl": {"CVE-1": 7}}),
                            ("another shape", {"openssl": {"CVE-1": {"releases": []}}}), ("another shape", {"openssl": {"CVE-1": {"releases": {"trixie": []}}}}),
                            ("unknown status", {"openssl": {"CVE-1": {"releases": {"trixie": {"status": "fine"}}}}}),
                            ("no version", {"openssl": {"CVE-1": {"releases": releases}}}), ("is not the tracker's data", {"other": {}})):
            self.refused(words, bom, data)

    def test_a_part_of_the_data_is_not_ok(self):
        bom = self.sources(("zlib", "1:1.3", "trixie"), ("openssl", "3.5.7-1", "trixie"))
        for words, data in (("has only 1 source packages", {"zlib": {}}), ("has only 2 source packages", DATA), ("says nothing about trixie", {**WHOLE, "zlib": {}})):
            with self.assertRaisesRegex(Failed, words):
                tracker.check([bom], str(self.put("part.json", data)), None, True, Part("debian"))

    def test_hostile_sboms(self):
        for content in ("[", "[]", "{}", '{"packages": [1]}', '{"packages": [{"externalRefs": 1}]}', '{"packages": [{"externalRefs": [1]}]}', '{"packages": []}'):
            self.refused("", self.put("sbom.json", content))
        self.refused("not a source package and a version", self.sources(("--help", "1", "trixie")))
        self.refused("not a source package and a version", self.sources(("zlib", "-x", "trixie")))
        self.refused("the release of zlib is unknown", self.sbom(("pkg:deb/debian/zlib@1.3?arch=source", "")))
        self.refused("has 2 columns", self.put("short.txt", "zlib zlib\n"))

    def test_what_is_not_reachable(self):
        for place, offline, kind in (("https://127.0.0.1:1/data", False, NotRun), (tracker.URL, True, NotRun), ("http://127.0.0.1/", False, Failed), ("file:///etc/passwd", False, Failed)):
            with self.assertRaises(kind):
                tracker.fetch(place, offline)
        with self.assertRaisesRegex(NotRun, "no SBOM"):
            tracker.check([], "x", None, True, Part("debian"))


class Tools(Holder):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.environ.__setitem__, "PATH", os.environ["PATH"])
        self.addCleanup(setattr, crates, "PLACE", crates.PLACE)
        crates.PLACE = self.root

    def tool(self, name, text, status):
        path = self.put(f"bin/{name}", f"#!/bin/sh\necho \"$@\" >{self.root}/words\necho '{text}'\nexit {status}\n")
        path.chmod(0o755)

    def test_absent(self):
        os.environ["PATH"] = str(self.root)
        for check in (lambda p: crates.check_advisories(self.root, True, p), lambda p: crates.check_policy(True, p)):
            with self.assertRaisesRegex(NotRun, "scripts/audit --install"):
                check(Part("x"))

    def test_a_local_copy_of_the_advisories(self):
        part = Part("advisories")
        self.tool("cargo-audit", "Crate: bad", 1)
        with self.assertRaisesRegex(Failed, "neither a checkout nor a git repository"):
            crates.check_advisories(self.root / "nothing", True, part)
        (self.root / "db/crates").mkdir(parents=True)
        crates.check_advisories(self.root / "db", True, part)
        self.assertEqual(part.wrong, ["Crate: bad"])
        words = (self.root / "words").read_text()
        self.assertIn(f"--db {self.root}/db --no-fetch --stale", words)

    def test_a_bare_repository(self):
        work, bare = self.root / "work", self.root / "bare"
        self.put("work/crates/x/RUSTSEC-2031-0001.md", "advisory")
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@x.example", "-c", "init.defaultBranch=main"]
        for words in (["init", "-q", work], ["-C", work, "add", "-A"], ["-C", work, "commit", "-qm", "x"], ["clone", "-q", "--bare", work, bare]):
            subprocess.run([*git, *words], check=True, capture_output=True)
        self.assertTrue((crates.advisories(bare, self.root) / "crates/x/RUSTSEC-2031-0001.md").is_file())

    def test_what_is_not_reachable(self):
        self.tool("cargo-audit", "error: couldn\\047t fetch advisory database: git operation failed", 1)
        with self.assertRaisesRegex(NotRun, "not reachable.*--advisory-db"):
            crates.check_advisories(None, False, Part("x"))
        with self.assertRaisesRegex(NotRun, "--offline"):
            crates.check_advisories(None, True, Part("x"))
        part = Part("policy")
        self.tool("cargo-deny", "licenses FAILED", 4)
        crates.check_policy(True, part)
        self.assertEqual(part.wrong, ["licenses FAILED"])
        self.assertIn("--offline check", (self.root / "words").read_text())


class Command(Holder):
    def run_audit(self, *words):
        p = subprocess.run([sys.executable, ROOT / "scripts/audit", *words], capture_output=True, text=True, check=False)
        return p.returncode, p.stdout.splitlines(), p.stderr

    def test_summary_and_exit_status(self):
        bom = self.put("sources.txt", "lib openssl trixie 3.5.7-1~deb13u1 x\n")
        code, lines, _ = self.run_audit("debian", "--sbom", bom, "--tracker", self.put("data.json", {**WHOLE, **DATA, "zl\u001bib": {}}))
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "audit: ok: none; wrong: debian; not run: none")
        code, lines, _ = self.run_audit("debian", "--sbom", bom, "--offline")
        self.assertEqual((code, lines[-1]), (0, "audit: ok: none; wrong: none; not run: debian"))
        self.assertEqual(self.run_audit("debian", "--sbom", bom, "--offline", "--require-all")[0], 1)
        self.assertEqual(self.run_audit("nothing")[0], 2)

    def test_control_characters_are_escaped(self):
        bom = self.put("sources.txt", "lib zl\x1b[2Jib trixie 1 x\n")
        _, lines, _ = self.run_audit("debian", "--sbom", bom, "--tracker", self.put("data.json", {**WHOLE, **DATA}))
        self.assertTrue(all(line.isprintable() for line in lines), lines)


if __name__ == "__main__":
    unittest.main()
