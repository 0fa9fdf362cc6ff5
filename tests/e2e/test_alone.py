"""A job that is alone on its device is left alone: no system call per iteration."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Daemons, Running
    from tests.live import Workload

#: Of `tests/workloads/lone.py`.
MARKERS = ("20", "70", "170")


class Lone(NamedTuple):
    """The job, and its daemon."""

    job: Running
    daemon: Daemon


@pytest.fixture(scope="module")
def lone(module_daemons: Daemons, workload: type[Workload]) -> Lone:
    """Traced, where that is possible."""
    daemon = module_daemons()
    tracer = ["strace", "-f", "-qq", "-o", str(daemon.home / "trace")] if shutil.which("strace") else []
    return Lone(daemon.submit(workload("lone"), before=tracer), daemon)


def test_a_lone_job_makes_no_system_call_per_iteration(lone: Lone) -> None:
    """libcarpool counts its own: as many over 100 iterations as over 50, that is none."""
    result = lone.job.result()
    begin, middle, end = result["counters"]
    assert middle["iterations"] - begin["iterations"] == 50
    assert end["iterations"] - middle["iterations"] == 100
    assert end["allocs"] - middle["allocs"] >= 1000, "the tensors did not come from libcarpool"
    for name in ("syscalls", "traps", "turns"):
        assert begin[name] == middle[name] == end[name], name


def test_a_tracer_sees_no_more_system_calls_than_without_carpool(lone: Lone) -> None:
    """Counted from outside, on the thread that trains, between calls that the script makes to be found."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    lone.job.result()
    lines = traced(lone.daemon)
    assert len(lines["70", "170"]) <= 2, lines["70", "170"]


def traced(daemon: Daemon) -> dict[tuple[str, str], list[str]]:
    """The system calls of the script's own thread between two of its markers."""
    everything = (daemon.home / "trace").read_text().splitlines()
    places = {
        number: next(index for index, line in enumerate(everything) if f'"/marker-{number}"' in line)
        for number in MARKERS
    }
    thread = everything[places["20"]].split()[0]
    return {
        (first, last): [line for line in everything[places[first] + 1 : places[last]] if line.split()[0] == thread]
        for first, last in (("20", "70"), ("70", "170"))
    }
