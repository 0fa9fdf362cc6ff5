"""The daemon's OOM score: the kernel is to kill the daemon last when memory runs out, as it serves all users."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

DAEMON = -800  # in thousandths of the machine's memory (``oom_score_adj``, proc(5))
_FILE = Path("/proc/self/oom_score_adj")


def lower_oom_score(file: Path = _FILE) -> None:
    """Lower the score of this process and its device agents; shims and other processes of users set their own.

    Needs CAP_SYS_RESOURCE; without it, or if the value is already lower, nothing changes.
    """
    with suppress(OSError, ValueError):
        if int(file.read_text()) > DAEMON:
            file.write_text(str(DAEMON))
