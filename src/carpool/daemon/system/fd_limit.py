"""How many descriptors the daemon may have open: boards, lanes, banks, stores, channels, several per job."""

from __future__ import annotations

import logging
import resource
from contextlib import suppress

log = logging.getLogger(__name__)
_given = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_file_limit() -> None:
    """For this process; jobs keep the limit that it was started with (see `restore_file_limit`)."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_given[1], _given[1]))
    except (OSError, ValueError) as error:
        log.warning("cannot raise the limit of open files, %d: %s", _given[0], error)


def restore_file_limit(pid: int) -> None:
    """A shim, which has just been started and has started nothing yet.  Many a program breaks where it is high."""
    with suppress(OSError):  # it has ended already
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _given)
