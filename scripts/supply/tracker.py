"""Compares source packages of Debian with Debian's security tracker.

The packages come from SBOMs (SPDX 2.3 in JSON) or from packaging/sources.txt. A CVE that a newer version of the package fixes
makes the audit fail. A CVE without a fix is listed by its urgency. dpkg compares the versions.
The tracker's data is {source: {CVE: {"releases": {release: {"status", "fixed_version", "urgency"}}}}}.
"""
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from report import Failed, NotRun, load_json, read

URL = "https://security-tracker.debian.org/tracker/data/json"
DATA_MAX = 1 << 30  # bytes; the tracker had less than 100 MB in 2026
SOURCES_MIN = 1000  # the tracker had more than 4,000 source packages in 2026; fewer are a part of its data
SBOM_MAX = 64 << 20
WAIT_S = 120
RELEASES = {"11": "bullseye", "12": "bookworm", "13": "trixie", "14": "forky"}
URGENCIES = ["high", "medium", "low", "unimportant", "not yet assigned", "end-of-life"]
VERSION = re.compile(r"(?:\d+:)?\d[A-Za-z0-9.+~:-]*$")  # Debian Policy 5.6.12
SOURCE = re.compile(r"[a-z0-9][a-z0-9.+-]+$")


def fetch(place, offline):
    """Returns the tracker's data from a file or a URL."""
    if not re.match(r"[a-z]+://", place):
        return load_json(read(place, DATA_MAX), place)
    if not place.startswith("https://"):
        raise Failed(f"{place} is not https. Give an https URL, or a file")
    if offline:
        raise NotRun(f"--offline, and the data is at {place}. Give a copy with --tracker FILE")
    try:
        with urllib.request.urlopen(place, timeout=WAIT_S) as answer:
            data = answer.read(DATA_MAX + 1)
    except (urllib.error.URLError, OSError, ValueError) as e:
        raise NotRun(f"{place} is not reachable: {getattr(e, 'reason', e)}. Give a copy with --tracker FILE")
    if len(data) > DATA_MAX:
        raise Failed(f"{place} has more than {DATA_MAX} bytes")
    return load_json(data.decode(errors="replace"), place)


def release_of(distro, given):
    if given:
        return given
    number = distro.removeprefix("debian-").split(".")[0]
    return RELEASES.get(number, number)


def from_purl(package, locator, given):
    """Returns (source, version, release) of one purl of Debian, or None for a purl of another kind."""
    m = re.match(r"pkg:deb/debian/([^@?]+)@([^?]+)\??(.*)$", locator)
    if not m:
        return None
    more = dict(urllib.parse.parse_qsl(m[3]))
    version = urllib.parse.unquote(m[2])
    info = re.search(r"Debian source package (\S+?)(?: \((\S+)\))?$", str(package.get("sourceInfo", "")))
    if info and more.get("arch") != "source":
        name, version = info[1], info[2] or re.sub(r"\+b\d+$", "", version)
    else:
        name = urllib.parse.unquote(m[1])
    return name, version, release_of(more.get("distro", ""), given)


def of_sbom(text, what, release):
    """Returns the source packages of Debian that an SBOM lists: {(source, version, release)}."""
    content = load_json(text, what)
    packages = content.get("packages") if isinstance(content, dict) else None
    if not isinstance(packages, list):
        raise Failed(f"{what} has no list of packages. Give an SBOM in SPDX 2.3 as JSON")
    found = set()
    for p in packages:
        refs = p.get("externalRefs", []) if isinstance(p, dict) else None
        if not isinstance(refs, list) or not all(isinstance(r, dict) for r in refs):
            raise Failed(f"{what} has a package of another shape than SPDX 2.3")
        found |= {item for r in refs if (item := from_purl(p, str(r.get("referenceLocator", "")), release))}
    return found


def of_sources(text, what, release):
    """Returns the source packages of packaging/sources.txt, whose columns are library, source, suite, version, …"""
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        if line and not line.startswith("#"):
            words = line.split()
            if len(words) < 4:
                raise Failed(f"{what}:{number} has {len(words)} columns, at least 4 are wanted")
            found.add((words[1], words[3], release or words[2]))
    return found


def packages_of(path, release):
    text = read(path, SBOM_MAX)
    found = of_sources(text, path, release) if str(path).endswith(".txt") else of_sbom(text, path, release)
    for source, version, suite in found:
        if not SOURCE.match(source) or not VERSION.match(version):
            raise Failed(f"{path}: \"{source} {version}\" is not a source package and a version of Debian")
        if not re.fullmatch(r"[a-z]+", suite):
            raise Failed(f"{path}: the release of {source} is unknown. Give it with --release, such as --release trixie")
    return found


def is_older(version, than):
    """Returns true when Debian's order has `version` before `than`."""
    return subprocess.run(["dpkg", "--compare-versions", version, "lt", than], check=False, timeout=60).returncode == 0


def entry(value, what):
    if not isinstance(value, dict):
        raise Failed(f"the tracker's data has another shape than expected at {what}")
    return value


def check_package(data, item, part, open_by_urgency):
    source, version, release = item
    for cve, about in sorted(entry(data.get(source, {}), source).items()):
        state = entry(entry(about, cve).get("releases", {}), cve).get(release)
        if state is None:
            continue
        state = entry(state, f"{source} {cve} {release}")
        status, fixed, urgency = (str(state.get(k, "")) for k in ("status", "fixed_version", "urgency"))
        if status == "resolved":
            if not VERSION.match(fixed):
                raise Failed(f"the tracker's data has no version at {source} {cve} {release}")
            if fixed != "0" and is_older(version, fixed):
                part.wrong.append(f"{cve} ({urgency}): {source} {version} in {release}; {fixed} has the fix. Take that version")
        elif status in ("open", "undetermined"):
            open_by_urgency.setdefault(urgency, []).append(f"{cve} ({urgency}): {source} {version} in {release}: {status}, no fix in {release}")
        else:
            raise Failed(f"the tracker's data has the unknown status \"{status[:40]}\" at {source} {cve} {release}")


def check_whole(data, packages, place):
    """Refuses data that is a part of the tracker's, because what it lacks would count as without CVEs. Returns the packages without an entry."""
    if not any(source in data for source, _, _ in packages):
        raise Failed(f"{place} knows none of the {len(packages)} packages, so it is not the tracker's data")
    if len(data) < SOURCES_MIN:
        raise Failed(f"{place} has only {len(data)} source packages, and the tracker has more than {SOURCES_MIN}. Download it again")
    releases = {name for about in data.values() for cve in entry(about, "a package").values()
                for name in entry(entry(cve, "a CVE").get("releases", {}), "releases")}
    if lacking := sorted({release for _, _, release in packages} - releases):
        raise Failed(f"{place} says nothing about {', '.join(lacking)}. Give a release of Debian with --release, or newer data with --tracker")
    return sorted({source for source, _, _ in packages if not data.get(source)})


def check(boms, place, release, offline, part):
    if not boms:
        raise NotRun("there is no SBOM. Give one with --sbom FILE")
    if not shutil.which("dpkg"):
        raise NotRun("dpkg, which compares Debian's versions, is not installed")
    packages = set().union(*(packages_of(b, release) for b in boms))
    if not packages:
        raise Failed(f"no source package of Debian is in {', '.join(map(str, boms))}")
    data, found = entry(fetch(place, offline), "its beginning"), {}
    unknown = check_whole(data, packages, place)
    for item in sorted(packages):
        check_package(data, item, part, found)
    order = sorted(found, key=lambda u: (URGENCIES.index(u.strip("*")) if u.strip("*") in URGENCIES else len(URGENCIES), u))
    part.notes += [line for u in order for line in found[u]]
    counts = ", ".join(f"{len(found[u])} {u or 'without urgency'}" for u in order) or "none"
    part.checked = f"{len(packages)} source packages of Debian; open CVEs without a fix: {counts}" + \
                   (f"; without any CVE in the tracker: {', '.join(unknown)}" if unknown else "")
