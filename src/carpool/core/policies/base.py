"""The interface of a policy: a small object without state that orders jobs.  The machine has the last word."""

from __future__ import annotations

from typing import Protocol

from carpool.core.model import Micros
from carpool.core.policies.view import DeviceView, JobView, View

SECOND: Micros = 1_000_000

#: Smaller comes first.  Of equal jobs, the one that came first is first.
Key = tuple[int, ...]


class Policy(Protocol):
    """One signature for every policy, in lanes and on whole devices; `BasePolicy` has defaults for all of it.

    A key may depend on the job and on ``view.settings`` only: the machine asks for it when the job begins to wait and
    whenever the job's own figures change, so that one decision costs the same with ten jobs and with a thousand.
    """

    name: str
    #: Whether later jobs may be admitted while an earlier one (by `admission_key`) does not fit.
    backfill: bool
    #: Whether a user who has used less device time comes before one who has used more; `admission_key` orders the jobs
    #: of each user.  In lanes only.
    by_user: bool
    #: Names it understands in ``Settings.extra``.
    settings: tuple[str, ...]
    #: Whole devices: jobs that run may lose their devices to jobs with a smaller `turn_key`.  Without it jobs run to
    #: their end, and start in the order of `admission_key`.
    preemptive: bool
    #: Whole devices: jobs of equal key form a queue.  A running job whose key changes goes to the tail of its new
    #: queue, and jobs that run go before those that wait.  Without it equal keys keep the order they had.
    requeue: bool
    #: Time quantum where neither a device nor the settings have one.
    quantum_us: Micros

    def lanes(self, view: View, device: DeviceView) -> int | None:
        """Return how many lanes may be open side by side on a device; None: as many as fit."""

    def admission_key(self, view: View, job: JobView) -> Key:
        """The order in which queued jobs are placed."""

    def turn_key(self, view: View, job: JobView) -> Key:
        """The order in which jobs that want to compute do so: those of a lane; on whole devices all of them."""

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Return how much longer ``holder`` computes while ``candidate`` waits: 0 not at all, None as long as it likes.

        Asked again about the same two, a later answer does not put off an earlier one, but None does.
        The machine never takes a turn before the time quantum is over and the switch is worth its cost.
        """

    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        """The order in which jobs are evicted when another job needs memory; smaller leaves first.

        ``ahead``: so many jobs of its lane compute before the victim; None: the victim does not want to compute.
        """

    def next_change(self, view: View, job: JobView) -> Micros | None:
        """Whole devices: after how much more time on its devices the order has to be looked at again because of
        ``job``.
        """


class BasePolicy:
    """First come, first served in one lane, with nothing of its own: override what differs."""

    name = "base"
    backfill = False
    by_user = False
    settings: tuple[str, ...] = ()
    preemptive = False
    requeue = False
    quantum_us: Micros = 50_000
    #: What `lanes` returns, where it is the same for all devices.
    most_lanes: int | None = 1

    def lanes(self, view: View, device: DeviceView) -> int | None:
        """Return ``most_lanes``: one."""
        return self.most_lanes

    def admission_key(self, view: View, job: JobView) -> Key:
        """Return the order of arrival."""
        return (job.arrival,)

    def turn_key(self, view: View, job: JobView) -> Key:
        """Return the key of admission."""
        return self.admission_key(view, job)

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """Switch at once to a job that comes before the holder."""
        return 0 if self.turn_key(view, candidate) < self.turn_key(view, holder) else None

    def victim_key(self, view: View, victim: JobView, ahead: int | None) -> Key:
        """Idle jobs first; cost of restoring the victim times likelihood of soon having to.

        A job becomes the less likely to come back the longer it has been idle.  Of waiting jobs the one that has
        longest still to wait leaves first: in a round robin that is the best choice, and the one used longest ago the
        worst (Belady).
        """
        if ahead is None:
            return (0, victim.reload_us * SECOND // (SECOND + view.now - victim.idle_since_us))
        return (1, victim.reload_us // (1 + ahead))

    def next_change(self, view: View, job: JobView) -> Micros | None:
        """Return None: the order changes with no time."""
        return None
