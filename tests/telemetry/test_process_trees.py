"""Whose processes are whose, how long they have computed: in a made-up /proc, and in the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.telemetry import process_trees
from carpool.telemetry.activity import Activity, JobUse
from carpool.telemetry.process_trees import PAGE, TICK_US, JobProcess, Trees
from tests.telemetry.conftest import FakeProc


def owners(found: list[JobProcess]) -> dict[int, int]:
    return {process.pid: process.owner for process in found}


def test_everything_below_a_root_is_its_owners(proc: FakeProc) -> None:
    for pid, parent in ((10, 1), (11, 10), (12, 11), (20, 1), (21, 20), (30, 1)):
        proc.put(pid, parent, own=pid, waited=3, private=2)
    found = Trees(proc.root).look({10: 7, 20: 8})
    assert owners(found) == {10: 7, 11: 7, 12: 7, 20: 8, 21: 8}
    assert found[1] == JobProcess(11, 7, 11 * TICK_US, 14 * TICK_US, 2 * PAGE)
    assert owners(Trees(proc.root).look({10: 7, 11: 8})) == {10: 7, 11: 8, 12: 8}, "the nearest root counts"


def test_others_are_looked_at_once(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, parent in ((10, 1), (11, 10), *((other, 1) for other in range(100, 150))):
        proc.put(pid, parent)
    looks = Trees(proc.root)
    looks.look({10: 7})
    read: list[int] = []
    real = process_trees.stat_of
    monkeypatch.setattr(process_trees, "stat_of", lambda pid, root: read.append(pid) or real(pid, root))
    proc.put(12, 11)
    assert owners(looks.look({10: 7})) == {10: 7, 11: 7, 12: 7}
    assert sorted(read) == [10, 11, 12]
    assert owners(looks.look({10: 7, 100: 8})) == {10: 7, 11: 7, 12: 7, 100: 8}  # other roots: asked anew


def test_what_ends_and_numbers_that_come_again(proc: FakeProc) -> None:
    for pid, parent in ((10, 1), (11, 10), (12, 11)):
        proc.put(pid, parent)
    looks = Trees(proc.root)
    looks.look({10: 7})
    proc.end(12)
    proc.put(11, 1, start=99)  # another process has the number now
    assert owners(looks.look({10: 7})) == {10: 7}
    proc.put(12, 1)
    assert owners(looks.look({10: 7})) == {10: 7}


def test_a_number_that_came_again_unseen_is_found_later(proc: FakeProc) -> None:
    proc.put(10, 1)
    proc.put(11, 1)
    looks = Trees(proc.root)
    looks.look({10: 7})
    proc.put(11, 10, start=99)  # between two looks
    found = [owners(looks.look({10: 7})) for _ in range(process_trees.FORGET_AFTER)]
    assert found[-1] == {10: 7, 11: 7}


def test_without_proc(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Trees(tmp_path / "nothing").look({1: 1})


BURN = """
import sys, time
while time.process_time() < 0.3:
    pass
print(time.process_time(), flush=True)
sys.stdin.readline()
"""
PARENT = f"""
import subprocess, sys
child = subprocess.run([sys.executable, "-c", {BURN!r}], stdin=subprocess.DEVNULL, capture_output=True, text=True)
print(child.stdout, end="", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(("program", "over"), [(BURN, False), (PARENT, True)])
def test_a_real_process_has_computed_as_long_as_it_says(program: str, over: bool) -> None:
    """The child of the second is over, and has been waited for: its time is not lost."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said_us = float(process.stdout.readline()) * 1e6
        (found,) = (each for each in Trees().look({process.pid: 7}) if each.pid == process.pid)
        process.communicate("\n")
    counted = found.all_us - found.own_us if over else found.own_us
    assert said_us - 5 * TICK_US <= counted <= said_us + 100_000  # what its end took
    assert found.private_bytes > 1 << 20


def test_a_process_that_burns_one_core_is_one_core_of_those_that_there_are() -> None:
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            looks, activity, cores = Trees(), Activity(), len(os.sched_getaffinity(0))
            uses = [JobUse(7, 1, process.pid)]

            def look() -> tuple[int, dict[str, int] | None]:
                """As if it had had a core for itself."""
                found = looks.look({process.pid: 7})
                return found[0].own_us, activity.between(uses, found, found[0].own_us, cores)

            first, nothing = look()
            assert nothing is None
            while looks.look({process.pid: 7})[0].own_us - first < 500_000:
                pass
            _, found = look()
        finally:
            process.kill()
    assert found is not None
    assert 0.7 / cores <= found["sm_occupancy_ppm"] / 1e6 <= min(1, 1.5 / cores)
