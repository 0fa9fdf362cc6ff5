"""Worked examples of placement: a few jobs on the real core, written down as docs/placement.md shows them.

``python -m tests.core.placements`` writes the figures into the page; a test compares them.
"""

from __future__ import annotations

import re
from pathlib import Path

from carpool.core import events
from carpool.core.commands import Command, StartJob
from carpool.core.machine import Machine
from carpool.core.model import MIB, DeviceSpec, Estimate, JobSpec, Load, Memory, Settings
from carpool.core.policies.placement import available_placements

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "placement.md"
SECOND = 1_000_000
JOBS = {1: 300, 2: 200, 3: 100, 4: 200, 5: 100}


class Example:
    """Devices a of 1000 MiB, b of 600 and c of 600; job 1 comes after 1 s, job 2 after 2 s, and so on."""

    def __init__(self, settings: Settings) -> None:
        self.machine, self.now, self.lines = Machine(settings), 0, list[str]()
        for name, size in (("a", 1000), ("b", 600), ("c", 600)):
            self.send(events.DeviceAdded(DeviceSpec(name, size * MIB)))

    def send(self, event: events.Event) -> list[Command]:
        while (due := self.machine.next_timer()) is not None and due <= self.now:
            self._tell(self.machine.handle(events.Tick(), due), due)
        return self._tell(self.machine.handle(event, self.now), self.now)

    def _tell(self, commands: list[Command], now: int) -> list[Command]:
        self.machine.check()
        for command in commands:
            if isinstance(command, StartJob):
                self.lines.append(f"{now / SECOND:4.1f} s  job {command.job} on {self._where(command)}")
        return commands

    def _where(self, command: StartJob) -> str:
        devices = self.machine.view().devices
        free = ", ".join(f"{name} {device.free // MIB}" for name, device in devices.items())
        return f"{' and '.join((command.device, *command.further))}   (MiB free then: {free})"

    def submit(self, job: int, mib: int, gang: int = 1) -> None:
        self.now = job * SECOND
        spec = JobSpec(0, gang=gang, estimate=Estimate(Memory(mib * MIB, 0), "history"))
        self.send(events.Submitted(job, spec))
        reason = self.machine.explain(job)
        if reason is not None:
            self.lines.append(f"{self.now / SECOND:4.1f} s  job {job} waits: {reason.text}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def policy(name: str) -> str:
    example = Example(Settings(policy="pack", placement=name))
    if name == "lug":
        for device, active in (("a", 700_000), ("b", 100_000), ("c", 300_000)):
            example.send(events.DeviceLoad(device, Load(active, 0)))
    for job, mib in JOBS.items():
        example.submit(job, mib)
    if name == "exclusive":
        example.now = 6 * SECOND
        example.send(events.ProcessExited(2, 0))
    return example.text()


def warm_up() -> str:
    """Jobs 1 to 3 use their device half a second after they were started, job 1 after 3 seconds."""
    example = Example(Settings(policy="pack", warm_window_us=5 * SECOND, warm_limit=1))
    for job in (1, 2, 3):
        example.submit(job, 100)
        example.send(events.ProcessStarted(job))
        example.send(events.Attached(job))
        if job > 1:
            example.now += SECOND // 2
            example.send(events.TurnWanted(job))
    example.submit(4, 100)
    example.send(events.TurnWanted(1))
    for second in (7, 8, 9, 10):
        example.now = second * SECOND
        example.send(events.Tick())
    return example.text()


def gang() -> str:
    example = Example(Settings(policy="pack", reserve_after_us=2 * SECOND))
    for job in (1, 2, 3):
        example.submit(job, 100)
    example.submit(4, 100, gang=2)
    example.submit(5, 100)
    for second, job in ((8, 5), (9, 1), (10, 2)):
        example.now = second * SECOND
        example.lines.append(f"{second:4.1f} s  job {job} ends")
        example.send(events.ProcessExited(job, 0))
        if job == 1:
            reason = example.machine.explain(4)
            assert reason is not None
            example.lines.append(f"{second:4.1f} s  job 4: {reason.text}")
    return example.text()


def examples() -> dict[str, str]:
    return {name: policy(name) for name in available_placements()} | {"warm-up": warm_up(), "gang": gang()}


def filled(document: str) -> str:
    """The document with every example as it is now."""
    made = examples()

    def block(match: re.Match[str]) -> str:
        return f"<!-- placement {match[1]} -->\n```text\n{made[match[1]]}```\n"

    return re.sub(r"<!-- placement ([\w-]+) -->\n```text\n.*?```\n", block, document, flags=re.DOTALL)


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text()))
