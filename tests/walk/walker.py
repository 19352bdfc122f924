"""Follows pages as a reader does: it types the next command into a shell and checks the result.

A walk is a function that takes a Walk. With a Typist the walk runs. Without a Typist it only collects the commands that it would
type; in this way test_walk.py finds in a second every command that no walk types.
"""
import os
import re
import selectors
import signal
import subprocess
import time

from pages import ROOT, missing, notes, read_page

PATIENCE_S = 600  # seconds until a command counts as hung
MARK = "--the-walk-goes-on--"


class Walk:
    def __init__(self, typist=None):
        self.typist, self.page, self.commands, self.at = typist, None, [], 0
        self.typed = []  # the Commands that the walk has typed

    def open(self, page, section=None):
        """Continues at the top of a page, or of one of its sections."""
        self.page, self.commands, self.at = page, [c for c in read_page(page)[0] if not c.inline and section in (None, c.section)], 0
        assert self.commands, f"{page} has no section {section} with commands"

    def read_notes(self, text):
        """Continues with the commands of Helm's notes."""
        self.page, self.commands, self.at = "NOTES.txt", notes(text), 0
        assert self.commands, f"no commands in the notes:\n{text}"

    def run(self, beginning, **capitals):
        """Types the next command that begins with `beginning` and returns its output. `capitals` replaces the page's words in capitals."""
        found = next((i for i in range(self.at, len(self.commands)) if self.commands[i].text.startswith(beginning)), None)
        assert found is not None, f"{self.page}: no command that begins with \"{beginning}\" where the walk is (tests/walk/walks.py)"
        self.at = found + 1
        return self._type(self.commands[found], capitals)

    def has(self, beginning):
        return any(c.text.startswith(beginning) for c in self.commands[self.at:])

    def rest(self, **capitals):
        """Types all remaining commands of the page or section."""
        while self.at < len(self.commands):
            self.run(self.commands[self.at].text, **capitals)

    def until(self, what, *arguments):
        """Calls the Typist's method `what`, which waits for a state of the cluster or prepares it."""
        return getattr(self.typist, what)(*arguments) if self.typist else None

    def _type(self, command, capitals):
        self.typed.append(command)
        if not self.typist:
            return ""
        said = self.typist.type(command, capitals)
        lacking = missing(command.shown, said)
        assert lacking is None, f"{command}: the page shows\n  {lacking}\nwhich is not (any more) in\n{said}"
        return said


def substituted(text, table, values):
    """Returns the command in the form for this machine: applies every row of the table that matches."""
    for pattern, replacement, _ in table:
        text = re.sub(pattern, replacement.format(**values), text)
    return text


class Shell:
    """`Shell` runs one bash for a whole walk. Variables and background processes stay for later commands."""

    def __init__(self, folder, env):
        self.said = []
        self.process = subprocess.Popen(["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        cwd=folder, env=env, start_new_session=True)

    def __call__(self, text):
        """Runs a command; returns (exit status, output of stdout and stderr together)."""
        self.process.stdin.write(f"{{ {text}\n}} </dev/null\nprintf '\\n{MARK} %d\\n' $?\n".encode())
        self.process.stdin.flush()
        heard, end = b"", time.monotonic() + PATIENCE_S
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            while not (m := re.search(rf"^{MARK} (\d+)\n".encode(), heard, re.M)):
                assert ready.select(max(0, end - time.monotonic())), f"no end of `{text}` in {PATIENCE_S} s: {heard[-2000:]!r}"
                more = os.read(self.process.stdout.fileno(), 65536)
                assert more, f"the shell ended in `{text}`: {heard[-2000:]!r}"
                heard += more
        return int(m[1]), heard[:m.start()].decode(errors="replace").strip()

    def close(self):
        """Ends the shell and its background processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def reader_folder(folder):
    """Prepares a folder that looks like the repository to its user. Files that commands write stay in this folder."""
    for name in ("deploy", "docs", "packaging", "scripts", "tests"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").mkdir()
    (folder / "build/image").symlink_to(ROOT / "build/image")
    return folder
