"""The machine: one event in, commands out.  The only public face of the core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from carpool.core import events
from carpool.core.allocators import whole_devices
from carpool.core.commands import Command
from carpool.core.decision import Placement
from carpool.core.errors import IllegalTransition
from carpool.core.events import Event
from carpool.core.lifecycle import adoption, lifecycle
from carpool.core.lifecycle.explain import explain
from carpool.core.lifecycle.invariants import check
from carpool.core.lifecycle.legality import illegal, subject
from carpool.core.memory import exclusive, grants, preemption, requests, residency, suspension, waiters
from carpool.core.metering import co_runners, transfer_cost
from carpool.core.metering.usage import account
from carpool.core.metering.views import full_view
from carpool.core.model import Cause, DeviceId, JobId, JobPhase, LaneId, Micros, Reason, Settings
from carpool.core.placement import queue, reservations
from carpool.core.placement.decision_record import evaluate
from carpool.core.policies.view import View
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.settings_check import check_quantum, check_settings
from carpool.core.state.state import State
from carpool.core.turns import turns, weights, yielding


class Machine:
    """A state machine without input, output, clock or thread.

    A driver calls `handle` with every event, carries out the commands in order, and sends `Tick` when `next_timer` is
    due.  ``now`` is in microseconds on any axis that does not go back.
    """

    def __init__(self, settings: Settings) -> None:
        """Raises ValueError for impossible settings."""
        self._state = State(settings, *check_settings(settings))
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.DeviceAdded: self._device_added,
            events.DeviceChanged: self._device_changed,
            events.ForeignMemory: self._foreign_memory,
            events.DeviceLoad: self._device_load,
            events.PaceKnown: self._pace_known,
            events.WeightsFound: lambda event: adoption.weights_found(self._state, event),
            events.SettingsChanged: self._settings_changed,
            events.Submitted: self._submitted,
            events.RestartBegan: self._restart_began,
            events.RestartEnded: self._restart_ended,
            events.Tick: self._tick,
        }
        self._job_handlers: dict[type, Callable[[Job, Any], None]] = {
            events.CancelRequested: lambda job, event: lifecycle.cancel(self._state, job),
            events.ProcessStarted: lambda job, event: lifecycle.process_started(self._state, job),
            events.StartFailed: lambda job, event: lifecycle.start_failed(self._state, job, event.text),
            events.ProcessExited: lambda job, event: lifecycle.exited(self._state, job, event),
            events.Attached: lambda job, event: lifecycle.attached(self._state, job),
            events.Detached: lambda job, event: lifecycle.detached(self._state, job, event),
            events.TurnWanted: lambda job, event: turns.want(self._state, job, event.urgent, event.demand),
            events.TurnPaused: self._turn_paused,
            events.TurnReleased: self._turn_released,
            events.TurnPassed: self._turn_passed,
            events.MemoryRequested: self._memory_requested,
            events.RequestWithdrawn: lambda job, event: requests.withdrawn(self._state, job, event.memory_class),
            events.MemoryReturned: lambda job, event: grants.returned(
                self._state, job, event.memory_class, event.total
            ),
            events.Preempted: lambda job, event: whole_devices.preempted(self._state, job, event.usage),
            events.Offloaded: lambda job, event: residency.offloaded(self._state, job),
            events.OffloadFailed: lambda job, event: residency.offload_failed(self._state, job),
            events.Sampled: lambda job, event: self._account(job, event.usage),
            events.TraitsSeen: lambda job, event: exclusive.seen(self._state, job, event),
            events.Adopted: lambda job, event: adoption.adopt(self._state, job, event),
        }

    def handle(self, event: Event, now: Micros) -> list[Command]:
        """What to do about ``event``.

        Raises IllegalTransition for an event that cannot happen in the present state and ValueError for values that
        make no sense; then nothing has changed.
        """
        state = self._state
        if now < state.now:
            raise ValueError(f"time went back from {state.now} to {now}")
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
        self._settle()
        commands, state.commands = state.commands, []
        return commands

    def next_timer(self) -> Micros | None:
        """When a `Tick` is due, after everything else that happens at that moment; None: nothing is planned."""
        pool = self._state.whole
        if pool is not None and pool.dirty and not self._state.restarting:
            return self._state.now
        return self._state.timers.next()

    def view(self) -> View:
        """A complete snapshot; it does not change any more."""
        return full_view(self._state)

    def explain(self, job: JobId) -> Reason | None:
        """Why a job waits, or how it ended; None if nothing stands in its way.

        Raises KeyError for jobs that are unknown, or ended long ago.
        """
        return explain(self._state, self._state.jobs[job])

    def placement(self, job: JobId) -> Placement | None:
        """How the devices look to a queued job at this moment; None for others (`StartJob` has told for those).

        Raises KeyError for jobs that are unknown, or ended long ago.
        """
        found = self._state.jobs[job]
        if found.phase is not JobPhase.QUEUED or self._state.whole is not None:
            return None
        return evaluate(self._state, found)

    def paces(self) -> Iterator[events.PaceKnown]:
        """What has been measured of who slows whom, for a later core; what was measured last comes first."""
        for pair, pace in self._state.paces.rows():
            yield events.PaceKnown(*pair, pace.total_us, pace.iterations, pace.measured_us)

    @property
    def policy_fault(self) -> str | None:
        """What a policy of one's own did wrong first, for people; it was ignored.  None: nothing."""
        return getattr(self._state.policy, "fault", None)

    @property
    def placement_fault(self) -> str | None:
        """The same of a placement policy."""
        return getattr(self._state.placement, "fault", None)

    def check(self) -> None:
        """Raises InvariantError if the core contradicts itself."""
        check(self._state)

    # Handlers

    def _device_added(self, event: events.DeviceAdded) -> None:
        if event.device.capacity < 0 or (event.device.max_lanes is not None and event.device.max_lanes < 1):
            raise ValueError(f"{event.device}: capacity must not be negative, and max_lanes at least 1")
        if event.device.id in self._state.devices:
            raise ValueError(f"there is a device {event.device.id!r} already")
        check_quantum(event.device.quantum_us)
        self._state.devices[event.device.id] = Device(event.device, position=len(self._state.devices))
        self._state.settle_quanta()
        self._state.admit_all = True
        if self._state.whole is not None:
            whole_devices.add_device(self._state, event.device.id)

    def _device(self, name: DeviceId) -> Device:
        device = self._state.devices.get(name)
        if device is None:
            raise ValueError(f"there is no device {name!r}; devices: {', '.join(sorted(self._state.devices))}")
        return device

    def _device_changed(self, event: events.DeviceChanged) -> None:
        state, device = self._state, self._device(event.device)
        check_quantum(event.quantum_us)
        device.spec = replace(device.spec, quantum_us=event.quantum_us, oversubscribe=event.oversubscribe)
        state.settle_quanta()
        if state.whole is None:
            turns.reorder(state)
            state.touch_device(event.device)
            state.admit_all = True

    def _foreign_memory(self, event: events.ForeignMemory) -> None:
        device = self._device(event.device)
        if event.size < 0:
            raise ValueError(f"{event}: the size must not be negative")
        less, device.foreign = event.size < device.foreign, event.size
        if self._state.whole is not None:
            return
        if less:
            grants.freed(self._state, device)
        else:
            weights.give_way(self._state, device)
            reservations.review(self._state)

    def _device_load(self, event: events.DeviceLoad) -> None:
        device = self._device(event.device)
        device.load, device.unmeasured_why = event.load, event.why
        device.answered |= event.load is not None
        device.measured = device.answered or bool(event.why)
        if self._state.settings.placement_strict:  # otherwise it only says where to go first
            self._state.admit_all = True

    def _pace_known(self, event: events.PaceKnown) -> None:
        if not event.kind or event.total_us < 0 or event.iterations < 0:
            raise ValueError(f"{event}: a kind is needed, and time and iterations of at least 0")
        pair = (event.model, event.kind, event.beside)
        self._state.paces.known(pair, event.total_us, event.iterations, min(event.measured_us, self._state.now))
        self._state.admit_all = True

    def _settings_changed(self, event: events.SettingsChanged) -> None:
        state = self._state
        policy, placement = check_settings(event.settings)
        if event.settings.allocation is not state.settings.allocation:
            raise ValueError(f"allocation is {state.settings.allocation}; it cannot be changed while jobs are there")
        state.settings, state.policy, state.placement = event.settings, policy, placement
        state.settle_quanta()
        co_runners.reset(state)
        if state.whole is not None:
            whole_devices.reorder(state)
            return
        queue.reorder(state)
        turns.reorder(state)
        for name in state.devices:
            state.touch_device(name)  # the budget of the host store may be another

    def _submitted(self, event: events.Submitted) -> None:
        if event.job in self._state.jobs:
            raise illegal(self._state.jobs[event.job], event, "the job exists already")
        if event.job in self._state.forgotten:
            raise IllegalTransition(f"{event}: there has been a job {event.job}")
        if event.waited_us < 0:
            raise ValueError(f"waited_us is {event.waited_us}; nothing is submitted in the future")
        lifecycle.check_spec(event.spec)
        lifecycle.submit(self._state, event).history.append((self._state.now, event))

    def _restart_began(self, event: events.RestartBegan) -> None:
        self._state.restarting = True

    def _restart_ended(self, event: events.RestartEnded) -> None:
        if not self._state.restarting:
            raise IllegalTransition("RestartEnded without RestartBegan")
        adoption.finish(self._state)

    def _account(self, job: Job, usage: Any) -> None:
        device = self._state.device_of(job)
        if device is not None and (usage.out_bytes or usage.in_bytes):
            transfer_cost.observe(device.moved, job.usage, usage)
        if job.stretch is not None:
            co_runners.observe(self._state, job, job.stretch, usage)
        account(self._state, job, usage)
        if not job.measured and self._seen_enough(job):
            grants.measured(self._state, job)
        turns.rank(self._state, job)

    def _seen_enough(self, job: Job) -> bool:
        """A few iterations; or, for loops whose iterations nobody sees, device time without growth."""
        if job.usage.iterations >= self._state.settings.measured_after:
            return True
        quiet = job.attained_us - job.grew_at_us
        return job.touched and not job.pending and quiet >= self._state.settings.measured_quiet_us

    def _turn_released(self, job: Job, event: events.TurnReleased) -> None:
        if event.cause is not Cause.BOUNDARY:
            co_runners.cut_off(self._state, job)
        self._account(job, event.usage)
        lane = self._state.lanes[_lane_of(job)]
        if event.cause is Cause.EARLY:
            turns.note_pause(self._state, lane, job)
        turns.released(self._state, job)
        suspension.left(self._state, job)

    def _turn_passed(self, job: Job, event: events.TurnPassed) -> None:
        if event.cause is not Cause.BOUNDARY:
            co_runners.cut_off(self._state, job)
        self._account(job, event.usage)
        lane = self._state.lanes[_lane_of(job)]
        if event.cause is Cause.EARLY:
            turns.note_pause(self._state, lane, job)
        turns.passed(self._state, job, self._state.jobs.get(event.to))

    def _turn_paused(self, job: Job, event: events.TurnPaused) -> None:
        self._account(job, event.usage)
        preemption.paused(self._state, self._state.lanes[_lane_of(job)])

    def _memory_requested(self, job: Job, event: events.MemoryRequested) -> None:
        requests.requested(self._state, job, event.memory_class, event.total, event.optional)

    def _tick(self, event: events.Tick) -> None:
        state = self._state
        changed: list[JobId] = []
        while (key := state.timers.pop(state.now)) is not None:
            if key[0] == whole_devices.NEXT_CHANGE:
                changed.append(cast(JobId, key[1]))
            else:
                self._due(*key)
        if changed:
            whole_devices.changed(state, changed)
        if state.whole is not None:
            whole_devices.schedule(state)

    def _due(self, kind: str, subject: Any) -> None:
        state = self._state
        if kind == "yield":
            state.touch_lane(subject)
        elif kind == "forced":
            yielding.yield_ignored(state, state.lanes[subject])
        elif kind in ("stuck", "claims"):
            state.touch_device(subject)
        elif kind == "pause":
            state.touch_device(state.lanes[subject].device)
        elif kind == "warm":
            lifecycle.warm_timeout(state, state.jobs[subject])
        elif kind == "warmed":
            lifecycle.warmed(state, state.jobs[subject])
        elif kind == "kill":
            lifecycle.kill(state, state.jobs[subject])
        elif kind == "reserve":
            reservations.overdue(state, state.jobs[subject])

    # Consequences

    def _settle(self) -> None:
        """Memory first, because somebody may have to make room; then turns, then new jobs; until nothing follows."""
        state = self._state
        if state.restarting or state.whole is not None:
            return
        while True:
            if state.dirty_devices:
                name = min(state.dirty_devices)
                del state.dirty_devices[name]
                waiters.serve(state, state.devices[name])
            elif state.dirty_lanes:
                self._refresh_lanes()
            elif state.admit_all or state.newcomers:
                queue.admit(state)
            elif state.company_changed:
                co_runners.refresh(state)  # it may open a device to somebody
            else:
                return

    def _refresh_lanes(self) -> None:
        state = self._state
        while state.dirty_lanes:
            number = min(state.dirty_lanes)
            del state.dirty_lanes[number]
            if number in state.lanes:
                turns.refresh(state, state.lanes[number])


def _lane_of(job: Job) -> LaneId:
    assert job.lane is not None, "checked before the event was accepted"
    return job.lane
