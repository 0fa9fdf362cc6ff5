"""A full-screen terminal with ANSI sequences; its earlier state is restored, whatever happens."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType

from carpool.protocol.packets import readable

ENTER = "\x1b[?1049h\x1b[?25l"  # alternate screen, no cursor
LEAVE = "\x1b[?25h\x1b[?1049l"
CLEAR, CLEAR_LINE = "\x1b[H\x1b[2J", "\x1b[K"
REDRAW = "\x0c"  # Ctrl-L
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
        self._size = shutil.get_terminal_size()
        self._drawn: list[str] = []  # empty: what the terminal shows is not known
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
        """Return the present height of the terminal in lines: windows change."""
        return shutil.get_terminal_size().lines

    def show(self, lines: Sequence[str]) -> None:
        """Write the lines that have changed.  A window of another size is drawn anew."""
        size = shutil.get_terminal_size()
        known = self._drawn if size == self._size else []
        changed = (n for n in range(max(len(lines), len(known))) if _of(lines, n) != _of(known, n))
        text = ("" if known else CLEAR) + "".join(f"\x1b[{n + 1}H{_of(lines, n)}{CLEAR_LINE}" for n in changed)
        self._size, self._drawn = size, list(lines)
        if text:
            self._write(text)

    def keys(self, timeout_s: float) -> list[str]:
        """Return the next keys, or none after ``timeout_s``.  A closed terminal counts as q."""
        if not readable(self._input, timeout_s):
            return []
        keys: list[str] = _KEY.findall(os.read(self._input, 1024).decode(errors="replace"))
        if REDRAW in keys:
            self._drawn = []
        return keys or ["q"]

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _of(lines: Sequence[str], number: int) -> str:
    return lines[number] if number < len(lines) else ""


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
