"""A deliberately naive scheduler of whole devices: obvious, slow, and written from the specification alone.

It goes from one instant to the next, looks at every job each time and sorts everything again.  At each instant come
completions, then arrivals in file order, then (las) moves between queues, then one scheduling pass.  What the simulator
does must agree with it exactly.  The rules and the random traces that such comparisons need are at the end.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from carpool.core.model import Allocation, Micros, Outcome, Settings
from carpool.sim.model.trace_job import TraceJob

SECOND: Micros = 1_000_000
NON_PREEMPTIVE = ("fifo", "sjf")


@dataclass(frozen=True)
class Rule:
    """A policy with its options.  ``limits`` are attained service in microseconds, or in device-microseconds."""

    policy: str
    backfill: bool = False  # non-preemptive policies only
    limits: tuple[Micros, ...] = ()  # las only
    by_devices: bool = False  # las only

    def settings(self) -> Settings:
        """The same rule for the core."""
        extra = {f"las_limit_{number}_us": limit for number, limit in enumerate(self.limits, 1)}
        if self.policy == "las":
            extra["las_by_devices"] = int(self.by_devices)
        backfill = int(self.backfill) if self.policy in NON_PREEMPTIVE else None
        return Settings(policy=self.policy, allocation=Allocation.DEVICES, backfill=backfill, extra=extra)


@dataclass(eq=False)
class Tracked:
    """A job of the trace and what has become of it so far."""

    job: TraceJob
    remaining: Micros
    attained: int = 0  # in the unit of the rule
    running: bool = False
    intervals: list[tuple[Micros, Micros]] = field(default_factory=list)  # the last one is open while it runs
    preemptions: int = 0
    outcome: Outcome | None = None


@dataclass(frozen=True)
class Expected:
    """What the specification says about one job."""

    job: TraceJob
    outcome: Outcome
    intervals: list[tuple[Micros, Micros]]
    preemptions: int

    @property
    def started_us(self) -> Micros | None:
        return self.intervals[0][0] if self.intervals else None

    @property
    def ended_us(self) -> Micros:
        return self.intervals[-1][1] if self.intervals else self.job.submit_us

    @property
    def service_us(self) -> Micros:
        return sum(end - begin for begin, end in self.intervals)

    @property
    def queueing_us(self) -> Micros:
        """Until it computes for the first time."""
        return (self.ended_us if self.started_us is None else self.started_us) - self.job.submit_us

    @property
    def waiting_us(self) -> Micros:
        return self.ended_us - self.job.submit_us - self.service_us


def schedule(jobs: Sequence[TraceJob], devices: int, rule: Rule) -> list[Expected]:
    """Who runs when, in the order of ``jobs``."""
    tracked = [Tracked(job, job.duration_us) for job in jobs]
    scheduler = Scheduler(tracked, devices, rule)
    while scheduler.step():
        pass
    return [Expected(one.job, one.outcome or Outcome.LOST, one.intervals, one.preemptions) for one in tracked]


class Scheduler:
    """``queues`` hold the active jobs; only las has more than one queue."""

    def __init__(self, tracked: list[Tracked], devices: int, rule: Rule) -> None:
        self.to_come = sorted(tracked, key=lambda one: one.job.submit_us)  # stable: equal times keep file order
        self.arrival_order = list(self.to_come)
        self.devices = devices
        self.rule = rule
        self.queues: list[list[Tracked]] = [[] for _ in range(len(rule.limits) + 1)]
        self.now: Micros = 0

    def step(self) -> bool:
        """Go to the next instant at which something happens; False when there is none."""
        instants = self.upcoming()
        if not instants:
            return False
        self.advance(min(instants))
        self.complete()
        self.arrive()
        self.move()
        self.let_run(self.chosen())
        self.reorder()
        return True

    # time

    def active(self) -> list[Tracked]:
        return [one for queue in self.queues for one in queue]

    def upcoming(self) -> list[Micros]:
        arrivals = [one.job.submit_us for one in self.to_come]
        completions = [self.now + one.remaining for one in self.active() if one.running]
        return arrivals + completions + self.upcoming_moves()

    def upcoming_moves(self) -> list[Micros]:
        """Time is whole microseconds: a limit is reached at the first one that is not too early."""
        found = []
        for queue, limit in zip(self.queues[:-1], self.rule.limits, strict=True):
            for one in queue:
                if one.running:
                    rate = self.rate(one)
                    found.append(self.now + (limit - one.attained + rate - 1) // rate)
        return found

    def rate(self, one: Tracked) -> int:
        return one.job.gpus if self.rule.by_devices else 1

    def advance(self, instant: Micros) -> None:
        for one in self.active():
            if one.running:
                one.remaining -= instant - self.now
                one.attained += (instant - self.now) * self.rate(one)
        self.now = instant

    # the steps of one instant

    def complete(self) -> None:
        for queue in self.queues:
            for one in list(queue):
                if one.remaining == 0:
                    queue.remove(one)
                    self.stop(one)
                    one.outcome = Outcome.SUCCEEDED

    def arrive(self) -> None:
        while self.to_come and self.to_come[0].job.submit_us == self.now:
            one = self.to_come.pop(0)
            if one.job.gpus > self.devices:
                one.outcome = Outcome.REFUSED
            else:
                self.queues[0].append(one)

    def move(self) -> None:
        due = [
            (one, number)
            for number, limit in enumerate(self.rule.limits)
            for one in self.queues[number]
            if one.running and one.attained >= limit
        ]
        due.sort(key=lambda pair: self.arrival_order.index(pair[0]))
        for one, number in due:
            self.queues[number].remove(one)
            self.queues[number + 1].append(one)

    def chosen(self) -> list[Tracked]:
        """The scheduling pass: who is to run from now on."""
        self.sort()
        if self.rule.policy in NON_PREEMPTIVE:
            return self.chosen_beside_running()
        return self.packed([], self.active(), strict=False)

    def chosen_beside_running(self) -> list[Tracked]:
        running = [one for one in self.active() if one.running]
        pending = [one for one in self.active() if not one.running]
        return self.packed(running, pending, strict=not self.rule.backfill)

    def packed(self, chosen: list[Tracked], candidates: list[Tracked], *, strict: bool) -> list[Tracked]:
        chosen = list(chosen)
        for one in candidates:
            if sum(other.job.gpus for other in chosen) + one.job.gpus <= self.devices:
                chosen.append(one)
            elif strict:
                break
        return chosen

    def sort(self) -> None:
        """Stable, and on the list as the last pass has left it: that is what decides ties."""
        active = self.queues[0]
        if self.rule.policy == "sjf":
            active.sort(key=lambda one: one.job.duration_us)
        elif self.rule.policy == "srtf":
            active.sort(key=lambda one: one.remaining)
        elif self.rule.policy == "srsf":
            active.sort(key=lambda one: one.remaining * one.job.gpus)

    def let_run(self, chosen: list[Tracked]) -> None:
        for one in self.active():
            if one.running and one not in chosen:
                self.stop(one)
                one.preemptions += 1
            elif not one.running and one in chosen:
                one.running = True
                one.intervals.append((self.now, self.now))

    def stop(self, one: Tracked) -> None:
        one.running = False
        one.intervals[-1] = (one.intervals[-1][0], self.now)

    def reorder(self) -> None:
        if self.rule.policy == "las":
            for queue in self.queues:
                queue.sort(key=lambda one: not one.running)


#: Every whole-device policy with every option that changes who runs.  Limits suit traces of a few dozen microseconds.
RULES = {
    "fifo": Rule("fifo"),
    "fifo-backfill": Rule("fifo", backfill=True),
    "sjf": Rule("sjf"),
    "sjf-backfill": Rule("sjf", backfill=True),
    "srtf": Rule("srtf"),
    "srsf": Rule("srsf"),
    "las": Rule("las", limits=(4, 12)),
    "las-by-devices": Rule("las", limits=(10, 30), by_devices=True),
}
WORK_CONSERVING = {name: rule for name, rule in RULES.items() if name not in ("fifo", "sjf")}


def in_scale(rule: Rule, scale: int) -> Rule:
    """The same rule for a trace whose times are ``scale`` times as long."""
    return Rule(rule.policy, rule.backfill, tuple(limit * scale for limit in rule.limits), rule.by_devices)


def jobs_of(text: str) -> list[TraceJob]:
    """Jobs as in "A 0+10x2, B 1+5": a name, when it comes, how long it takes, and on how many devices if not on one."""
    found = re.findall(r"(\w) (\d+)\+(\d+)(?:x(\d+))?", text)
    return [
        TraceJob(name, int(at) * SECOND, int(takes) * SECOND, gpus=int(gpus or 1)) for name, at, takes, gpus in found
    ]


def crowded_trace(draw: random.Random, jobs: int, *, most_gpus: int) -> list[TraceJob]:
    """Few different times and lengths, so that most events coincide with others."""
    span, longest = draw.choice([(0, 3), (6, 6), (jobs, 10), (4 * jobs, 20)])
    submits = sorted(draw.randint(0, span) for _ in range(jobs))
    return [
        TraceJob(str(number), submit, draw.randint(1, longest), gpus=draw.randint(1, most_gpus))
        for number, submit in enumerate(submits)
    ]


def scattered_trace(draw: random.Random, jobs: int, *, most_gpus: int) -> list[TraceJob]:
    """Times down to the microsecond, lengths from very short to heavy tails."""
    found = []
    submit = 0
    for number in range(jobs):
        submit += int(draw.expovariate(1 / 900_000))
        duration = 1 + int(draw.paretovariate(1.1) * 300_000)
        found.append(TraceJob(str(number), submit, duration, gpus=draw.choice([1, 1, 1, 2, 4, most_gpus])))
    return found
