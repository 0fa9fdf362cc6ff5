"""What lanes and whole devices have in common: the same life of a job, whichever of the two `Machine` has."""

from __future__ import annotations

import pytest

from carpool.core import events
from carpool.core.commands import AllocateDevices, Command, EndJob, SignalJob, StartJob
from carpool.core.machine import Machine
from carpool.core.model import GIB, Allocation, DeviceSpec, JobSpec, Outcome, Settings
from carpool.sim.whole_devices.allocator import ALLOCATORS, machine_for


class Driver:
    """Sends events, and the ticks that follow from them."""

    def __init__(self, allocation: Allocation) -> None:
        self.machine = machine_for(Settings(allocation=allocation, policy="fifo"))
        self.now = 0
        self.send(events.DeviceAdded(DeviceSpec("gpu0", GIB)))

    def send(self, event: events.Event) -> list[Command]:
        made = self.machine.handle(event, self.now)
        while (due := self.machine.next_timer()) is not None and due <= self.now:
            made += self.machine.handle(events.Tick(), self.now)
        self.machine.check()
        return made

    def submit(self, job: int, **spec: object) -> list[Command]:
        return self.send(events.Submitted(job, JobSpec(0, exclusive=True, **spec)))  # type: ignore[arg-type]


@pytest.fixture(params=Allocation)
def driver(request: pytest.FixtureRequest) -> Driver:
    return Driver(request.param)


def given_devices(commands: list[Command]) -> list[int]:
    return [command.job for command in commands if isinstance(command, StartJob | AllocateDevices)]


def ended(commands: list[Command]) -> list[tuple[int, Outcome]]:
    return [(command.job, command.outcome) for command in commands if isinstance(command, EndJob)]


def test_each_kind_of_allocation_has_an_allocator() -> None:
    assert set(ALLOCATORS) == set(Allocation)


def test_the_core_alone_gives_no_whole_devices() -> None:
    with pytest.raises(ValueError, match="lanes do not give devices"):
        Machine(Settings(allocation=Allocation.DEVICES))


def test_a_job_that_ends_leaves_its_device_to_the_next(driver: Driver) -> None:
    assert given_devices(driver.submit(1)) == [1]
    assert given_devices(driver.submit(2)) == []
    assert driver.machine.explain(1) is None
    assert driver.machine.explain(2) is not None
    driver.send(events.ProcessStarted(1))
    commands = driver.send(events.ProcessExited(1, 0))
    assert (ended(commands), given_devices(commands)) == ([(1, Outcome.SUCCEEDED)], [2])


def test_a_failed_job_waits_behind_the_others_and_is_tried_again(driver: Driver) -> None:
    driver.submit(1, retries=1)
    driver.submit(2)
    driver.send(events.ProcessStarted(1))
    assert given_devices(driver.send(events.ProcessExited(1, 1))) == [2]
    driver.send(events.ProcessStarted(2))
    assert given_devices(driver.send(events.ProcessExited(2, 0))) == [1]


def test_more_devices_than_there_are_are_refused(driver: Driver) -> None:
    assert ended(driver.submit(1, gang=2)) == [(1, Outcome.REFUSED)]


def test_a_cancelled_job_keeps_its_device_until_it_has_ended(driver: Driver) -> None:
    driver.submit(1)
    driver.send(events.ProcessStarted(1))
    assert SignalJob(1, 15) in driver.send(events.CancelRequested(1))
    assert given_devices(driver.submit(2)) == []
    commands = driver.send(events.ProcessExited(1, None, 15))
    assert (ended(commands), given_devices(commands)) == ([(1, Outcome.CANCELLED)], [2])


def test_a_cancelled_job_that_waits_gets_nothing(driver: Driver) -> None:
    driver.submit(1)
    driver.submit(2)
    assert ended(driver.send(events.CancelRequested(2))) == [(2, Outcome.CANCELLED)]
    driver.send(events.ProcessStarted(1))
    assert given_devices(driver.send(events.ProcessExited(1, 0))) == []


def test_who_waits_for_another_job_says_so_and_follows_it(driver: Driver) -> None:
    driver.submit(1)
    driver.submit(2, after=(1,))
    reason = driver.machine.explain(2)
    assert reason is not None and (reason.code, reason.text) == ("after", "waiting for job 1")
    driver.send(events.ProcessStarted(1))
    assert given_devices(driver.send(events.ProcessExited(1, 0))) == [2]
