"""Scenarios as people write them: milliseconds, MiB, job numbers; every event is followed by a check of the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_lowercase
from typing import Any

from carpool.core import events
from carpool.core.commands import Command, Offload, StartJob
from carpool.core.model import (
    MIB,
    Cause,
    Demand,
    DeviceSpec,
    Estimate,
    JobPhase,
    JobSpec,
    Memory,
    MemoryClass,
    Oversubscribe,
    Settings,
    Usage,
)
from carpool.core.policies.view import JobView
from carpool.sim.whole_devices.allocator import machine_for

P, E = MemoryClass.PERSISTENT, MemoryClass.EPHEMERAL
EVERY_BOUNDARY = Settings(quantum_us=0, max_switch_share_ppm=1_000_000)
#: Moves cost nothing, so that only the order matters.
FREE = replace(EVERY_BOUNDARY, max_move_share_ppm=1_000_000)


class Scenario:
    def __init__(self, settings: Settings = EVERY_BOUNDARY) -> None:
        self.machine = machine_for(settings)
        self.ms = 0
        self.counters: dict[int, Usage] = {}

    def at(self, ms: int) -> Scenario:
        """Go to a time, serving the timers on the way; returns what they led to in ``self.last``."""
        self.last: list[Command] = []
        while (due := self.machine.next_timer()) is not None and due <= ms * 1000:
            self.last += self.machine.handle(events.Tick(), due)
            self.machine.check()
        self.ms = ms
        return self

    def exactly_at(self, ms: int) -> list[Command]:
        """Go to a time before which nothing happens; returns what happens then."""
        assert self.at(ms - 1).last == []
        return self.at(ms).last

    def send(self, event: events.Event) -> list[Command]:
        commands = self.machine.handle(event, self.ms * 1000)
        self.machine.check()
        return commands

    def device(
        self, name: str, mib: int, max_lanes: int | None = None, oversubscribe: Oversubscribe = Oversubscribe.OFF
    ) -> list[Command]:
        return self.send(events.DeviceAdded(DeviceSpec(name, mib * MIB, max_lanes, oversubscribe=oversubscribe)))

    def submit(self, job: int, owner: int = 0, **spec: Any) -> list[Command]:
        return self.send(events.Submitted(job, JobSpec(owner, **spec)))

    def submit_each(self, *jobs: int, **spec: Any) -> None:
        for job in jobs:
            self.submit(job, **spec)

    def began(self, job: int) -> None:
        """Its process runs and is attached."""
        self.send(events.ProcessStarted(job))
        self.send(events.Attached(job))

    def start(self, job: int, owner: int = 0, persistent: int = 0, ephemeral: int = 0, **spec: Any) -> list[Command]:
        """Submit, start and attach, and ask for so many MiB; returns the commands of the submission."""
        commands = self.submit(job, owner, **spec)
        self.began(job)
        for kind, mib in ((P, persistent), (E, ephemeral)):
            if mib:
                self.ask(job, kind, mib)
        return commands

    def start_and_want(self, job: int, owner: int = 0, **more: Any) -> list[Command]:
        """The same, and the job wants a turn; returns what follows from that."""
        self.start(job, owner, **more)
        return self.want(job)

    def start_each(self, *jobs: int, **more: Any) -> None:
        for job in jobs:
            self.start(job, **more)

    def want_each(self, *jobs: int) -> None:
        for job in jobs:
            self.want(job)

    def want(self, job: int, urgent: bool = False, demand: Demand | None = None) -> list[Command]:
        return self.send(events.TurnWanted(job, urgent, demand))

    def usage(self, job: int, device_ms: int = 0, iterations: int = 0, **more: int) -> Usage:
        """Add to a job's counters."""
        old = self.counters.get(job, Usage())
        self.counters[job] = Usage(
            iterations=old.iterations + iterations, device_us=old.device_us + device_ms * 1000, **more
        )
        return self.counters[job]

    def release(
        self, job: int, ms: int = 0, iterations: int = 1, cause: Cause = Cause.BOUNDARY, **more: int
    ) -> list[Command]:
        """The turn ends after ``ms`` milliseconds of device time and is given back."""
        return self.send(events.TurnReleased(job, cause, self.usage(job, ms, iterations, **more)))

    def pass_(self, job: int, to: int, ms: int = 0, iterations: int = 1) -> list[Command]:
        return self.send(events.TurnPassed(job, to, Cause.BOUNDARY, self.usage(job, ms, iterations)))

    def ask(
        self, job: int, kind: MemoryClass, mib: int, optional: bool = False, keeps_turn: bool = False
    ) -> list[Command]:
        return self.send(events.MemoryRequested(job, kind, mib * MIB, optional, keeps_turn))

    def leave(self, commands: Sequence[Command]) -> list[Command]:
        """Answer every `Offload` among the commands; returns all that follows."""
        following = list(commands)
        for command in following:
            if isinstance(command, Offload):
                following += self.send(events.Offloaded(command.job))
        return following

    def build(self, job: int, mib: int, owner: int = 0, **spec: Any) -> list[Command]:
        """Start a job that keeps ``mib`` of persistent memory; whoever has to leave for it does so at once."""
        self.start(job, owner, **spec)
        return self.leave(self.ask(job, P, mib))

    def build_each(self, *mib: int, rest_ms: int = 0, **spec: Any) -> None:
        """Start jobs 1, 2, ... one after the other; each rests for a while before the next one comes."""
        for job, size in enumerate(mib, 1):
            self.build(job, size, **spec)
            self.at(self.ms + rest_ms)

    def exit(self, job: int, code: int | None = 0, signal: int | None = None) -> list[Command]:
        return self.send(events.ProcessExited(job, code, signal))

    def job(self, number: int) -> JobView:
        return self.machine.view().jobs[number]

    def why(self, number: int) -> str:
        reason = self.machine.explain(number)
        return reason.text if reason else ""


def one_device(
    mib: int = 1000,
    settings: Settings = EVERY_BOUNDARY,
    *,
    max_lanes: int | None = None,
    oversubscribe: Oversubscribe = Oversubscribe.OFF,
    **changes: Any,
) -> Scenario:
    """One device ``host0``; ``changes`` are those of the settings."""
    made = Scenario(replace(settings, **changes))
    made.device("host0", mib, max_lanes, oversubscribe)
    return made


def several_devices(*mib: int, **changes: Any) -> Scenario:
    """Devices a, b, c ... of so many MiB, with many lanes on each; ``changes`` are those of the settings."""
    made = Scenario(replace(EVERY_BOUNDARY, **{"policy": "pack", **changes}))
    for name, size in zip(ascii_lowercase, mib, strict=False):
        made.device(name, size)
    return made


def of_kind(commands: Sequence[object], kind: Any) -> list[Any]:
    return [command for command in commands if isinstance(command, kind)]


def only(commands: Sequence[object], kind: Any) -> Any:
    """The one command of a kind."""
    (found,) = of_kind(commands, kind)
    return found


def started(commands: Sequence[object]) -> list[int]:
    return [command.job for command in commands if isinstance(command, StartJob)]


def started_on(commands: Sequence[object]) -> list[tuple[int, str]]:
    return [(command.job, command.device) for command in commands if isinstance(command, StartJob)]


def moved_out(commands: Sequence[object]) -> list[int]:
    return [command.job for command in commands if isinstance(command, Offload)]


def estimate(persistent: int, ephemeral: int, source: str = "history", **more: Any) -> Estimate:
    """Sizes in MiB."""
    return Estimate(Memory(persistent * MIB, ephemeral * MIB), source, **more)


def adopted(job: int, device: str = "host0", **found: Any) -> events.Adopted:
    """A running job that a restarted daemon finds: without seat, turn and memory, unless ``found`` says otherwise."""
    nothing = {"phase": JobPhase.RUNNING, "lane": None, "granted": Memory(), "usage": Usage(), "started_us": 0}
    states = dict.fromkeys(("attached", "holds_turn", "wants_turn", "offloaded"), False)
    return events.Adopted(job, device=device, **{**nothing, **states, **found})
