"""Runs a command as if the kernel were older: ``older_kernel.py COMMAND...``.

Two calls are answered as Linux before 6.5 and before 6.13 answers them, by a seccomp filter that all processes below
inherit: SO_PEERPIDFD (no such option) and PIDFD_GET_INFO (no such request).
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
LOAD, EQUAL, MASK, RETURN = 0x20, 0x15, 0x54, 0x06  # of classic BPF, on 32 bits
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, SECOND, THIRD = 0, 24, 32  # where struct seccomp_data has them: of the call, its arguments
CALLS = {"x86_64": (55, 16), "aarch64": (209, 29)}  # getsockopt, ioctl
SOL_SOCKET_OPTION, GET_INFO = 77, 0xFF0B  # the request without its direction and size


def program(getsockopt: int, ioctl: int) -> list[tuple[int, int, int, int]]:
    """Instructions: code, jump if true, jump if false, operand."""
    return [
        (LOAD, 0, 0, NUMBER),
        (EQUAL, 0, 3, getsockopt),
        (LOAD, 0, 0, THIRD),
        (EQUAL, 0, 6, SOL_SOCKET_OPTION),
        (RETURN, 0, 0, REFUSE | errno.ENOPROTOOPT),
        (EQUAL, 0, 4, ioctl),
        (LOAD, 0, 0, SECOND),
        (MASK, 0, 0, 0xFFFF),
        (EQUAL, 0, 1, GET_INFO),
        (RETURN, 0, 0, REFUSE | errno.ENOTTY),
        (RETURN, 0, 0, ALLOW),
    ]


def install() -> None:
    """For this process and those below it.  Raises KeyError on other machines, OSError."""
    code = b"".join(struct.pack("=HBBI", *each) for each in program(*CALLS[os.uname().machine]))
    text = ctypes.create_string_buffer(code)
    described = struct.pack("=HxxxxxxQ", len(code) // 8, ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero) or libc.prctl(
        PR_SET_SECCOMP, ctypes.c_ulong(FILTER), described, zero, zero
    ):
        raise OSError(ctypes.get_errno(), "the filter cannot be installed")


if __name__ == "__main__":
    install()
    os.execvp(sys.argv[1], sys.argv[1:])
