"""Programs that are to run side by side wait for each other."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "workloads"))
from rounds import again, wait_at

__all__ = ["again", "meet"]


def meet() -> None:
    """Wait for the others: $MEETING_POINT is a socket that says when."""
    point = os.environ.get("MEETING_POINT")
    if point is not None:
        wait_at(point, scripts=1)
