"""Errors shown to users: each has a stable code, says what is wrong, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from carpool.devices.base import DeviceError
from carpool.protocol.api import ErrorInfo

NO_MEMORY = "not enough memory at present"
_PASSING = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE),
    *(errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS),
)


class CarpoolError(Exception):
    """Base: carries an `ErrorInfo`."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.info = ErrorInfo(code=code, message=message, hint=hint)


class StartupError(CarpoolError):
    """The daemon cannot start."""


class RequestError(CarpoolError):
    """A request is refused with an HTTP status."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(code, message, hint)
        self.status = status


@contextmanager
def file_of_home(path: Path, verb: str = "use") -> Iterator[None]:
    """Wrap the opening of a file without which the daemon cannot start.  Raises StartupError for an OSError inside."""
    try:
        yield
    except OSError as error:
        hint = "make room on the disk, or choose another --home"
        raise StartupError("home_unusable", f"cannot {verb} {path}: {error.strerror}", hint) from None


def is_refusal(error: BaseException) -> bool:
    """Return whether the system or a device has refused something: descriptors, room, memory, a thread.

    Any other error is a bug.
    """
    no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    return no_thread or isinstance(error, OSError | DeviceError | MemoryError)


def refusal_text(error: BaseException) -> str:
    """Return what the system has refused, as text for users."""
    return NO_MEMORY if isinstance(error, MemoryError) else str(error)


def may_pass(error: OSError) -> bool:
    """Return whether the error means a shortage that may pass: room, descriptors, memory, processes."""
    return error.errno in _PASSING


class JournalFull(CarpoolError):
    """The disk is full (or over quota, or read-only): nothing was recorded."""


def problems(text: str, work: Callable[[], None]) -> list[str]:
    """Do ``work``; return ``text`` and the reason if that fails, else nothing.  A list, because several are joined."""
    try:
        work()
    except OSError as error:
        return [f"{text}: {error}"]
    return []
