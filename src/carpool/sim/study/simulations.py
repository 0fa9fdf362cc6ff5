"""A study's simulations, one after the other or side by side in processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
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


@contextmanager
def simulating(study: Study, processes: int = 1, told: Told | None = None) -> Iterator[Iterator[StudyRun]]:
    """Begin the simulations of a study, and yield an iterator over their ends, in whatever order.

    ``processes``: how many at once; with 1 there is no process but this one, and ``told`` is called.  The processes
    have begun when the block does: only there may this process get threads of its own.  None outlives the block.
    """
    combinations = study.combinations()
    count = min(processes, len(combinations))
    if count <= 1:
        yield (study.run(combination, told) for combination in combinations)
        return
    with _pool(study, count) as pool:
        runs = _side_by_side(study, count, _ask(pool, combinations))
        try:
            yield runs
        finally:
            runs.close()


Asked = dict["Future[StudyRun]", Combination]


def _side_by_side(study: Study, count: int, asked: Asked) -> Generator[StudyRun, None, None]:
    """Yield the runs of a pool.

    A process that is killed takes its pool along: what may have been in work then gets processes of its own, and the
    rest another pool.  A pool hands out two for each process and one more at most, first come, first served.
    """
    lost = yield from _ended(asked)
    while lost:
        suspects, lost = lost[: 2 * count + 1], lost[2 * count + 1 :]
        for combination in suspects:
            yield _alone(study, combination)
        with _pool(study, count) as pool:
            lost = yield from _ended(_ask(pool, lost))


def _ended(asked: Asked) -> Generator[StudyRun, None, list[Combination]]:
    """Yield runs as they end; return the combinations whose pool has broken before they ended, in order."""
    ended = set()
    done: SimpleQueue[Future[StudyRun]] = SimpleQueue()
    with _undisturbed():
        for future in asked:
            future.add_done_callback(done.put)
    for _ in asked:
        future = done.get()
        if not isinstance(future.exception(), BrokenProcessPool):
            ended.add(future)
            yield future.result()
    return [combination for future, combination in asked.items() if future not in ended]


def _alone(study: Study, combination: Combination) -> StudyRun:
    """Simulate one combination in a process of its own, which may be killed."""
    with _pool(study, 1) as pool:
        found = [*_ended(_ask(pool, [combination]))]
    return found[0] if found else StudyRun(combination, error=KILLED)


def _ask(pool: ProcessPoolExecutor, combinations: Iterable[Combination]) -> Asked:
    with _undisturbed():
        return {_submitted(pool, combination): combination for combination in combinations}


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put Ctrl-C off: inside the calls of a pool it would leave locks behind, and the pool would never shut down."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _submitted(pool: ProcessPoolExecutor, combination: Combination) -> Future[StudyRun]:
    try:
        return pool.submit(_run, combination)
    except BrokenProcessPool as broken:  # already
        future: Future[StudyRun] = Future()
        future.set_exception(broken)
        return future


@contextmanager
def _pool(study: Study, processes: int) -> Iterator[ProcessPoolExecutor]:
    """Make a pool whose processes are copies of this one, so that users' own classes need no pickling.

    They end with the block, whatever they are doing.
    """
    others = multiprocessing.active_children()
    fork = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(processes, fork, _begin, (study,))
    try:
        yield pool
    finally:
        for process in multiprocessing.active_children():
            if process not in others:
                process.kill()
        pool.shutdown(cancel_futures=True)


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
