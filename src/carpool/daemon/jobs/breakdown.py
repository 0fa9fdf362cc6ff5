"""Where the time of one attempt goes: from facts, its seat and readings of its process, on the core's clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from carpool.core.model import DeviceId, Micros
from carpool.daemon.jobs.breakdown_clocks import HostTime, PaceCounters, PaceTime, ProcessorTimes, Read
from carpool.facts.fact import Fact, What
from carpool.protocol.seat import SeatWords
from carpool.telemetry.process_trees import ProcessorTime

#: A job that one of these concerns is not on the host: it computes, or waits for Carpool.
AWAY = frozenset({What.TURN, What.WAITS, What.PAUSE, What.PERSISTENT, What.EPHEMERAL})
#: How a turn ends that the job has kept until its process ended.
KEPT = ("left", "ended")
#: For so long after its first turn an attempt without an iteration counts as warming up.
WARM_UP_US: Micros = 60_000_000


@dataclass(slots=True)
class Breakdown:
    """``fresh``: this daemon has started the attempt, so that nothing of it was missed.

    The first iteration that is seen ends start-up: ``startup`` is turn time and iterations up to then.
    """

    host: HostTime
    fresh: bool
    pace: PaceTime = field(default_factory=PaceTime)
    processor: ProcessorTimes = field(default_factory=ProcessorTimes)
    startup: PaceCounters | None = None
    started: ProcessorTime | None = None  # the reading at that moment, or soon after it
    start_read: bool = False
    device: DeviceId = ""
    first_turn_us: Micros = 0  # when it began
    held_us: Micros = 0  # turn time before its present, or latest, turn
    turn_end_us: Micros = 0
    boundary_us: Micros = 0  # the end of its last iteration
    kept_us: Micros = 0  # for how long after that it kept its last turn

    @property
    def worked_us(self) -> Micros:
        """The time at which it last computed, as far as that is known."""
        return max(self.boundary_us, self.turn_end_us - self.kept_us)

    def warms_up(self, now: Micros) -> bool:
        """Whether it has a turn, and its first iteration may end at any moment."""
        return self.startup is None and What.TURN in self.host.away and now - self.first_turn_us < WARM_UP_US

    def turn_begins(self, turn: Fact, read: Read) -> None:
        """Handle that a turn begins; before the first one ``read`` its process."""
        if not self.host.computed:
            self.processor.begin(read())
            self.first_turn_us = turn.start_us or 0
        self.device, self.kept_us = turn.device, 0

    def turn_ends(self, turn: Fact) -> None:
        """Handle that a turn has ended; one that no other job waits for may last until the process has ended."""
        assert turn.end_us is not None, "it has ended"
        self.turn_end_us = turn.end_us
        if turn.how in KEPT and (turn.start_us or turn.end_us) <= self.boundary_us <= turn.end_us:
            self.kept_us = turn.end_us - self.boundary_us

    def look(self, words: SeatWords, now: Micros) -> None:
        """Take what the seat says of the last iteration.  A job can write any value into it."""
        if words.turn:
            self.held_us = words.held_us
        boundary_us = min(words.boundary_us, now)
        if boundary_us > self.boundary_us:
            self.boundary_us = boundary_us
            self.pace.boundary(PaceCounters(words.iterations, self._turn_us(words, boundary_us)))
            self._warmed_up()

    def _turn_us(self, words: SeatWords, boundary_us: Micros) -> Micros:
        """Return the turn time up to the boundary, which is exact if it was in the latest turn."""
        in_turn_us = boundary_us - words.turn_start_us
        return words.held_us if in_turn_us < 0 else self.held_us + in_turn_us

    def _warmed_up(self) -> None:
        if self.startup is None:
            self.startup = self.pace.latest
            self.host.warmed_up()

    def tick(self, now: Micros, read: Read) -> None:
        """Read a process that has computed."""
        self.processor.look(self.worked_us, now, read)
        if self.startup is not None and not self.start_read:
            self.started, self.start_read = self.processor.worked, True
