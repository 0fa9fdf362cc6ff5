"""Two thousand jobs, held, paused, requeued, changed and cancelled in any order: none is lost, none is run twice."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carpool.core import commands, events
from carpool.core.commands import Command
from carpool.core.machine import Machine
from carpool.core.model import (
    MIB,
    Cause,
    DeviceSpec,
    JobId,
    JobSpec,
    MemoryClass,
    Outcome,
    Oversubscribe,
    Settings,
    Usage,
)
from tests.examples import examples

JOBS = 2000
CHECKED_EVERY = 500  # events: a check looks at everything there is
SIGTERM = 15


class Account:
    """The world of the jobs, as little as there can be: processes that run, seats that answer at once."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.machine = Machine(Settings(quantum_us=0, kill_after_us=5_000, default_time_us=None, warm_limit=8))
        self.now = 0
        self.events = 0
        self.answers: list[events.Event] = []
        self.running: set[JobId] = set()
        self.told: set[JobId] = set()  # were sent a signal to end
        self.seated: set[JobId] = set()
        self.turns: set[JobId] = set()
        self.starts: Counter[JobId] = Counter()
        self.retries: Counter[JobId] = Counter()
        self.ends: dict[JobId, Outcome] = {}
        self.submitted = 0
        for name in ("host0", "host1"):
            self.handle(events.DeviceAdded(DeviceSpec(name, 4000 * MIB, oversubscribe=Oversubscribe.AUTO)))

    def handle(self, event: events.Event) -> None:
        self.now += 1
        for command in self.machine.handle(event, self.now):
            self.carry_out(command)
        self.events += 1
        if self.events % CHECKED_EVERY == 0:
            self.machine.check()

    def carry_out(self, command: Command) -> None:
        match command:
            case commands.StartJob(job=job):
                assert job not in self.running and job not in self.ends, "it runs already, or has ended"
                self.running.add(job)
                self.starts[job] += 1
                self.answers.append(events.ProcessStarted(job))
            case commands.SignalJob(job=job):
                self.told.add(job)
            case commands.GrantTurn(job=job):
                self.turns.add(job)
            case commands.RequestYield(job=job):
                self.answers.append(events.TurnReleased(job, Cause.FORCED, Usage()))
            case commands.Offload(job=job):
                self.answers.append(events.Offloaded(job))
            case commands.RetryJob(job=job):
                assert job not in self.running and job not in self.ends
                self.retries[job] += 1
            case commands.EndJob(job=job, outcome=outcome):
                assert job not in self.ends, "it ends twice"
                self.ends[job] = outcome

    def settle(self) -> None:
        """What jobs have been asked is answered; a seat that has no turn, or is gone, says nothing."""
        while self.answers:
            answer = self.answers.pop(0)
            job = answer.job  # type: ignore[union-attr]
            seated = job in self.seated and job in self.running
            if isinstance(answer, events.TurnReleased):
                if not (seated and job in self.turns):
                    continue
                self.turns.discard(job)
            if job in self.running and (seated or isinstance(answer, events.ProcessStarted)):
                self.handle(answer)

    # What happens

    def submit(self) -> None:
        self.submitted += 1
        draw, spec = self.random, {}
        if self.submitted > 5 and draw.random() < 0.2:
            spec[draw.choice(["after", "after_any", "after_notok"])] = (draw.randint(1, self.submitted - 1),)
        held = "root" if draw.random() < 0.1 else None
        begin = self.now + draw.randint(0, 2_000) if draw.random() < 0.1 else None
        retries, time_us = draw.choice([0, 0, 1]), draw.choice([None, None, 3_000])
        many: dict[str, Any] = {"held_by": held, "begin_us": begin, "retries": retries, "time_us": time_us, **spec}
        self.handle(events.Submitted(self.submitted, JobSpec(draw.choice([0, 1]), **many)))

    def step(self, job: JobId) -> None:
        """The job's process does something."""
        if job not in self.running:
            return
        if job in self.told or self.random.random() < 0.3:
            self.exit(job)
        elif job not in self.seated:
            self.seated.add(job)
            self.handle(events.Attached(job))
            self.handle(events.MemoryRequested(job, MemoryClass.PERSISTENT, 50 * MIB))
        elif job not in self.turns:
            self.handle(events.TurnWanted(job))

    def exit(self, job: JobId) -> None:
        self.running.discard(job)
        if job in self.seated:
            self.handle(events.Detached(job))
        for group in (self.seated, self.turns):
            group.discard(job)
        signal = SIGTERM if job in self.told else None
        self.told.discard(job)
        self.handle(events.ProcessExited(job, None if signal else self.random.choice([0, 0, 3]), signal))

    def disturb(self, job: JobId) -> None:
        by = self.random.choice([None, "root"])
        kinds: list[events.Event] = [
            events.HoldChanged(job, by),
            events.PauseChanged(job, by),
            events.RequeueRequested(job, "root"),
            events.CancelRequested(job),
            events.JobChanged(job, JobSpec(0, weight=self.random.choice([50, 200]), time_us=4_000)),
            events.DeviceDrained(self.random.choice(["host0", "host1"]), self.random.choice(["", "", "drained"])),
        ]
        self.handle(self.random.choices(kinds, [4, 4, 3, 1, 3, 1])[0])

    def tick(self) -> None:
        due = self.machine.next_timer()
        if due is not None:
            self.now = max(self.now, due)
            self.handle(events.Tick())

    def finish(self) -> None:
        """Everybody is let go on, and comes to an end."""
        for device in ("host0", "host1"):
            self.handle(events.DeviceDrained(device, ""))
        for _ in range(60 * JOBS):
            left = [job for job in range(1, self.submitted + 1) if job not in self.ends]
            if not left:
                return
            for job in left:
                for release in (events.HoldChanged(job, None), events.PauseChanged(job, None)):
                    if job not in self.ends:
                        self.handle(release)
                self.step(job)
                self.settle()
            self.tick()
        raise AssertionError(f"left: {[(job, self.machine.explain(job)) for job in left[:5]]}")


@settings(max_examples=examples(2, fewer=1), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_two_thousand_jobs_have_an_exact_account(seed: int) -> None:
    account = Account(seed)
    for _ in range(JOBS):
        account.submit()
        for _ in range(2):
            account.disturb(account.random.randint(max(1, account.submitted - 40), account.submitted))
            account.settle()
            for job in account.random.sample(sorted(account.running), min(2, len(account.running))):
                account.step(job)
                account.settle()
        if account.random.random() < 0.3:
            account.tick()
    account.finish()
    account.machine.check()
    assert sorted(account.ends) == list(range(1, JOBS + 1)), "each has ended once"
    ran = [job for job in account.ends if account.starts[job]]
    assert all(account.retries[job] <= account.starts[job] <= account.retries[job] + 1 for job in account.ends)
    assert all(account.ends[job] is not Outcome.SUCCEEDED or account.starts[job] for job in account.ends)
    assert len(ran) > JOBS // 4 and len(set(account.ends.values())) >= 4, "the jobs had different lives"
    view = account.machine.view()
    assert not account.running and view.queue == ()
    assert all((device.jobs, device.persistent) == ((), 0) for device in view.devices.values())
