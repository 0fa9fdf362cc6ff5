"""Whose processes are on a device, and how much memory the foreign ones have."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from carpool.monitor.foreign import ELSEWHERE, Ownership, look, sees_all_processes
from carpool.monitor.sample import CARPOOL, Level, ProcessMemory, Sample

JOB = 7
#: pid: parent and start time
TREE = {1: (0, 1), 50: (1, 5), 100: (50, 10), 101: (100, 11), 102: (101, 12), 200: (1, 20), 201: (200, 21)}
ROOTS = {50: CARPOOL, 101: JOB}


class Machine:
    """A stand-in for ``/proc``: processes that tests start and end."""

    def __init__(self) -> None:
        self.processes = dict(TREE)

    def look(self, pid: int) -> tuple[int, int] | None:
        return self.processes.get(pid)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def ownership(machine: Machine) -> Ownership:
    return Ownership(machine.look, sees_all=True)


def sample(*processes: tuple[int, int | None], used: int | None = 1000) -> Sample:
    found = tuple(ProcessMemory(pid, size) for pid, size in processes)
    return Sample(0, Level.BASIC, used_bytes=used, processes=found)


def owners(sample: Sample) -> dict[int, int | None]:
    return {process.pid: process.owner for process in sample.processes or ()}


def test_processes_belong_to_the_nearest_root_above_them(ownership: Ownership) -> None:
    found = ownership.attribute(sample((50, 1), (100, 2), (101, 3), (102, 4), (200, 5), (201, 6), (999, 7)), ROOTS)
    assert owners(found) == {50: CARPOOL, 100: CARPOOL, 101: JOB, 102: JOB, 200: None, 201: None, 999: None}
    assert found.foreign_bytes == 5 + 6 + 7
    assert found.missing == {}


def test_a_dying_process_stays_with_its_job(ownership: Ownership, machine: Machine) -> None:
    ownership.attribute(sample((102, 4)), ROOTS)
    del machine.processes[101], machine.processes[102]  # the driver still has its memory
    assert owners(ownership.attribute(sample((102, 4)), {50: CARPOOL})) == {102: JOB}
    assert ownership.attribute(sample((102, 4)), {50: CARPOOL}).foreign_bytes == 0


def test_a_number_that_was_given_anew_is_another_process(ownership: Ownership, machine: Machine) -> None:
    ownership.attribute(sample((102, 4)), ROOTS)
    machine.processes[102] = (1, 99)
    assert owners(ownership.attribute(sample((102, 4)), ROOTS)) == {102: None}


def test_what_has_left_the_device_is_forgotten(ownership: Ownership, machine: Machine) -> None:
    ownership.attribute(sample((102, 4)), ROOTS)
    ownership.attribute(sample(), ROOTS)
    del machine.processes[102]
    assert owners(ownership.attribute(sample((102, 4)), ROOTS)) == {102: None}


def test_an_orphan_of_a_job_stays_with_it(ownership: Ownership, machine: Machine) -> None:
    ownership.attribute(sample((102, 4)), ROOTS)
    machine.processes[102] = (1, 12)
    assert owners(ownership.attribute(sample((102, 4)), ROOTS)) == {102: JOB}


@pytest.mark.parametrize(
    ("own", "foreign", "used", "wanted"),
    [
        (300, None, 1000, 700),  # all that is not ours
        (300, None, 200, 0),  # never negative
        (None, 50, 1000, 50),  # only the foreign ones count
        (None, None, 1000, None),
        (300, None, None, None),
    ],
)
def test_where_the_driver_does_not_say_how_much(
    ownership: Ownership, own: int | None, foreign: int | None, used: int | None, wanted: int | None
) -> None:
    found = ownership.attribute(sample((102, own), (200, foreign), used=used), ROOTS)
    assert found.foreign_bytes == wanted
    assert ("foreign_bytes" in found.missing) == (wanted is None)


def test_without_processes_nothing_is_known(ownership: Ownership) -> None:
    unknown = Sample(0, Level.BASIC, missing={"processes": "no permission"})
    found = ownership.attribute(unknown, ROOTS)
    assert found.foreign_bytes is None and found.missing["foreign_bytes"] == "no permission"


def test_in_a_container_strange_numbers_mean_nothing(machine: Machine) -> None:
    ownership = Ownership(machine.look, sees_all=False)
    for processes in ([(31_000, 5)], []):
        found = ownership.attribute(sample(*processes), ROOTS)
        assert found.foreign_bytes is None and found.processes is None
        assert found.missing == {"processes": ELSEWHERE, "foreign_bytes": ELSEWHERE}
    assert ownership.attribute(sample((102, 4), (31_000, 5)), ROOTS).foreign_bytes == 5  # they are this container's


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """A real child and grandchild."""
    code = "import subprocess, sys; p = subprocess.Popen(['cat']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield child.pid, int(child.stdout.readline())
        child.communicate()


def test_real_processes(family: tuple[int, int]) -> None:
    child, grandchild = family
    ownership = Ownership(sees_all=True)
    found = ownership.attribute(sample((grandchild, 1), (os.getpid(), 2), (1, 4)), {child: JOB, os.getpid(): CARPOOL})
    assert owners(found) == {grandchild: JOB, os.getpid(): CARPOOL, 1: None}
    assert found.foreign_bytes == 4


def test_looking_at_processes() -> None:
    seen = look(os.getpid())
    assert seen is not None and seen[0] == os.getppid()
    assert look(1 << 22) is None  # beyond the largest number
    assert isinstance(sees_all_processes(), bool)
