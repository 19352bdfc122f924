"""Defines command-line options of the scripts of this folder: counts and names, each with its bounds, checked before anything is
built or loaded. An error ends the script with exit status 2 and one line that names the error and --help."""
import argparse
import itertools
import math
import os
from pathlib import Path

MANY = 1_000_000
THREADS = 64  # most threads with which bench_cpu_model reads memory


class Parser(argparse.ArgumentParser):
    def __init__(self, program, about):
        super().__init__(prog=program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message):
        self.exit(2, f"{self.prog}: {' '.join(message.split())} (what there is: {self.prog} --help)\n")

    def parse_args(self, *args, **kwargs):
        found = super().parse_args(*args, **kwargs)
        lock = os.environ.get("COX_MACHINE_LOCK")  # serving.quiet uses this file
        if lock and not (os.path.isfile(lock) and os.access(lock, os.R_OK)):
            self.error(f"COX_MACHINE_LOCK names {lock!r}, which is no file that can be read: make it (touch) or unset the variable")
        return found


def option_parser(program):
    """Returns the parser of bench/PROGRAM. Its --help begins with the comment at the top of that script."""
    lines = (Path(__file__).parent.parent / program).read_text().splitlines()[1:]
    about = "\n".join(line[2:] for line in itertools.takewhile(lambda line: line.startswith("#"), lines))
    return Parser(f"bench/{program}", about)


# ---- types for add_argument ----

def count(least=1, most=MANY):
    """Parses a whole number."""
    def parse(text):
        n = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not least <= n <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most}")
        return n
    return parse


def counts(least=1, most=MANY):
    """Parses whole numbers separated by commas. The result is sorted, without duplicates."""
    one = count(least, most)
    return lambda text: sorted({one(part) for part in text.split(",")})


def counts_among(known):
    """Parses whole numbers separated by commas, of which only some are allowed."""
    def parse(text):
        found = counts(0)(text)
        if unknown := set(found) - set(known):
            raise argparse.ArgumentTypeError(f"{min(unknown)} is none of {', '.join(map(str, known))}")
        return found
    return parse


def amount(above=0, most=MANY):
    """Parses a number that need not be whole, such as seconds."""
    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not above < value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number above {above} and up to {most}")
        return value
    return parse


def names(known):
    """Parses known names separated by commas, without duplicates."""
    def parse(text):
        found = list(dict.fromkeys(text.split(",")))
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}; there are: {', '.join(known)}")
        return found
    return parse
