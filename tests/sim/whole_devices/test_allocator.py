"""Whole devices: who gets how many, who loses them, and what happens while they change hands."""

from __future__ import annotations

import random
from typing import Any

import pytest

from carpool.core import events
from carpool.core.commands import AllocateDevices, Command, EndJob, PreemptJob, SignalJob
from carpool.core.events import IllegalTransition
from carpool.core.lifecycle import lifecycle
from carpool.core.machine import Machine
from carpool.core.model import Allocation, DeviceSpec, JobSpec, Outcome, Settings, Usage
from carpool.core.state.state import KEPT_ENDED
from carpool.sim.whole_devices.allocator import ALLOCATORS, machine_for
from tests.tiers import all_but_first

SECOND = 1_000_000


class Cluster:
    """The core with some devices; times are seconds."""

    def __init__(self, devices: int, policy: str, **settings: Any) -> None:
        self.machine = machine_for(Settings(policy=policy, allocation=Allocation.DEVICES, **settings))
        self.now = 0.0
        self.checking = True
        for number in range(devices):
            self.send(events.DeviceAdded(DeviceSpec(f"gpu{number}", 0)))
        self.tick()

    def send(self, event: events.Event) -> list[Command]:
        commands = self.machine.handle(event, int(self.now * SECOND))
        if self.checking:
            self.machine.check()
        return commands

    def tick(self) -> list[Command]:
        """Everything that is due now."""
        made: list[Command] = []
        while (due := self.machine.next_timer()) is not None and due <= self.now * SECOND:
            made += self.send(events.Tick())
        return made

    def at(self, seconds: float) -> Cluster:
        self.now = seconds
        return self

    def submit(self, job: int, takes: float, gang: int = 1, **spec: Any) -> list[Command]:
        return self.send(events.Submitted(job, JobSpec(0, duration_us=int(takes * SECOND), gang=gang, **spec)))

    def come(self, job: int, takes: float, gang: int = 1, **spec: Any) -> list[Command]:
        """A job is submitted, and everything that is due is decided."""
        return [*self.submit(job, takes, gang, **spec), *self.tick()]

    def exit(self, job: int, code: int = 0) -> list[Command]:
        return [*self.send(events.ProcessExited(job, code)), *self.tick()]

    def preempted(self, job: int, did: float) -> list[Command]:
        return self.send(events.Preempted(job, Usage(device_us=int(did * SECOND))))

    def why(self, job: int) -> str | None:
        reason = self.machine.explain(job)
        return reason.text if reason else None

    def held(self, job: int) -> tuple[str, ...]:
        return self.machine.view().jobs[job].devices


def test_nothing_is_decided_before_everything_of_an_instant_is_known() -> None:
    cluster = Cluster(1, "sjf")
    cluster.send(events.RestartBegan())
    assert cluster.submit(1, 9) == []
    assert cluster.machine.next_timer() is None, "nothing is due while restarting"
    cluster.send(events.RestartEnded())
    assert cluster.submit(2, 5) == []
    assert cluster.machine.next_timer() == 0
    assert cluster.tick() == [AllocateDevices(2, ("gpu0",))]
    assert cluster.machine.next_timer() is None


def test_a_gang_gets_the_first_free_devices_all_at_once() -> None:
    cluster = Cluster(4, "fifo")
    cluster.submit(1, 5, gang=2)
    cluster.submit(2, 5, gang=3)
    cluster.submit(3, 5)
    assert cluster.tick() == [AllocateDevices(1, ("gpu0", "gpu1"))]
    assert cluster.why(2) == "waiting for devices: needs 3, 2 of 4 free"
    assert cluster.at(5).exit(1) == [
        EndJob(1, Outcome.SUCCEEDED, 0),
        AllocateDevices(2, ("gpu0", "gpu1", "gpu2")),
        AllocateDevices(3, ("gpu3",)),
    ]


def asked(takes: float, at: float, newcomer: float) -> Cluster:
    """Job 1 has the only device; it was asked to leave it when the shorter job 2 came."""
    cluster = Cluster(1, "srtf")
    cluster.come(1, takes)
    cluster.send(events.ProcessStarted(1))
    assert cluster.at(at).come(2, newcomer) == [PreemptJob(1)]
    return cluster


def test_devices_change_hands_only_when_they_have_been_left() -> None:
    cluster = asked(10, 2, 3)
    assert cluster.held(1) == ("gpu0",) and cluster.held(2) == ()
    assert cluster.at(2.5).preempted(1, 2.4) == [AllocateDevices(2, ("gpu0",))]
    assert cluster.machine.view().jobs[1].attained_us == 2.4 * SECOND
    assert cluster.at(5.5).exit(2)[1:] == [AllocateDevices(1, ("gpu0",))], "it goes on where it was"
    assert cluster.at(6).machine.view().jobs[1].remaining_us is not None


def test_while_devices_are_being_left_another_job_may_be_chosen() -> None:
    cluster = asked(10, 1, 5)
    assert cluster.at(2).come(3, 1) == [], "job 1 has been asked already"
    assert cluster.at(3).preempted(1, 2) == [AllocateDevices(3, ("gpu0",))]


def test_a_job_that_was_asked_in_vain_comes_back_by_itself() -> None:
    """The one it should have made room for is cancelled: it is first again, and gets its devices when it has left
    them.
    """
    cluster = asked(10, 1, 5)
    cluster.send(events.CancelRequested(2))
    assert cluster.tick() == []
    assert cluster.at(2).preempted(1, 2) == [AllocateDevices(1, ("gpu0",))]


def test_a_cancelled_job_keeps_its_devices_until_it_has_ended() -> None:
    cluster = Cluster(2, "srtf")
    cluster.come(1, 10, gang=2)
    cluster.come(2, 20)
    assert cluster.at(1).send(events.CancelRequested(1)) == [SignalJob(1, 15)]
    assert cluster.tick() == []
    assert cluster.at(2).exit(1)[1:] == [AllocateDevices(2, ("gpu0",))]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tq"])
@pytest.mark.parametrize("left", [False, True])
def test_a_paused_job_that_is_stopped_comes_back_to_no_device(policy: str, left: bool) -> None:
    """Whether or not it has left its devices by then."""
    cluster = Cluster(1, policy)
    cluster.come(1, 10)
    cluster.come(2, 20)
    cluster.send(events.ProcessStarted(1))
    assert PreemptJob(1) in cluster.at(1).send(events.PauseChanged(1, "alice"))
    if left:
        cluster.preempted(1, 1)
        cluster.tick()
    assert cluster.send(events.CancelRequested(1)) == [SignalJob(1, 15)]
    if not left:
        cluster.preempted(1, 1)
    cluster.tick()
    assert (cluster.held(1), cluster.held(2)) == ((), ("gpu0",))
    (end,) = [command for command in cluster.exit(1) if isinstance(command, EndJob)]
    assert end.outcome is Outcome.CANCELLED and cluster.exit(2)
    assert cluster.machine.next_timer() is None


def test_a_waiting_job_that_is_cancelled_is_passed_over() -> None:
    cluster = Cluster(1, "srtf")
    for job, takes in ((1, 10), (2, 20), (3, 30)):
        cluster.come(job, takes)
    cluster.send(events.CancelRequested(2))
    assert cluster.at(10).exit(1)[1:] == [AllocateDevices(3, ("gpu0",))]


def test_a_job_that_dies_while_it_is_leaving() -> None:
    cluster = asked(10, 1, 5)
    assert cluster.exit(1, 1) == [
        EndJob(1, Outcome.FAILED, 1, None, cluster.machine.explain(1)),
        AllocateDevices(2, ("gpu0",)),
    ]
    assert cluster.preempted(1, 1) == [], "late"


def test_another_policy_takes_over_at_once() -> None:
    cluster = Cluster(1, "fifo")
    cluster.submit(1, 10)
    cluster.come(2, 5)
    cluster.at(1).send(events.SettingsChanged(Settings(policy="srtf", allocation=Allocation.DEVICES)))
    assert cluster.tick() == [PreemptJob(1)]


def test_coming_back_does_not_count_as_service() -> None:
    """10: B displaces A.  15: A comes back, which takes 10 s; at 30 s it has 85 left, and C, which needs 80, goes
    first.
    """
    cluster = asked(100, 10, 5)
    cluster.send(events.Preempted(1, Usage(device_us=10 * SECOND, switch_cost_us=10 * SECOND)))
    assert cluster.at(15).exit(2)[1:] == [AllocateDevices(1, ("gpu0",))]
    assert cluster.at(20).machine.view().jobs[1].attained_us == 10 * SECOND
    assert cluster.at(30).come(3, 80) == [PreemptJob(1)]


def test_a_job_that_did_less_than_was_thought_waits_at_its_right_place() -> None:
    cluster = asked(100, 50, 20)
    cluster.preempted(1, 10)  # not 50: it has 90 left
    cluster.submit(3, 60)
    assert cluster.at(70).exit(2)[1:] == [AllocateDevices(3, ("gpu0",))]


@pytest.fixture
def leaving() -> Cluster:
    """Jobs 1 and 2, on four devices, have been asked to leave them for job 3; then the policy became fifo."""
    cluster = Cluster(4, "srtf")
    cluster.submit(1, 50)
    cluster.come(2, 60, gang=2)
    assert cluster.at(1).come(3, 5, gang=4) == [PreemptJob(1), PreemptJob(2)]
    cluster.send(events.SettingsChanged(Settings(policy="fifo", allocation=Allocation.DEVICES)))
    assert cluster.tick() == []
    return cluster


def test_another_policy_while_devices_are_being_left(leaving: Cluster) -> None:
    """fifo takes nothing away: what is being left goes to job 3, and those who left come back in their order."""
    assert leaving.preempted(1, 1) == []
    assert leaving.preempted(2, 1) == [AllocateDevices(3, ("gpu0", "gpu1", "gpu2", "gpu3"))]
    assert leaving.at(6).exit(3)[1:] == [AllocateDevices(1, ("gpu0",)), AllocateDevices(2, ("gpu1", "gpu2"))]


def test_nobody_is_forgotten_if_the_one_that_was_to_come_is_cancelled(leaving: Cluster) -> None:
    leaving.send(events.CancelRequested(3))
    made = leaving.tick()
    for job in (1, 2):
        made += [*leaving.preempted(job, 1), *leaving.tick()]
    assert {command.job for command in made if isinstance(command, AllocateDevices)} == {1, 2}


def test_a_dependent_that_was_cancelled_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has been forgotten when the job it waited for ends; the others that wait for it are told."""
    monkeypatch.setattr(lifecycle, "KEPT_ENDED", 2)
    cluster = Cluster(2, "fifo")
    cluster.submit(1, 100)
    cluster.submit(2, 1, after=(1,))
    cluster.come(3, 1, after=(1,))
    cluster.send(events.CancelRequested(2))
    for job in range(4, 9):
        cluster.come(job, 1)
        cluster.exit(job)
    assert AllocateDevices(3, ("gpu0",)) in cluster.exit(1)


def test_dependencies_hold() -> None:
    cluster = Cluster(2, "srtf")
    cluster.submit(1, 10)
    cluster.submit(2, 1, after=(1,))
    assert cluster.tick() == [AllocateDevices(1, ("gpu0",))]
    assert cluster.why(2) == "waiting for job 1"
    assert cluster.at(10).exit(1)[1:] == [AllocateDevices(2, ("gpu0",))]


def test_what_can_never_run_is_refused() -> None:
    cluster = Cluster(2, "srtf")
    (command,) = cluster.submit(1, 5, gang=3)
    assert isinstance(command, EndJob) and command.reason is not None
    assert (command.outcome, command.reason.text) == (Outcome.REFUSED, "needs 3 devices, but there are 2")
    with pytest.raises(ValueError, match="gang is 0"):
        cluster.submit(2, 5, gang=0)


def test_what_cannot_be() -> None:
    cluster = Cluster(1, "srtf")
    cluster.come(1, 5)
    with pytest.raises(IllegalTransition, match="the job was not asked for its devices"):
        cluster.preempted(1, 1)
    with pytest.raises(IllegalTransition, match="the job has no lane"):
        cluster.send(events.Attached(1))
    with pytest.raises(ValueError, match="allocation is devices"):
        cluster.send(events.SettingsChanged(Settings(policy="srtf")))
    with pytest.raises(ValueError, match="lanes do not give devices"):
        Machine(Settings(allocation=Allocation.DEVICES))


def test_each_kind_of_allocation_has_an_allocator() -> None:
    assert set(ALLOCATORS) == set(Allocation)


def test_jobs_that_ended_long_ago_are_remembered_by_their_outcome() -> None:
    cluster = Cluster(1, "fifo")
    cluster.checking = False  # it looks at every job each time
    for job in range(1, KEPT_ENDED + 10):
        cluster.at(job).come(job, 1)
        cluster.exit(job, code=job % 2)
    assert len(cluster.machine.view().jobs) == KEPT_ENDED
    assert cluster.send(events.ProcessExited(1, 0)) == [], "late"
    with pytest.raises(IllegalTransition, match="there has been a job 1"):
        cluster.submit(1, 1)
    last = KEPT_ENDED + 10
    (command,) = cluster.submit(last, 1, after=(1,))
    assert isinstance(command, EndJob) and command.reason is not None and command.reason.code == "dependency_failed"
    cluster.submit(last + 1, 1, after=(2,))
    assert cluster.tick() == [AllocateDevices(last + 1, ("gpu0",))]


class Wild(Cluster):
    """Jobs are submitted, cancelled, preempted, ended; policies change; whoever is asked to leave takes its time."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        super().__init__(self.draw.randint(1, 6), "srtf")
        self.leaving: dict[int, None] = {}
        self.dying: dict[int, None] = {}
        self.alive: dict[int, None] = {}
        self.submitted = 0

    def send(self, event: events.Event) -> list[Command]:
        commands = super().send(event)
        for command in commands:
            if isinstance(command, PreemptJob):
                self.leaving[command.job] = None
            elif isinstance(command, SignalJob):
                self.dying[command.job] = None
            elif isinstance(command, EndJob):
                for jobs in (self.alive, self.leaving, self.dying):
                    jobs.pop(command.job, None)
        return commands

    def submit_one(self) -> None:
        self.submitted += 1
        self.alive[self.submitted] = None
        after = tuple(self.draw.sample(sorted(self.alive), 1)) if self.draw.random() < 0.1 else ()
        after = tuple(job for job in after if job != self.submitted)
        self.submit(self.submitted, self.draw.randint(1, 50), gang=self.draw.choice([1, 1, 2, 3]), after=after)

    def leave_one(self) -> None:
        job = self.draw.choice(sorted(self.leaving))
        del self.leaving[job]
        done = self.machine.view().jobs[job].attained_us // SECOND
        self.preempted(job, self.draw.randint(0, done))

    def step(self) -> None:
        self.now += self.draw.choice([0, 0, 1, 3])
        holding = [job for job in self.alive if self.held(job) and job not in self.leaving]
        what = self.draw.random()
        if what < 0.35:
            self.submit_one()
        elif what < 0.6 and self.leaving:
            self.leave_one()
        elif what < 0.65 and self.dying:
            self.send(events.ProcessExited(self.draw.choice(sorted(self.dying)), signal=15))
        elif what < 0.85 and holding:
            self.send(events.ProcessExited(self.draw.choice(holding), self.draw.choice([0, 0, 1])))
        elif what < 0.9 and self.alive:
            self.send(events.CancelRequested(self.draw.choice(sorted(self.alive))))
        elif what < 0.95:
            policy = self.draw.choice(["srtf", "srsf", "las", "fair", "fifo", "sjf"])
            backfill = self.draw.choice([None, 0, 1])
            self.send(events.SettingsChanged(Settings(policy=policy, allocation=Allocation.DEVICES, backfill=backfill)))
        if self.draw.random() < 0.7:
            self.tick()


@pytest.mark.parametrize("seed", all_but_first(range(40), stay=12))
def test_whatever_happens_everybody_ends(seed: int) -> None:
    """The core never contradicts itself, and in the end no device idles beside a job that fits."""
    wild = Wild(seed)
    for _ in range(150):
        wild.step()
    while wild.alive:
        wild.now += 1
        wild.tick()
        while wild.leaving:
            wild.leave_one()
            wild.tick()
        holding = [job for job in wild.alive if wild.held(job) or job in wild.dying]
        assert holding, {job: wild.why(job) for job in wild.alive}
        wild.send(events.ProcessExited(holding[0], 0))
