"""A progress line on standard error, for long work; only on a terminal, and removed when the work is done."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from carpool.protocol.display import escaped
from carpool.protocol.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

PERIOD_S = 0.1
DELAY_S = 0.3  # quicker work shows no line, and never loads `rich`
BAR_WIDTH = 24
SOON_S = 2.0  # before that, an estimate of the time left would jump


class Progress:
    """A context manager: ``with Progress("starting the daemon") as progress: ... progress.update("...")``.

    A thread of its own draws the line, because the work blocks.  Without ``shown`` there is no line on a terminal
    either.
    """

    def __init__(self, text: str, shown: bool = True) -> None:
        self._shown = shown
        self._text = text
        self._done: float | None = None
        self._total: float | None = None
        self._began = 0.0, 0.0  # when the present total was first told (monotonic seconds), and what was done then
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._shown and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def update(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Change the text; with a ``total`` (which may be a guess), show a bar with how much of it is ``done``."""
        if total != self._total:
            self._began = time.monotonic(), done or 0.0
        self._text, self._done, self._total = text, done, total

    def _draw(self) -> None:
        if self._over.wait(DELAY_S):
            return
        with _bar() as bar:
            task = bar.add_task(escaped(self._text))
            while not self._over.wait(PERIOD_S):
                shown = self._total is not None
                completed = min(self._done or 0, self._total or 0)
                fields: dict[str, Any] = {"bar": shown, "left": self._left()}
                bar.update(task, description=escaped(self._text), total=self._total, completed=completed, **fields)
                bar.refresh()

    def _left(self) -> str:
        if self._total is None:
            return ""
        (begin_s, before), done = self._began, self._done or 0.0
        return time_left(time.monotonic() - begin_s, done - before, self._total - done)


def time_left(elapsed_s: float, gained: float, rest: float) -> str:
    """Return how long the rest takes at the rate of what was gained; empty as long as that says little.

    >>> time_left(60, 1, 3), time_left(1, 1, 3), time_left(60, 0, 4)
    ('3m00s left', '', '')
    """
    if elapsed_s < SOON_S or gained <= 0 or rest < 0:
        return ""
    return f"{format_duration(round(1_000_000 * elapsed_s * rest / gained))} left"


def _bar() -> Bar:
    """A line: spinner, text, bar, time, time left.  The cursor stays visible: a killed command cannot show it again."""
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn, SpinnerColumn, TimeElapsedColumn
    from rich.progress_bar import ProgressBar
    from rich.table import Column
    from rich.text import Text

    class Description(ProgressColumn):
        def render(self, task):  # type: ignore[no-untyped-def]
            return Text(task.description, no_wrap=True, overflow="ellipsis")

    class Share(ProgressColumn):
        def render(self, task):  # type: ignore[no-untyped-def]
            known = task.fields.get("bar")
            return ProgressBar(task.total, task.completed, width=BAR_WIDTH) if known else Text("")

    class Left(ProgressColumn):
        def render(self, task):  # type: ignore[no-untyped-def]
            return Text(task.fields.get("left") or "", no_wrap=True)

    columns = (SpinnerColumn(style="green"), Description(table_column=Column(ratio=1, no_wrap=True)), Share())
    return Bar(
        *columns, TimeElapsedColumn(), Left(), console=_console(), auto_refresh=False, transient=True,
        redirect_stdout=False, redirect_stderr=False, expand=True,
    )  # fmt: skip


def _console() -> Console:
    from rich.console import Console

    class Visible(Console):
        def show_cursor(self, show: bool = True) -> bool:
            return False

    return Visible(stderr=True, emoji=False, highlight=False, markup=False)


def bar(done: int, total: int, width: int = BAR_WIDTH) -> str:
    """Return a bar, as in ████████░░░░; ``done`` may exceed ``total`` (declared totals are guesses)."""
    filled = 0 if total <= 0 else min(width, width * done // total)
    return "█" * filled + "░" * (width - filled)
