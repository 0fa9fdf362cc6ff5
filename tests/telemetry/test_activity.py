"""SMACT, SMOCC and what was moved, against what is known to have happened."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.core.model import GIB
from carpool.telemetry.activity import FASTEST, Activity, JobUse
from carpool.telemetry.host import Host, Powercap
from carpool.telemetry.process_trees import JobProcess, Trees
from carpool.telemetry.readers import HostReader, Target
from carpool.telemetry.samples import ProcessMemory, Sample

SECOND = 1_000_000
CORES = 4


def job(number: int, lane: int, turn: float, own: float, everything: float | None = None) -> Any:
    """A job's seat and process, with times in seconds."""
    whole = own if everything is None else everything
    return (
        JobUse(number, lane, 100 + number, round(turn * SECOND), 0),
        JobProcess(100 + number, number, round(own * SECOND), round(whole * SECOND), 0),
    )


def between(before: list[Any], after: list[Any]) -> dict[str, int]:
    """In one second."""
    activity = Activity()
    assert activity.between([use for use, _ in before], [process for _, process in before], 5 * SECOND, CORES) is None
    found = activity.between([use for use, _ in after], [process for _, process in after], 6 * SECOND, CORES)
    assert found is not None
    return found


#: pid 999 has job 1's seat.
OTHER = JobUse(1, 1, 999, 11 * SECOND), JobProcess(999, 1, 11 * SECOND, 11 * SECOND, 0)
TWO_LANES = [job(1, 1, 1, 1), job(2, 2, 2, 2)]


@pytest.mark.parametrize(
    ("before", "after", "active", "occupancy"),
    [
        ([], [], 0, 0),
        ([job(1, 1, 10, 20)], [job(1, 1, 10.5, 21)], 500_000, 250_000),
        ([job(1, 1, 10, 20)], [job(1, 1, 11, 20.1)], 100_000, 25_000),
        ([job(1, 1, 10, 20, 20)], [job(1, 1, 10.2, 21, 24)], 200_000, 1_000_000),
        ([job(1, 1, 1, 1), job(2, 1, 2, 2)], [job(1, 1, 1.3, 9), job(2, 1, 2.4, 9)], 700_000, 1_000_000),
        (TWO_LANES, [job(1, 1, 1.5, 9), job(2, 2, 2.5, 9)], 750_000, 1_000_000),
        (TWO_LANES, [job(1, 1, 2, 9), job(2, 2, 2.5, 9)], 1_000_000, 1_000_000),
        ([], [job(1, 1, 99, 99)], 0, 0),
        ([job(1, 1, 9, 9)], [job(1, 1, 3, 3)], 0, 0),
        ([job(1, 1, 10, 10)], [OTHER], 0, 250_000),
        ([job(1, 1, 0, 0)], [job(1, 1, 9e9, 9e9)], 1_000_000, 1_000_000),
    ],
    ids=[
        *("no job", "half of the time with two threads", "who keeps its turn and sleeps does not compute"),
        *("processor time without a turn is not the device's", "turns of one lane add up"),
        *("lanes know nothing of each other", "of which one computes all the time"),
        *("a job counts from its second look on", "counters that go back say nothing"),
        *("another process in the seat begins anew", "seats may claim anything"),
    ],
)
def test_how_much_of_a_second_jobs_computed(before: list[Any], after: list[Any], active: int, occupancy: int) -> None:
    found = between(before, after)
    assert found == {"sm_active_ppm": active, "sm_occupancy_ppm": occupancy, "moved_bytes_per_s": 0}


def test_turns_are_known_where_no_process_says_for_how_long_it_computed() -> None:
    """Of a GPU, of which the driver says how busy it was, with other people's programs."""
    activity, uses = Activity(), [[JobUse(1, 1, 101, turn), JobUse(2, 2, 102, turn)] for turn in (0, SECOND // 2)]
    activity.between(uses[0], (), 0, 1)
    found = activity.between(uses[1], (), SECOND, 1)
    assert found is not None and (found["sm_active_ppm"], activity.turns_ppm) == (0, 750_000)


@pytest.mark.parametrize(
    ("before", "after", "us", "moved"),
    [(7, 7 + GIB, 500_000, 2 * GIB), (9, 3, SECOND, 0), (0, 1 << 64, SECOND, FASTEST)],
    ids=["half a second", "backwards", "sums over an hour fit into the journal"],
)
def test_what_is_moved_is_bytes_in_a_second(before: int, after: int, us: int, moved: int) -> None:
    activity = Activity()
    uses = [[JobUse(1, 1, 101, 0, bytes_)] for bytes_ in (before, after)]
    activity.between(uses[0], [], 0, 1)
    assert (activity.between(uses[1], [], us, 1) or {})["moved_bytes_per_s"] == moved


def test_time_that_stands_still_is_no_interval() -> None:
    activity = Activity()
    assert activity.between([], [], 5, 1) is None
    assert activity.between([], [], 5, 1) is None
    assert activity.between([], [], 6, 1) is not None


def test_the_reader_keeps_devices_apart(proc_with_two_jobs: Any) -> None:
    """Two devices, a job on each, one pass."""
    root, tick = proc_with_two_jobs
    now = [0]
    reader = HostReader(lambda: now[0], Host(root, Powercap(root)), Trees(root), cores=2)
    uses = {"host0": JobUse(1, 1, 10), "host1": JobUse(2, 2, 20)}

    def read(**turns: int) -> dict[str, Any]:
        targets = [
            Target(device, GIB, 0, "", (JobUse(use.job, use.lane, use.pid, turns.get(device, 0)),), now[0])
            for device, use in uses.items()
        ]
        return dict(reader.read(targets, {4711: 0, 10: 1, 20: 2}))

    first = read()["host0"]
    assert isinstance(first, Sample) and first.sm_active_ppm is None
    assert first.missing["sm_active_ppm"] == "needs a second measurement"
    now[0] = SECOND
    tick()
    found = read(host0=SECOND // 4, host1=SECOND)
    assert [found[device].sm_active_ppm for device in uses] == [250_000, 500_000]
    assert [found[device].sm_occupancy_ppm for device in uses] == [500_000, 250_000]
    assert found["host0"].processes == (ProcessMemory(10, 4096, 1, SECOND // 4),)


def test_what_a_job_computed_in_its_turn_is_its_busy_time(proc_with_two_jobs: Any) -> None:
    proc, pass_a_second = proc_with_two_jobs
    now = [5 * SECOND]
    reader = HostReader(lambda: now[0], Host(proc, Powercap(proc)), Trees(proc), CORES)

    def busy(turns: tuple[int, int]) -> dict[int, int | None]:
        uses = tuple(JobUse(pid, 1, pid, turn) for pid, turn in zip((10, 20), turns, strict=True))
        found = reader.read([Target("host0", GIB, uses=uses)], {10: 10, 20: 20})["host0"]
        assert isinstance(found, Sample) and found.processes is not None
        return {process.pid: process.busy_us for process in found.processes}

    assert busy((0, 0)) == {10: None, 20: None}
    pass_a_second()
    now[0] += SECOND
    assert busy((300_000, 700_000)) == {10: 300_000, 20: 500_000}
