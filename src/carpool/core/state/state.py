"""The mutable state behind the machine, with its timers.  Only the core changes it, only in `Machine.handle`."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from carpool.core.commands import Command
from carpool.core.events import InvariantError
from carpool.core.model import DeviceId, JobId, LaneId, Memory, Micros, Outcome, Settings
from carpool.core.policies.base import Key, Policy
from carpool.core.policies.placement import PlacementPolicy
from carpool.core.policies.view import DeviceView, View
from carpool.core.state.device import Device, Lane
from carpool.core.state.device_order import DeviceOrder
from carpool.core.state.job import Job, Requirements
from carpool.core.state.slowdown_table import SlowdownTable
from carpool.core.state.use import HostUse, InUse, UserUses
from carpool.core.units import format_seconds

TimerKey = tuple[str, Hashable]
#: The policy's key of a queued job, when it came, and its number.
QueueEntry = tuple[Key, int, JobId]
#: So many ended jobs are kept as they were, for views and stories; of the others only the outcome.
KEPT_ENDED = 1000


class Timers:
    """Timers by key (kind, subject).  Setting one again replaces it; entries that were replaced are skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[Micros, int, TimerKey]] = []
        self._live: dict[TimerKey, tuple[Micros, int]] = {}
        self._sequence = 0

    def set(self, key: TimerKey, when: Micros) -> None:
        """Set a timer, in the place of one with the same key."""
        present = self._live.get(key)
        if present is not None and present[0] == when:
            return
        self._sequence += 1
        self._live[key] = (when, self._sequence)
        heapq.heappush(self._heap, (when, self._sequence, key))
        if len(self._heap) > 64 + 4 * len(self._live):
            self._compact()

    def cancel(self, key: TimerKey) -> None:
        """Forget a timer; one that is not set is not an error."""
        self._live.pop(key, None)

    def cancel_each(self, kinds: Iterable[str], subject: Hashable) -> None:
        """Forget the timers of these kinds about one subject."""
        for kind in kinds:
            self._live.pop((kind, subject), None)

    def when(self, key: TimerKey) -> Micros | None:
        """Return when the timer is due; None if it is not set."""
        present = self._live.get(key)
        return present[0] if present is not None else None

    def next(self) -> Micros | None:
        """Return when the earliest timer is due; None: none is set."""
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self, now: Micros) -> TimerKey | None:
        """Take the earliest timer that is due; None: none is."""
        due = self.next()
        if due is None or due > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._live[key]
        return key

    def _is_live(self, entry: tuple[Micros, int, TimerKey]) -> bool:
        return self._live.get(entry[2]) == entry[:2]

    def _compact(self) -> None:
        # A turn sets and cancels a timer each time; without this the heap would grow with every turn.
        self._heap = [entry for entry in self._heap if self._is_live(entry)]
        heapq.heapify(self._heap)


@dataclass(slots=True)
class ArrayPlaces:
    """Places of one array: ``taken`` by elements that wait for a device, run, or wait for their next attempt.

    ``waiting``: elements that wait for a place.
    """

    taken: set[JobId] = field(default_factory=set)
    waiting: set[JobId] = field(default_factory=set)


@dataclass(slots=True)
class ArrayMemory:
    """Memory needs learned from the elements of one array that have run.

    ``jobs``: elements that have not ended; ``memory``: most that one has needed so far, None: nothing is known;
    ``without``: how many have succeeded without any use of the device.
    """

    jobs: set[JobId] = field(default_factory=set)
    memory: Memory | None = None
    without: int = 0


class State:
    """All state of the core."""

    def __init__(self, settings: Settings, policy: Policy, placement: PlacementPolicy) -> None:
        self.settings = settings
        self.policy = policy
        self.placement = placement
        self.now: Micros = 0
        self.jobs: dict[JobId, Job] = {}  # all that have not ended, and the last ones that have
        self.ended: deque[JobId] = deque()  # those of ``jobs`` that have ended, in order
        self.pruned_ids = PrunedIds()  # ended long ago: late events and dependencies still name them
        self.arrivals = 0
        self.lanes: dict[LaneId, Lane] = {}
        self.devices: dict[DeviceId, Device] = {}
        self.timers = Timers()
        self.commands: list[Command] = []
        self.lazy: View | None = None  # the view that policies get, while it is valid
        self.queue: list[QueueEntry] = []  # ready jobs in order of admission
        self.entries: dict[JobId, QueueEntry] = {}  # the same by job
        self.requirements: Counter[Requirements] = Counter()  # of the queued jobs
        self.device_order = DeviceOrder()
        self.marked: set[DeviceId] = set()  # devices of which something is kept for a queued job, and some others
        self.has_contexts = False  # whether jobs are expected to have contexts on any device
        self.largest_capacity = 0
        self.device_views: dict[DeviceId, DeviceView] | None = None  # while the queue is looked at
        self.in_use = InUse()  # what users and groups have on devices
        self.gathering: JobId | None = None  # a job for several devices that some, but not all, are kept for
        self.not_passed: deque[Job] = deque()  # queued jobs by arrival that no later one has overtaken
        self.due: list[JobId] = []  # passed over for too long, without a reservation
        self.claims: set[JobId] = set()  # queued jobs that later ones of the same user, or group, leave a place
        self.dependents: dict[JobId, dict[JobId, None]] = {}  # in the order in which they came
        #: Places of arrays of which only so many jobs run at once.
        self.arrays: dict[JobId, ArrayPlaces] = {}
        #: Of all arrays of which some job has not ended.
        self.array_memory: dict[JobId, ArrayMemory] = {}
        self.restarting = False
        self.next_lane: LaneId = 1
        self.sequence = 0
        self.host = HostUse()
        self.slowdowns = SlowdownTable()
        self.uses = UserUses(settings.use_half_life_us)
        self.store_kept = 0  # bytes of the host store that are kept for jobs
        # What this event has touched
        self.admit_all = False
        self.newcomers: list[JobId] = []
        self.dirty_lanes: dict[LaneId, None] = {}
        self.dirty_devices: dict[DeviceId, None] = {}
        self.co_runners_changed: dict[DeviceId, None] = {}
        #: The time quantum of each device; of None: where there is no device.
        self.quanta: dict[DeviceId | None, Micros] = {}
        self.update_quanta()
        self.records_placements = True  # whether commands say on what they were based

    def update_quanta(self) -> None:
        """Set each device's quantum: its own, else the one in the settings, else the policy's."""
        usual = self.settings.quantum_us
        self.quanta[None] = self.policy.quantum_us if usual is None else usual
        for device in self.devices.values():
            self.update_quantum(device)

    def update_quantum(self, device: Device) -> None:
        """Set the quantum of one device."""
        own = device.spec.quantum_us
        self.quanta[device.spec.id] = self.quanta[None] if own is None else own

    @property
    def by_user(self) -> bool:
        """Whether jobs are placed by what their users have used."""
        return self.policy.by_user and self.uses.counts

    @property
    def backfill(self) -> bool:
        """Whether later jobs may go ahead of one that does not fit."""
        setting = self.settings.backfill
        return self.policy.backfill if setting is None else bool(setting)

    def number(self) -> int:
        """Return the next number of the one sequence that orders what happens at equal times."""
        self.sequence += 1
        return self.sequence

    def emit(self, command: Command) -> None:
        """Add a command to those that follow from this event."""
        self.commands.append(command)

    def touch_lane(self, lane: LaneId | None) -> None:
        """Have the turn of a lane looked at after this event."""
        if lane is not None:
            self.dirty_lanes[lane] = None

    def touch_device(self, device: DeviceId | None) -> None:
        """Have the waiters of a device served after this event."""
        if device is not None:
            self.dirty_devices[device] = None

    def marked_devices(self) -> list[Device]:
        """Return the devices of which something is, or was lately, kept for a queued job, as they were added."""
        if not self.marked:
            return []
        return sorted((self.devices[name] for name in self.marked), key=lambda device: device.position)

    def unmark_devices(self) -> None:
        """Forget the devices of which nothing is kept any more."""
        kept = (device for device in self.marked_devices() if device.reservation or device.expected)
        self.marked = {device.spec.id for device in kept}

    def lane_of(self, job: Job) -> Lane | None:
        """Return the job's lane; None: it is in none."""
        return self.lanes[job.lane] if job.lane is not None else None

    def called(self, job: JobId) -> str:
        """Name a job as people do (`Job.number`), and one that has been forgotten by its id."""
        return self.jobs[job].number if job in self.jobs else str(job)

    def device_of(self, job: Job) -> Device | None:
        """Return the device of the job; None: it is on none."""
        return self.devices[job.device] if job.device is not None else None

    def kept_out(self, job: Job) -> bool:
        """Whether the job gets no turn, however long it waits: a user has paused it, or another job has the device."""
        return job.paused or self.blocked_by_exclusive(job)

    def blocked_by_exclusive(self, job: Job) -> bool:
        """Whether the job gets no turn, because another has the device to itself."""
        device = self.device_of(job)
        if device is None or device.exclusive_holder in (None, job.id) or device.exclusive_waived:
            return False
        return not self.may_compute_beside(device, job)

    def beside_others(self, device: Device) -> bool:
        """Whether the job that has the device to itself was found to be exclusive, and other users have jobs there."""
        owners = {self.jobs[number].spec.owner for number in device.jobs}
        return device.exclusive_found and len(owners) > 1

    def may_compute_beside(self, device: Device, job: Job) -> bool:
        """Whether the device's exclusive job stops only other jobs of its own user, and this job is none of them.

        A job that turns out to be exclusive has what it says of itself; it stops no other user's job.
        """
        holder = device.exclusive_holder
        return holder is not None and device.exclusive_found and self.jobs[holder].spec.owner != job.spec.owner


_PAGE = 1024  # numbers follow each other, mostly
_OUTCOMES = tuple(Outcome)


class PrunedIds:
    """The outcomes of forgotten jobs."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}  # 0: no such job; else the place of its outcome, from 1

    def add(self, job: JobId, outcome: Outcome) -> None:
        """Remember how a forgotten job ended."""
        page, place = divmod(job, _PAGE)
        self._pages.setdefault(page, bytearray(_PAGE))[place] = _OUTCOMES.index(outcome) + 1

    def outcome(self, job: JobId) -> Outcome | None:
        """Return the outcome of a forgotten job; None: there has been no such job, or it is not forgotten."""
        page, place = divmod(job, _PAGE)
        known = self._pages[page][place] if page in self._pages else 0
        return _OUTCOMES[known - 1] if known else None

    def __contains__(self, job: JobId) -> bool:
        return self.outcome(job) is not None


def story(history: Iterable[tuple[Micros, object]]) -> str:
    """Return the last events of a job or lane, one per line."""
    return "".join(f"\n  {format_seconds(when)}: {what}" for when, what in history)


def require(truth: bool, what: str, subject: Job | Lane) -> None:
    """Raise InvariantError with the subject's story unless ``truth``; ``what`` says what is wrong."""
    if not truth:
        kind = "job" if isinstance(subject, Job) else "lane"
        raise InvariantError(f"{kind} {subject.id}: {what}{story(subject.history)}")
