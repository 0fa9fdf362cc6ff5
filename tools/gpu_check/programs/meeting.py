"""Where jobs wait for each other: ``tools/gpu_check/meeting.py`` lets them go on."""

from __future__ import annotations

import os


def meet() -> None:
    """Between two iterations, or before the first; does nothing without $MEETING, a FIFO of this process."""
    place = os.environ.pop("MEETING", None)
    if place is not None:
        with open(place) as fifo:
            fifo.read()
