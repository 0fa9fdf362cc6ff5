"""The result of each job, as CSV: one line per job of the trace, in its order."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from carpool.core.model import MIB, Micros, Outcome
from carpool.sim.model.csv_lines import PlainLines
from carpool.sim.model.result import JobResult, Result

COLUMNS = (
    *("job_id", "submit_s", "gpus", "start_s", "end_s", "jct_s", "queueing_s", "waiting_s", "service_s"),
    *("preemptions", "attempts", "offloads", "moved_mib", "moving_s"),
    *("out_of_memory", "lost_s", "outcome", "reason"),
)


def write_jobs_csv(result: Result, path: Path) -> None:
    """Write the file.  Times are exact decimal seconds.

    A job that never started has no start; a refused one has no JCT either.  Raises OSError.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(PlainLines(file))
        writer.writerow(COLUMNS)
        writer.writerows(_cells(job) for job in result.jobs)


def _cells(result: JobResult) -> Iterator[object]:
    refused = result.outcome is Outcome.REFUSED
    yield result.job.id
    yield _seconds(result.job.submit_us)
    yield result.job.gpus
    yield _seconds(result.started_us)
    yield _seconds(result.ended_us)
    yield _seconds(None if refused else result.jct_us)
    yield _seconds(None if refused else result.queueing_us)
    yield _seconds(None if refused else result.waiting_us)
    yield _seconds(None if refused else result.service_us)
    yield result.preemptions
    yield result.attempts
    yield result.offloads
    yield f"{result.moved_bytes / MIB:.3f}"
    yield _seconds(result.moving_us)
    yield result.out_of_memory
    yield _seconds(result.lost_us)
    yield result.outcome.value
    yield result.reason


def _seconds(us: Micros | None) -> str:
    return "" if us is None else f"{us // 1_000_000}.{us % 1_000_000:06}"
