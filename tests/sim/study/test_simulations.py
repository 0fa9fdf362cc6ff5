"""The simulations of a study: the same in any number of processes, and none lost by another's failure."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import psutil
import pytest

from carpool.core.model import Allocation, Settings
from carpool.sim.model.options import Options
from carpool.sim.model.trace_job import TraceJob
from carpool.sim.study.job_sources import Generated
from carpool.sim.study.simulations import KILLED, Combination, Study, StudyRun, Told, simulating

SOURCE = Generated("poisson:jobs=30", devices=1)


def options(*policies: str) -> dict[str, Options]:
    return {each: Options(settings=Settings(policy=each, allocation=Allocation.DEVICES)) for each in policies}


def figures(runs: Sequence[StudyRun]) -> dict[Combination, object]:
    """All but the speed of the simulation."""
    found = {}
    for run in runs:
        assert run.summary is not None, run.error
        found[run.combination] = dataclasses.replace(run.summary, jobs_per_second_simulated=0)
    return found


def ran(study: Study, processes: int = 1, told: Told | None = None) -> list[StudyRun]:
    with simulating(study, processes, told) as runs:
        return [*runs]


def test_the_number_of_processes_changes_nothing() -> None:
    study = Study(SOURCE, options("fifo", "srtf"), (0.5, 0.9), range(3))
    one, three = (ran(study, processes) for processes in (1, 3))
    assert [run.combination for run in one] == study.combinations()
    assert len(study.combinations()) == 12 and figures(one) == figures(three)


def test_results_are_kept_if_they_are_wanted() -> None:
    for processes in (1, 2):
        kept = ran(Study(SOURCE, options("fifo", "srtf"), keep=True), processes)
        assert [len(run.result.jobs) for run in kept if run.result] == [30, 30]
    assert [run.result for run in ran(Study(SOURCE, options("fifo")))] == [None]


def test_one_process_says_how_far_each_simulation_is() -> None:
    told: list[tuple[Combination, int, int]] = []
    (run,) = ran(Study(SOURCE, options("fifo"), seeds=(5,)), told=lambda *what: told.append(what))
    assert str(run.combination) == "policy fifo, seed 5"
    assert told == [(run.combination, 20, 30)]


@dataclasses.dataclass(frozen=True, eq=False)
class Breaking:
    """Jobs but for some seeds: 1 is an error for users, 2 a defect, 3 the end of the process."""

    worst: int = 3

    def jobs(self, load: float | None, seed: int | None) -> Sequence[TraceJob]:
        assert seed is not None
        if seed == 1:
            raise ValueError("there are no such jobs")
        if seed == 2:
            raise ZeroDivisionError("by zero")
        if seed == self.worst:
            os.kill(os.getpid(), signal.SIGKILL)
        return SOURCE.jobs(load, seed)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_is_one_of_its_combination(processes: int) -> None:
    runs = ran(Study(Breaking(worst=-1), options("fifo"), seeds=range(4)), processes)
    errors = {run.combination.seed: run.error for run in runs}
    assert errors == {0: "", 1: "there are no such jobs", 2: "ZeroDivisionError: by zero", 3: ""}
    assert {run.combination.seed for run in runs if run.summary is None} == {1, 2}


def test_a_process_that_is_killed_takes_no_other_simulation_along() -> None:
    runs = ran(Study(Breaking(), options("fifo"), seeds=[3, *range(4, 20)]), 2)
    assert {run.combination.seed: run.error for run in runs if run.error} == {3: KILLED}
    assert len(runs) == 17 and figures([run for run in runs if not run.error])


ENDLESS = """
import os, signal, time
from carpool.sim.study.simulations import Study, simulating
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
class Endless:
    def jobs(self, load, seed):
        os.write(1, b"begun\\n")
        time.sleep(3600)
study = Study(Endless(), {"a": None, "b": None})
try:
    with simulating(study, 2) as runs:
        list(runs)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_study(number: signal.Signals) -> None:
    """Also where only the process that waits is told, and where it cannot tell the others."""
    process = subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["begun\n"] * 2
    own = psutil.Process(process.pid).children()
    assert len(own) == 2
    process.send_signal(number)
    assert process.stdout.read() == ("interrupted\n" if number == signal.SIGINT else "")  # until all have ended
    process.wait()
    assert psutil.wait_procs(own, timeout=60)[1] == []


def test_a_study_that_is_left_ends_its_processes() -> None:
    before = psutil.Process().children()
    with simulating(Study(SOURCE, options("fifo"), seeds=range(9)), 2) as runs:
        next(runs)
    assert psutil.Process().children() == before
