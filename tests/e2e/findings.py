"""What must never go unnoticed: a sanitizer's report and a crash, of whichever process. cox up restarts a
child that ended, the streams go on, and the test would pass; so reports go to files, one a process, which
are looked at after every test, and so is what cox up says of its children's ends."""
import atexit
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

SANITIZED = bool(os.environ.get("COX_SANITIZE"))
CRASHES = {int(s) for s in (signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE,
                            signal.SIGSEGV, signal.SIGSYS)}
REPORT_LIMIT = 12000  # characters of one report that are shown

folder = None
crashes = []
own = set()  # processes that a test ends as if they had crashed


def install():
    """Before the first process starts: what is started from here on writes its reports into one folder."""
    global folder
    if folder or not SANITIZED:
        return
    folder = Path(tempfile.mkdtemp(prefix="coxreports-"))
    atexit.register(shutil.rmtree, folder, True)
    for tool in ("ASAN", "LSAN", "UBSAN", "TSAN"):
        name = f"{tool}_OPTIONS"
        given = [os.environ[name]] if os.environ.get(name) else []
        os.environ[name] = ":".join([*given, "print_suppressions=0"] + [f"log_path={folder}/{tool.lower()}"])


def look_at_log(log):
    """Notes the children of cox up that crashed, and what gcc's UBSan beside ASan says: it knows no log_path."""
    for line in log.splitlines():
        found = re.search(r"\bprocess_ended\b.*\bpid=(\d+) signal=(\d+)", line)
        if found and int(found[2]) in CRASHES and int(found[1]) not in own or ": runtime error: " in line:
            crashes.append(line)


def take():
    """All that was found since the last call, as text; empty when all is well."""
    found = [f"crashed: {line}" for line in crashes]
    crashes.clear()
    for path in sorted(folder.iterdir()) if folder else []:
        text = path.read_text(errors="replace")
        path.unlink()
        found.append(f"---- {path.name}\n{text[:REPORT_LIMIT]}")
    return "\n".join(found)
