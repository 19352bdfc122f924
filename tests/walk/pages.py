"""Reads the commands of a Markdown page, in the order in which a reader types them, and the output that the page shows.

Commands are the lines of indented blocks and of fences with the language sh or none. A fence ```text right below holds the output
of the last command; … matches any text, and other lines may be between. A fence with another language is a file.
In running text and tables, `…` is a command when it begins with a program and has enough words. See docs/develop/testing.md,
"Walks".
"""
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHELL = {"", "sh", "bash", "shell"}
FENCE = re.compile(r"^(```+|~~~+)\s*([\w-]*)")
HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
PROMPT = re.compile(r"^\w*\$ ")
# PROGRAMS has words that begin a command in running text, and the least number of words of a command. A text with fewer words is only a name.
PROGRAMS = {"helm": 3, "kubectl": 3, "oc": 3, "docker": 3, "podman": 3, "skopeo": 3, "ctr": 3, "kind": 3, "minikube": 3, "k3s": 3,
            "cox": 3, "curl": 2, "gdb": 2, "addr2line": 2, "chmod": 2, "deploy/image/build": 2, "deploy/k8s/render": 2,
            "tests/k8s/cluster": 2, "scripts/setup": 2, "scripts/build": 2}


@dataclass
class Command:
    page: str
    line: int
    section: str
    typed: str
    shown: list = field(default_factory=list)
    inline: bool = False

    @property
    def bare(self):
        """Returns the command as typed, without the comment at its end."""
        return self.typed if "<<" in self.typed else re.sub(r"(^|\s+)#\s.*", "", self.typed)

    @property
    def text(self):
        """Returns the command without the comment at its end and with single spaces, as walks and tables name it."""
        return " ".join(self.bare.replace("\\\n", " ").split())

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text}"


@dataclass
class File:
    """`File` is a fence that is not a command, such as values or a Dockerfile."""
    page: str
    line: int
    section: str
    language: str
    text: str


def unfinished(text):
    """Returns whether the shell would read another line: after a backslash, in an open quote, or in a here-document."""
    if text.endswith("\\"):
        return True
    if m := HERE_DOCUMENT.search(text):
        return m[2] not in text.split("\n")[1:]
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def commands_in(lines, page, section):
    """Yields the Commands in `lines`, [(number, text)] of one block."""
    whole, began = "", 0
    for number, line in lines:
        if not whole:
            line, began = PROMPT.sub("", line), number
            if not line.strip() or line.lstrip().startswith("#"):
                continue
        whole += ("\n" if whole else "") + line.rstrip()
        if not unfinished(whole):
            yield Command(page, began, section, whole)
            whole = ""
    assert not whole, f"{page}:{began}: a command without an end: {whole}"


def inline_in(number, line, page, section):
    for code in re.findall(r"`([^`]+)`", line):
        words = code.split()
        if len(words) >= PROGRAMS.get(words[0] if words else "", len(words) + 1):
            yield Command(page, number, section, code, inline=True)


def blocks_of(text):
    """Yields (kind, language, [(number, line)]) for each block of a page. The kind is text, shell, shown or file."""
    lines = list(enumerate(text.splitlines(), 1))
    i, after_commands, blank = 0, False, True
    while i < len(lines):
        line = lines[i][1]
        if fence := FENCE.match(line):
            end = next(j for j in range(i + 1, len(lines)) if lines[j][1].startswith(fence[1]))
            kind = "shell" if fence[2] in SHELL else "shown" if fence[2] == "text" and after_commands else "file"
            yield kind, fence[2], lines[i + 1:end]
            i, after_commands, blank = end + 1, kind == "shell", False
        elif line.startswith("    ") and blank:
            end = next((j for j in range(i, len(lines)) if lines[j][1].strip() and not lines[j][1].startswith("    ")), len(lines))
            yield "shell", "", [(n, t[4:]) for n, t in lines[i:end]]
            i, after_commands = end, True
        else:
            blank = not line.strip()
            after_commands = after_commands and blank
            yield "text", "", [lines[i]]
            i += 1


def read(text, page):
    """Returns ([Command], [File]) of a page."""
    section, commands, files = "", [], []
    for kind, language, lines in blocks_of(text):
        if kind == "text":
            number, line = lines[0]
            if line.startswith("#"):
                section = line.lstrip("#").strip()
            commands += inline_in(number, line, page, section)
        elif kind == "shell":
            commands += commands_in(lines, page, section)
        elif kind == "shown":
            commands[-1].shown = [line for _, line in lines if line.strip()]
        elif lines:
            files.append(File(page, lines[0][0], section, language, "\n".join(line for _, line in lines) + "\n"))
    return commands, files


def read_page(page):
    return read((ROOT / page).read_text(), page)


def notes(text):
    """Returns the commands in Helm's notes, which are the indented lines."""
    return list(commands_in([(n, line[2:]) for n, line in enumerate(text.splitlines(), 1)
                             if re.match(r"  \S", line) and not line.startswith("  (")], "NOTES.txt", ""))


def missing(shown, said):
    """Returns the first line of `shown` that does not follow its previous lines in `said`, or None when all lines do."""
    at = 0
    for line in shown:
        like = re.sub(r"(\\ )+", r"\\s+", re.escape(line.strip())).replace("…", ".*")
        found = re.compile(rf"^\s*{like}\s*$", re.M).search(said, at)
        if not found:
            return line
        at = found.end()
    return None
