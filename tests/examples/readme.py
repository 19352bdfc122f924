"""Reads the commands and the output of a README of deploy/examples, or of a page, for the tests that type and compare them.

A fence ```sh test=NAME holds commands; ```text of=NAME holds lines of what they say, in this order, with others between
them. … in such a line is anything. No other command is in a README: what is not tried is not told.
"""
import re
import shutil
import signal
from pathlib import Path

import pytest
from cluster import BIN, ROOT, SANITIZED, SLOW
from hosts import Hosts, why_not
from real_model import CACHE, MODEL

EXAMPLES = ROOT / "deploy/examples"
# The model that the READMEs serve where it has been fetched; a rule in its place answers as fast under a sanitizer.
SERVED = "demo" if MODEL.exists() and not SANITIZED else "null"
FENCE = re.compile(r"^```(\S*)(?: (test|of)=(\S+))?\n(.*?)^```$", re.M | re.S)
needs_hosts = pytest.mark.skipif(why_not() is not None, reason=f"SKIPPED: {why_not()}")


class Page:
    """The blocks of a page by name. Those without one, which a page may have, are nobody's here."""

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
        """The first of the lines that the README shows which text does not have; None: it has all."""
        at = 0
        for line in self.shown[block].splitlines():
            # spaces of a table are as wide as what is in it
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
    """An example's folder as a user has copied it, and its README's blocks."""

    def __init__(self, name, to, model=SERVED):
        self.folder = Path(to) / name
        shutil.copytree(EXAMPLES / name, self.folder)
        super().__init__(self.folder / "README.md")
        if model != "demo":
            for path in self.folder.iterdir():
                if path.name != "README.md":  # null without quotes is nothing at all in YAML
                    name = f'"{model}"' if path.suffix == ".yaml" else model
                    path.write_text(re.sub(r"\bdemo\b", name, path.read_text()))
            self.commands = {b: re.sub(r"\bdemo\b", model, text) for b, text in self.commands.items()}

    def is_typed(self, language, kind, text):
        assert kind, f"nobody tries this block of {self.folder.name}: {text}"
        return super().is_typed(language, kind, text)


class Shells(Hosts):
    """Hosts on which a README's blocks are typed: cox is in PATH, the model in the cache, the folder is the reader's."""

    def __init__(self, folder, readme):
        super().__init__(folder)
        self.readme = readme
        self.before = (f"PATH={BIN}:$PATH; export PATH HOME={folder} COX_CACHE={CACHE}; cd {readme.folder}; ")

    def type(self, host, block, status=0):
        """Typed, and its end awaited: what it said, on both streams."""
        typed = f"exec 2>&1; {self.before}{self.readme.typed(block)}echo exit status $?"
        said, ended = host.run("sh", "-c", typed).rsplit("exit status ", 1)
        assert int(ended) == status, f"{block} ended with {ended}: {said}"
        return said

    def end(self, name):
        """Ctrl-C."""
        p = self.processes[name]
        p.send_signal(signal.SIGINT)
        assert p.wait(20 * SLOW) == 0, self.log(name)

    def leave(self, host, name, block, env=None):
        """Typed in a terminal of its own, where it goes on; its last command is the process."""
        *first, last = self.readme.typed(block).strip().splitlines()
        return self.start_shell(host, name, self.before + "; ".join([*first, f"exec {last}"]), env=env)

    def wait_seen(self, name, block):
        """Until the log of what was left running has what the README shows of it."""
        self.wait(f"all that the README shows of {block} was said", lambda: self.readme.lacks(block, self.log(name)) is None, 60)

    def wait_served(self, host, url, seconds=60):
        self.wait(f"{url} is 200", lambda: "200" == host.curl(url, "-o", "/dev/null", "-w", "%{http_code}"), seconds)
