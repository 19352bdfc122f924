"""Checks that pip installs only files that are pinned by hash: the lists of Python packages, and the calls of pip in scripts."""
import re

from report import Failed, read

LIST_MAX = 8 << 20
NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[A-Za-z0-9,._-]+\])?==([A-Za-z0-9][A-Za-z0-9.+!_-]*)(?: ; [^\\#]+)?$")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}$")
CALL = re.compile(r"pip\d?(?:\"|')?[\s,\"']+install\b.*")
SCRIPTS = re.compile(r"(scripts|packaging|deploy|\.ci|tests(?!/scripts/))/|Makefile$")
PROSE = (".md", ".txt", ".in", ".html", ".json", ".lock")


def same_name(name):
    """Returns the name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def logical_lines(text):
    """Yields (number, line) with continued lines joined. Comments and empty lines are left out."""
    first, parts = 1, []
    for number, line in enumerate(text.splitlines(), 1):
        if not parts:
            first = number
        if line.lstrip().startswith("#"):
            continue
        parts.append(line.rstrip("\\").strip())
        if not line.endswith("\\"):
            joined = " ".join(p for p in parts if p)
            parts = []
            if joined:
                yield first, joined
    if parts:
        yield first, " ".join(p for p in parts if p)


def check_list(name, text):
    """Returns ({package: version}, faults) of a list with hashes."""
    pins, bad = {}, []
    for number, line in logical_lines(text):
        words = line.split(" --hash")
        m = NAME.match(words[0].strip())
        hashes = ["--hash" + w.strip() for w in words[1:]]
        if not m:
            bad.append(f"{name}:{number}: \"{line[:80]}\" is not NAME==VERSION. A list has no options, URLs and other lists")
        elif not hashes:
            bad.append(f"{name}:{number}: {m[1]} has no hash. Run scripts/pin-python")
        elif not all(HASH.match(h) for h in hashes):
            bad.append(f"{name}:{number}: {m[1]} has a hash that is not SHA-256. Run scripts/pin-python")
        elif same_name(m[1]) in pins and " ; " not in line:
            bad.append(f"{name}:{number}: {m[1]} is there twice")
        else:
            pins[same_name(m[1])] = m[2]
    return pins, bad


def wanted_of(text):
    """Returns the faults-free {package: version} of a list that people write."""
    found = {}
    for number, line in logical_lines(text):
        m = NAME.match(line.split("#")[0].strip())
        if not m:
            raise Failed(f"line {number} is not NAME==VERSION")
        found[same_name(m[1])] = m[2]
    return found


def check_pair(root, name, part):
    """Checks a list with hashes against the list of people beside it."""
    source = name[:-len(".txt")] + ".in"
    pins, bad = check_list(name, read(root / name, LIST_MAX))
    part.wrong += bad
    if not (root / source).is_file():
        part.wrong.append(f"{name}: there is no {source}, from which scripts/pin-python writes the list")
        return len(pins)
    try:
        for package, version in wanted_of(read(root / source, LIST_MAX)).items():
            if pins.get(package) != version:
                part.wrong.append(f"{name}: {package} is {pins.get(package, 'missing')}, but {source} has {version}. Run scripts/pin-python")
    except Failed as e:
        part.wrong.append(f"{source}: {e}")
    return len(pins)


def check_calls(root, files, part):
    """Finds calls of pip that install a list without --require-hashes."""
    n = 0
    for name in files:
        if not SCRIPTS.match(name) or name.endswith(PROSE) or not (root / name).is_file():
            continue
        try:
            text = (root / name).read_text()
        except UnicodeDecodeError:
            continue
        for m in CALL.finditer(text.replace("\\\n", " ")):
            if re.search(r"\s-r\s|requirements?\.txt", m[0]):
                n += 1
                if "--require-hashes" not in m[0]:
                    part.wrong.append(f"{name}: \"{m[0][:80].strip()}\" installs a list without --require-hashes")
    return n


def check(root, files, part):
    lists = [f for f in files if f.endswith("requirements.txt")]
    for name in files:
        if name.endswith("requirements.in") and name[:-len(".in")] + ".txt" not in lists:
            part.wrong.append(f"{name}: scripts/pin-python has not written {name[:-len('.in')]}.txt")
    n = sum(check_pair(root, name, part) for name in lists)
    calls = check_calls(root, files, part)
    part.checked = f"{n} packages in {len(lists)} lists have hashes, and {calls} calls of pip require them"
