"""The daemon is the last that the kernel kills when the machine's memory is exhausted: it serves all users."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

DAEMON = -800  # in thousandths of the machine's memory (``oom_score_adj``, proc(5))
_FILE = Path("/proc/self/oom_score_adj")


def lower_oom_score(file: Path = _FILE) -> None:
    """For this process and its device agents; shims and what else runs for users set their own.

    Needs CAP_SYS_RESOURCE; without it, and where the value is lower already, everything stays as it is.
    """
    with suppress(OSError, ValueError):
        if int(file.read_text()) > DAEMON:
            file.write_text(str(DAEMON))
