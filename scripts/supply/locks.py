"""Checks the lock files of other languages: npm's package-lock.json, Go's go.sum and cargo's Cargo.lock."""
import re
import tomllib

from report import Failed, load_json, read

LOCK_MAX = 32 << 20
NPM_HOST = "https://registry.npmjs.org/"
SHA512 = re.compile(r"sha512-[A-Za-z0-9+/]{86}==$")
CRATES = "registry+https://github.com/rust-lang/crates.io-index"
GO_SUM = re.compile(r"(\S+) (v\S+?)(/go\.mod)? h1:[A-Za-z0-9+/]{43}=$")


def npm_lock(name, text):
    """Returns (number of packages, faults) of a package-lock.json."""
    lock = load_json(text, name)
    packages = lock.get("packages") if isinstance(lock, dict) else None
    if not isinstance(packages, dict) or lock.get("lockfileVersion") not in (2, 3):
        raise Failed(f"{name} has no packages of lockfileVersion 2 or 3. Write it with npm 7 or later")
    bad, n = [], 0
    for path, entry in packages.items():
        if path == "":
            continue
        if not isinstance(entry, dict):
            raise Failed(f"{name}: the entry {path[:80]} is not an object")
        n += 1
        if entry.get("inBundle"):  # the hash of the bundle's package covers it
            continue
        if entry.get("link"):
            bad.append(f"{name}: {path[:80]} is a link to a folder. Packages must come from the registry")
        elif not str(entry.get("resolved", NPM_HOST)).startswith(NPM_HOST):  # without "resolved", npm asks its configured registry
            bad.append(f"{name}: {path[:80]} comes from \"{str(entry.get('resolved'))[:80]}\", not from {NPM_HOST}")
        elif not SHA512.match(str(entry.get("integrity", ""))):
            bad.append(f"{name}: {path[:80]} has no SHA-512 (\"integrity\")")
    return n, bad


def go_modules(name, mod, sums):
    """Returns (number of modules, faults). Each module that go.mod requires has a hash in go.sum: of its files, or, if the build
    needs only its go.mod, of that file."""
    bad, known = [], set()
    for number, line in enumerate(sums.splitlines(), 1):
        m = GO_SUM.match(line)
        if not m:
            bad.append(f"{name.replace('go.mod', 'go.sum')}:{number}: the line is not MODULE VERSION h1:HASH")
        else:
            known.add((m[1], m[2]))
    replaced = {}
    for m in re.finditer(r"^(?:replace)?\s*(\S+)(?: (v\S+))? => (\S+)(?: (v\S+))?\s*$", mod, re.M):
        if not m[4]:
            bad.append(f"{name}: {m[1]} is replaced by the folder {m[3]}. A folder has no hash")
        replaced[m[1]] = (m[3], m[4])
    required = re.findall(r"^(?:require)?\s+(\S+\.\S+/?\S*) (v\d\S*)", mod.split("replace (")[0], re.M)
    for module, version in required:
        if replaced.get(module, (module, version)) not in known:
            bad.append(f"{name}: {module} {version} has no hash in go.sum. Run go mod tidy")
    return len(required), bad


def cargo_lock(name, text):
    """Returns (number of crates, faults) of a Cargo.lock. Packages of this repository are not counted."""
    try:
        packages = tomllib.loads(text).get("package")
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise Failed(f"{name} is not TOML: {str(e)[:100]}")
    if not isinstance(packages, list) or not all(isinstance(p, dict) for p in packages):
        raise Failed(f"{name} has no list of packages")
    bad, others = [], [p for p in packages if "source" in p]
    for p in others:
        if p["source"] != CRATES:
            bad.append(f"{name}: {p.get('name')} comes from \"{str(p['source'])[:80]}\", not from crates.io")
        elif not re.fullmatch(r"[0-9a-f]{64}", str(p.get("checksum", ""))):
            bad.append(f"{name}: {p.get('name')} {p.get('version')} has no checksum")
    return len(others), bad


def check_npm(root, files, part):
    n = 0
    for name in files:
        if name.endswith("package-lock.json"):
            more, bad = npm_lock(name, read(root / name, LOCK_MAX))
            n, part.wrong = n + more, part.wrong + bad
        elif name.endswith("package.json") and name.replace("package.json", "package-lock.json") not in files:
            part.wrong.append(f"{name}: there is no package-lock.json beside it")
    part.checked = f"{n} packages have SHA-512, and none names another host than npm's registry"


def check_go(root, files, part):
    n = 0
    for name in files:
        if name.endswith("go.mod"):
            beside = name.replace("go.mod", "go.sum")
            if beside not in files:
                part.wrong.append(f"{name}: there is no go.sum beside it. Run go mod tidy")
                continue
            more, bad = go_modules(name, read(root / name, LOCK_MAX), read(root / beside, LOCK_MAX))
            n, part.wrong = n + more, part.wrong + bad
    part.checked = f"{n} modules have hashes in go.sum"


def check_cargo(root, files, part):
    n = 0
    for name in files:
        if name.endswith("Cargo.lock"):
            more, bad = cargo_lock(name, read(root / name, LOCK_MAX))
            n, part.wrong = n + more, part.wrong + bad
    part.checked = f"{n} crates, all with checksums and from crates.io"
