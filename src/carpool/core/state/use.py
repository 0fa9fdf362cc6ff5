"""Use by users and groups (device time, jobs and devices), and of the machine's own memory by jobs.

Of a user's device time, what is long ago counts less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from carpool.core.model import MIB, DeviceId, JobId, Micros
from carpool.core.state.job import Job

#: Steps in which use is lowered in each half-life: between two steps it stays as it is.
STEPS = 16
#: What is left of a thousand million after one of these steps: the sixteenth root of a half.
LEFT, OF = 957_603_281, 1_000_000_000
#: Users that are remembered; of more, those that have used least are forgotten.
MOST_USERS = 1000
#: Bytes that a process is expected to need until a run of its command has succeeded: those of one with PyTorch.
UNKNOWN = 256 * MIB
#: Most commands that are remembered.
MOST_KINDS = 1000


@dataclass(slots=True)
class UserUse:
    """``used_us``: device time, as it counted in step ``step`` of the core's time."""

    used_us: Micros
    step: int


class UserUses:
    """The use of all users.  Whole numbers only, so that a replay finds the same."""

    def __init__(self, half_life_us: Micros) -> None:
        self._half_life_us = half_life_us
        self._uses: dict[int, UserUse] = {}

    @property
    def counts(self) -> bool:
        """Whether anything is remembered at all."""
        return self._half_life_us > 0

    def set_half_life(self, half_life_us: Micros, now: Micros) -> None:
        """Change the half-life: past use counts as it does now, and is lowered in the new rhythm from now on."""
        if half_life_us == self._half_life_us:
            return
        present = {owner: self.of(owner, now) for owner in self._uses}
        self._half_life_us, self._uses = half_life_us, {}
        for owner, used_us in present.items():
            self.charge(owner, used_us, now)

    def charge(self, owner: int, used_us: Micros, at_us: Micros) -> None:
        """Add device time that the user has used at the moment ``at_us``."""
        if not self.counts or used_us <= 0:
            return
        self._uses[owner] = UserUse(self.of(owner, at_us) + used_us, self._step(at_us))
        if len(self._uses) > MOST_USERS:  # never the user just charged, whose use would stay at 0 for good
            del self._uses[min(self._uses.keys() - {owner}, key=lambda each: (self.of(each, at_us), -each))]

    def of(self, owner: int, now: Micros) -> Micros:
        """Return the user's device time, as it counts now."""
        use = self._uses.get(owner)
        if use is None or not self.counts:
            return 0
        return _lowered(use.used_us, max(0, self._step(now) - use.step))

    def users(self) -> list[int]:
        """Return the users whose use is remembered."""
        return sorted(self._uses)

    def _step(self, at_us: Micros) -> int:
        return at_us // max(1, self._half_life_us // STEPS)


def _lowered(used_us: Micros, steps: int) -> Micros:
    halves, rest = divmod(steps, STEPS)
    used_us = used_us >> halves if halves < used_us.bit_length() else 0
    for _ in range(rest):
        used_us = used_us * LEFT // OF
    return used_us


class InUse:
    """Jobs that are on devices, by account and by group, and the devices of each account.  Services do not count."""

    def __init__(self) -> None:
        self.running: Counter[int] = Counter()
        self.of_group: Counter[str] = Counter()
        #: By account: each of its devices, with how many of its jobs are there.
        self.devices: dict[int, Counter[DeviceId]] = {}
        self._of: dict[JobId, tuple[int, str, tuple[DeviceId, ...]]] = {}

    def add(self, job: Job) -> None:
        """Count a job that has been placed, or has another account or group now."""
        self.remove(job.id)
        if job.serves or job.device is None:
            return
        entry = (job.spec.account, job.spec.group, tuple(dict.fromkeys((job.device, *job.devices))))
        self._of[job.id] = entry
        self._count(entry, 1)

    def remove(self, job: JobId) -> None:
        """Count a job no more that has left its devices; another one is no error."""
        entry = self._of.pop(job, None)
        if entry is not None:
            self._count(entry, -1)

    def _count(self, entry: tuple[int, str, tuple[DeviceId, ...]], change: int) -> None:
        account, group, devices = entry
        _add(self.running, account, change)
        _add(self.of_group, group, change)
        mine = self.devices.setdefault(account, Counter())
        for name in devices:
            _add(mine, name, change)
        if not mine:
            del self.devices[account]


def _add(counter: Counter[Any], key: object, change: int) -> None:
    counter[key] += change
    if not counter[key]:
        del counter[key]


class HostUse:
    """``free``: bytes that jobs may still take; None: not measured.  ``cores``: processors, if it is measured.

    ``waiter``: a queued job that has been turned away for want of memory.
    """

    def __init__(self) -> None:
        self.free: int | None = None
        self.cores = 0
        self.missing: int | None = None  # that started jobs are still going to need; None: not worked out yet
        self.waiter: JobId | None = None
        self._used: dict[JobId, int] = {}
        self._most: dict[str, int] = {}  # by kind of job, of all its runs that were measured
        self._succeeded: set[str] = set()  # kinds of which a run has come to its end

    @property
    def measured(self) -> bool:
        """Whether the machine's memory is measured."""
        return self.free is not None

    def told(self, used: Mapping[JobId, int], kinds: Mapping[JobId, str]) -> None:
        """Record what some jobs have now; ``kinds``: the kinds of the ones that have not ended."""
        for job, kind in kinds.items():
            self._used[job] = used[job]
            self._remember(kind, used[job])

    def expected(self, kind: str) -> int:
        """Return the bytes that a job of this kind is going to need in all, at least."""
        most = self._most.get(kind, 0)
        return most if kind in self._succeeded else max(most, UNKNOWN)

    def still_needs(self, job: JobId, kind: str) -> int:
        """Return the bytes that a started job is expected to take beside what it has."""
        return max(0, self.expected(kind) - self._used.get(job, 0))

    def over(self, job: JobId, kind: str, succeeded: bool) -> None:
        """Forget what an attempt that has ended had; if it succeeded, its kind is known."""
        self._used.pop(job, None)
        if succeeded and kind:
            self._remember(kind, 0)
            self._succeeded.add(kind)

    def _remember(self, kind: str, size: int) -> None:
        """Record the most that a kind has used; what was seen last is forgotten last."""
        if not kind:
            return
        self._most[kind] = max(size, self._most.pop(kind, 0))
        if len(self._most) > MOST_KINDS:
            oldest = next(iter(self._most))
            del self._most[oldest]
            self._succeeded.discard(oldest)
