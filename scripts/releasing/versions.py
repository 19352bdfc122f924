"""Reads the project's version and the sections of CHANGELOG.md."""
import re

NUMBER = r"(?:0|[1-9]\d{0,4})"
VERSION = re.compile(rf"({NUMBER})\.({NUMBER})\.({NUMBER})", re.A)
SUFFIX = re.compile(rf"{NUMBER}\.{NUMBER}\.{NUMBER}-(?:alpha|beta|rc)\.\d{{1,5}}", re.A)
HEADING = re.compile(r"^## (.+?)(?: \((\d{4}-\d\d-\d\d)\))?$", re.M)
UNRELEASED = "Unreleased"


class Failed(Exception):
    pass


class Version:
    """Holds a semantic version: MAJOR.MINOR.PATCH."""

    def __init__(self, text):
        m = VERSION.fullmatch(text)
        if not m and SUFFIX.fullmatch(text):
            raise Failed(f"{text} is a pre-release, which CMake's project() cannot hold. Release it as a version of its own, for example as the next patch.")
        if not m:
            raise Failed(f"{text!r} is not a semantic version. Give MAJOR.MINOR.PATCH in digits, for example 0.2.0.")
        self.text, self.numbers = text, tuple(int(n) for n in m.groups())

    def next_ones(self):
        """Returns the versions that may follow this one: the next patch, minor and major version."""
        major, minor, patch = self.numbers
        return [f"{major}.{minor}.{patch + 1}", f"{major}.{minor + 1}.0", f"{major + 1}.0.0"]


def current(root):
    """Returns the Version in CMakeLists.txt."""
    m = re.search(r"^project\(coxswain VERSION (\S+)", (root / "CMakeLists.txt").read_text(), re.M)
    if not m:
        raise Failed("CMakeLists.txt has no line \"project(coxswain VERSION MAJOR.MINOR.PATCH …\". Restore that line.")
    return Version(m[1])


def sections(changelog):
    """Returns {name: (date or None, text)} of the sections of CHANGELOG.md."""
    found, matches = {}, list(HEADING.finditer(changelog))
    for m, after in zip(matches, [*matches[1:], None]):
        if m[1] in found:
            raise Failed(f"CHANGELOG.md has two sections \"{m[1]}\". Make one of them.")
        found[m[1]] = (m[2], changelog[m.end():after.start() if after else len(changelog)].strip())
    return found


def notes_of(root, version):
    """Returns the section of a version in CHANGELOG.md."""
    date, text = sections((root / "CHANGELOG.md").read_text()).get(version, (None, None))
    if text is None:
        raise Failed(f"CHANGELOG.md has no section of {version}. Run scripts/release --prepare {version}, and commit the result.")
    if not date or not text:
        raise Failed(f"the section of {version} in CHANGELOG.md has no {'text' if date else 'date'}. "
                     f"Its heading is \"## {version} (YYYY-MM-DD)\", and the changes that users notice are below it.")
    return text
