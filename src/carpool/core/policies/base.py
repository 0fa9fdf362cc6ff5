"""What a policy is: a small object without state that orders jobs.  It proposes; the machine disposes."""

from __future__ import annotations

from typing import Protocol

from carpool.core.model import Micros
from carpool.core.view import DeviceView, JobView, View

#: Smaller comes first.  Ties go to whoever came first.
Key = tuple[int, ...]


class Policy(Protocol):
    """One signature for every policy, in lanes and on whole devices; `BasePolicy` has defaults for all of it.

    A key may depend on the job and on ``view.settings`` only: the machine asks for it when the job begins to wait and
    whenever the job's own figures change, so that one decision costs the same with ten jobs and with a thousand.
    """

    name: str
    #: Whether later jobs may be admitted while an earlier one (by `admission_key`) does not fit.
    backfill: bool
    #: Names it understands in ``Settings.extra``.
    settings: tuple[str, ...]
    #: Whole devices: jobs that run may lose their devices to jobs with a smaller `turn_key`.  Without it jobs run to
    #: their end, and start in the order of `admission_key`.
    preemptive: bool
    #: Whole devices: jobs of equal key form a queue.  A running job whose key changes goes to the tail of its new
    #: queue, and jobs that run go before those that wait.  Without it equal keys keep the order they had.
    requeue: bool

    def lanes(self, view: View, device: DeviceView) -> int | None:
        """How many lanes may be open side by side on a device; None: as many as fit."""

    def admission_key(self, view: View, job: JobView) -> Key:
        """The order in which queued jobs are placed."""

    def turn_key(self, view: View, job: JobView) -> Key:
        """The order in which jobs that want to compute do so: those of a lane; on whole devices all of them."""

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """How much longer ``holder`` should compute while ``candidate`` waits: 0 not at all, None as long as it likes.

        Asked again about the same two, a later answer does not put off an earlier one, but None does.
        The machine never takes a turn before the time quantum is over and the switch is worth its cost.
        """

    def next_change(self, view: View, job: JobView) -> Micros | None:
        """Whole devices: after how much more time on its devices the order has to be looked at again because of
        ``job``.
        """


class BasePolicy:
    """First come, first served in one lane, with nothing of its own: override what differs."""

    name = "base"
    backfill = False
    settings: tuple[str, ...] = ()
    preemptive = False
    requeue = False

    def lanes(self, view: View, device: DeviceView) -> int | None:
        return 1

    def admission_key(self, view: View, job: JobView) -> Key:
        return (job.arrival,)

    def turn_key(self, view: View, job: JobView) -> Key:
        return self.admission_key(view, job)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        return 0 if self.turn_key(view, candidate) < self.turn_key(view, holder) else None

    def next_change(self, view: View, job: JobView) -> Micros | None:
        return None
