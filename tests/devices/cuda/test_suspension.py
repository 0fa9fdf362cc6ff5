"""All processes of a job are suspended, or none.  On the stub driver; the engine runs in a worker of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.core.model import MIB
from tests.devices.conftest import Start
from tests.emulator.harness import Worker, WorkerError

HELD = 16 * MIB
MOST = 60 * MIB
CONTEXT = {"EMULATOR_CONTEXT": "4MiB"}
ENGINE = """
import pathlib
from carpool.devices.cuda.checkpoint import Checkpoint, NoSuchProcess
from carpool.devices.cuda.suspension import Suspension
begin()
saved = []

def stopped(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

def measure(pids):
    saved.append([Checkpoint(pid).state().name for pid in pids])
    return held

found = []  # what is said after everything has been stopped

def holds(pids):
    return bool(found) and found.pop()

def uses(pid):
    try:
        return Checkpoint(pid).state() is not None
    except NoSuchProcess:
        return False

def suspension(*pids):
    alive = lambda: [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]
    return Suspension(alive, stopped, measure, holds, lambda needed, complete: saved.append([needed, complete]))
"""


@pytest.fixture
def engine(start: Start) -> Worker:
    return start(ENGINE + "begin()", **CONTEXT)


@pytest.fixture
def job(start: Start) -> tuple[Worker, Worker, Worker]:
    """Two processes with 12 MiB and a context each, and one that does not use the driver."""
    two = start(**CONTEXT), start(**CONTEXT)
    for number, process in enumerate(two):
        process.run(f"at = int(ok(driver.cuMemAlloc(12 << 20))); fill(at, {number + 5}, 4)")
    return (*two, start("0", **CONTEXT))


def made(engine: Worker, job: tuple[Worker, ...], held: int | None = 2 * HELD) -> None:
    engine.run(f"held = {held}; work = suspension({', '.join(str(each.process.pid) for each in job)})")


def test_all_are_taken_off_and_stopped_and_come_back(engine: Worker, job: tuple[Worker, ...]) -> None:
    free = engine.free()
    made(engine, job)
    assert engine.run(f"work.suspend(0, {MOST})") == 2 * HELD
    assert engine.free() == free + 2 * HELD
    assert engine.run("work.suspended()") is True
    measured_locked = ["LOCKED", "LOCKED"]
    assert engine.run("saved") == [measured_locked, [2 * HELD, False], [2 * HELD, True]], "written down before the move"
    for each in job:
        each.send("0")
        assert each.silent(), "it does not run"
    engine.run(f"work.resume({2 * HELD}, {MOST})")
    assert [each.receive() for each in job] == [0, 0, 0]
    assert [each.run("word(at)") for each in job[:2]] == [5, 6]


def test_where_nobody_can_measure_it_needs_what_it_can_have_had(engine: Worker, job: tuple[Worker, ...]) -> None:
    made(engine, job, None)
    assert engine.run(f"work.suspend(0, {MOST})") == MOST


def test_a_job_that_has_not_used_the_driver_is_only_stopped(engine: Worker, job: tuple[Worker, ...]) -> None:
    made(engine, job[2:])
    assert engine.run(f"work.suspend(0, {MOST})") == 0
    assert engine.run("[work.suspended(), saved]") == [True, [[0, True]]]
    with pytest.raises(WorkerError, match="NotGuaranteed"):
        engine.run("work.resume(2, 1)")
    assert engine.run("work.suspended()") is True
    engine.run("work.resume(0, 0)")
    assert job[2].run("7") == 7


def test_if_one_cannot_be_moved_all_go_on(engine: Worker, job: tuple[Worker, ...]) -> None:
    job[1].run("ok(driver.cuMemAllocManaged(4096, 1)) and None")
    made(engine, job)
    with pytest.raises(WorkerError, match="Unsupported"):
        engine.run(f"work.suspend(0, {MOST})")
    assert engine.run("work.suspended()") is False
    assert [each.run("word(at)") for each in job[:2]] == [5, 6]
    assert job[2].run("7") == 7


def test_another_daemon_goes_on_where_one_was_killed(engine: Worker, job: tuple[Worker, ...], start: Start) -> None:
    """The first process is off the device, and what it needs was written down; the second one is not."""
    first = job[0].process.pid
    made(engine, job)
    engine.run(f"Checkpoint({first}).suspend()")
    engine.kill()
    second = start(ENGINE + "begin()", **CONTEXT)
    made(second, job, HELD)
    assert second.run(f"work.suspend({HELD}, {MOST})") == 2 * HELD
    second.run(f"work.resume({2 * HELD}, {MOST})")
    assert [each.run("word(at)") for each in job[:2]] == [5, 6]


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_another_daemon_goes_on_where_one_was_killed"
)
def test_without_a_note_what_is_off_the_device_needs_all_it_can_have_had(
    engine: Worker, job: tuple[Worker, ...]
) -> None:
    made(engine, job[:1])
    engine.run(f"Checkpoint({job[0].process.pid}).suspend()")
    assert engine.run(f"work.suspend(0, {MOST})") == MOST


def test_one_that_somebody_has_stopped_is_suspended_all_the_same(engine: Worker, job: tuple[Worker, ...]) -> None:
    free = engine.free()
    made(engine, job[:1], HELD)
    engine.run(f"import os, signal; os.kill({job[0].process.pid}, signal.SIGSTOP)")
    engine.run(f"work.suspend(0, {MOST})")
    assert engine.free() == free + HELD


def test_processes_that_have_ended_are_no_obstacle(engine: Worker, job: tuple[Worker, ...]) -> None:
    made(engine, job, HELD)
    job[0].kill()
    assert engine.run(f"work.suspend(0, {MOST})") == HELD
    engine.run(f"work.resume({HELD}, {MOST})")
    assert job[1].run("word(at)") == 6


@pytest.mark.nightly(
    "a rarer way into a state that another test reaches", stays="test_another_daemon_goes_on_where_one_was_killed"
)
def test_what_is_known_of_an_earlier_suspend_is_not_added(engine: Worker, job: tuple[Worker, ...]) -> None:
    made(engine, job)
    assert engine.run(f"work.suspend({2 * HELD}, {MOST})") == 2 * HELD


def test_one_that_begins_to_use_the_device_meanwhile_is_taken_off_too(
    engine: Worker, job: tuple[Worker, ...], tmp_path: Path
) -> None:
    """It makes its context when the others are locked already, and is stopped with it."""
    reached, late = tmp_path / "locked", job[2]
    made(engine, job)
    engine.run(
        f"""
def measure(pids):
    pathlib.Path({str(reached)!r}).touch()
    while not uses({late.process.pid}):
        pass
    return {HELD} * len(pids)
found = [True]
work = suspension({", ".join(str(each.process.pid) for each in job)})
"""
    )
    engine.send(f"work.suspend(0, {MOST})")
    while not reached.exists():
        assert engine.process.poll() is None
    late.send("begin() or 3")
    assert engine.receive() == 3 * HELD
    assert engine.run("[work.suspended(), saved[-1]]") == [True, [3 * HELD, True]]
    engine.run(f"work.resume({3 * HELD}, {MOST})")
    assert late.receive() == 3


def test_signals_reach_nobody_else(engine: Worker, job: tuple[Worker, ...]) -> None:
    """A process has ended, and its number may be another's, before it is signalled."""
    made(engine, job[2:])
    engine.run(f"work._processes = iter([[{job[2].process.pid}], []]).__next__; work._continue(work._processes())")
    engine.run(f"work = suspension(); import signal; work._signal({job[2].process.pid}, signal.SIGKILL)")
    assert job[2].run("7") == 7
