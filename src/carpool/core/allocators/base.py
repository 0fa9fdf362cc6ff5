"""What an allocator of devices does for the machine: all in which lanes and whole devices differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from carpool.core.decision import Placement
from carpool.core.events import Event
from carpool.core.model import Attempt, Micros, Reason
from carpool.core.state.device import Device
from carpool.core.state.job import Job

#: What follows from an event about a job.
JobHandlers = Mapping[type, Callable[[Job, Any], None]]


class Allocator(Protocol):
    """Gives devices to the jobs of one `State`, and takes them back.

    `settle` is called after every event, when everything that the event says has been noted; the other methods note.
    """

    def handlers(self) -> JobHandlers:
        """The events about jobs on their devices, and what follows from each."""

    def device_added(self, device: Device) -> None:
        """A device has come; it is in ``state.devices`` already."""

    def device_changed(self, device: Device) -> None:
        """The device has another time quantum, or may be oversubscribed, or may not any more."""

    def drain_changed(self, device: Device) -> None:
        """The device gets no new jobs, or gets some again.  Raises ValueError where devices cannot be drained."""

    def usable_changed(self, device: Device, more: bool) -> None:
        """Jobs can have ``more`` of the device's memory together than before, or less."""

    def settings_changed(self) -> None:
        """The settings, the policy and the placement policy are others."""

    def impossible(self, job: Job) -> Reason | None:
        """Why a new job could never run; None: it could."""

    def impossible_again(self, job: Job) -> Reason | None:
        """The same of a job that is to be tried once more, whatever has changed since it was taken on."""

    def no_more_memory(self, job: Job, past: Attempt) -> str | None:
        """Why a job that ran out of memory in its attempt ``past`` would have no more of it in another one."""

    def joined(self, job: Job) -> None:
        """A new job: it has not been looked at yet."""

    def enqueue(self, job: Job) -> None:
        """The job may have devices from now on: it waits."""

    def withdraw(self, job: Job) -> None:
        """A queued job may have no devices for now: it does not wait for any, and keeps its age."""

    def changed(self, job: Job) -> None:
        """A job on its devices has another weight, or another length is expected of it."""

    def pause_changed(self, job: Job) -> None:
        """A job on its devices has been paused, or resumed (`Job.paused`)."""

    def stop(self, job: Job) -> None:
        """The job was cancelled: it keeps what it has until it has ended, and gets nothing more."""

    def leave(self, job: Job) -> None:
        """Take back all that the job holds and waits for: it has ended, or its attempt has (``job.phase`` says)."""

    def explain(self, job: Job) -> Reason | None:
        """Why a job does not compute now, though no other job's end is missing; None: nothing stands in its way."""

    def evaluate(self, job: Job) -> Placement | None:
        """How the devices look to a queued job; None: it is not placed by looking at them."""

    def due(self, kind: str, subject: Any) -> None:
        """One of the allocator's timers is due."""

    def next_timer(self) -> Micros | None:
        """When the next `Tick` is due; None: nothing is planned."""

    def settle(self, event: Event) -> None:
        """Decide everything that follows from what has been noted."""

    def check(self) -> None:
        """Raises InvariantError if what the allocator knows contradicts itself."""
