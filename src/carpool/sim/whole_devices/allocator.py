"""Whole devices: each job gets as many as it needs, all at once, or waits.

All events of one instant are recorded first; then, with the `Tick` of that instant, one scheduling pass follows.
Without preemption the pass starts jobs in the order of the policy.  With preemption the pass orders all jobs anew,
takes the first ones that fit, and preempts running jobs that are not among them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from carpool.core.allocators.base import Allocator, JobHandlers
from carpool.core.allocators.lanes import LaneAllocator
from carpool.core.commands import AllocateDevices, PreemptJob
from carpool.core.events import Event, InvariantError, Preempted, Tick, TraitsSeen
from carpool.core.machine import Machine
from carpool.core.metering.usage import account, attained, reconcile_time
from carpool.core.metering.views import job_view, lazy_view
from carpool.core.model import Allocation, Attempt, DeviceId, JobId, JobPhase, Micros, Reason, Settings
from carpool.core.policies.base import Key
from carpool.core.state.device import Device
from carpool.core.state.job import Job, Order
from carpool.core.state.state import State, require
from carpool.sim.whole_devices.jobs import ALIVE, WaitingOrder

NEXT_CHANGE = "change"


class WholeDeviceAllocator:
    """Gives jobs devices to themselves, and keeps the order of the jobs that wait for devices."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._free: list[int] = []  # heap of positions in ``_names``
        self._names: list[DeviceId] = []
        self._places: dict[DeviceId, int] = {}
        self._running: dict[JobId, Job] = {}  # hold their devices, or are to get them ...
        self._taken = 0  # ... so many of them
        self._waiting = WaitingOrder(self._running)
        self._newcomers: list[Job] = []  # wait, and have no place in the order yet
        self._to_serve: list[Job] = []  # are to get devices that others have been asked to leave
        self._stopping: dict[JobId, Job] = {}  # cancelled, and still on their devices
        self._changed: list[JobId] = []  # run, and their place in the order may have changed
        self._dirty = False  # a scheduling pass is due at this instant
        self._skipped_us: Micros | None = None  # the last pass found room for all, and ordered no running job anew

    def handlers(self) -> JobHandlers:
        """Return the handlers of events that only whole devices have."""
        return {Preempted: self._preempted, TraitsSeen: _nothing}

    def device_added(self, device: Device) -> None:
        """Add a device, which is free."""
        name = device.spec.id
        self._places[name] = len(self._names)
        heapq.heappush(self._free, len(self._names))
        self._names.append(name)
        self._dirty = True

    def device_changed(self, device: Device) -> None:
        """Do nothing: a whole device has no turns, and its job uses no memory of others."""

    def drain_changed(self, device: Device) -> None:
        """Refuse: devices cannot be drained here.  Raises ValueError."""
        raise ValueError(f"{device.spec.id} cannot be drained: devices are given as a whole here, and are all alike")

    def usable_changed(self, device: Device, more: bool) -> None:
        """Do nothing: jobs are not placed by memory here."""

    def settings_changed(self) -> None:
        """Order all jobs anew, since another policy has other keys; jobs of equal key by arrival."""
        self._waiting.clear()
        self._newcomers.clear()
        for job in self._state.jobs.values():
            if job.phase in ALIVE and not job.held_back:
                self._place_anew(job)
        self._dirty = True

    def _place_anew(self, job: Job) -> None:
        runs = job.id in self._running
        job.order = self._waiting.behind(self._key(job), 1 if self._state.policy.requeue and not runs else 0)
        if not runs:
            self._waiting.wait(job)
        elif job.devices:
            self._state.timers.cancel((NEXT_CHANGE, job.id))
            self._plan_change(job)

    def impossible(self, job: Job) -> Reason | None:
        """Return why no number of free devices is enough; None if one is."""
        count = len(self._names)
        if job.spec.gang <= count or not count:
            return None
        return Reason("too_many_devices", f"needs {job.spec.gang} devices, but there are {count}")

    def impossible_again(self, job: Job) -> Reason | None:
        """Return what `impossible` does: another attempt needs no more."""
        return self.impossible(job)

    def no_more_memory(self, job: Job, past: Attempt) -> str | None:
        """Return why a job that ran out of memory cannot have more."""
        return "it had exclusive use of its devices"

    def explain(self, job: Job) -> Reason | None:
        """Return why the job waits; None if it does not."""
        if job.devices or job.phase is JobPhase.STOPPING:
            return None
        text = f"waiting for devices: needs {job.spec.gang}, {len(self._free)} of {len(self._names)} free"
        return Reason("devices", text)

    def evaluate(self, job: Job) -> None:
        """Return None: devices are alike, so there is nothing to compare."""

    def due(self, kind: str, subject: Any) -> None:
        """Note that a running job's key may have changed."""
        assert kind == NEXT_CHANGE, "its only timers"
        self._changed.append(subject)

    def next_timer(self) -> Micros | None:
        """Return when the next `Tick` is due, microseconds; None: never."""
        if self._dirty and not self._state.restarting:
            return self._state.now
        return self._state.timers.next()

    def settle(self, event: Event) -> None:
        """Run a scheduling pass with a `Tick` only: by then everything that happens at that instant is known."""
        if not isinstance(event, Tick):
            return
        if self._changed:
            self._settle_changed()
        if self._dirty and not self._state.restarting:
            self._dirty = False
            if self._state.policy.preemptive:
                self._reschedule()
            else:
                self._start_waiting()

    # Waiting

    def joined(self, job: Job) -> None:
        """Do nothing: jobs request no memory here, so nothing is learned of it."""

    def enqueue(self, job: Job) -> None:
        """Add a new job, last among its equals; with preemption, after the running jobs have been ordered."""
        self._newcomers.append(job)
        if self._free or self._state.policy.preemptive:
            self._dirty = True
        if not self._state.policy.preemptive:
            self._line_up()

    def withdraw(self, job: Job) -> None:
        """Take a waiting job out of the order."""
        if job in self._newcomers:
            self._newcomers.remove(job)
        self._drop(job)
        self._waiting.withdraw(job)

    def changed(self, job: Job) -> None:
        """Let the next pass look at the jobs anew."""
        self._dirty = True

    def pause_changed(self, job: Job) -> None:
        """Stop a job that was paused, or let it wait again."""
        if job.paused:
            self._drop(job)
            self._waiting.withdraw(job)
            if job.devices and not job.leaving:
                job.leaving = True
                self._state.emit(PreemptJob(job.id))
        elif job.phase is not JobPhase.STOPPING:  # a job that is being stopped ends without devices
            job.order = self._waiting.behind(self._key(job), 1 if self._state.policy.requeue else 0)
            self._waiting.wait(job)
        self._dirty = True

    def _line_up(self) -> None:
        """Move queued newcomers to the jobs that wait."""
        for job in self._newcomers:
            if job.phase is JobPhase.QUEUED:
                job.order = self._waiting.behind(self._key(job), 1 if self._state.policy.requeue else 0)
                self._waiting.wait(job)
        self._newcomers.clear()

    def _key(self, job: Job) -> Key:
        policy, view = self._state.policy, lazy_view(self._state)
        ask = policy.turn_key if policy.preemptive else policy.admission_key
        return ask(view, job_view(self._state, job))

    # The pass without preemption

    def _start_waiting(self) -> None:
        backfill = self._state.backfill
        self._serve()
        while self._free and not self._to_serve:  # devices left after a change of policy go to `_to_serve`
            best = self._waiting.best(len(self._free) if backfill else len(self._names))
            if best is None or best[1].spec.gang > len(self._free):
                return
            job = best[1]
            self._run(job)
            if job.devices:
                self._to_serve.append(job)  # it has not left its former devices yet
            else:
                self._allocate(job)

    # The pass with preemption

    def _reschedule(self) -> None:
        room = len(self._names) - sum(job.spec.gang for job in self._stopping.values())
        wanted = self._waiting.wanted + sum(job.spec.gang for job in self._newcomers)
        if self._taken + wanted <= room:  # no running job makes way
            self._skipped_us = self._state.now
            self._line_up()
            self._compare([], room - self._taken)
        elif self._newcomers or self._waiting.best(room) is not None:  # otherwise the running jobs go on
            running = self._in_order()
            self._line_up()
            self._compare(running, room)
        if self._state.policy.requeue:
            self._reorder_queues()

    def _run(self, job: Job) -> None:
        """Take a job from those that wait: it is to get its devices."""
        self._waiting.take(job)
        self._running[job.id] = job
        self._taken += job.spec.gang

    def _compare(self, running: list[Job], room: int) -> None:
        """Choose the first jobs that fit into ``room`` devices, running or not; preempt the other running ones."""
        chosen: list[Job] = []
        losers: list[Job] = []
        place = 0
        best = self._waiting.best(room)
        while True:
            if best is not None and best[1].spec.gang > room:  # less room: otherwise the first that fits stays it
                best = self._waiting.best(room)
            present = running[place] if place < len(running) else None
            if present is not None and (best is None or present.order < best[0]):
                place += 1
                if present.spec.gang <= room:
                    room -= present.spec.gang
                else:
                    losers.append(present)
            elif best is not None:
                job = best[1]
                self._run(job)
                chosen.append(job)
                room -= job.spec.gang
                best = self._waiting.best(room)
            else:
                break
        self._preempt(losers)
        self._to_serve += chosen
        self._serve()

    def _reorder_queues(self) -> None:
        """Put running jobs first in their queues: those that ran before, then those that have joined, in order."""
        for job in sorted((job for job in self._running.values() if job.order[1]), key=_order):
            job.order = self._waiting.behind(job.order[0], 0)

    def _in_order(self) -> list[Job]:
        """Return the running jobs in order, with their keys as they are now; equal ones keep the order they had."""
        if self._state.policy.requeue:  # their keys change at known moments only, see `_settle_changed`
            return sorted(self._running.values(), key=_order)
        running = self._running.values()
        before = [job.order[0] for job in running] if self._skipped_us is None else self._keys_at(self._skipped_us)
        self._skipped_us = None
        now = ((self._key(job), key, *job.order[1:], job) for job, key in zip(running, before, strict=True))
        grown: list[tuple[Job, Key]] = []
        for key, *_, job in sorted(now):
            if key < job.order[0]:
                job.order = self._waiting.behind(key, 0)
            elif key > job.order[0]:
                grown.append((job, key))
        for job, key in reversed(grown):
            job.order = self._waiting.before(key, 0)
        return sorted(self._running.values(), key=_order)

    def _keys_at(self, when: Micros) -> list[Key]:
        """Return the keys of the running jobs as they were when a pass left them as they were."""
        state = self._state
        now, state.now = state.now, when
        keys = [self._key(job) for job in self._running.values()]
        state.now = now
        return keys

    def _preempt(self, losers: list[Job]) -> None:
        """Preempt ``losers``; in queues they become the first that wait, in the order in which they ran."""
        for job in reversed(losers):
            if self._state.policy.requeue and not job.order[1]:
                job.order = self._waiting.before(job.order[0], 1)
            self._waiting.wait(job)
        for job in losers:
            if not self._drop(job):
                job.leaving = True
                self._state.emit(PreemptJob(job.id))

    def _settle_changed(self) -> None:
        """Update the places of running jobs whose order may have changed, and request a scheduling pass."""
        for job in sorted((self._state.jobs[number] for number in self._changed), key=lambda job: job.arrival):
            if self._state.policy.requeue and (key := self._key(job)) != job.order[0]:
                job.order = self._waiting.behind(key, 1)
            self._dirty = True
            self._plan_change(job)
        self._changed.clear()

    # Devices are given, and taken back

    def _serve(self) -> None:
        """Give free devices to jobs that were chosen and have none."""
        for job in tuple(self._to_serve):
            if not job.devices and job.spec.gang <= len(self._free):
                self._to_serve.remove(job)
                self._allocate(job)

    def _allocate(self, job: Job) -> None:
        """Give the job the first free devices; a job that starts for the first time gets a process."""
        places = [heapq.heappop(self._free) for _ in range(job.spec.gang)]
        # The time to restore the job does not count as service: the cost is known from its last preemption.
        computes_us = self._state.now + job.usage.switch_cost_us
        devices = tuple(self._names[place] for place in places)
        if job.phase is JobPhase.QUEUED:
            job.set(devices=devices, devices_us=computes_us, phase=JobPhase.STARTING, started_us=self._state.now)
        else:
            job.set(devices=devices, devices_us=computes_us)
        self._state.emit(AllocateDevices(job.id, devices))
        self._plan_change(job)

    def _plan_change(self, job: Job) -> None:
        state, policy = self._state, self._state.policy
        if not policy.preemptive:
            return
        after = policy.next_change(lazy_view(state), job_view(state, job))
        if after is not None:
            state.timers.set((NEXT_CHANGE, job.id), max(state.now, job.devices_us or 0) + max(after, 1))

    def _preempted(self, job: Job, event: Preempted) -> None:
        """Free the devices that a preempted job has left."""
        total = attained(self._state, job)
        account(self._state, job, event.usage)
        reconcile_time(self._state, job, total)
        self._take_back(job)
        if job.id not in self._running and not self._state.policy.requeue:
            self._reconsider(job)
        self._serve()
        if self._free and self._waiting.may_wait():
            self._dirty = True

    def _reconsider(self, job: Job) -> None:
        """Correct the place of a job that has computed more, or less, than was known when it was asked to leave."""
        key = self._key(job)
        if key != job.order[0] and job.phase in ALIVE and not job.paused:
            job.order = (key, *job.order[1:])
            self._waiting.wait(job)

    def leave(self, job: Job) -> None:
        """Take back the devices of a job that has ended."""
        self._stopping.pop(job.id, None)
        self._waiting.forget(job.id)
        self._drop(job)
        self._take_back(job)
        if self._waiting.may_wait():
            self._dirty = True
        if self._to_serve:
            self._serve()

    def stop(self, job: Job) -> None:
        """Note that a cancelled job still has its devices."""
        self._waiting.forget(job.id)
        self._drop(job)
        if job.devices and not job.leaving:
            self._stopping[job.id] = job
        self._dirty = True

    def _drop(self, job: Job) -> bool:
        """Remove the job from those chosen; return whether it was still waiting for its devices."""
        if self._running.pop(job.id, None) is not None:
            self._taken -= job.spec.gang
        self._state.timers.cancel((NEXT_CHANGE, job.id))
        waited = job in self._to_serve
        if waited:
            self._to_serve.remove(job)
        return waited

    def _take_back(self, job: Job) -> None:
        """Free the devices of the job, if it has any."""
        if job.devices:
            for name in job.devices:
                heapq.heappush(self._free, self._places[name])
            job.set(devices=(), devices_us=None, leaving=False)

    def check(self) -> None:
        """Check that each device is free or held by one job, and that each unfinished job runs, waits or leaves."""
        held = [self._places[name] for job in self._state.jobs.values() for name in job.devices]
        if sorted([*held, *self._free]) != list(range(len(self._names))):
            raise InvariantError(
                f"devices {sorted(held)} are held and {sorted(self._free)} free, of {len(self._names)}"
            )
        if self._taken != sum(job.spec.gang for job in self._running.values()):
            raise InvariantError(f"{self._taken} devices are counted as taken by {sorted(self._running)}")
        self._waiting.check()
        entries = self._waiting.entries()
        for job in self._state.jobs.values():
            self._check_job(job, (job.order, job.id) in entries or job in self._newcomers)

    def _check_job(self, job: Job, listed: bool) -> None:
        """Check one job; ``listed``: whether it is in a heap or among the newcomers."""
        runs, served = job.id in self._running, job not in self._to_serve
        require(len(job.devices) in (0, job.spec.gang), "some of its devices only", job)
        require(not runs or bool(job.devices) == served or job.leaving, "chosen, without devices", job)
        require(not job.leaving or bool(job.devices), "leaving, without devices", job)
        ended = job.phase is JobPhase.ENDED
        require(not ended or not (runs or job.devices), "ended, but on devices", job)
        waits = not (runs or ended or job.held_back or job.phase is JobPhase.STOPPING)
        require(not waits or listed, "neither runs nor waits", job)


def _order(job: Job) -> Order:
    return job.order


def _nothing(job: Job, event: Event) -> None:
    pass


ALLOCATORS: dict[Allocation, Callable[[State], Allocator]] = {
    Allocation.LANES: LaneAllocator,
    Allocation.DEVICES: WholeDeviceAllocator,
}


def machine_for(settings: Settings, *, records: bool = True) -> Machine:
    """Return a core that gives devices as the settings say: in lanes, or whole.  ``records``: see `Machine`."""
    return Machine(settings, ALLOCATORS[settings.allocation], records=records)
