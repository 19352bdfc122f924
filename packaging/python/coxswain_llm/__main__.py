"""Runs cox, as `python -m coxswain_llm` and as the program coxswain-llm, which `uvx coxswain-llm` starts."""
import os
import sys

from coxswain_llm import find


def main():
    try:
        cox = find()
        os.execv(cox, [cox, *sys.argv[1:]])
    except OSError as e:  # FileNotFoundError of find() is one too
        sys.exit(f"coxswain-llm: cannot run cox: {e}")


if __name__ == "__main__":
    main()
