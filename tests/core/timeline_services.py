"""Timelines with a service among the jobs: requests come, the others pause, and go on."""

from __future__ import annotations

from dataclasses import dataclass, field

from carpool.core import commands, events
from carpool.core.model import MIB, Cause, Demand, Estimate, JobSpec, Memory, Service, Settings
from tests.core.timelines import Timeline, Toy


@dataclass(eq=False)
class Server(Toy):
    """``device`` is what a request computes; ``requests``: (arrival in ms, deadline in ms or None), in order."""

    requests: tuple[tuple[int, int | None], ...] = ()
    weights: int = 200  # MiB
    reload: int = 4
    ephemeral: int = 50
    came: int = 0
    waits: bool = False
    answers: list[int] = field(default_factory=list)

    def spec(self) -> JobSpec:
        return JobSpec(0, self.name, estimate=Estimate(Memory(0, self.ephemeral * MIB), "history"), service=Service())

    def demand(self) -> Demand:
        by = self.requests[self.done][1]
        deadline_us = None if by is None else by * 1000
        return Demand("model", self.weights * MIB, self.reload * 1000, self.device * 1000, deadline_us)


class ServedTimeline(Timeline):
    """As `Timeline`; copying weights takes no time of the device, because it overlaps."""

    def __init__(self, settings: Settings, toys: list[Toy]) -> None:
        self.cut: dict[int, int] = {}  # what is left of an iteration that was paused
        self.pausing: set[int] = set()
        super().__init__(settings, toys)

    def server(self, job: int) -> Server | None:
        toy = self.toys[job]
        return toy if isinstance(toy, Server) else None

    def carry_out(self, command: commands.Command) -> None:
        if isinstance(command, commands.PauseTurn):
            self.pausing.add(command.job)
            if command.forced:
                self.plan(self.now, "pause", command.job)
        else:
            super().carry_out(command)

    def attach(self, job: int) -> None:
        server = self.server(job)
        if server is None:
            super().attach(job)
            return
        self.send(events.ProcessStarted(job))
        self.send(events.Attached(job))
        for arrival, _ in server.requests:
            self.plan(arrival, "request", job)

    def request(self, job: int) -> None:
        server = self.server(job)
        assert server is not None
        server.came += 1
        if not server.holds:
            self.want_next(job, server)

    def want_next(self, job: int, server: Server) -> None:
        if server.came > server.done and not server.waits:
            server.waits = True
            self.send(events.TurnWanted(job, demand=server.demand()))

    def begin(self, job: int) -> None:
        if (server := self.server(job)) is not None:
            server.waits = False
        super().begin(job)

    def compute(self, job: int) -> None:
        toy, whole = self.toys[job], self.toys[job].device
        toy.device = self.cut.pop(job, whole)
        super().compute(job)
        toy.device = whole

    def pause(self, job: int) -> None:
        """At any instruction, or at a boundary."""
        toy = self.toys[job]
        if job not in self.pausing or not toy.holds:
            return
        self.pausing.discard(job)
        if toy.busy:
            begin, end, lane = toy.spans[-1]
            self.cut[job] = end - self.now
            toy.spans[-1] = (begin, self.now, lane)
            self.heap = [entry for entry in self.heap if entry[2:] != ("boundary", job)]
        toy.holds = toy.busy = False
        self.send(events.TurnPaused(job, toy.usage()))

    def boundary(self, job: int) -> None:
        server, toy = self.server(job), self.toys[job]
        if server is not None:
            server.busy, server.done = False, server.done + 1
            server.answers.append(self.now)
            self.want_next(job, server)  # before it gives this turn back: the others need not go on in between
            self.let_go(job, Cause.BOUNDARY)
            return
        if job in self.pausing and toy.done + 1 < toy.iterations:
            toy.busy, toy.done = False, toy.done + 1
            self.pause(job)
            return
        super().boundary(job)

    def text(self) -> str:
        """Spans, when jobs ended, and when requests were answered."""
        servers = [toy for toy in self.toys.values() if isinstance(toy, Server)]
        for server in servers:
            server.ended = self.now
        lines = [line for line in super().text().splitlines() if not line.startswith(("mean", "S "))]
        for server in servers:
            lines += [
                f"{server.name} answers the request of {came} ms at {at} ms" + (f" (deadline {by} ms)" if by else "")
                for (came, by), at in zip(server.requests, server.answers, strict=True)
            ]
        return "\n".join(lines) + "\n"
