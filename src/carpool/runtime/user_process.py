"""How a process of root becomes a user's, and gives up what it inherited from the starter of the daemon.

docs/internals/processes.md lists all that a process inherits, and what becomes of each.  Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from contextlib import suppress

from carpool.runtime.keyring import begin_session_keyring, link_user_keyring

LOGINUID, LOGIN_DEFS = "/proc/self/loginuid", "/etc/login.defs"
UMASK = 0o022  # where /etc/login.defs has none
_CAPABILITY_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
_AMBIENT, _CLEAR_ALL = 47, 4  # PR_CAP_AMBIENT
_IOPRIO = {"x86_64": (251, 252), "aarch64": (31, 30)}  # ioprio_set, ioprio_get
_REALTIME, _CLASS_SHIFT, _OF_PROCESS = 1, 13, 1  # IOPRIO_CLASS_RT, IOPRIO_CLASS_SHIFT, IOPRIO_WHO_PROCESS
_libc = ctypes.CDLL(None, use_errno=True)


def become(uid: int, gid: int, groups: Sequence[int]) -> None:
    """Become the user for good, without privileges and without resources of the user who started the daemon.

    Raises OSError if any privilege of root would remain.
    """
    begin_session_keyring()
    _log_in(uid)
    be_scheduled_as_others()
    _libc.personality(ctypes.c_ulong(0))  # with randomized addresses
    os.umask(default_umask())
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _drop_capabilities()
    link_user_keyring()


def _log_in(uid: int) -> None:
    """Have the process's actions recorded (audit) under this user, not the user who started the daemon.

    Where that has been made unchangeable, or there is no audit, everything stays as it is.
    """
    with suppress(OSError, ValueError):
        with open(LOGINUID, encoding="ascii") as file:
            if int(file.read()) == uid:
                return
        with open(LOGINUID, "w", encoding="ascii") as file:
            file.write(str(uid))


def be_scheduled_as_others() -> None:
    """Give up realtime scheduling and a negative nice value; a priority below normal stays."""
    with suppress(OSError):
        if os.sched_getscheduler(0) not in (os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        if os.getpriority(os.PRIO_PROCESS, 0) < 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    for change, ask in [_IOPRIO[os.uname().machine]] if os.uname().machine in _IOPRIO else []:
        if _system_call(ask, _OF_PROCESS, 0) >> _CLASS_SHIFT == _REALTIME:
            _system_call(change, _OF_PROCESS, 0, 0)


def default_umask(path: str = LOGIN_DEFS) -> int:
    """Return the umask of logins (login.defs(5))."""
    with suppress(OSError, ValueError), open(path, encoding="utf-8", errors="replace") as file:
        for words in map(str.split, file):
            if words[:1] == ["UMASK"] and len(words) > 1:
                return int(words[1], 8) & 0o777
    return UMASK


def _drop_capabilities() -> None:
    """Drop capabilities that a change of user leaves: inheritable, ambient, and those that ``securebits`` have kept."""
    _libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header, none = struct.pack("=II", _CAPABILITY_VERSION, 0), struct.pack("=6I", *[0] * 6)
    if _libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "cannot give up the rights of root")


def _system_call(number: int, *arguments: int) -> int:
    return int(_libc.syscall(*map(ctypes.c_long, (number, *arguments))))
