"""Whose processes are on a device, and how much of its memory is not Carpool's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from carpool.telemetry.readers import ELSEWHERE, Ownership, bytes_of_others, look, sees_all_processes, with_unmanaged
from carpool.telemetry.samples import CARPOOL, CapabilityLevel, ProcessMemory, Sample

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


def sample(*processes: tuple[int, int | None]) -> Sample:
    return Sample(0, CapabilityLevel.BASIC, processes=tuple(ProcessMemory(pid, size) for pid, size in processes))


def owners(sample: Sample) -> dict[int, int | None]:
    return {process.pid: process.owner for process in sample.processes or ()}


def test_processes_belong_to_the_nearest_root_above_them(ownership: Ownership) -> None:
    found = ownership.attribute(sample((50, 1), (100, 2), (101, 3), (102, 4), (200, 5), (201, 6), (999, 7)), ROOTS)
    assert owners(found) == {50: CARPOOL, 100: CARPOOL, 101: JOB, 102: JOB, 200: None, 201: None, 999: None}
    assert found.missing == {}


def test_a_dying_process_stays_with_its_job(ownership: Ownership, machine: Machine) -> None:
    ownership.attribute(sample((102, 4)), ROOTS)
    del machine.processes[101], machine.processes[102]  # the driver still has its memory
    assert owners(ownership.attribute(sample((102, 4)), {50: CARPOOL})) == {102: JOB}


@pytest.mark.parametrize(
    ("leaves", "becomes", "owner"),
    [(False, (1, 99), None), (True, None, None), (False, (1, 12), JOB)],
    ids=["a number that was given anew", "what has left the device is forgotten", "an orphan of a job stays with it"],
)
def test_what_becomes_of_a_process_of_a_job(
    ownership: Ownership, machine: Machine, leaves: bool, becomes: tuple[int, int] | None, owner: int | None
) -> None:
    """``becomes``: its parent and start time."""
    ownership.attribute(sample((102, 4)), ROOTS)
    if leaves:
        ownership.attribute(sample(), ROOTS)
    del machine.processes[102]
    machine.processes |= {102: becomes} if becomes else {}
    assert owners(ownership.attribute(sample((102, 4)), ROOTS)) == {102: owner}


@pytest.mark.parametrize(("used", "granted", "wanted"), [(1000, 300, 700), (200, 300, 0), (None, 300, None)])
def test_what_is_in_use_beside_lanes_and_banks(used: int | None, granted: int, wanted: int | None) -> None:
    found = with_unmanaged(
        Sample(0, CapabilityLevel.BASIC, used_bytes=used, missing={"used_bytes": "no permission"}), granted
    )
    assert found.foreign_bytes == wanted
    assert found.missing.get("foreign_bytes") == ("no permission" if wanted is None else None)


@pytest.mark.parametrize("of_the_job", [200, 200 + 300], ids=["maker", "importers"])
def test_whether_a_job_s_lane_counts_for_its_process_changes_nothing(ownership: Ownership, of_the_job: int) -> None:
    """Drivers differ in what they count for a process that has imported memory."""
    processes = tuple(ProcessMemory(pid, size) for pid, size in ((50, 310), (101, of_the_job), (201, 40)))
    seen = Sample(0, CapabilityLevel.BASIC, used_bytes=550, processes=processes)
    found = with_unmanaged(ownership.attribute(seen, ROOTS), granted=300)
    assert (found.foreign_bytes, bytes_of_others(found)) == (250, 40)


def test_without_processes_nothing_is_known_of_them(ownership: Ownership) -> None:
    unknown = Sample(0, CapabilityLevel.BASIC, missing={"processes": "no permission"})
    assert ownership.attribute(unknown, ROOTS) == unknown


def test_in_a_container_strange_numbers_mean_nothing(machine: Machine) -> None:
    ownership = Ownership(machine.look, sees_all=False)
    for processes in ([(31_000, 5)], []):
        found = ownership.attribute(sample(*processes), ROOTS)
        assert found.processes is None
        assert found.missing == {"processes": ELSEWHERE}
    found = ownership.attribute(sample((102, 4), (31_000, 5)), ROOTS)
    assert owners(found) == {102: JOB, 31_000: None}, "they are this container's"


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


def test_looking_at_processes() -> None:
    seen = look(os.getpid())
    assert seen is not None and seen[0] == os.getppid()
    assert look(1 << 22) is None  # beyond the largest number
    assert isinstance(sees_all_processes(), bool)
