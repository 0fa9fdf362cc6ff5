"""The queue: which job is placed next, and where."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import chain

from carpool.core.commands import Placement, StartJob
from carpool.core.events import InvariantError
from carpool.core.memory import contexts, exclusive
from carpool.core.memory.eviction import pin_ahead
from carpool.core.memory.grants import reserve
from carpool.core.memory.lanes import Place, Refusal, crowd, enter, may_have_own
from carpool.core.metering import warmup
from carpool.core.metering.placing_order import UsersAhead, placing_order, users_ahead
from carpool.core.metering.views import job_view, lazy_view
from carpool.core.model import DeviceId, Estimate, JobId, JobPhase, Reason
from carpool.core.placement import reservations
from carpool.core.placement.candidates import (
    PlacementChoice,
    candidates,
    check_order,
    device_order,
    on_device,
    open_to,
    place_on,
    rank,
    recorded,
    reluctant,
)
from carpool.core.placement.filters import closed, gang, held_up, host_memory
from carpool.core.placement.filters.collocation import margin_of
from carpool.core.placement.filters.user_limits import has_limits, over_limit, precedence
from carpool.core.placement.needs import allowed, impossible, may_use
from carpool.core.policies.registry import Watched
from carpool.core.state.device import Device
from carpool.core.state.job import Job, Requirements, requirements_of
from carpool.core.state.state import QueueEntry, State, require


def enqueue(state: State, job: Job) -> None:
    """Add the job to the queue: it may be placed from now on."""
    _insert(state, job, _entry(state, job))
    if not state.not_passed or state.not_passed[-1].arrival < job.arrival:
        state.not_passed.append(job)
    else:  # it was not ready when it came
        state.not_passed = type(state.not_passed)(sorted([*state.not_passed, job], key=lambda one: one.arrival))
    state.newcomers.append(job.id)
    state.requirements[job.requirements] += 1
    if job.recovering:
        reservations.overdue(state, job)


def _insert(state: State, job: Job, entry: QueueEntry) -> None:
    state.entries[job.id] = entry
    insort(state.queue, entry)


def _remove(state: State, job: Job) -> None:
    del state.queue[bisect_left(state.queue, state.entries.pop(job.id))]


def _entry(state: State, job: Job) -> QueueEntry:
    """Return the job's entry in the queue.

    A job that has run out of memory comes before all others: no policy's key is smaller than the empty one.
    """
    if job.recovering:
        return ((), job.arrival, job.id)
    return (state.policy.admission_key(lazy_view(state), job_view(state, job)), job.arrival, job.id)


def dequeue(state: State, job: Job) -> None:
    """Take the job, and the devices kept for it, out of the queue; a job that is not there is no error."""
    if job.id not in state.entries:
        return
    _remove(state, job)
    _count(state, job.requirements, -1)
    state.timers.cancel(("reserve", job.id))
    reservations.drop(state, job)
    contexts.forget(state, job.id)
    host_memory.forget(state, job.id)


def withdraw(state: State, job: Job) -> None:
    """Take out of the queue a job that waits for something else; meanwhile no later job counts as overtaking it."""
    dequeue(state, job)
    if job in state.not_passed:
        state.not_passed.remove(job)
    if job.id in state.newcomers:
        state.newcomers.remove(job.id)


def expect(state: State, job: Job, estimate: Estimate) -> None:
    """Give a queued job another estimate; the job keeps its age."""
    asked = job.requirements
    job.spec = replace(job.spec, estimate=estimate)
    trust(state, job)
    if job.held_back:
        return  # it is not in the queue
    _count(state, asked, -1)
    _count(state, job.requirements, 1)
    entry = _entry(state, job)
    if entry != state.entries[job.id]:
        _remove(state, job)
        _insert(state, job, entry)


def _count(state: State, asked: Requirements, change: int) -> None:
    state.requirements[asked] += change
    if not state.requirements[asked]:
        del state.requirements[asked]


def trust(state: State, job: Job) -> None:
    """Set whether the job's estimate counts.

    A job that was taken on while estimates did not count, and never fits by its own, is not refused for it now.
    """
    job.trusted = bool(state.settings.use_estimates)
    if job.trusted and impossible(state, job) is not None:
        job.trusted = False


def reorder(state: State) -> None:
    """Order the queue anew: another policy has other keys, and other settings may trust other estimates."""
    for job in state.jobs.values():
        if job.phase is JobPhase.QUEUED:
            trust(state, job)
    state.entries = {number: _entry(state, state.jobs[number]) for _, _, number in state.queue}
    state.queue = sorted(state.entries.values())
    state.requirements = Counter(state.jobs[number].requirements for _, _, number in state.queue)
    reservations.review(state)
    state.admit_all = True


def attempt(state: State, job: Job, open_devices: set[DeviceId] | None = None) -> PlacementChoice | Refusal:
    """Choose the best of the devices that take the job; or return why none does (as the first one says).

    ``open_devices``: None: all.
    """
    refusal = held_up(state, job)
    if refusal is not None:
        return refusal
    if job.spec.needs_several:
        return _attempt_several(state, job, open_devices)
    takers = _contenders(state, job, open_devices)
    if not takers:
        return partial(_refusal, state, job)
    device, place = takers[0] if len(takers) == 1 else min(takers, key=lambda taker: _order(state, job, *taker))
    return PlacementChoice((device,), place)


Taker = tuple[Device, Place]


def _contenders(state: State, job: Job, open_devices: set[DeviceId] | None) -> list[Taker]:
    """Return devices that take the job, the best one among them: most jobs of a long queue are refused everywhere."""
    asked = job.requirements
    if not state.placement.by_device:
        return _takers(state, job, _open(state, allowed(state, asked), asked, open_devices))
    order = device_order(state, job)
    if open_devices is not None or not _remembers(state, job):
        return _up_to_best(state, job, open_devices)
    again = order.after_refusal(asked)
    found = _up_to_best(state, job, None) if again is None else _takers(state, job, _able(state, again, asked, None))
    if not found:
        order.refuse(asked)
    return found


def _remembers(state: State, job: Job) -> bool:
    """Whether only a change of a device or its jobs lets it take jobs that ask the same as this one."""
    if state.settings.host_store is not None or has_limits(state.settings) or isinstance(state.policy, Watched):
        return False
    return not any(job.id in (device.reservation, device.expected) for device in state.marked_devices())


def _takers(state: State, job: Job, devices: Iterable[Device]) -> list[Taker]:
    return [(device, answer) for device in devices if isinstance(answer := on_device(state, device, job), Place)]


def _up_to_best(state: State, job: Job, open_devices: set[DeviceId] | None) -> list[Taker]:
    """Return the devices that take the job, best first, up to one that comes before all later ones.

    Idle devices come before all in use.  A job that shares with no other needs one.
    """
    asked, order = job.requirements, state.device_order
    takers = _up_to_best_of(state, job, _able(state, order.idle(), asked, open_devices))
    if takers or job.exclusive or not state.placement.collocates:
        return takers
    return _up_to_best_of(state, job, _able(state, order.in_use(), asked, open_devices))


#: What a job finds on a device, the best first: whether a condition is not met, there is no memory for it yet, and it
#: shares a lane.
Merits = tuple[bool, bool, bool]
BEST: Merits = (False, False, False)


def _up_to_best_of(state: State, job: Job, devices: Iterable[Device]) -> list[Taker]:
    """Return devices that take the job, of ``devices`` with the best first, but for those that cannot be better."""
    takers: list[Taker] = []
    best: Merits | None = None
    for device in devices:
        if best is not None and not _may_be_better(state, job, device, best):
            continue
        answer = on_device(state, device, job)
        if not isinstance(answer, Place):
            continue
        takers.append((device, answer))
        merits = (reluctant(state, job, device), answer.crowded, answer.lane is not None)
        best = merits if best is None else min(best, merits)
        if best == BEST:
            break
    return takers


def _may_be_better(state: State, job: Job, device: Device, best: Merits) -> bool:
    """Whether the merits of the device may be better, as far as a short look tells."""
    asked = job.requirements
    if device.idle or asked.guessed:
        return True
    need, free = asked.memory, device.free
    little = not asked.checkpoint and free < need.total + margin_of(state.settings, device)
    least = (little, asked.memory_known and free < need.persistent)
    return least < best[:2] or (least == best[:2] and best[2] and may_have_own(state, device, job))


def _able(
    state: State, devices: Iterable[Device], asked: Requirements, open_devices: set[DeviceId] | None
) -> Iterable[Device]:
    """Yield those of the devices that the job may use, and that are open."""
    return _open(state, (device for device in devices if may_use(device, asked)), asked, open_devices)


def _open(
    state: State, devices: Iterable[Device], asked: Requirements, open_devices: set[DeviceId] | None
) -> Iterable[Device]:
    """Yield those of the devices that are open, and where any lane could help."""
    among = devices if open_devices is None else (device for device in devices if device.spec.id in open_devices)
    return (device for device in among if _may_help(state, device, asked))


def _may_help(state: State, device: Device, asked: Requirements) -> bool:
    """Whether any lane of the device could help; otherwise nothing else need be looked at."""
    need = asked.memory
    if asked.guessed or need.persistent <= device.free:
        return True
    if not device.oversubscribed:
        return False
    return device.idle or asked.engine or not asked.memory_known or need.total <= crowd(state, device).room()


def _attempt_several(state: State, job: Job, open_devices: set[DeviceId] | None) -> PlacementChoice | Refusal:
    """Choose as many of the best devices as the job needs, all of them idle; or return why there are not enough."""
    found: list[Taker] = []
    for device in _idle(state, job):
        answer = on_device(state, device, job) if open_devices is None or device.spec.id in open_devices else None
        if isinstance(answer, Place):
            found.append((device, answer))
        if len(found) == job.spec.gang:
            return PlacementChoice(tuple(device for device, _ in found), found[0][1])
    return partial(_too_few, state, job, len(found))


def _idle(state: State, job: Job) -> Iterable[Device]:
    """Yield the idle devices that the job may use, best first."""
    if state.placement.by_device:
        return (device for device in device_order(state, job).idle() if may_use(device, job.requirements))
    return (device for device in candidates(state, job) if device.idle)


def _too_few(state: State, job: Job, found: int) -> Reason:
    answers = (on_device(state, device, job) for device in candidates(state, job))
    return gang.too_few(state, job, found, next((answer for answer in answers if not isinstance(answer, Place)), None))


def _order(state: State, job: Job, device: Device, place: Place) -> tuple[object, ...]:
    """Return a key as `rank`, but memory at once, and a lane of the job's own, come before the policy's key.

    A policy looks at devices.  On the one that it likes best the job may have to wait for others' turns, for good,
    while it would compute side by side with them on the next one.
    """
    reluctant, occupied, *rest = rank(state, job, device)
    return (reluctant, occupied, place.crowded, place.lane is not None, *rest, device.position)


def _refusal(state: State, job: Job) -> Reason:
    """Return why the device that would be the best one for the job refuses it."""
    for device in candidates(state, job):
        answer = on_device(state, device, job)
        if not isinstance(answer, Place):
            return answer()
    return Reason("no_device", "there is no device yet that the job may use")


def admit(state: State) -> None:
    """Place the jobs that can be placed; only newcomers are tried if nothing has become free since the last time."""
    if not state.queue:
        state.admit_all, state.newcomers = False, []
        return
    reservations.gather_first(state)  # before other jobs take what has become free
    state.device_views = {}
    try:
        _place_all(state)
    finally:
        state.device_views = None
    reservations.review(state)
    reservations.reserve_devices(state)


def _place_all(state: State) -> None:
    before = {device.spec.id: device.expected for device in state.marked_devices()}
    _place_in_order(state)  # forgets for which contexts room is made, and finds most of them again
    for device in state.marked_devices():
        if device.expected != before.get(device.spec.id):
            state.touch_device(device.spec.id)
    state.unmark_devices()


def _place_in_order(state: State) -> None:
    kept = _kept_for(state)
    order = _order_of_attempts(state, kept)
    state.admit_all, state.newcomers = False, []
    open_devices: set[DeviceId] | None = None
    hopeful = set(state.requirements)
    for number in order:
        job, mine = state.jobs[number], number in kept
        # A job with a device kept for it may find room where others like it did not, even with one kept for them.
        if job.phase is not JobPhase.QUEUED or (job.requirements not in hopeful and not mine):
            continue
        answer = attempt(state, job, None if mine else open_devices)
        if isinstance(answer, PlacementChoice):
            _place(state, job, answer)
        else:
            open_devices = _turned_away(state, job, hopeful, open_devices)
        if state.host.waiter is not None or not (mine or (hopeful and open_devices != set())):
            break


def _kept_for(state: State) -> dict[JobId, None]:
    """Return the jobs for which devices, or places under a limit, are kept, in the order in which they are tried."""
    reserved = dict.fromkeys(each.reservation for each in state.marked_devices() if each.reservation is not None)
    return reserved | dict.fromkeys(sorted(state.claims, key=lambda number: precedence(state.jobs[number])))


def _order_of_attempts(state: State, kept: dict[JobId, None]) -> Iterable[JobId]:
    """Return the jobs to be tried: those for which devices are kept first; only newcomers if nothing became free."""
    if state.admit_all or not state.backfill:
        state.host.waiter = None
        for device in state.marked_devices():
            if device.expected is not None:
                device.expected = None
        return chain(kept, (number for number in placing_order(state) if number not in kept))
    if state.host.waiter is not None:
        return ()  # newcomers need the machine's memory, too
    return sorted(state.newcomers, key=lambda number: state.jobs[number].arrival)


def _turned_away(
    state: State, job: Job, hopeful: set[Requirements], open_devices: set[DeviceId] | None
) -> set[DeviceId] | None:
    """Leave later jobs only the requirements, or the devices, about which the job's refusal says nothing.

    Return the devices that are still open.
    """
    asked = job.requirements
    if over_limit(state, job) is not None:
        hopeful.discard(asked)
        return open_devices
    if host_memory.short(state, job) is not None:
        state.host.waiter = job.id  # later ones that need less would keep it waiting
        return open_devices
    _expect(state, job)
    if state.backfill:
        hopeful.difference_update([other for other in hopeful if _asks_as_much(other, asked)])
        return open_devices
    return (set(state.devices) if open_devices is None else open_devices) - open_to(state, job)


def _expect(state: State, job: Job) -> None:
    """Have room made for the job's context, on the best device where only the context finds no room."""
    if job.spec.needs_several or not state.has_contexts:
        return
    for device in candidates(state, job):
        open_to_it = isinstance(place_on(state, device, job), Place) and closed(state, device, job) is None
        if open_to_it and contexts.expect(state, device, job):
            return


def _asks_as_much(other: Requirements, turned_away: Requirements) -> bool:
    """Whether jobs with these requirements need not be tried after one has been turned away.

    Long queues are mostly alike; so one look at jobs with equal requirements is enough.
    """
    more, less = other.memory, turned_away.memory
    alike = other[:-1] == turned_away[:-1]  # all but their memory
    return alike and more.persistent >= less.persistent and more.ephemeral >= less.ephemeral


def _place(state: State, job: Job, choice: PlacementChoice) -> None:
    """Take the job out of the queue, give it the devices and its lane, and have it started."""
    decision = recorded(state, job, choice)
    dequeue(state, job)
    ahead = users_ahead(state, job.spec.account)
    _give_devices(state, job, choice.devices)
    _give_memory(state, job, choice)
    _start(state, job, choice.devices[0], decision)
    _passed_over(state, job, ahead)
    if state.device_views is not None:
        state.device_views.clear()


def _give_devices(state: State, job: Job, devices: tuple[Device, ...]) -> None:
    first = devices[0]
    job.set(phase=JobPhase.STARTING, device=first.spec.id, started_us=state.now, placed=state.number())
    first.jobs.add(job.id)
    for device in devices:
        device.last_placed = job.placed
    exclusive.hold_all(state, job, devices)
    first.changed()
    job.tell = first.changed
    state.in_use.add(job)
    if job.excludes:
        first.excluding.add(job.id)
    if job.exclusive:
        exclusive.claim(state, first, job)


def _give_memory(state: State, job: Job, choice: PlacementChoice) -> None:
    device, place = choice.devices[0], choice.place
    host_memory.started(state, job)
    enter(state, job, device, place)
    reserve(state, job, place.memory)
    contexts.begins(state, device, job)


def _start(state: State, job: Job, device: Device, decision: Placement | None) -> None:
    assert job.lane is not None, "it has just been given one"
    state.emit(StartJob(job.id, device.spec.id, job.lane, job.devices[1:], decision))
    warmup.begin(state, device, job)
    pin_ahead(state, device)
    state.timers.set(("warm", job.id), state.now + state.settings.warm_timeout_us)


def _passed_over(state: State, placed: Job, ahead: UsersAhead | None) -> None:
    """Note that the jobs that come before ``placed`` and still wait were overtaken.  ``ahead``: see `users_ahead`."""
    if ahead is not None:
        _passed_over_by_user(state, placed, ahead)
        return
    waiting = state.not_passed
    while waiting and waiting[0].arrival <= placed.arrival:
        _overtaken(state, waiting.popleft())


def _passed_over_by_user(state: State, placed: Job, ahead: UsersAhead) -> None:
    waiting = state.not_passed
    state.not_passed = type(waiting)()
    for job in waiting:
        if job.spec.account in ahead.less or (job.spec.account in ahead.equal and job.arrival <= placed.arrival):
            _overtaken(state, job)
        else:
            state.not_passed.append(job)


def _overtaken(state: State, job: Job) -> None:
    if job.phase is JobPhase.QUEUED:
        state.timers.set(("reserve", job.id), state.now + state.settings.reserve_after_us)


def explain_queued(state: State, job: Job) -> Reason:
    """Return why a queued job has not been placed."""
    if state.restarting:
        return Reason("restart", "the daemon has restarted and is recovering running jobs")
    answer = attempt(state, job)
    return Reason("order", _behind(state, job)) if isinstance(answer, PlacementChoice) else answer()


def _behind(state: State, job: Job) -> str:
    """Return the text why a job that has room on a device has not been placed."""
    waiter = state.host.waiter
    if waiter is not None and waiter != job.id:
        return f"waiting behind job {state.jobs[waiter].number}, which waits for memory of the machine"
    first = state.jobs[next(placing_order(state))]
    if first is job:
        return "waiting to be placed: a device has room for the job now"
    if state.by_user and first.spec.account != job.spec.account:
        return f"waiting behind job {first.number}, whose user has used less device time ({state.policy.name})"
    return f"waiting behind job {first.number}, which {state.policy.name} places first"


def check(state: State) -> None:
    """Check that queued jobs are in the queue, and that jobs for several devices have all that is theirs."""
    for job in state.jobs.values():
        if job.phase is JobPhase.QUEUED:
            require((job.id in state.entries) != job.held_back, "neither in the queue nor held back", job)
        gang.check(state, job)
    _check_entries(state)
    _check_order(state)
    reservations.check(state)


def _check_order(state: State) -> None:
    some = next(iter(state.jobs.values()), None)
    if some is not None and state.placement.by_device:
        check_order(state, some)


def _check_entries(state: State) -> None:
    asked = Counter(requirements_of(state.jobs[number]) for number in state.entries)
    if sorted(state.entries.values()) != state.queue or asked != state.requirements:
        raise InvariantError(f"the queue has {state.queue}, its jobs {state.entries}; they ask for {asked}")
