"""Least attained service in discrete steps (Tiresias, NSDI 2019, section 3.2), for jobs of unknown length."""

from __future__ import annotations

from carpool.core.model import Micros, Settings
from carpool.core.policies.base import BasePolicy, Key
from carpool.core.policies.view import JobView, View

#: Names of the limits of the queues, in ascending order; those that are not set end the list.
LIMITS = tuple(f"las_limit_{number}_us" for number in range(1, 10))
BY_DEVICES = "las_by_devices"
DEFAULT_LIMITS_US = (3_250_000_000, 7_200_000_000)


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
