"""A full-screen terminal with ANSI sequences, which is given back as it was, whatever happens."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType

ENTER = "\x1b[?1049h\x1b[?25l"  # alternate screen, no cursor
LEAVE = "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
#: A key that sends several bytes, or one character.
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
ENDING = (signal.SIGTERM, signal.SIGHUP)


class Screen:
    """A context manager.  Standard input and output must be terminals."""

    def __enter__(self) -> Screen:
        self._input = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._input)
        # Signals end the process without unwinding; as exceptions they leave the terminal in order.
        self._handlers = {number: signal.signal(number, _leave) for number in ENDING}
        tty.setcbreak(self._input)
        self._write(ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(LEAVE)
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def height(self) -> int:
        """Lines, now: windows change."""
        return shutil.get_terminal_size().lines

    def show(self, lines: Sequence[str]) -> None:
        """Draw over the old frame without clearing it first, which would flicker."""
        self._write(HOME + f"{CLEAR_LINE}\r\n".join(lines) + CLEAR_LINE + CLEAR_BELOW)

    def keys(self, timeout_s: float) -> list[str]:
        """The next ones, or none after ``timeout_s``.  A closed terminal counts as q."""
        ready, _, _ = select.select([self._input], [], [], timeout_s)
        if not ready:
            return []
        return _KEY.findall(os.read(self._input, 1024).decode(errors="replace")) or ["q"]

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
