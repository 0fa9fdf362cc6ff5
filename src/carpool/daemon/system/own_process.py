"""The daemon's own process: its open descriptors, its OOM score, and Python's garbage collector."""

from __future__ import annotations

import gc
import logging
import resource
from contextlib import suppress
from pathlib import Path

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


#: New objects per collection of generation 0, collections of generation 0 per one of 1, and of 1 per one of 2.
THRESHOLDS = (1_000, 10, 100)


def collect_rarely() -> None:
    """Set the thresholds of a daemon, at its start."""
    gc.set_threshold(*THRESHOLDS)


def keep_what_is_there() -> None:
    """Exclude present objects (modules, jobs of an earlier daemon) from future collections; they are freed as usual."""
    gc.collect()
    gc.freeze()


DAEMON = -800  # in thousandths of the machine's memory (``oom_score_adj``, proc(5))
_FILE = Path("/proc/self/oom_score_adj")


def lower_oom_score(file: Path = _FILE) -> None:
    """Lower the score of this process and its device agents; shims and other processes of users set their own.

    Needs CAP_SYS_RESOURCE; without it, or if the value is already lower, nothing changes.
    """
    with suppress(OSError, ValueError):
        if int(file.read_text()) > DAEMON:
            file.write_text(str(DAEMON))
