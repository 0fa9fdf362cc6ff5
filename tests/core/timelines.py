"""Worked timelines: a few idealised jobs on the real core, written down as the docs show them.

``python -m tests.core.timelines`` writes the figures into docs/policies.md; a test compares them.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from carpool.core import commands, events
from carpool.core.lifecycle.legality import mermaid
from carpool.core.machine import Machine
from carpool.core.model import MIB, Cause, DeviceSpec, Estimate, JobSpec, Memory, MemoryClass, Settings, Usage
from carpool.plugins import ensure_policy

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "policies.md"


@dataclass(eq=False)
class Toy:
    """A job of ``iterations`` of ``device`` ms each, with ``cpu`` ms between them."""

    name: str
    arrives: int
    iterations: int
    device: int
    cpu: int = 0
    persistent: int = 100
    ephemeral: int = 300
    weight: int = 100
    total_known: bool = True
    done: int = 0
    lane: int | None = None
    holds: bool = False
    busy: bool = False  # an iteration is under way on the device
    on_cpu: bool = False
    yield_: bool = False
    successor: int | None = None
    ended: int | None = None
    spans: list[tuple[int, int, int]] = field(default_factory=list)

    def spec(self) -> JobSpec:
        memory = Memory(self.persistent * MIB, self.ephemeral * MIB)
        known = self.iterations if self.total_known else None
        estimate = Estimate(memory, "history", iteration_us=self.device * 1000 if self.total_known else None)
        return JobSpec(0, self.name, iterations=known, weight=self.weight, estimate=estimate)

    def usage(self) -> Usage:
        return Usage(iterations=self.done, device_us=self.done * self.device * 1000)


class Timeline:
    """One device of 1000 MiB; hand-overs take no time; early release is immediate."""

    def __init__(self, settings: Settings, toys: list[Toy]) -> None:
        self.toys = dict(enumerate(toys, 1))
        self.machine = Machine(settings)
        self.now = 0
        self.heap: list[tuple[int, int, str, int]] = []
        self.number = 0
        self.send(events.DeviceAdded(DeviceSpec("host0", 1000 * MIB)))
        for job, toy in self.toys.items():
            self.plan(toy.arrives, "arrive", job)

    def plan(self, when: int, what: str, job: int) -> None:
        self.number += 1
        heapq.heappush(self.heap, (when, self.number, what, job))

    def send(self, event: events.Event) -> None:
        for command in self.machine.handle(event, self.now * 1000):
            self.carry_out(command)
        self.machine.check()

    def carry_out(self, command: commands.Command) -> None:
        match command:
            case commands.StartJob():
                self.toys[command.job].lane = command.lane
                self.plan(self.now, "attach", command.job)
            case commands.GrantTurn():
                self.begin(command.job)
            case commands.RequestYield():
                self.toys[command.job].yield_ = True
                if self.toys[command.job].on_cpu:
                    self.plan(self.now, "early", command.job)
            case commands.WithdrawYield():
                self.toys[command.job].yield_ = False
            case commands.NameSuccessor():
                self.toys[command.holder].successor = command.successor

    def begin(self, job: int) -> None:
        toy = self.toys[job]
        toy.holds, toy.yield_, toy.successor = True, False, None
        self.compute(job)

    def compute(self, job: int) -> None:
        toy = self.toys[job]
        assert toy.lane is not None
        toy.busy, toy.on_cpu = True, False
        if toy.spans and toy.spans[-1][1:] == (self.now, toy.lane):
            toy.spans[-1] = (toy.spans[-1][0], self.now + toy.device, toy.lane)
        else:
            toy.spans.append((self.now, self.now + toy.device, toy.lane))
        self.plan(self.now + toy.device, "boundary", job)

    def run(self) -> Timeline:
        while self.heap:
            when = self.heap[0][0]
            due = self.machine.next_timer()
            if due is not None and due <= when * 1000:
                self.now = max(self.now, -(-due // 1000))
                self.send(events.Tick())
                continue
            self.now, _, what, job = heapq.heappop(self.heap)
            getattr(self, what)(job)
        return self

    def arrive(self, job: int) -> None:
        self.send(events.Submitted(job, self.toys[job].spec()))

    def attach(self, job: int) -> None:
        self.send(events.ProcessStarted(job))
        self.send(events.Attached(job))
        toy = self.toys[job]
        self.send(events.MemoryRequested(job, MemoryClass.PERSISTENT, toy.persistent * MIB))
        self.send(events.MemoryRequested(job, MemoryClass.EPHEMERAL, toy.ephemeral * MIB))
        self.send(events.TurnWanted(job))

    def boundary(self, job: int) -> None:
        toy = self.toys[job]
        toy.busy, toy.done = False, toy.done + 1
        self.send(events.Sampled(job, toy.usage()))
        if toy.done == toy.iterations:
            toy.ended, toy.holds = self.now, False
            self.send(events.ProcessExited(job, 0))
            return
        waiting = toy.successor is not None
        if toy.holds and (toy.yield_ or (toy.cpu and waiting)):
            self.let_go(job, Cause.BOUNDARY if toy.yield_ else Cause.EARLY)
        if toy.cpu:
            toy.on_cpu = True
            self.plan(self.now + toy.cpu, "ready", job)
        else:
            self.ready(job)

    def ready(self, job: int) -> None:
        toy = self.toys[job]
        toy.on_cpu = False
        if toy.holds:
            self.compute(job)
        else:
            self.send(events.TurnWanted(job))

    def early(self, job: int) -> None:
        if self.toys[job].holds and self.toys[job].on_cpu:
            self.let_go(job, Cause.EARLY)

    def let_go(self, job: int, cause: Cause) -> None:
        toy = self.toys[job]
        toy.holds, toy.yield_ = False, False
        heir, toy.successor = toy.successor, None
        if heir is None:
            self.send(events.TurnReleased(job, cause, toy.usage()))
        else:
            self.begin(heir)
            self.send(events.TurnPassed(job, heir, cause, toy.usage()))

    def text(self) -> str:
        """Spans in order of time, then when each job ended, then the mean completion time."""
        spans = sorted((begin, lane, end, toy.name) for toy in self.toys.values() for begin, end, lane in toy.spans)
        lines = [f"{begin:>5} - {end:<5} lane {lane}  {name}" for begin, lane, end, name in spans]
        lines.append("")
        total = 0
        for toy in self.toys.values():
            assert toy.ended is not None, f"{toy.name} never ended"
            total += toy.ended - toy.arrives
            lines.append(f"{toy.name} ends at {toy.ended} ms, {toy.ended - toy.arrives} ms after its submission")
        lines.append(f"mean completion time: {total / len(self.toys):.1f} ms")
        return "\n".join(lines) + "\n"


def settings(policy: str, quantum_ms: int = 50) -> Settings:
    return Settings(policy=policy, quantum_us=quantum_ms * 1000)


def three(**changes: dict[str, int | bool]) -> list[Toy]:
    """The jobs of every example: A is long and comes first, B is medium, C is short and comes last."""
    shapes: dict[str, dict[str, int | bool]] = {
        "A": {"arrives": 0, "iterations": 30, "device": 10},
        "B": {"arrives": 10, "iterations": 15, "device": 10},
        "C": {"arrives": 20, "iterations": 4, "device": 10},
    }
    return [Toy(name, **{**shape, **changes.get(name, {})}) for name, shape in shapes.items()]  # type: ignore[arg-type]


def served() -> str:
    """Two jobs in lanes of their own, and a service: one request in a hurry, one that is not, and two at a time."""
    from tests.core.timeline_services import ServedTimeline, Server

    toys = three(A={"iterations": 12}, B={"arrives": 0, "iterations": 12, "ephemeral": 100})[:2]
    requests = ((34, 42), (63, None), (95, None), (97, None))
    server = Server("S", arrives=0, iterations=len(requests), device=6, requests=requests)
    return ServedTimeline(settings("pack"), [*toys, server]).run().text()


def examples() -> dict[str, str]:
    """Every timeline of the document by its name."""
    third = "tests.core.smallest:Smallest"
    ensure_policy(third)
    return {
        "fifo": Timeline(settings("fifo"), three()).run().text(),
        "fifo-cpu": Timeline(settings("fifo"), three(A={"iterations": 6, "cpu": 20}, B={"iterations": 6})).run().text(),
        "pack": Timeline(settings("pack"), three()).run().text(),
        "srtf": Timeline(settings("srtf"), three()).run().text(),
        "sjf": Timeline(settings("sjf"), three()).run().text(),
        "las": Timeline(replace(settings("las"), extra={"las_limit_1_us": 100_000}), three()).run().text(),
        "fair": Timeline(settings("fair"), three()).run().text(),
        "fair-weight": Timeline(settings("fair"), three(B={"weight": 200})).run().text(),
        "tq": Timeline(settings("tq"), three()).run().text(),
        "service": served(),
        "smallest": Timeline(settings(third), three(A={"persistent": 300})).run().text(),
    }


def filled(document: str) -> str:
    """The document with every timeline, listing and diagram as they are now."""
    made = examples()

    def block(match: re.Match[str]) -> str:
        return f"<!-- timeline {match[1]} -->\n```text\n{made[match[1]]}```\n"

    document = re.sub(r"<!-- timeline ([\w-]+) -->\n```text\n.*?```\n", block, document, flags=re.DOTALL)
    code = (DOCUMENT.parents[1] / "tests/core/smallest.py").read_text().split('"""\n\n', 1)[1]
    listing = f"<!-- code tests/core/smallest.py -->\n```python\n{code}```\n"
    document = re.sub(r"<!-- code \S+ -->\n```python\n.*?```\n", lambda _: listing, document, flags=re.DOTALL)
    states = f"<!-- states -->\n```mermaid\n{mermaid()}```\n"
    return re.sub(r"<!-- states -->\n```mermaid\n.*?```\n", lambda _: states, document, flags=re.DOTALL)


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text()))
