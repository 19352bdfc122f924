"""Finds sanitizer reports and crashes of every process. `cox up` restarts a child that ended and the streams continue, so a test
would pass. Therefore each process writes its reports to a file. After every test this file reads the reports and `cox up`'s
messages about ended children."""
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
REPORT_LIMIT = 12000  # largest number of characters shown of one report

folder = None
crashes = []
own = set()  # pids of processes that a test itself ends as if they had crashed


def install():
    """Lets all processes write their sanitizer reports into one folder. Call it before the first process starts."""
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
    """Records crashed children of `cox up`, and messages of gcc's UBSan, which ignores log_path beside ASan."""
    for line in log.splitlines():
        found = re.search(r"\bprocess_ended\b.*\bpid=(\d+) signal=(\d+)", line)
        if found and int(found[2]) in CRASHES and int(found[1]) not in own or ": runtime error: " in line:
            crashes.append(line)


def take():
    """Returns all findings since the last call as text. The text is empty when nothing was found."""
    found = [f"crashed: {line}" for line in crashes]
    crashes.clear()
    for path in sorted(folder.iterdir()) if folder else []:
        text = path.read_text(errors="replace")
        path.unlink()
        found.append(f"---- {path.name}\n{text[:REPORT_LIMIT]}")
    return "\n".join(found)
