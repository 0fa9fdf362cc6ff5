"""The progress of a modelled job, in whole numbers.

A position is time of a run without co-runners: first start-up on the host, then iterations, each device time followed
by host time, then host time until the process ends.  Positions are kept in parts of a microsecond (`WHOLE_PPM` to one),
so that every speed leaves a whole number.

With a resolution, iterations are combined into lumps that last at least as long as the resolution, device time first: a
waiting job gets the same time in fewer, longer pieces.
"""

from __future__ import annotations

from collections.abc import Callable

from carpool.core.model import Micros
from carpool.sim.model.job_specs import SimulatedAttempt
from carpool.sim.model.trace_job import WHOLE_PPM, TraceJob


class Motion:
    """A position that moves while the job computes, up to ``computed_us``, where its last iteration ends.

    Co-runners slow only device time; other jobs on the machine's cores slow host time, and device time if these cores
    are the device.  Within an iteration the job moves evenly, at the mean pace of a whole iteration.
    """

    __slots__ = ("_at", "_device_ppm", "_host_ppm", "_on_cores", "_pace", "_since", "computed_us", "device_us",
                 "end_us", "host_us", "lump", "moving", "startup_us")  # fmt: skip

    def __init__(self, job: TraceJob, attempt: SimulatedAttempt, resolution_us: Micros) -> None:
        device_us, host_us = job.cycle_us
        self.lump = max(1, resolution_us // (device_us + host_us))  # iterations
        self.device_us, self.host_us = device_us * self.lump, host_us * self.lump
        self.startup_us = job.startup_us
        self.end_us = attempt.begin_us + attempt.work_us
        self.computed_us = min(self.end_us, job.duration_us - job.end_us)
        self.moving = False
        self._at = attempt.begin_us * WHOLE_PPM
        self._pace = self._device_ppm = self._host_ppm = WHOLE_PPM
        self._on_cores = job.cores_ppm > 0
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
        self._device_ppm = speed_ppm
        return self._adapt(now)

    def set_host_speed(self, now: Micros, speed_ppm: int) -> bool:
        """Set the speed of the machine's cores from now on.  Returns False if nothing has changed."""
        self._host_ppm = speed_ppm
        return self._adapt(now)

    def _adapt(self, now: Micros) -> bool:
        device_ppm, host_ppm, pace = self._device_ppm, self._host_ppm, WHOLE_PPM
        if self._on_cores:
            device_ppm = device_ppm * host_ppm // WHOLE_PPM
        if device_ppm < WHOLE_PPM or host_ppm < WHOLE_PPM:
            slowed = self.device_us * WHOLE_PPM * WHOLE_PPM // max(device_ppm, 1)
            slowed += self.host_us * WHOLE_PPM * WHOLE_PPM // host_ppm
            pace = max(1, self.cycle_us * WHOLE_PPM * WHOLE_PPM // slowed)
        if pace == self._pace:
            return False
        self.advance(now)
        self._pace = pace
        return True

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


class HostPhase:
    """Work on the host, without the device, at the speed of the machine's cores; ``then``: what follows it."""

    __slots__ = ("_left", "_since", "_speed_ppm", "then")

    def __init__(self, length_us: Micros, now: Micros, then: Callable[..., None]) -> None:
        self._left = length_us * WHOLE_PPM  # parts of a microsecond
        self._since = now
        self._speed_ppm = WHOLE_PPM
        self.then = then

    def set_speed(self, now: Micros, speed_ppm: int) -> bool:
        """Set the speed from now on.  Returns False if nothing has changed."""
        if speed_ppm == self._speed_ppm:
            return False
        self._left = max(0, self._left - (now - self._since) * self._speed_ppm)
        self._since, self._speed_ppm = now, speed_ppm
        return True

    def left_us(self, now: Micros) -> Micros:
        """Return the time that the rest would take alone, rounded up."""
        return -(-max(0, self._left - (now - self._since) * self._speed_ppm) // WHOLE_PPM)

    def end(self) -> Micros:
        """Return when it ends if the speed stays the same."""
        return self._since + -(-self._left // self._speed_ppm)
