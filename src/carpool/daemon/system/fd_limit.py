"""The daemon's limit of open descriptors: boards, lanes, banks, stores and channels take several per job."""

from __future__ import annotations

import logging
import resource
from contextlib import suppress

log = logging.getLogger(__name__)
_given = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_file_limit() -> None:
    """Raise the limit for this process; jobs keep the limit that the daemon was given (see `restore_file_limit`)."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_given[1], _given[1]))
    except (OSError, ValueError) as error:
        log.warning("cannot raise the limit of open files, %d: %s", _given[0], error)


def restore_file_limit(pid: int) -> None:
    """Restore the limit of a new shim that has no children yet.  Many programs break under a high limit."""
    with suppress(OSError):  # the shim has ended already
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _given)
