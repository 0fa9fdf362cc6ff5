"""The progress of a modelled job, in whole numbers.

A position is time of a run without co-runners: first start-up on the host, then iterations, each device time followed
by host time, then host time until the process ends.  Positions are kept in parts of a microsecond (`WHOLE_PPM` to one),
so that every speed leaves a whole number.

With a resolution, iterations are combined into lumps that last at least as long as the resolution, device time first: a
waiting job gets the same time in fewer, longer pieces.
"""

from __future__ import annotations

from carpool.core.model import Micros
from carpool.sim.model.job_specs import SimulatedAttempt
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob


class Motion:
    """A position that moves while the job computes, up to ``computed_us``, where its last iteration ends.

    Co-runners slow only device time.  Within an iteration the job moves evenly, at the mean pace of a whole iteration.
    """

    __slots__ = ("_at", "_pace", "_since", "computed_us", "device_us", "end_us", "host_us", "lump", "moving",
                 "startup_us")  # fmt: skip

    def __init__(self, job: TraceJob, attempt: SimulatedAttempt, resolution_us: Micros) -> None:
        device_us, host_us = job.cycle_us
        self.lump = max(1, resolution_us // (device_us + host_us))  # iterations
        self.device_us, self.host_us = device_us * self.lump, host_us * self.lump
        self.startup_us = job.startup_us
        self.end_us = attempt.begin_us + attempt.work_us
        self.computed_us = min(self.end_us, job.duration_us - job.end_us)
        self.moving = False
        self._at = attempt.begin_us * WHOLE_PPM
        self._pace = WHOLE_PPM
        self._since: Micros = 0

    @property
    def cycle_us(self) -> Micros:
        """Device time and host time of a lump."""
        return self.device_us + self.host_us

    def position_us(self) -> Micros:
        """Return the position at the last `advance`, rounded down."""
        return self._at // WHOLE_PPM

    @property
    def iterations(self) -> int:
        """The number of whole iterations done."""
        return max(0, min(self.position_us(), self.computed_us) - self.startup_us) * self.lump // self.cycle_us

    def begin(self, now: Micros) -> None:
        """Begin to move."""
        self.moving, self._since = True, now

    def stop(self, now: Micros) -> None:
        """Stop moving, at the position of ``now``."""
        self.advance(now)
        self.moving = False

    def advance(self, now: Micros) -> None:
        """Bring the position up to ``now``."""
        if self.moving:
            moved = self._at + (now - self._since) * self._pace
            self._at = max(self._at, min(moved, self.computed_us * WHOLE_PPM))
        self._since = now

    def set_speed(self, now: Micros, speed_ppm: int) -> bool:
        """Set the speed at which device time passes from now on.  Returns False if nothing has changed."""
        pace = self._pace_at(speed_ppm)
        if pace == self._pace:
            return False
        self.advance(now)
        self._pace = pace
        return True

    def _pace_at(self, speed_ppm: int) -> int:
        if speed_ppm >= WHOLE_PPM:
            return WHOLE_PPM
        slowed = self.device_us * WHOLE_PPM * WHOLE_PPM // max(speed_ppm, 1) + self.host_us * WHOLE_PPM
        return max(1, self.cycle_us * WHOLE_PPM * WHOLE_PPM // slowed)

    def skip_to(self, position_us: Micros) -> None:
        """Move to a position that the job has reached on the host, without the device."""
        self._at = max(self._at, position_us * WHOLE_PPM)

    def when(self, position_us: Micros) -> Micros:
        """Return when the job will reach a position if its speed stays the same."""
        missing = position_us * WHOLE_PPM - self._at
        return self._since + max(0, -(-missing // self._pace))

    # Positions ahead

    def boundary_after(self, position_us: Micros) -> Micros:
        """Return the first end of an iteration after a position."""
        return self._end_after(position_us, self.cycle_us // self.lump)

    def lump_end_after(self, position_us: Micros) -> Micros:
        """Return the first end of a lump of iterations after a position."""
        return self._end_after(position_us, self.cycle_us)

    def _end_after(self, position_us: Micros, length_us: Micros) -> Micros:
        done = max(0, position_us - self.startup_us) // length_us
        return self.startup_us + (done + 1) * length_us

    def device_end(self) -> Micros:
        """Return where the device time of the present lump ends."""
        return self.lump_end_after(self.position_us()) - self.host_us
