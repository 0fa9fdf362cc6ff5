"""Parts of `Breakdown`: time on the host, pace alone and beside others, processor time.  Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from carpool.core.model import Micros
from carpool.facts.fact import What
from carpool.telemetry.process_trees import ProcessorTime


class PaceCounters(NamedTuple):
    """Iterations, and the turn time that they took."""

    iterations: int = 0
    turn_us: Micros = 0


NOTHING = PaceCounters()


@dataclass(slots=True)
class HostTime:
    """``since_us``: the job is on the host since then; None: it is not.  ``pending_us``: since its last turn."""

    since_us: Micros | None
    away: set[str] = field(default_factory=set)
    computed: bool = False  # it has had a turn
    startup_us: Micros = 0
    between_us: Micros = 0
    pending_us: Micros = 0

    def leaves(self, what: str, now: Micros) -> None:
        """Begin a time that is not on the host."""
        self.stop(now)
        self.away.add(what)
        if what == What.TURN:
            if self.computed:
                self.between_us += self.pending_us
            else:
                self.startup_us = self.pending_us
            self.computed, self.pending_us = True, 0

    def comes_back(self, what: str, now: Micros) -> None:
        """End a time that is not on the host."""
        self.away.discard(what)
        if not self.away and self.since_us is None:
            self.since_us = now

    def warmed_up(self) -> None:
        """Note that the first iteration has ended: host time between turns was part of start-up until now."""
        self.startup_us, self.between_us = self.startup_us + self.between_us, 0

    def stop(self, now: Micros) -> None:
        """Count up to ``now``."""
        if self.since_us is not None:
            self.pending_us += max(0, now - self.since_us)
        self.since_us = None

    @property
    def starts(self) -> bool:
        """Whether the job starts up."""
        return self.since_us is not None and not self.computed


@dataclass(slots=True)
class PaceTime:
    """Iterations alone and beside others, from boundary to boundary; ``quiet``: whether the job computes alone.

    Iterations during which the company changes count for neither, nor do those up to the first boundary that was seen.
    """

    latest: PaceCounters = NOTHING  # at the latest boundary
    alone: PaceCounters = NOTHING
    beside: PaceCounters = NOTHING
    quiet: bool = True
    _first: PaceCounters | None = None  # at the first boundary with this company

    def boundary(self, counters: PaceCounters) -> None:
        """Note the end of an iteration."""
        if self._first is None or counters.iterations < self._first.iterations:  # of another process
            self._first = counters
        self.latest = counters

    def meets(self, quiet: bool) -> None:
        """Note that the company has changed since the latest boundary, or that the process has ended."""
        if self._first is not None:
            self._add(self.latest.iterations - self._first.iterations, self.latest.turn_us - self._first.turn_us)
        self._first, self.quiet = None, quiet

    def _add(self, iterations: int, turn_us: Micros) -> None:
        if self.quiet:
            self.alone = PaceCounters(self.alone.iterations + iterations, self.alone.turn_us + max(0, turn_us))
        else:
            self.beside = PaceCounters(self.beside.iterations + iterations, self.beside.turn_us + max(0, turn_us))


Read = Callable[[], ProcessorTime | None]


@dataclass(slots=True)
class ProcessorTimes:
    """Readings of a process: when it last worked, and the latest one."""

    worked: ProcessorTime | None = None
    latest: ProcessorTime | None = None

    def begin(self, reading: ProcessorTime | None) -> None:
        """Take the reading before its first turn."""
        self.latest = reading

    def look(self, worked_us: Micros, now: Micros, read: Read) -> None:
        """Read if the process has worked since the last look, and ever more seldom if not."""
        if self.worked is None or worked_us > self.worked.at_us:
            before, self.latest = self.latest, read()
            self.worked = _between(before, self.latest, worked_us)
        elif self.latest is not None and now - worked_us >= 2 * (self.latest.at_us - worked_us):
            self.latest = read() or self.latest

    def after(self, worked_us: Micros, lasted_us: Micros) -> ProcessorTime | None:
        """Return the processor time of the ``lasted_us`` since the process last worked; None: too short to tell."""
        begin, end = self.worked, self.latest
        if begin is None or end is None or begin.at_us != worked_us or end.at_us <= worked_us:
            return None
        span, used = end.at_us - worked_us, (end.cpu_us - begin.cpu_us, end.delay_us - begin.delay_us)
        return ProcessorTime(end.at_us, *(max(0, each) * lasted_us // span for each in used))


def _between(before: ProcessorTime | None, after: ProcessorTime | None, at_us: Micros) -> ProcessorTime | None:
    """Return the reading that there would have been at a moment between two; None: there are no two."""
    if before is None or after is None or not before.at_us <= at_us <= after.at_us > before.at_us:
        return None
    part, span = at_us - before.at_us, after.at_us - before.at_us
    used = ((old * (span - part) + new * part) // span for old, new in zip(before[1:], after[1:], strict=True))
    return ProcessorTime(at_us, *used)
