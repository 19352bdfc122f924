"""Runs the main function of a script of packages: an error becomes one line, and a signal lets the script remove its temporary files.

Nothing else of the project is imported, so that packaging/sums works alone.
"""
import argparse
import os
import signal
import sys
from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def path(text):
    """Returns the path for an option or argument (an argparse type). An empty text would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty. Name a file or folder; a variable of your command may be empty")
    return Path(text)


def stop(number, _frame):
    """Ends the script by an exception, so that every `with` and `finally` removes its files. Further signals cannot interrupt that."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    os.write(2, f"{Path(sys.argv[0]).name}: stopped by {signal.Signals(number).name}\n".encode())
    raise SystemExit(128 + number)


def run_main(name, main, failed):
    """Calls main(). `failed` is the class of the errors whose text says what to do."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, stop)
    try:
        main()
    except failed as e:
        sys.exit(f"{name}: {e}")
    except OSError as e:
        at = f"cannot use {e.filename}" if e.filename else "cannot write"
        sys.exit(f"{name}: {at}: {e.strerror or e}. Check that the folders of the command and TMPDIR exist, that you may write there, "
                 "and that their disks have free space.")
