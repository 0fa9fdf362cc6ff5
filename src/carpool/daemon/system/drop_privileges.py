"""Reading files with no more rights than a job's owner: for one thread of a root daemon.

The kernel keeps credentials for each thread.  Those that count for files (setfsuid(2), setfsgid(2), and the
supplementary groups) become the owner's, and all capabilities go (capabilities(7)): those that pass over permissions,
and those by which root looks into other processes, through which files are reached, too.  The C library's
``setgroups`` would do it to all threads, so the system call is made directly.  A thread that has been given such rights
never gets others: it ends.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence

_SETGROUPS = {"x86_64": 116, "aarch64": 159}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.setfsuid.restype = _libc.setfsgid.restype = ctypes.c_uint32
_CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
_NOBODY = ctypes.c_uint32(0xFFFFFFFF)  # changes nothing, and answers what is


def become_reader(uid: int, gid: int, groups: Sequence[int]) -> None:
    """This thread reads as the user from now on.  Nothing to do unless the daemon is root's.  Raises OSError."""
    if os.geteuid() != 0 or uid == 0:
        return
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        raise OSError(f"files cannot be read as another user on {platform.machine()}")
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if _libc.syscall(ctypes.c_long(number), ctypes.c_size_t(len(groups)), array) != 0:
        raise OSError(ctypes.get_errno(), "cannot take on the groups of the job's owner")
    _libc.setfsgid(ctypes.c_uint32(gid))
    _libc.setfsuid(ctypes.c_uint32(uid))
    if (_libc.setfsuid(_NOBODY), _libc.setfsgid(_NOBODY)) != (uid, gid):  # they report no errors
        raise OSError("cannot take on the rights of the job's owner")
    _drop_capabilities()


def _drop_capabilities() -> None:
    """Those of this thread: effective, permitted, inheritable, and with these the ambient ones.  Raises OSError."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)  # 0: the thread that calls it
    if _libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "cannot give up the rights of the daemon")
