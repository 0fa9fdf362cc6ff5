"""What a live screen writes: only what has changed."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from carpool.cli.render.screen import REDRAW, Screen

MARK = "<end>"


@contextmanager
def shown_screen() -> Iterator[tuple[Screen, int]]:
    """The screen, and the side of a pseudo-terminal that people see; the other one is standard input and output."""
    seen, own = pty.openpty()
    resized(own, 24)
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with (
        os.fdopen(own, "w") as stream,
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.multiple(sys, stdin=stream, stdout=stream, __stdout__=stream),
        Screen() as screen,
    ):
        yield screen, seen
    os.close(seen)


def resized(fd: int, lines: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))


def written(terminal: int) -> str:
    """Since the last look, up to a mark that is written now."""
    sys.stdout.write(MARK)
    sys.stdout.flush()
    data = b""
    while not data.endswith(MARK.encode()):
        data += os.read(terminal, 1 << 16)
    return data.decode().removesuffix(MARK)


def test_an_unchanged_frame_writes_nothing_and_a_changed_line_itself() -> None:
    with shown_screen() as (screen, terminal):
        screen.show(["first", "second", "third"])
        shown = written(terminal)
        assert "\x1b[2J" in shown and all(word in shown for word in ("first", "second", "third"))
        screen.show(["first", "second", "third"])
        assert written(terminal) == ""
        screen.show(["first", "other", "third"])
        assert written(terminal) == "\x1b[2Hother\x1b[K"
        screen.show(["first"])
        assert written(terminal) == "\x1b[2H\x1b[K\x1b[3H\x1b[K"


def test_another_size_and_ctrl_l_draw_everything_anew() -> None:
    with shown_screen() as (screen, terminal):
        screen.show(["first", "second"])
        written(terminal)
        resized(terminal, 30)
        screen.show(["first", "second"])
        assert "\x1b[2J" in (shown := written(terminal)) and "second" in shown
        os.write(terminal, REDRAW.encode())
        assert screen.keys(5.0) == [REDRAW]
        screen.show(["first", "second"])
        assert "\x1b[2J" in (shown := written(terminal)) and "first" in shown
