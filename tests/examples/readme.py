"""Reads the commands and the output in a README of deploy/examples or in a page, for tests that type the commands and compare the
output.

A fence ```sh test=NAME holds commands. A fence ```text of=NAME holds lines of their output, in this order; other lines may be
between them. … in such a line matches any text. A README must not have other fences: every command in it is tested.
"""
import re
import shutil
import signal
from pathlib import Path

import pytest
from cluster import BIN, ROOT, SANITIZED, SLOW
from hosts import Hosts, why_not
from real_model import CACHE, DEMO

EXAMPLES = ROOT / "deploy/examples"
# SERVED is the model that replaces "demo" in the READMEs: demo where it has been fetched, else null. Under a sanitizer it is null, because demo is
# too slow.
SERVED = "demo" if DEMO.exists() and not SANITIZED else "null"
FENCE = re.compile(r"^```(\S*)(?: (test|of)=(\S+))?\n(.*?)^```$", re.M | re.S)
needs_hosts = pytest.mark.skipif(why_not() is not None, reason=f"SKIPPED: {why_not()}")


class Page:
    """Holds the named blocks of a page. Blocks without a name, which only a page may have, are ignored."""

    def __init__(self, path):
        self.text = path.read_text()
        self.commands, self.shown, self.run = {}, {}, set()
        for language, kind, block, text in FENCE.findall(self.text):
            if self.is_typed(language, kind, text):
                into = self.commands if kind == "test" else self.shown
                assert block not in into, block
                into[block] = text

    def is_typed(self, language, kind, text):
        assert not kind or language == {"test": "sh", "of": "text"}[kind], f"a block of another language: {text}"
        return bool(kind)

    def typed(self, block):
        self.run.add(block)
        return self.commands[block]

    def lacks(self, block, text):
        """Returns the first line that the README shows and `text` lacks, or None when `text` has all of them."""
        at = 0
        for line in self.shown[block].splitlines():
            # The width of a table's columns depends on the values, so any run of spaces matches.
            like = re.sub(r"(\\ )+", r"\\s+", re.escape(line.strip())).replace("…", ".*?")
            m = re.compile(like + r"\s*$", re.M).search(text, at)
            if not m:
                return line
            at = m.end()
        return None

    def saw(self, block, text):
        line = self.lacks(block, text)
        assert line is None, f"after {block} the README shows\n  {line}\nwhich is not (any more) in\n{text}"

    def all_were_tried(self):
        left = set(self.commands) - self.run
        assert not left, f"blocks of the README that no test types: {left}"


class Readme(Page):
    """`Readme` is a user's copy of an example's folder, with the blocks of its README."""

    def __init__(self, name, to, model=SERVED):
        self.folder = Path(to) / name
        shutil.copytree(EXAMPLES / name, self.folder)
        super().__init__(self.folder / "README.md")
        if model != "demo":
            for path in self.folder.iterdir():
                if path.name != "README.md":  # in YAML, null without quotes means no value
                    name = f'"{model}"' if path.suffix == ".yaml" else model
                    path.write_text(re.sub(r"\bdemo\b", name, path.read_text()))
            self.commands = {b: re.sub(r"\bdemo\b", model, text) for b, text in self.commands.items()}

    def is_typed(self, language, kind, text):
        assert kind, f"nobody tries this block of {self.folder.name}: {text}"
        return super().is_typed(language, kind, text)


class Shells(Hosts):
    """`Shells` has hosts on which the blocks of a README are typed. `cox` is in PATH, the model is in the cache, and commands run in
    the example's folder."""

    def __init__(self, folder, readme):
        super().__init__(folder)
        self.readme = readme
        self.before = (f"PATH={BIN}:$PATH; export PATH HOME={folder} COX_CACHE={CACHE}; cd {readme.folder}; ")

    def type(self, host, block, status=0):
        """Types a block on a host, waits for its end and returns its output, stdout and stderr together."""
        typed = f"exec 2>&1; {self.before}{self.readme.typed(block)}echo exit status $?"
        said, ended = host.run("sh", "-c", typed).rsplit("exit status ", 1)
        assert int(ended) == status, f"{block} ended with {ended}: {said}"
        return said

    def end(self, name):
        """Sends Ctrl-C (SIGINT) to a process and checks that it ends with status 0."""
        p = self.processes[name]
        p.send_signal(signal.SIGINT)
        assert p.wait(20 * SLOW) == 0, self.log(name)

    def leave(self, host, name, block, env=None):
        """Types a block in a separate terminal and leaves it running. The block's last command replaces the shell."""
        *first, last = self.readme.typed(block).strip().splitlines()
        return self.start_shell(host, name, self.before + "; ".join([*first, f"exec {last}"]), env=env)

    def wait_seen(self, name, block):
        """Waits until the log of the running process `name` has all lines that the README shows for `block`."""
        self.wait(f"all that the README shows of {block} was said", lambda: self.readme.lacks(block, self.log(name)) is None, 60)

    def wait_served(self, host, url, seconds=60):
        self.wait(f"{url} is 200", lambda: "200" == host.curl(url, "-o", "/dev/null", "-w", "%{http_code}"), seconds)
