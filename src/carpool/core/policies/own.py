"""Carpool's own policies: by arrival, equal device time, least attained service (Tiresias), shortest first."""

from __future__ import annotations

from carpool.core.model import Micros, Settings
from carpool.core.policies.base import BasePolicy, Key
from carpool.core.policies.view import JobView, View

#: Names of the limits of the queues, in ascending order; those that are not set end the list.
LIMITS = tuple(f"las_limit_{number}_us" for number in range(1, 10))
BY_DEVICES = "las_by_devices"
DEFAULT_LIMITS_US = (3_250_000_000, 7_200_000_000)


class Fifo(BasePolicy):
    """The job that came first computes whenever it can; the others fill the gaps while it is on the CPU.

    On whole devices jobs start in order of arrival, and no job goes ahead of one that does not fit, unless the setting
    ``backfill`` says so.
    """

    name = "fifo"


class Pack(BasePolicy):
    """Jobs share a lane only when there is no memory for another one; there they take turns, one quantum each."""

    name = "pack"
    backfill = True
    most_lanes = None

    def turn_key(self, view: View, job: JobView) -> Key:
        """Return since when the job has waited."""
        return (job.waiting_since_us or 0,)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Switch as soon as the quantum is over."""
        return 0


class Tq(BasePolicy):
    """One lane; the job that waits longest computes next, for a time quantum (after nvshare, "TQ", default 30 s).

    A job keeps its turn while no other waits, and a job that is off the device loses the rest of its quantum.
    """

    name = "tq"
    backfill = True
    quantum_us: Micros = 30_000_000

    def turn_key(self, view: View, job: JobView) -> Key:
        """Return since when the job has waited."""
        return (job.waiting_since_us or 0,)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Switch as soon as the quantum is over."""
        return 0


class Fair(BasePolicy):
    """One lane for each user; the job with the least weighted device time (`JobView.virtual_us`) computes there.

    Users who have used less device time are placed first (`core.metering.placing_order`).

    On whole devices the order is looked at again after each time quantum.
    """

    name = "fair"
    backfill = True
    by_user = True
    preemptive = True

    def turn_key(self, view: View, job: JobView) -> Key:
        """Return the weighted device time."""
        return (job.virtual_us,)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Switch when the holder overtakes the candidate.  Without a quantum: at every boundary."""
        if view.quanta[holder.device] == 0:
            return 0
        return max(0, candidate.virtual_us - holder.virtual_us) * holder.weight // 100

    def next_change(self, view: View, job: JobView) -> Micros | None:
        """Return the time quantum."""
        return max(view.quanta[None], 1)


def limits_us(settings: Settings) -> tuple[Micros, ...]:
    """Return the limits on attained service, ascending; the defaults if none is set."""
    given = tuple(settings.extra[name] for name in LIMITS if name in settings.extra)
    return given or DEFAULT_LIMITS_US


class Las(BasePolicy):
    """Queues by attained service: a job starts in the first and moves on whenever it reaches the limit of its queue.

    Service is device time (``las_by_devices`` 0) or device time times devices (1).
    """

    name = "las"
    backfill = True
    preemptive = True
    requeue = True
    settings = (*LIMITS, BY_DEVICES)

    def check(self, settings: Settings) -> None:
        """Raise ValueError for limits that do not ascend."""
        limits = limits_us(settings)
        if any(after <= before for before, after in zip((0, *limits), limits, strict=False)):
            raise ValueError(f"the limits of las must be positive and ascend; they are {limits} us")

    def turn_key(self, view: View, job: JobView) -> Key:
        """Return the queue that the job is in."""
        service = self._service(view, job)
        return (sum(service >= limit for limit in limits_us(view.settings)),)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Switch at once to a job of an earlier queue; else when the holder leaves the candidate's queue behind."""
        queue, own = self.turn_key(view, candidate)[0], self.turn_key(view, holder)[0]
        if queue < own:
            return 0
        limits = limits_us(view.settings)
        return self._time_to(view, holder, limits[queue]) if queue < len(limits) else None

    def next_change(self, view: View, job: JobView) -> Micros | None:
        """Return the time until the job leaves its queue; None: it is in the last one."""
        limits, queue = limits_us(view.settings), self.turn_key(view, job)[0]
        return self._time_to(view, job, limits[queue]) if queue < len(limits) else None

    def _time_to(self, view: View, job: JobView, limit: Micros) -> Micros:
        missing = limit - self._service(view, job)
        return -(-missing // self._rate(view, job))

    def _service(self, view: View, job: JobView) -> Micros:
        return job.attained_us * self._rate(view, job)

    @staticmethod
    def _rate(view: View, job: JobView) -> int:
        return job.gang if view.settings.extra.get(BY_DEVICES) else 1


def expected_us(job: JobView) -> Micros:
    """Return the device time that a job is expected to need still.

    Where it is unknown, as much again as the job has had: the usual guess for lengths without a typical size.  So jobs
    of unknown length are served by attained service, a fresh one is tried (and measured) early, and a long one yields
    to jobs that are known to be nearly done.
    """
    return job.remaining_us if job.remaining_us is not None else job.attained_us


class Srtf(BasePolicy):
    """Shortest remaining device time first, in one lane; preempts at iteration boundaries."""

    name = "srtf"
    backfill = True
    preemptive = True

    def admission_key(self, view: View, job: JobView) -> Key:
        """Return the device time that the job is expected to need still."""
        return (expected_us(job),)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Switch to a job with less to do, and from a holder of unknown length when it falls behind."""
        ahead = self.turn_key(view, candidate)[0] - self.turn_key(view, holder)[0]
        if ahead < 0:
            return 0
        # A holder of unknown length falls behind while it computes; one of known length only gets shorter.
        return ahead // holder.gang + 1 if holder.remaining_us is None else None


class Srsf(Srtf):
    """Shortest remaining service first (Tiresias, NSDI 2019, section 3): remaining time times devices.

    In lanes, where a job has one device, it is `srtf`.
    """

    name = "srsf"

    def admission_key(self, view: View, job: JobView) -> Key:
        """Return the expected device time, times devices."""
        return (expected_us(job) * job.gang,)


class Sjf(BasePolicy):
    """The shortest waiting job starts next, and keeps its turn until it is off the device or done."""

    name = "sjf"

    def admission_key(self, view: View, job: JobView) -> Key:
        """Return the job's expected length in all."""
        return (job.attained_us + expected_us(job),)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Return None: the holder keeps its turn."""
        return None
