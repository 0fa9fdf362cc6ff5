"""Lanes: jobs of one owner take turns, and jobs of several lanes compute side by side.

Memory is granted first, because jobs may have to be evicted for it; then turns are given, then jobs are placed.  These
steps repeat until nothing changes any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from carpool.core import events
from carpool.core.allocators.base import JobHandlers
from carpool.core.allocators.detach import attached, detached, leave, never_came
from carpool.core.allocators.lane_reasons import explain
from carpool.core.commands import Placement
from carpool.core.memory import clearing, contexts, exclusive, grants, preemption, requests, residency, waiters
from carpool.core.metering import co_runners, warmup
from carpool.core.metering.usage import account, observe_moves
from carpool.core.model import Allocation, Attempt, Cause, JobPhase, LaneId, Micros, Reason, Usage
from carpool.core.placement import array_memory, needs, queue, reservations
from carpool.core.placement.candidates import evaluate
from carpool.core.placement.filters import host_memory
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.turns import order, turns, weights, yielding


class LaneAllocator:
    """Memory, turns and places of jobs that share devices."""

    def __init__(self, state: State) -> None:
        if state.settings.allocation is not Allocation.LANES:
            raise ValueError(f"lanes do not give {state.settings.allocation}; the simulator has the allocator for that")
        self._state = state
        self._timers: dict[str, Callable[[Any], None]] = {
            "yield": state.touch_lane,
            "forced": lambda lane: yielding.yield_ignored(state, state.lanes[lane]),
            "deadlock": state.touch_device,
            "retry": state.touch_device,
            "pause": lambda lane: state.touch_device(state.lanes[lane].device),
            "warm": lambda job: never_came(state, state.jobs[job]),
            "warmed": self._warmed,
            "recess": state.touch_device,
            "reserve": lambda job: reservations.overdue(state, state.jobs[job]),
        }

    def handlers(self) -> JobHandlers:
        """Return the handlers of events about jobs in lanes."""
        state = self._state
        return {
            events.Attached: lambda job, event: attached(state, job),
            events.Detached: lambda job, event: detached(state, job, event),
            events.TurnWanted: lambda job, event: turns.wants_itself(state, job, event.urgent, event.demand),
            events.ServiceBusy: lambda job, event: turns.busy_changed(state, job, event.busy),
            events.EngineServed: lambda job, event: turns.served_changed(job, event.served),
            events.TurnPaused: self._turn_paused,
            events.TurnReleased: self._turn_released,
            events.TurnPassed: self._turn_passed,
            events.MemoryRequested: self._memory_requested,
            events.RequestWithdrawn: lambda job, event: requests.withdrawn(state, job, event.memory_class),
            events.MemoryReturned: lambda job, event: grants.returned(state, job, event.memory_class, event.total),
            events.Offloaded: lambda job, event: residency.offloaded(state, job),
            events.OffloadFailed: lambda job, event: residency.offload_failed(state, job),
            events.Sampled: lambda job, event: self._account(job, event.usage),
            events.TraitsSeen: lambda job, event: exclusive.seen(state, job, event),
        }

    # Devices and settings

    def device_added(self, device: Device) -> None:
        """Let queued jobs try the new device."""
        self._state.admit_all = True

    def device_changed(self, device: Device) -> None:
        """Order the queues of lanes anew, and serve the device's waiters."""
        order.reorder(self._state)
        self._state.touch_device(device.spec.id)
        self._state.admit_all = True

    def drain_changed(self, device: Device) -> None:
        """Look at reservations again, and try queued jobs."""
        reservations.review(self._state)
        self._state.admit_all = True

    def usable_changed(self, device: Device, more: bool) -> None:
        """Use memory that has become free, or make room for others on the device."""
        if more:
            grants.freed(self._state, device)
        else:
            weights.give_way(self._state, device)
            reservations.review(self._state)
        if device.shortfall:
            self._state.touch_device(device.spec.id)

    def settings_changed(self) -> None:
        """Order all queues anew, and serve the waiters of all devices."""
        state = self._state
        queue.reorder(state)
        order.reorder(state)
        for name in state.devices:
            state.touch_device(name)  # the budget of the host store may have changed

    # Jobs that come and go

    def impossible(self, job: Job) -> Reason | None:
        """Return why no device could ever take the job; None: one could."""
        return needs.impossible(self._state, job)

    def impossible_again(self, job: Job) -> Reason | None:
        """Return the same of a job that is queued once more, as settings are now."""
        queue.trust(self._state, job)
        return needs.impossible(self._state, job)

    def no_more_memory(self, job: Job, past: Attempt) -> str | None:
        """Return why no device has more memory for another attempt; None: one has."""
        return needs.no_more_memory(self._state, job, past)

    def joined(self, job: Job) -> None:
        """Add the new job to its array."""
        array_memory.joined(self._state, job)

    def enqueue(self, job: Job) -> None:
        """Queue the job, with what its array has learned of its memory."""
        queue.enqueue(self._state, job)
        array_memory.believe(self._state, job)

    def withdraw(self, job: Job) -> None:
        """Take the job out of the queue; it keeps its age."""
        queue.withdraw(self._state, job)

    def changed(self, job: Job) -> None:
        """Rank the job anew in its lane's queue."""
        order.rank(self._state, job)
        self._state.touch_lane(job.lane)
        self._state.in_use.add(job)
        self._state.admit_all = True  # another job of its former group may be placed

    def pause_changed(self, job: Job) -> None:
        """Take a paused job's memory, or let a resumed one go on."""
        clearing.changed(self._state, job)

    def stop(self, job: Job) -> None:
        """Withdraw the job's requests for memory."""
        requests.give_up(self._state, job)

    def leave(self, job: Job) -> None:
        """Free all that the job had: its lane, its memory and its place in the queue."""
        if job.phase is JobPhase.ENDED:
            array_memory.learn(self._state, job)
            array_memory.ended(self._state, job)
        if job.device is None:
            queue.dequeue(self._state, job)
        else:
            leave(self._state, job, self._state.devices[job.device])
        self._state.timers.cancel(("warm", job.id))
        host_memory.over(self._state, job)

    def explain(self, job: Job) -> Reason | None:
        """Return why the job does not compute; None: nothing that the core knows stands in its way."""
        return explain(self._state, job)

    def evaluate(self, job: Job) -> Placement:
        """Return how the devices rate for a queued job."""
        return evaluate(self._state, job)

    # Turns and memory

    def _account(self, job: Job, usage: Usage) -> None:
        device = self._state.device_of(job)
        if device is not None and (usage.out_bytes or usage.in_bytes):
            observe_moves(device.moved, job.usage, usage)
        if job.window is not None:
            co_runners.observe(self._state, job, job.window, usage)
        account(self._state, job, usage)
        if not job.measured and self._seen_enough(job):
            grants.measured(self._state, job)
        if job.measured:
            array_memory.learn(self._state, job)
            if device is not None:
                contexts.known(self._state, device, job)
        order.rank(self._state, job)

    def _seen_enough(self, job: Job) -> bool:
        """Whether the job is measured: after a few iterations or, if none are seen, device time without growth."""
        if job.usage.iterations >= self._state.settings.measured_after:
            return True
        quiet = job.attained_us - job.grew_at_us
        return job.used_device and not job.pending and quiet >= self._state.settings.measured_quiet_us

    def _turn_released(self, job: Job, event: events.TurnReleased) -> None:
        self._turn_ends(job, event)
        turns.released(self._state, job)
        preemption.checkpoint_left(self._state, job)

    def _turn_passed(self, job: Job, event: events.TurnPassed) -> None:
        self._turn_ends(job, event)
        turns.passed(self._state, job, self._state.jobs.get(event.to))

    def _turn_ends(self, job: Job, event: events.TurnReleased | events.TurnPassed) -> None:
        """Record what the holder's seat says about the turn that has ended."""
        if event.cause is not Cause.BOUNDARY:
            co_runners.cut_off(self._state, job)
        self._account(job, event.usage)
        contexts.turn_over(self._state, job)
        if event.cause is Cause.EARLY:
            turns.note_pause(self._state, self._state.lanes[_lane_of(job)], job)

    def _turn_paused(self, job: Job, event: events.TurnPaused) -> None:
        self._account(job, event.usage)
        preemption.paused(self._state, self._state.lanes[_lane_of(job)])

    def _memory_requested(self, job: Job, event: events.MemoryRequested) -> None:
        requests.requested(self._state, job, event)

    # Time

    def due(self, kind: str, subject: Any) -> None:
        """Handle the timer of one kind about its subject."""
        self._timers[kind](subject)

    def next_timer(self) -> Micros | None:
        """Return when the next timer is due."""
        return self._state.timers.next()

    def _warmed(self, number: int) -> None:
        """End the warm-up of the job, whose window is over."""
        job = self._state.jobs[number]
        device = self._state.device_of(job)
        if device is not None:
            warmup.over(self._state, device, job)

    # Consequences

    def settle(self, event: events.Event) -> None:
        """Serve memory first, for which jobs may be evicted, then turns, then new jobs; until nothing changes."""
        state = self._state
        if state.restarting:
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
            elif state.co_runners_changed:
                co_runners.refresh(state)
            else:
                return

    def _refresh_lanes(self) -> None:
        state = self._state
        while state.dirty_lanes:
            number = min(state.dirty_lanes)
            del state.dirty_lanes[number]
            if number in state.lanes:
                turns.refresh(state, state.lanes[number])

    def check(self) -> None:
        """Check the queue, and what jobs for several devices have."""
        queue.check(self._state)


def _lane_of(job: Job) -> LaneId:
    assert job.lane is not None, "checked before the event was accepted"
    return job.lane
