"""The interface of an allocator of devices: everything in which lanes and whole devices differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from carpool.core.commands import Placement
from carpool.core.events import Event
from carpool.core.model import Attempt, Micros, Reason
from carpool.core.state.device import Device
from carpool.core.state.job import Job

#: Handlers of events about a job, by the type of the event.
JobHandlers = Mapping[type, Callable[[Job, Any], None]]


class Allocator(Protocol):
    """Gives devices to the jobs of one `State`, and takes them back.

    The machine calls `settle` after every event, when the event has been recorded; the other methods only record.
    """

    def handlers(self) -> JobHandlers:
        """Return the handler of each type of event about jobs on their devices."""

    def device_added(self, device: Device) -> None:
        """Record a new device, which is in ``state.devices`` already."""

    def device_changed(self, device: Device) -> None:
        """Record that the device's time quantum, or whether it may be oversubscribed, has changed."""

    def drain_changed(self, device: Device) -> None:
        """Record that the device was drained, or gets new jobs again.

        Raises ValueError where devices cannot be drained.
        """

    def usable_changed(self, device: Device, more: bool) -> None:
        """Record that jobs can have ``more`` of the device's memory together than before, or less."""

    def settings_changed(self) -> None:
        """Apply new settings, a new policy or a new placement policy."""

    def impossible(self, job: Job) -> Reason | None:
        """Return why a new job could never run; None: it could."""

    def impossible_again(self, job: Job) -> Reason | None:
        """Return why an accepted job that is queued once more could never run, as settings are now; None: it could."""

    def no_more_memory(self, job: Job, past: Attempt) -> str | None:
        """Return why no attempt could give more memory to a job that ran out of it in ``past``; None: one could."""

    def joined(self, job: Job) -> None:
        """Record a new job, before it is checked or queued."""

    def enqueue(self, job: Job) -> None:
        """Let a job wait for devices: it may have them from now on."""

    def withdraw(self, job: Job) -> None:
        """Stop the wait of a queued job that may have no devices for now; the job keeps its age."""

    def changed(self, job: Job) -> None:
        """Record that a job on its devices has another weight, or another expected length."""

    def pause_changed(self, job: Job) -> None:
        """Record that a job on its devices has been paused or resumed (`Job.paused`)."""

    def stop(self, job: Job) -> None:
        """Give nothing more to a job that is being stopped; the job keeps what it has until it has ended."""

    def leave(self, job: Job) -> None:
        """Take back all that the job holds and waits for: it has ended, or its attempt has (``job.phase`` says)."""

    def explain(self, job: Job) -> Reason | None:
        """Return why a job that waits for no other job's end does not compute now; None: nothing stands in its way."""

    def evaluate(self, job: Job) -> Placement | None:
        """Return the ranking of the devices for a queued job; None: this allocator does not compare devices."""

    def due(self, kind: str, subject: Any) -> None:
        """Handle the allocator's timer ``kind`` about ``subject``, which is due."""

    def next_timer(self) -> Micros | None:
        """Return the time of the next `Tick`; None: nothing is planned."""

    def settle(self, event: Event) -> None:
        """Decide everything that follows from what has been recorded."""

    def check(self) -> None:
        """Raise InvariantError if what the allocator knows contradicts itself."""
