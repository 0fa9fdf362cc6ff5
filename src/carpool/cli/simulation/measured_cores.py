"""How much busy processes get done on this machine together: measured with real processes, several at once."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.simulation import busy_process
from carpool.sim.model.cores import Point, levelled
from carpool.sim.model.trace_job import WHOLE_PPM
from carpool.telemetry.host import Host

ROUNDS = 5
LEAD_NS = 20_000_000  # from the request until all processes begin
EACH_NS = 100_000  # longer for each of them

Busy = subprocess.Popen[str]


@dataclass(frozen=True, slots=True)
class MeasuredCores:
    """``points``: medians of the rounds; ``others``: cores that other programs used meanwhile, on average."""

    points: tuple[Point, ...]
    others: float


def measure(cores: int, seconds: float, progress: Callable[[int, int], None]) -> MeasuredCores:
    """Measure for so long, in `ROUNDS` rounds.  ``progress``: told of rounds that are over, and of their number.

    Raises Problem, OSError.
    """
    numbers, rounds = numbers_up_to(cores), []
    window_s = seconds / (ROUNDS * len(numbers))
    with _others() as others, _busy_processes(cores) as team:
        for done in range(ROUNDS):
            rounds.append([_speed(team[:number], window_s) for number in numbers])
            progress(done + 1, ROUNDS)
    return MeasuredCores(levelled(_medians(numbers, rounds)), others())


def numbers_up_to(cores: int) -> list[int]:
    """Return how many processes work at once: 1, 2, 3, 4, 6, 8, 12, 16 ... and one for each core."""
    powers = [1 << power for power in range(cores.bit_length())]
    found = {*powers, *(3 * power for power in powers), cores}
    return sorted(number for number in found if number <= cores)


def _medians(numbers: Sequence[int], rounds: Sequence[Sequence[float]]) -> Iterator[Point]:
    """Yield the median speed by number of processes; the unit is the speed of one alone in the same round."""
    for place, number in enumerate(numbers):
        yield number, round(WHOLE_PPM * statistics.median(speeds[place] / speeds[0] for speeds in rounds))


def _speed(team: Sequence[Busy], window_s: float) -> float:
    """Let these processes work at the same time; return the pieces of work per second of all together."""
    begin_ns = time.monotonic_ns() + LEAD_NS + EACH_NS * len(team)
    line = f"{begin_ns} {begin_ns + round(window_s * busy_process.SECOND_NS)}\n"
    for process in team:
        with suppress(BrokenPipeError):  # of a process that has ended: `_answer` says so
            print(line, end="", file=process.stdin, flush=True)
    return sum(map(_answer, team))


def _answer(process: Busy) -> float:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        text = f"a process that measures has ended with {process.wait()}"
        raise Problem(Exit.FAILED, "calibration", text, "see its message above; then calibrate again")
    return float(line)


@contextmanager
def _busy_processes(count: int) -> Iterator[list[Busy]]:
    command = [sys.executable, "-I", "-S", busy_process.__file__]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    team: list[Busy] = []
    try:
        for _ in range(count):
            team.append(subprocess.Popen(command, **pipes))  # noqa: PERF401 - those before are ended if one fails
        yield team
    finally:
        for process in team:
            process.kill()
        for process in team:
            process.communicate()


@contextmanager
def _others() -> Iterator[Callable[[], float]]:
    """Yield a function that says, afterwards, how many cores other programs used on average."""
    host, before, began = Host(), _own_s(), time.monotonic()
    host.look()
    found = 0.0

    def others() -> float:
        return found

    yield others
    host.look()
    busy = (host.sample(0, 0, 0).busy_ppm or 0) / WHOLE_PPM * (os.cpu_count() or 1)
    found = max(0.0, busy - (_own_s() - before) / (time.monotonic() - began))


def _own_s() -> float:
    """Return the processor time of this process and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
