"""Session keyrings (session-keyring(7)): their keys are available to all who inherit the keyring.

Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress

_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN, _LINK = 1, 8  # KEYCTL_JOIN_SESSION_KEYRING, KEYCTL_LINK
_SESSION, _USER = -3, -4  # KEY_SPEC_SESSION_KEYRING, KEY_SPEC_USER_KEYRING
#: Errors where no process has keys: the kernel lacks keyrings, or an inherited filter forbids the call.
_NO_KEYS = (errno.ENOSYS, errno.EPERM)
_libc = ctypes.CDLL(None, use_errno=True)


def begin_session_keyring() -> None:
    """Replace the inherited session keyring by a new, empty one for this process and its descendants.

    Raises OSError.  A keyring made by root counts against root's quota, which may be larger than a user's.
    """
    try:
        _keyctl(_JOIN)
    except OSError as error:
        if error.errno not in _NO_KEYS:
            raise


def link_user_keyring() -> None:
    """Link the user keyring into the session keyring, so that the user's keys are found as after a login."""
    with suppress(OSError):
        _keyctl(_LINK, _USER, _SESSION)


def _keyctl(operation: int, *arguments: int) -> None:
    number = _KEYCTL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.EOPNOTSUPP, f"session keyrings cannot be made on {os.uname().machine}")
    words = (*arguments, 0, 0, 0, 0)[:4]
    if _libc.syscall(*map(ctypes.c_long, (number, operation, *words))) < 0:
        raise OSError(ctypes.get_errno(), f"cannot make a session keyring: {os.strerror(ctypes.get_errno())}")
