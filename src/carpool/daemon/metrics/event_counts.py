"""Counters and histograms of what the core is told and what it decides.

Times are those of the core's clock: no time that a job writes into its seat counts as longer than the job's turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from carpool.core import commands, events
from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import JobId, MemoryClass, Micros, Outcome, Usage

#: Upper bounds in seconds: of a switch from one job to the next, and of waiting.
SWITCH_S = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)
WAIT_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)


class EventCounts:
    """Counts events and commands.  ``device_of``: the device of a job at present; empty for a job on no device."""

    def __init__(self, registry: CollectorRegistry, device_of: Callable[[JobId], str]) -> None:
        self._device_of = device_of
        self._restarting = False
        self._wanted: dict[JobId, Micros] = {}
        self._asked: dict[tuple[JobId, MemoryClass], Micros] = {}
        self._turn_from: dict[JobId, Micros] = {}
        self._counters(registry)
        self._histograms(registry)
        self._handlers: dict[type, Callable[[Micros, Any], None]] = {
            events.RestartBegan: self._restart_began,
            events.RestartEnded: self._restart_ended,
            events.Submitted: self._submitted,
            events.Adopted: self._adopted,
            events.Detached: self._gone,
            events.TurnWanted: self._turn_wanted,
            events.TurnPaused: self._turn_paused,
            events.TurnReleased: self._turn_released,
            events.TurnPassed: self._turn_passed,
            events.MemoryRequested: self._memory_requested,
            events.RequestWithdrawn: self._request_withdrawn,
            events.Offloaded: self._offloaded,
            events.OffloadFailed: self._offload_failed,
            events.PolicyTimedOut: self._policy_timed_out,
            commands.GrantTurn: self._turn_granted,
            commands.GrantMemory: self._memory_granted,
            commands.DenyMemory: self._memory_denied,
            commands.RetryJob: self._retried,
            commands.EndJob: self._ended,
        }

    def _counters(self, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"carpool_{name}", about, labels, registry=registry)

        self._submissions = counter("jobs_submitted", "Jobs accepted.")
        self._ends = counter("jobs_ended", "Jobs that have ended, by how.", "outcome")
        for outcome in Outcome:
            self._ends.labels(outcome.value)
        self._retries = counter("job_retries", "Attempts after which the job is started again, by why.", "why")
        for why in ("memory", "other"):
            self._retries.labels(why)
        self._turns = counter("turns", "Turns that have ended, by why.", "device", "cause")
        self._turn_seconds = counter("turn_seconds", "Time in which lanes had a holder.", "device")
        self._moves = counter("offloads", "Moves of a job's memory to the host store.", "device", "result")
        self._answers = counter("memory_requests", "Answered requests for device memory.", "device", "answer")
        self._timeouts = counter("policy_timeouts", "Policies that have not answered in time.", "sort")

    def _histograms(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, about: str, bounds: tuple[float, ...]) -> Histogram:
            return Histogram(f"carpool_{name}", about, ("device",), buckets=bounds, registry=registry)

        self._handovers = histogram("turn_handover_seconds", "What a switch costs the job that gives way.", SWITCH_S)
        self._waits = histogram("turn_wait_seconds", "From a job's wish for a turn to the turn.", WAIT_S)
        self._memory_waits = histogram("memory_wait_seconds", "From a request for memory to its grant.", WAIT_S)

    def happened(self, now_us: Micros, happened: Event | Command) -> None:
        """Count an event or command; they arrive in order, each event before the commands that it has led to."""
        handler = self._handlers.get(type(happened))
        if handler is not None:
            handler(now_us, happened)

    # The daemon's own life

    def _restart_began(self, now_us: Micros, event: events.RestartBegan) -> None:
        self._restarting = True

    def _restart_ended(self, now_us: Micros, event: events.RestartEnded) -> None:
        self._restarting = False

    def _policy_timed_out(self, now_us: Micros, event: events.PolicyTimedOut) -> None:
        self._timeouts.labels(event.sort).inc()

    # Jobs

    def _submitted(self, now_us: Micros, event: events.Submitted) -> None:
        if not self._restarting:
            self._submissions.inc()

    def _adopted(self, now_us: Micros, event: events.Adopted) -> None:
        if event.holds_turn and not event.paused:
            self._turn_from[event.job] = now_us

    def _retried(self, now_us: Micros, command: commands.RetryJob) -> None:
        self._retries.labels("memory" if command.past.out_of_memory else "other").inc()
        self._gone(now_us, command)

    def _ended(self, now_us: Micros, command: commands.EndJob) -> None:
        self._ends.labels(command.outcome.value).inc()
        self._gone(now_us, command)

    def _gone(self, now_us: Micros, about: events.Detached | commands.RetryJob | commands.EndJob) -> None:
        self._turn_ends(now_us, about.job)
        self._wanted.pop(about.job, None)
        for kind in MemoryClass:
            self._asked.pop((about.job, kind), None)

    # Turns

    def _turn_wanted(self, now_us: Micros, event: events.TurnWanted) -> None:
        self._wanted.setdefault(event.job, now_us)

    def _turn_granted(self, now_us: Micros, command: commands.GrantTurn) -> None:
        self._turn_begins(now_us, command.job)

    def _turn_released(self, now_us: Micros, event: events.TurnReleased) -> None:
        self._turn_over(now_us, event.job, event.cause.value, event.usage)

    def _turn_passed(self, now_us: Micros, event: events.TurnPassed) -> None:
        self._turn_over(now_us, event.job, event.cause.value, event.usage)
        self._turn_begins(now_us, event.to)

    def _turn_paused(self, now_us: Micros, event: events.TurnPaused) -> None:
        self._turn_ends(now_us, event.job)

    def _turn_begins(self, now_us: Micros, job: JobId) -> None:
        self._turn_from[job] = now_us
        since = self._wanted.pop(job, None)
        if since is not None:
            self._waits.labels(self._device_of(job)).observe((now_us - since) / 1e6)

    def _turn_over(self, now_us: Micros, job: JobId, cause: str, usage: Usage) -> None:
        device = self._device_of(job)
        self._turns.labels(device, cause).inc()
        lasted = self._turn_ends(now_us, job)
        if usage.switch_cost_us:
            self._handovers.labels(device).observe(min(usage.switch_cost_us, lasted) / 1e6)

    def _turn_ends(self, now_us: Micros, job: JobId) -> Micros:
        """Return how long the turn lasted, 0 if its beginning is not known, and count that time."""
        since = self._turn_from.pop(job, None)
        if since is None:
            return 0
        self._turn_seconds.labels(self._device_of(job)).inc((now_us - since) / 1e6)
        return now_us - since

    # Memory

    def _memory_requested(self, now_us: Micros, event: events.MemoryRequested) -> None:
        self._asked[event.job, event.memory_class] = now_us

    def _request_withdrawn(self, now_us: Micros, event: events.RequestWithdrawn) -> None:
        self._asked.pop((event.job, event.memory_class), None)

    def _memory_granted(self, now_us: Micros, command: commands.GrantMemory) -> None:
        if command.answers is None:
            return
        device, since = self._device_of(command.job), self._asked.pop((command.job, command.answers), now_us)
        self._answers.labels(device, "granted").inc()
        self._memory_waits.labels(device).observe((now_us - since) / 1e6)

    def _memory_denied(self, now_us: Micros, command: commands.DenyMemory) -> None:
        self._asked.pop((command.job, command.memory_class), None)
        self._answers.labels(self._device_of(command.job), "denied").inc()

    def _offloaded(self, now_us: Micros, event: events.Offloaded) -> None:
        self._moves.labels(self._device_of(event.job), "moved").inc()

    def _offload_failed(self, now_us: Micros, event: events.OffloadFailed) -> None:
        self._moves.labels(self._device_of(event.job), "failed").inc()
