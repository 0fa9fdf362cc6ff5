"""What a policy is: a small object without state that orders jobs.  It proposes; the machine disposes."""

from __future__ import annotations

from typing import Protocol

from carpool.core.model import Micros
from carpool.core.view import DeviceView, JobView, View

#: Smaller comes first.  Ties go to whoever came first.
Key = tuple[int, ...]


class Policy(Protocol):
    """One signature for every policy.

    A key may depend on the job and on ``view.settings`` only: the machine asks for it when the job begins to wait and
    whenever the job's own figures change, so that one decision costs the same with ten jobs and with a thousand.
    """

    name: str
    #: Whether later jobs may be admitted while an earlier one (by `admission_key`) does not fit.
    backfill: bool
    #: Names it understands in ``Settings.extra``.
    settings: tuple[str, ...]

    def lanes(self, view: View, device: DeviceView) -> int | None:
        """How many lanes may be open side by side on a device; None: as many as fit."""

    def admission_key(self, view: View, job: JobView) -> Key:
        """The order in which queued jobs are placed."""

    def turn_key(self, view: View, job: JobView) -> Key:
        """The order in which the jobs of a lane that wait for the turn get it."""

    def switch_after(self, view: View, holder: JobView, candidate: JobView) -> Micros | None:
        """How much longer ``holder`` should compute while ``candidate`` waits: 0 not at all, None as long as it likes.

        Asked again about the same two, a later answer does not put off an earlier one, but None does.
        The machine never takes a turn before the time quantum is over and the switch is worth its cost.
        """
