#!/usr/bin/env python3
"""Measures how much processor time each program uses, with the kernel's process accounting (acct(2)). scripts/clean-root calls it.

  scripts/cpu_by_program.py start FILE    begins: each process of this PID namespace that ends then adds a record to FILE
  scripts/cpu_by_program.py stop          ends
  scripts/cpu_by_program.py report FILE   prints the processor time of each program that used at least 1 s

It needs root. A namespace of its own keeps other programs' records out. A record counts only the process itself, without
its children, in 1/100 s. Many short processes are therefore counted too low; the rest is in no row.
"""
import collections
import ctypes
import os
import struct
import sys

RECORD = struct.Struct("=BBHIIIIIIfHHHHHHHH16s")  # struct acct_v3 of linux/acct.h, 64 bytes
TICKS = 100  # AHZ: the unit of the times, on every processor that Linux supports


def acct(path):
    """Starts to write records to a file; None stops it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.acct(None if path is None else os.fsencode(path)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


def number(value):
    """Returns the number in a comp_t: 13 bits, and 3 bits of an exponent of 8."""
    return (value & 0x1FFF) << (3 * (value >> 13))


def read(path):
    """Returns {program: (seconds, processes)} of a file of records."""
    seconds, processes = collections.Counter(), collections.Counter()
    with open(path, "rb") as f:
        data = f.read()
    for at in range(0, len(data) - RECORD.size + 1, RECORD.size):
        record = RECORD.unpack_from(data, at)
        if record[1] != 3:
            raise ValueError(f"{path} has a record of version {record[1]}, but this script reads version 3. Use a kernel with CONFIG_BSD_PROCESS_ACCT_V3.")
        name = record[-1].split(b"\0")[0].decode("ascii", "replace")
        seconds[name] += (number(record[10]) + number(record[11])) / TICKS
        processes[name] += 1
    return {name: (seconds[name], processes[name]) for name in processes}


def report(path):
    programs = sorted(read(path).items(), key=lambda p: -p[1][0])
    small = [p for _, p in programs if p[0] < 1]
    print(f"{'program':20} {'CPU':>10} {'processes':>10}")
    for name, (seconds, processes) in [p for p in programs if p[1][0] >= 1] + [(f"{len(small)} others", [sum(c) for c in zip(*small)] or (0, 0))]:
        print(f"{name:20} {seconds:>8.1f} s {processes:>10}")


def main():
    command, *paths = sys.argv[1:] or [""]
    try:
        if command == "start" and len(paths) == 1:
            with open(paths[0], "wb"):
                acct(paths[0])
        elif command == "stop" and not paths:
            acct(None)
        elif command == "report" and len(paths) == 1:
            report(paths[0])
        else:
            print(__doc__.strip(), file=sys.stderr)
            return 2
    except (OSError, ValueError) as why:
        print(f"cpu_by_program: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
