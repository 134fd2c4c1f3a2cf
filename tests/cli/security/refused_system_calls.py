"""Starts a program in a filter of system calls, which fail, or in Landlock domains: FILTER... -- COMMAND...

A filter is NUMBER:ERROR, or `layers:COUNT` for as many domains that control signals only.
"""

import ctypes
import os
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LANDLOCK_CREATE, LANDLOCK_RESTRICT = 444, 446
SCOPES = struct.pack("QQQ", 0, 0, 3)


def check(result):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def refuse(calls):
    code = [struct.pack("HBBI", 0x20, 0, 0, 0)]
    for number, error in calls:
        code.append(struct.pack("HBBI", 0x15, 0, 1, number))
        code.append(struct.pack("HBBI", 0x06, 0, 0, 0x50000 | error))
    code.append(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(code))
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(code))
    check(LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0))


def add_layer():
    ruleset = check(LIBC.syscall(LANDLOCK_CREATE, SCOPES, len(SCOPES), 0))
    check(LIBC.syscall(LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


end = sys.argv.index("--")
check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
calls = []
for text in sys.argv[1:end]:
    name, value = text.split(":")
    if name == "layers":
        for _ in range(int(value)):
            add_layer()
    else:
        calls.append((int(name), int(value)))
if calls:
    refuse(calls)
os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])
