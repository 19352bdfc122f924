"""Lays out the files of a package for a whole system, which .deb and .rpm share: the staged folder below /usr, the units of systemd,
and the configuration in /etc/coxswain.

The units come from deploy/systemd, where they are for programs in /usr/local and for a dynamic user. A package has a user of its own,
because an administrator can then give that user files: keys, certificates, models. UNIT_CHANGES says all that differs. Explicit
folders are in place of systemd's variables, which systemd 239 (RHEL 8) does not set.
"""
from staged import Failed, ROOT

UNITS = ROOT / "deploy/systemd"
UNIT_FOLDER = "usr/lib/systemd/system"
CONFIGURATION = ("etc/coxswain/up.yaml", "etc/coxswain/worker.yaml")
EVERY_UNIT = (
    ("/usr/local/bin/cox", "/usr/bin/cox"),
    ("DynamicUser=yes\n", "User=coxswain\n"),
    ("${CACHE_DIRECTORY}", "/var/cache/coxswain"),
)
UNIT_CHANGES = {
    "coxswain.service": (
        *EVERY_UNIT,
        ("/usr/local/libexec/coxswain/", "/usr/libexec/coxswain/"),
        ("${STATE_DIRECTORY}", "/var/lib/coxswain"),
        ("${RUNTIME_DIRECTORY}", "/run/coxswain"),
    ),
    "coxswain-worker@.service": (
        *EVERY_UNIT,
        ("LoadCredential=join:/etc/coxswain/join\n", ""),
        ("${CREDENTIALS_DIRECTORY}/join", "/etc/coxswain/join"),
    ),
}


def unit(name):
    """Returns the text of a unit for packages."""
    text = (UNITS / name).read_text()
    for old, new in UNIT_CHANGES[name]:
        if old not in text:
            raise Failed(f"deploy/systemd/{name} does not have {old.strip()!r}, which packages replace. Adapt UNIT_CHANGES in packaging/system.py.")
        text = text.replace(old, new)
    for left in ("/usr/local", "_DIRECTORY}", "DynamicUser"):
        if left in text:
            raise Failed(f"deploy/systemd/{name} still has {left} after the changes of UNIT_CHANGES in packaging/system.py. Adapt them.")
    return text


def put(to, text, mode=0o644):
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text)
    to.chmod(mode)


def lay_out(stage, tree):
    """Writes the files of the package into the empty folder `tree`."""
    for relative in stage.files:
        stage.copy(relative, tree / "usr" / relative)
    for page in ("share/man/man1/cox.1", "share/man/man1/cox.1.gz"):
        if page in stage.files and "bin/vllm" in stage.files:
            (tree / "usr" / page.replace("cox.1", "vllm.1")).symlink_to(page.rpartition("/")[2])
    for name in UNIT_CHANGES:
        put(tree / UNIT_FOLDER / name, unit(name))
    put(tree / "usr/lib/systemd/system-preset/50-coxswain.preset", (UNITS / "coxswain.preset").read_text())
    put(tree / "usr/libexec/coxswain/replace-processes", (UNITS / "replace-processes").read_text(), 0o755)
    for path in CONFIGURATION:
        put(tree / path, (UNITS / path.rpartition("/")[2]).read_text())
