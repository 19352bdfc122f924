"""Runs a command on a pseudo-terminal that the test reads."""
import codecs
import os
import pty
import re
import select
import signal
import subprocess

import findings
from cluster import BIN, SLOW, wait_for

ENV = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
ENV.pop("NO_COLOR", None)


class Terminal:
    """`Terminal` is a command whose keys and output go through a terminal of `columns` by `rows`."""

    def __init__(self, *command, columns=100, rows=30, env=ENV):
        self.fd, self.inner = pty.openpty()
        os.set_blocking(self.fd, False)
        self.resize(columns, rows)
        self.before = self.settings()
        self.process = subprocess.Popen([BIN / "cox", *map(str, command)], stdin=self.inner, stdout=self.inner, stderr=self.inner, env=env)
        self.raw = self.text = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may be split between two reads

    def resize(self, columns, rows):
        subprocess.run(["stty", "cols", str(columns), "rows", str(rows)], stdin=self.inner, check=True)

    def settings(self):
        return subprocess.run(["stty", "-g"], stdin=self.inner, check=True, capture_output=True, text=True).stdout

    def read(self, seconds=0.02):
        """Reads the available output. Returns False when there is no output."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            self.raw += self.decoder.decode(os.read(self.fd, 65536))
        except OSError:  # the command has ended
            return False
        self.text = self.raw.replace("\r\n", "\n")
        return True

    def until(self, what, condition):
        def is_there():
            self.read()
            return condition(self.text)
        try:
            return wait_for(what, is_there)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.text[-3000:]}") from None

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def screen(self):
        """Returns the last complete screen of a program that redraws it, without escape sequences."""
        return re.sub("\033\\[[0-9;?]*[a-zA-Z]", "", self.text[self.text.rfind("\033[H"):])

    def wait(self):
        """Waits for the end and returns the exit code. It reads the output while it waits, so that the command can continue to
        write."""
        wait_for("the command has ended", lambda: (self.read(), self.process.poll() is not None)[1])
        while self.read():
            pass
        findings.look_at_log(self.text)
        return self.process.returncode

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(10 * SLOW)
        os.close(self.inner)
        os.close(self.fd)
