"""A progress line on standard error, for what takes long; only on a terminal, and gone when the work is done."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from types import TracebackType

from carpool.protocol.escaping import escaped

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PERIOD_S = 0.1
DELAY_S = 0.3  # what is quicker than this shows nothing
BAR_WIDTH = 24


class Progress:
    """A context manager: ``with Progress("starting the daemon") as progress: ... progress.update("...")``.

    Drawn by a thread of its own, because the work it stands for blocks.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._started = time.monotonic()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def update(self, text: str) -> None:
        self._text = text

    def _draw(self) -> None:
        if self._done.wait(DELAY_S):
            return
        frame = 0
        while True:
            elapsed = int(time.monotonic() - self._started)
            width = shutil.get_terminal_size().columns - 1
            line = f"{FRAMES[frame % len(FRAMES)]} {escaped(self._text)} ({elapsed}s)"
            sys.stderr.write(f"\r\x1b[2K{line[:width]}")
            sys.stderr.flush()
            frame += 1
            if self._done.wait(PERIOD_S):
                break
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


def bar(done: int, total: int, width: int = BAR_WIDTH) -> str:
    """As in ████████░░░░; ``done`` may exceed ``total`` (declared totals are guesses)."""
    filled = 0 if total <= 0 else min(width, width * done // total)
    return "█" * filled + "░" * (width - filled)
