"""A study's simulations, one after the other or side by side in processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from carpool.sim import driver
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.results.summary import Summary, summarize
from carpool.sim.study.job_sources import JobSource, jobs_of

KILLED = "its process was killed, perhaps because memory ran out: use fewer processes (-j), or fewer jobs"
#: Called with a simulation that goes on in this process, and how many of how many jobs have ended there.
Told = Callable[["Combination", int, int], None]


class Combination(NamedTuple):
    """What one simulation of a study is about."""

    policy: str
    load: float | None  # None: that of the jobs as they are
    seed: int | None  # None: nothing is drawn

    def __str__(self) -> str:
        """Name it for users."""
        load = "" if self.load is None else f", load {self.load:g}"
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"policy {self.policy}{load}{seed}"


@dataclass(frozen=True)
class StudyRun:
    """What became of one simulation: it has a summary, or an error."""

    combination: Combination
    summary: Summary | None = None
    error: str = ""
    result: Result | None = None  # if the study keeps results


@dataclass(frozen=True)
class Study:
    """``options``: by policy.  ``keep``: results are wanted, not only their summaries."""

    source: JobSource
    options: Mapping[str, Options]
    loads: Sequence[float | None] = (None,)
    seeds: Sequence[int | None] = (None,)
    keep: bool = False

    def combinations(self) -> list[Combination]:
        """Return all simulations, those of the same jobs side by side."""
        every = itertools.product(self.loads, self.seeds, self.options)
        return [Combination(policy, load, seed) for load, seed, policy in every]

    def run(self, combination: Combination, told: Told | None = None) -> StudyRun:
        """Simulate one combination.  Any error becomes part of the answer: the others are not to be lost by it."""
        try:
            result = self._simulated(combination, told)
        except Exception as error:  # noqa: BLE001 - said with its combination, see above
            text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            return StudyRun(combination, error=text)
        return StudyRun(combination, summarize(result), result=result if self.keep else None)

    def _simulated(self, combination: Combination, told: Told | None) -> Result:
        jobs = jobs_of(self.source, combination.load, combination.seed)
        if told is None:
            return driver.simulate(jobs, self.options[combination.policy])
        return driver.simulate(jobs, self.options[combination.policy], lambda done: told(combination, done, len(jobs)))


@dataclass
class StudyRuns:
    """Iterates over the runs of a study in the order in which they end.

    ``processes``: how many at once; with 1 there is no process but this one, and ``told`` is called.
    """

    study: Study
    processes: int = 1
    told: Told | None = None
    combinations: Sequence[Combination] = field(init=False)

    def __post_init__(self) -> None:
        """List what is to be simulated."""
        self.combinations = self.study.combinations()

    def __iter__(self) -> Iterator[StudyRun]:
        """Simulate.  An iterator that is closed, or interrupted, leaves no process."""
        count = min(self.processes, len(self.combinations))
        if count <= 1:
            return (self.study.run(combination, self.told) for combination in self.combinations)
        return self._side_by_side(count)

    def _side_by_side(self, count: int) -> Iterator[StudyRun]:
        """A process that is killed takes its pool along: what may have been in work then gets processes of its own."""
        left = list(self.combinations)
        while left:
            ended = set()
            for combination, future in _completed(self.study, count, left):
                if not isinstance(future.exception(), BrokenProcessPool):
                    ended.add(combination)
                    yield future.result()
            lost = [combination for combination in left if combination not in ended]
            in_work = 2 * count + 1  # a pool hands out that many at most, first come, first served
            for combination in lost[:in_work]:
                yield self._alone(combination)
            left = lost[in_work:]

    def _alone(self, combination: Combination) -> StudyRun:
        """Simulate one combination in a process of its own, which may be killed."""
        ((_, future),) = _completed(self.study, 1, [combination])
        if isinstance(future.exception(), BrokenProcessPool):
            return StudyRun(combination, error=KILLED)
        return future.result()


def _completed(
    study: Study, processes: int, combinations: Sequence[Combination]
) -> Iterator[tuple[Combination, Future[StudyRun]]]:
    """Yield combinations with their futures, as these complete."""
    with _pool(study, processes) as pool:
        asked = {_asked(pool, combination): combination for combination in combinations}
        for future in as_completed(asked):
            yield asked[future], future


def _asked(pool: ProcessPoolExecutor, combination: Combination) -> Future[StudyRun]:
    try:
        return pool.submit(_run, combination)
    except BrokenProcessPool as broken:  # already
        future: Future[StudyRun] = Future()
        future.set_exception(broken)
        return future


@contextmanager
def _pool(study: Study, processes: int) -> Iterator[ProcessPoolExecutor]:
    """Make a pool whose processes are copies of this one, so that users' own classes need no pickling.

    They end at once if the block does not end by itself, whatever they are doing.
    """
    others = multiprocessing.active_children()
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(processes, fork, _begin, (study,))
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in others:
                process.kill()
        pool.shutdown(cancel_futures=True)
        raise


_study: Study


def _begin(study: Study) -> None:
    """Prepare a process of the pool: Ctrl-C is for the process that waits for all of them, and ends them."""
    global _study
    _study = study
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process of a pool"
    parent.join()
    os._exit(1)


def _run(combination: Combination) -> StudyRun:
    return _study.run(combination)
