"""The machine: one event in, commands out.  The only public face of the core."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from carpool.core import events
from carpool.core.allocators.base import Allocator
from carpool.core.allocators.lanes import LaneAllocator
from carpool.core.commands import Command, Placement
from carpool.core.events import Event, IllegalTransition
from carpool.core.lifecycle import adoption
from carpool.core.lifecycle.invariants import check
from carpool.core.lifecycle.legality import illegal, subject
from carpool.core.lifecycle.lifecycle import Lifecycle
from carpool.core.lifecycle.submissions import check_spec
from carpool.core.memory import contexts
from carpool.core.metering.views import full_view
from carpool.core.model import DeviceId, JobId, JobPhase, Micros, Reason, Settings
from carpool.core.placement.filters import host_memory
from carpool.core.policies.registry import Watched
from carpool.core.policies.view import View
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.settings_check import check_quantum, check_settings
from carpool.core.state.state import State
from carpool.core.state.use import InUse

#: The sorts of policies, as `PolicyTimedOut` names them.
_SORTS = ("policy", "placement")


class Machine:
    """A state machine without input, output, clock or thread.

    A driver calls `handle` with every event, carries out the commands in order, and sends `Tick` when `next_timer` is
    due.  ``now`` is in microseconds on any axis that does not go back.
    """

    def __init__(
        self, settings: Settings, allocator: Callable[[State], Allocator] = LaneAllocator, *, records: bool = True
    ) -> None:
        """Raise ValueError for impossible settings.

        ``allocator``: how devices are given to jobs.  ``records``: whether commands say on what placements are based.
        """
        self._state = State(settings, *check_settings(settings))
        self._state.records_placements = records
        self._guards = self._watched()
        self._allocator: Allocator = allocator(self._state)
        self._life = Lifecycle(self._state, self._allocator)
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.DeviceAdded: self._device_added,
            events.DeviceChanged: self._device_changed,
            events.DeviceDrained: self._device_drained,
            events.ForeignMemory: self._foreign_memory,
            events.DeviceLoad: self._device_load,
            events.HostMeasured: self._host_measured,
            events.PaceKnown: self._pace_known,
            events.UseKnown: self._use_known,
            events.WeightsFound: lambda event: adoption.weights_found(self._state, event),
            events.SettingsChanged: self._settings_changed,
            events.Submitted: self._submitted,
            events.RestartBegan: self._restart_began,
            events.RestartEnded: self._restart_ended,
            events.PolicyTimedOut: self._policy_timed_out,
            events.Tick: self._tick,
        }
        self._job_handlers: dict[type, Callable[[Job, Any], None]] = {
            events.CancelRequested: lambda job, event: self._life.cancel(job),
            events.HoldChanged: lambda job, event: self._life.hold(job, event.by),
            events.PauseChanged: lambda job, event: self._life.pause(job, event.by),
            events.JobChanged: self._life.change,
            events.RequeueRequested: self._life.requeue,
            events.ProcessStarted: lambda job, event: self._life.process_started(job),
            events.StartFailed: lambda job, event: self._life.start_failed(job, event.text),
            events.ProcessExited: lambda job, event: self._life.exited(job, event),
            events.Adopted: lambda job, event: adoption.adopt(self._state, job, event),
            **self._allocator.handlers(),
        }

    def handle(self, event: Event, now: Micros) -> list[Command]:
        """Handle ``event``, and return the commands that follow from it, in order.

        Raises IllegalTransition for an event that cannot happen in the present state and ValueError for values that
        make no sense; then nothing has changed.
        """
        state = self._state
        state.device_views = state.host.missing = None
        if now < state.now:
            raise ValueError(f"time went back from {state.now} to {now}")
        for guard in self._guards:
            guard.begin_event()
        general = self._handlers.get(type(event))
        if general is not None:
            state.now = now
            general(event)
        else:
            job = subject(state, event)
            state.now = now
            if job is None:
                return []
            job.history.append((now, event))
            if job.lane is not None:
                state.lanes[job.lane].history.append((now, event))
            self._job_handlers[type(event)](job, event)
            if job.spec.device_time_us is not None:
                self._life.look_at_limits(job)
        self._allocator.settle(event)
        commands, state.commands = state.commands, []
        return commands

    def next_timer(self) -> Micros | None:
        """Return the time of the next `Tick`, after all other events of that moment; None: nothing is planned."""
        return self._allocator.next_timer()

    def view(self) -> View:
        """Return a complete snapshot, which does not change any more."""
        self._look()
        return full_view(self._state)

    def explain(self, job: JobId) -> Reason | None:
        """Return why a job waits, or how it ended; None if nothing stands in its way.

        Raises KeyError for jobs that are unknown, or ended long ago.
        """
        self._look()
        return self._life.explain(self._state.jobs[job])

    def placement(self, job: JobId) -> Placement | None:
        """Return the ranking of the devices for a queued job now; None for other jobs (whose `StartJob` has told that).

        Raises KeyError for jobs that are unknown, or ended long ago.
        """
        found = self._state.jobs[job]
        return self._allocator.evaluate(found) if found.phase is JobPhase.QUEUED else None

    def paces(self) -> Iterator[events.PaceKnown]:
        """Yield what was measured of jobs that slow each other, for a later core; the latest measurement first."""
        for pair, pace in self._state.slowdowns.rows():
            yield events.PaceKnown(*pair, pace.total_us, pace.iterations, pace.measured_us)

    def uses(self) -> Iterator[events.UseKnown]:
        """Yield the device time of each user, as it counts now, for a later core."""
        state = self._state
        for owner in state.uses.users():
            yield events.UseKnown(owner, state.uses.of(owner, state.now), state.now)

    def weights_on_devices(self, owner: int, key: str) -> dict[DeviceId, int]:
        """Return the devices that hold these weights of a user now, each with the bytes of the weights."""
        found = ((name, device.weights.get((owner, key))) for name, device in self._state.devices.items())
        return {name: weights.size for name, weights in found if weights is not None and weights.resident}

    def in_use(self) -> InUse:
        """Return what users and groups have on devices now."""
        return self._state.in_use

    def timeouts(self) -> Iterator[events.PolicyTimedOut]:
        """Yield questions that policies have not answered in time since the last call, for the journal."""
        for sort, guard in zip(_SORTS, (self._state.policy, self._state.placement), strict=True):
            question = guard.take_timeout() if isinstance(guard, Watched) else None
            if question is not None:
                yield events.PolicyTimedOut(sort, question)

    @property
    def policy_fault(self) -> str | None:
        """The first fault of a user's own policy, for people; the answer was ignored.  None: no fault."""
        return getattr(self._state.policy, "fault", None)

    @property
    def placement_fault(self) -> str | None:
        """The first fault of a user's own placement policy, like `policy_fault`."""
        return getattr(self._state.placement, "fault", None)

    def usable(self, device: DeviceId) -> int:
        """Return the bytes that jobs can have together on the device at present."""
        return self._state.devices[device].usable

    def check(self) -> None:
        """Raise InvariantError if the core contradicts itself."""
        check(self._state)
        self._allocator.check()

    def _look(self) -> None:
        """Prepare what many answers need, once for all questions that come before the next event."""
        if self._state.device_views is None:
            self._state.device_views = {}

    def _watched(self) -> tuple[Watched[Any], ...]:
        """Return the policies that are not Carpool's own."""
        policies: tuple[object, ...] = (self._state.policy, self._state.placement)
        return tuple(policy for policy in policies if isinstance(policy, Watched))

    # Handlers

    def _device_added(self, event: events.DeviceAdded) -> None:
        if event.device.capacity < 0 or (event.device.max_lanes is not None and event.device.max_lanes < 1):
            raise ValueError(f"{event.device}: capacity must not be negative, and max_lanes at least 1")
        if event.device.id in self._state.devices:
            raise ValueError(f"there is a device {event.device.id!r} already")
        check_quantum(event.device.quantum_us)
        device = Device(event.device, position=len(self._state.devices), said=self._state.device_order.changed)
        self._state.devices[event.device.id] = device
        device.changed()
        self._state.has_contexts |= device.context > 0
        self._state.largest_capacity = max(self._state.largest_capacity, event.device.capacity)
        self._state.update_quantum(device)
        self._allocator.device_added(device)

    def _device(self, name: DeviceId) -> Device:
        device = self._state.devices.get(name)
        if device is None:
            raise ValueError(f"there is no device {name!r}; devices: {', '.join(sorted(self._state.devices))}")
        return device

    def _device_changed(self, event: events.DeviceChanged) -> None:
        state, device = self._state, self._device(event.device)
        check_quantum(event.quantum_us)
        if event.reserve < 0:
            raise ValueError(f"{event}: the reserve must not be negative")
        before = device.usable
        device.spec = replace(
            device.spec, quantum_us=event.quantum_us, oversubscribe=event.oversubscribe, reserve=event.reserve
        )
        state.update_quantum(device)
        self._allocator.device_changed(device)
        if device.usable != before:
            self._allocator.usable_changed(device, device.usable > before)

    def _device_drained(self, event: events.DeviceDrained) -> None:
        device = self._device(event.device)
        before, device.spec = device.spec, replace(device.spec, drained=event.why)
        if before.drained != event.why:
            self._allocator.drain_changed(device)

    def _foreign_memory(self, event: events.ForeignMemory) -> None:
        device = self._device(event.device)
        if min(event.size, event.others, event.spare) < 0:
            raise ValueError(f"{event}: the sizes must not be negative")
        before = device.usable
        contexts.measured(self._state, device, event)
        self._allocator.usable_changed(device, device.usable > before)

    def _device_load(self, event: events.DeviceLoad) -> None:
        device = self._device(event.device)
        device.load, device.unmeasured_why = event.load, event.why
        device.answered |= event.load is not None
        device.measured = device.answered or bool(event.why)
        if self._state.settings.placement_strict:  # otherwise the load only orders devices
            self._state.admit_all = True

    def _host_measured(self, event: events.HostMeasured) -> None:
        if event.cores < 1 or min(event.jobs.values(), default=0) < 0:
            raise ValueError(f"{event}: there is at least one processor, and no job has less than nothing")
        host_memory.measured(self._state, event)

    def _pace_known(self, event: events.PaceKnown) -> None:
        if not event.kind or event.total_us < 0 or event.iterations < 0:
            raise ValueError(f"{event}: a kind is needed, and time and iterations of at least 0")
        pair = (event.model, event.kind, event.beside)
        self._state.slowdowns.known(pair, event.total_us, event.iterations, min(event.measured_us, self._state.now))

    def _use_known(self, event: events.UseKnown) -> None:
        if event.used_us < 0:
            raise ValueError(f"{event}: used_us must not be negative")
        self._state.uses.charge(event.owner, event.used_us, min(event.at_us, self._state.now))

    def _settings_changed(self, event: events.SettingsChanged) -> None:
        state = self._state
        policy, placement = check_settings(event.settings)
        if event.settings.allocation is not state.settings.allocation:
            raise ValueError(f"allocation is {state.settings.allocation}; it cannot be changed while jobs are there")
        state.settings, state.policy, state.placement = event.settings, policy, placement
        self._guards = self._watched()
        state.uses.set_half_life(event.settings.use_half_life_us, state.now)
        state.update_quanta()
        self._allocator.settings_changed()

    def _submitted(self, event: events.Submitted) -> None:
        if event.job in self._state.jobs:
            raise illegal(self._state.jobs[event.job], event, "the job exists already")
        if event.job in self._state.pruned_ids:
            raise IllegalTransition(f"{event}: there has been a job {event.job}")
        if event.waited_us < 0 or event.pause_us < 0:
            raise ValueError(f"{event}: waited_us and pause_us must not be negative")
        check_spec(event.spec)
        self._life.submit(event).history.append((self._state.now, event))

    def _policy_timed_out(self, event: events.PolicyTimedOut) -> None:
        if event.sort not in _SORTS or event.question < 0:
            raise ValueError(f"{event}: a sort of policy is one of {', '.join(_SORTS)}, and questions count from 1")
        guard = dict(zip(_SORTS, (self._state.policy, self._state.placement), strict=True))[event.sort]
        if isinstance(guard, Watched):
            guard.time_out_at(event.question)

    def _restart_began(self, event: events.RestartBegan) -> None:
        self._state.restarting = True

    def _restart_ended(self, event: events.RestartEnded) -> None:
        if not self._state.restarting:
            raise IllegalTransition("RestartEnded without RestartBegan")
        adoption.finish(self._state)
        self._life.restarted()

    def _tick(self, event: events.Tick) -> None:
        state = self._state
        while (key := state.timers.pop(state.now)) is not None:
            kind, about = key
            if kind in self._life.timers:
                self._life.timers[kind](state.jobs[cast(JobId, about)])
            else:
                self._allocator.due(kind, about)


class Inbox:
    """Handles events one at a time: one posted meanwhile comes after the present one and all that it leads to."""

    def __init__(self, handle: Callable[[Event], None]) -> None:
        self._handle = handle
        self._waiting: deque[Event] = deque()
        self._busy = False

    def post(self, event: Event) -> bool:
        """Handle ``event`` now, and all that are posted meanwhile; False if it is left to a `post` under way."""
        self._waiting.append(event)
        if self._busy:
            return False
        self._busy = True
        try:
            while self._waiting:
                self._handle(self._waiting.popleft())
        finally:
            self._busy = False
        return True
