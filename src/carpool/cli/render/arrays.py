"""Arrays and grids in output: one id, one row, and the states of the elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

from carpool.cli.render import formatting
from carpool.protocol.api import JobInfo
from carpool.protocol.job_names import job_number
from carpool.protocol.units import format_duration


def array_id(jobs: Sequence[JobInfo]) -> str:
    """Return the id of an array with the indices of the jobs, as in ``7[0-3,9]``."""
    return f"{jobs[0].array}[{ranges(job.index or 0 for job in jobs)}]"


def element_id(job: JobInfo) -> str:
    """Return the id of an element, as in ``7_3``; of a job in no array, the job's id."""
    return job_number(job.id, job.array, job.index)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges with commas between.

    >>> ranges([0, 1, 2, 5])
    '0-2,5'
    """
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)


def array_state(jobs: Sequence[JobInfo]) -> str:
    """Return how many elements have ended, and how, as in ``12 of 100 done, 3 failed``."""
    outcomes = Counter(job.outcome for job in jobs if job.outcome is not None)
    text = f"{sum(outcomes.values())} of {len(jobs)} done"
    bad = [f"{outcomes[outcome]} {outcome.replace('_', ' ')}" for outcome in sorted(outcomes) if outcome != "succeeded"]
    return ", ".join([text, *bad])


def array_outcomes(jobs: Sequence[JobInfo]) -> str:
    """Outcomes of jobs that have ended, as in ``98 succeeded, 2 failed``."""
    outcomes = Counter(job.outcome for job in jobs if job.outcome is not None)
    order = sorted(outcomes, key=lambda outcome: (outcome != "succeeded", outcome))
    return ", ".join(f"{outcomes[outcome]} {outcome.replace('_', ' ')}" for outcome in order)


def array_name(jobs: Sequence[JobInfo]) -> str:
    """Return the whole words with which the names of all elements begin; else the name of the first element."""
    titles = [formatting.title(job) for job in jobs]
    common = takewhile(lambda words: len(set(words)) == 1, zip(*(title.split(" ") for title in titles), strict=False))
    return " ".join(words[0] for words in common) or titles[0]


def array_why(jobs: Sequence[JobInfo]) -> str:
    """Return how many elements are in each phase, and why the first queued element waits."""
    phases = Counter(job.phase for job in jobs if job.outcome is None)
    counts = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    waiting = next((formatting.why(job) for job in jobs if job.phase == "queued"), "")
    return ": ".join(part for part in (counts, waiting) if part)


def array_time(jobs: Sequence[JobInfo], now: int) -> str:
    """Return the time from the first submission to the last end, or to now."""
    ends = [now if job.ended_us is None else job.ended_us for job in jobs]
    return format_duration(max(ends) - min(job.submitted_us for job in jobs))


def array_row(jobs: Sequence[JobInfo], now: int) -> tuple[str, ...]:
    """The row of `carpool ls`, in the order of its columns."""
    devices = sorted({job.device for job in jobs if job.device is not None and job.outcome is None})
    turn = "yes" if any(job.holds_turn for job in jobs) else "-"
    place = (",".join(devices) or "-", turn, "-", "-")
    return (array_id(jobs), array_name(jobs), array_state(jobs), *place, array_time(jobs, now), array_why(jobs))


def as_one(jobs: Sequence[JobInfo], whole: dict[int, list[JobInfo]]) -> list[list[JobInfo]]:
    """Group jobs by rows: single jobs, and arrays with all their elements, at the place of the first element."""
    rows: dict[object, list[JobInfo]] = {}
    for job in jobs:
        key = ("array", job.array) if job.array is not None else job.id
        rows.setdefault(key, [job] if job.array is None else whole.get(job.array, [job]))
    return list(rows.values())
