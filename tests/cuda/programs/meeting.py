"""Programs that are to run side by side wait for each other."""

from __future__ import annotations

import os
import socket


def meet() -> None:
    """Wait for the others: $MEETING_POINT is a socket that says when."""
    point = os.environ.get("MEETING_POINT")
    if point is not None:
        with socket.socket(socket.AF_UNIX) as meeting:
            meeting.connect(point)
            meeting.recv(1)
