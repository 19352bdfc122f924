"""Starts a program under the image's profile of system calls, in the namespaces of a process and with its root: what a container runtime
does last.

usage: seccomp.py PROFILE PID ROOT UID PROGRAM [ARGUMENT …]

Unlike in a container, a call that the profile does not name ends the process (SIGSYS) instead of failing. So a test cannot pass because
a program got by without a call. The environment is that of this process.
"""
import ctypes
import ctypes.util
import json
import os
import sys

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
OPS = {"SCMP_CMP_NE": 1, "SCMP_CMP_LT": 2, "SCMP_CMP_LE": 3, "SCMP_CMP_EQ": 4, "SCMP_CMP_GE": 5, "SCMP_CMP_GT": 6, "SCMP_CMP_MASKED_EQ": 7}
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, SIGKILL = 1, 38, 9
NAMESPACES = {"mnt": 0x00020000, "net": 0x40000000}


class Compared(ctypes.Structure):
    """`Compared` is struct scmp_arg_cmp: an argument's index, the operator and two numbers."""
    _fields_ = [("index", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def library():
    """Returns libseccomp, or None where it is not installed."""
    name = ctypes.util.find_library("seccomp")
    if name is None:
        return None
    lib = ctypes.CDLL(name)
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_init.argtypes = [ctypes.c_uint32]
    lib.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(Compared)]
    lib.seccomp_load.argtypes = [ctypes.c_void_p]
    lib.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    return lib


def action(rule):
    return ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else ERRNO | rule["errnoRet"]


def made(lib, profile):
    """Returns a filter of the profile for this processor. Names that this processor does not have are left out."""
    built = lib.seccomp_init(KILL)
    for rule in profile["syscalls"]:
        compared = [Compared(a["index"], OPS[a["op"]], a["value"], a.get("valueTwo", 0)) for a in rule.get("args", [])]
        for name in rule["names"]:
            number = lib.seccomp_syscall_resolve_name(name.encode())
            if number < 0:
                continue
            failed = lib.seccomp_rule_add_array(built, action(rule), number, len(compared), (Compared * len(compared))(*compared))
            if failed:
                sys.exit(f"seccomp.py: {name}: {os.strerror(-failed)}")
    return built


def main(profile, pid, root, uid, *command):
    lib, libc = library(), ctypes.CDLL(None, use_errno=True)
    built = made(lib, json.loads(open(profile).read()))
    for name, flag in NAMESPACES.items():
        with open(f"/proc/{pid}/ns/{name}") as namespace:
            if libc.setns(namespace.fileno(), flag) != 0:
                sys.exit(f"seccomp.py: setns: {os.strerror(ctypes.get_errno())}")
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setgid(0)
    os.setuid(int(uid))
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    failed = lib.seccomp_load(built)
    if failed:
        sys.exit(f"seccomp.py: seccomp_load: {os.strerror(-failed)}")
    os.execve(command[0], command, os.environ)


if __name__ == "__main__":
    main(*sys.argv[1:])
