"""Goes through pages as their reader does: the next command, typed into one shell, and what has to be true after it.

A walk is a function that takes a Walk. With a Typist it is run; without one it only says which commands of the pages it
would type, which is how a command that no walk knows is found in a second (test_walk.py).
"""
import os
import re
import selectors
import signal
import subprocess
import time

from pages import ROOT, missing, notes, read_page

PATIENCE_S = 600  # of a command: a hang, not a measure
MARK = "--the-walk-goes-on--"


class Walk:
    def __init__(self, typist=None):
        self.typist, self.page, self.commands, self.at = typist, None, [], 0
        self.typed = []  # Commands

    def open(self, page, section=None):
        """Goes on at the top of a page, or of its section."""
        self.page, self.commands, self.at = page, [c for c in read_page(page)[0] if not c.inline and section in (None, c.section)], 0
        assert self.commands, f"{page} has no section {section} with commands"

    def read_notes(self, text):
        """Goes on with the commands of Helm's notes."""
        self.page, self.commands, self.at = "NOTES.txt", notes(text), 0
        assert self.commands, f"no commands in the notes:\n{text}"

    def run(self, beginning, **capitals):
        """Types the next command that begins so; capitals: what a reader fills in. Returns what it said."""
        found = next((i for i in range(self.at, len(self.commands)) if self.commands[i].text.startswith(beginning)), None)
        assert found is not None, f"{self.page}: no command that begins with \"{beginning}\" where the walk is (tests/walk/walks.py)"
        self.at = found + 1
        return self._type(self.commands[found], capitals)

    def has(self, beginning):
        return any(c.text.startswith(beginning) for c in self.commands[self.at:])

    def rest(self, **capitals):
        """Types all that are left on the page or in the section."""
        while self.at < len(self.commands):
            self.run(self.commands[self.at].text, **capitals)

    def until(self, what, *arguments):
        """Waits for something of the world around: the Typist's method of that name."""
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
    """The command as this machine takes it: every row of the table whose pattern is in it."""
    for pattern, replacement, _ in table:
        text = re.sub(pattern, replacement.format(**values), text)
    return text


class Shell:
    """One bash for a whole walk: what a command sets or leaves in the background is there for the next one."""

    def __init__(self, folder, env):
        self.said = []
        self.process = subprocess.Popen(["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        cwd=folder, env=env, start_new_session=True)

    def __call__(self, text):
        """(exit status, what it said, on both streams)."""
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
        """Ends it, and what it left in the background."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def reader_folder(folder):
    """A folder that looks like the repository to who types in it; what commands write stays there."""
    for name in ("deploy", "docs", "scripts", "tests"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").mkdir()
    (folder / "build/image").symlink_to(ROOT / "build/image")
    return folder
