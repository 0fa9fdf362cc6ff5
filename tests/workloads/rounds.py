"""Scripts that begin together, and then wait for each other every few iterations.

So each computes while the others do, however busy the machine is: none is through before the others have had turns.
"""

from __future__ import annotations

import socket
from contextlib import suppress

#: After so many losses the memory of any script is known, and so often they meet from then on.
FIRST, EVERY = 20, 5
#: What a meeting says: go, and meet `again`; anything else: go.
TOGETHER = b"="


class Others:
    """The meeting, while it lasts."""

    meeting: socket.socket | None = None
    iterations = scripts = 0


def wait_at(point: str, scripts: int) -> None:
    """Until the meeting at this socket says that all may go.  This process runs so many scripts until it `leaves`."""
    meeting = socket.socket(socket.AF_UNIX)
    meeting.connect(point)
    Others.meeting, Others.iterations, Others.scripts = meeting, 0, scripts
    if meeting.recv(1) != TOGETHER:
        _close()


def again() -> None:
    """An iteration begins.  Where scripts keep together, it waits until the others have come as far, or have ended."""
    if Others.meeting is None:
        return
    Others.iterations += 1
    after = Others.iterations - FIRST
    if after >= 0 and after % EVERY == 0 and not _all_there(Others.meeting):
        _close()


def leaves() -> None:
    """A script is through: the others do not wait for it.  Its process may live on."""
    Others.scripts -= 1
    if not Others.scripts:
        _close()


def _all_there(meeting: socket.socket) -> bool:
    """False: nobody else is left."""
    with suppress(OSError):
        meeting.sendall(b".")
        return bool(meeting.recv(1))
    return False


def _close() -> None:
    if Others.meeting is not None:
        Others.meeting.close()
        Others.meeting = None
