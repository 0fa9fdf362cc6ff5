"""The exit status of a process that is not our child."""

from __future__ import annotations

import errno
import fcntl
import struct

from carpool.daemon.system.process_state import stat_fields

#: linux/pidfd.h: PIDFD_GET_INFO on a struct pidfd_info of 64 bytes, the first size that existed.
_SIZE = 64
_GET_INFO = (3 << 30) | (_SIZE << 16) | (0xFF << 8) | 11
_WITH_EXIT = 1 << 3  # PIDFD_INFO_EXIT
_CODE_AT = 60
_EXIT_CODE = 49  # of the fields behind the name in /proc/PID/stat


def exit_status(pidfd: int, pid: int) -> int | None:
    """Return the wait status of a process that has ended; None: unknown.

    Until the parent has collected the process, /proc has the status, for the process's own user and for root; later the
    pidfd has it, on recent kernels.  ``pid`` is only looked at while the pidfd's process may be a zombie of that
    number.
    """
    found = _of_zombie(pid)
    told = _told(pidfd)
    return found if told is None else told


def _of_zombie(pid: int) -> int | None:
    fields = stat_fields(pid)
    return int(fields[_EXIT_CODE]) if len(fields) > _EXIT_CODE and fields[0] == b"Z" else None


def _told(pidfd: int) -> int | None:
    info = bytearray(_SIZE)
    struct.pack_into("=Q", info, 0, _WITH_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EINVAL, errno.ESRCH):  # an older kernel, or the process is a zombie
            return None
        raise
    mask, code = struct.unpack_from("=Q", info, 0)[0], struct.unpack_from("=i", info, _CODE_AT)[0]
    return code if mask & _WITH_EXIT else None
