"""Results as CSV with the line ends of Unix: one line per job of the trace, and one per run of a job on a device.

The rows of a timeline: one per device, or as many as a device had lanes at one time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from carpool.core.model import MIB, Allocation, LaneId, Micros, Outcome
from carpool.sim.model.result import JobResult, Result, Span


class ReportRow(NamedTuple):
    """``slot`` is 0 for whole devices; lanes take the first slot of their device that is free, from 1 on."""

    device: int
    slot: int

    @property
    def name(self) -> str:
        """The name of the row for readers."""
        return f"device {self.device} · {self.slot}" if self.slot else f"device {self.device}"


def rows_of(result: Result, spans: Sequence[Span], devices: int) -> tuple[list[ReportRow], list[ReportRow]]:
    """Return the row of each span, and all rows, in order.  Unused devices have a row, too.

    ``spans`` are in the order of their beginnings; those of the first ``devices`` devices only.
    """
    if result.options.settings.allocation is Allocation.DEVICES:
        return [ReportRow(span.device, 0) for span in spans], [ReportRow(device, 0) for device in range(devices)]
    slots = _slots(spans)
    own = [slots[span.device, span.lane] for span in spans]
    idle = {ReportRow(device, 1) for device in range(devices)}
    return own, sorted(idle | set(own))


def _slots(spans: Sequence[Span]) -> dict[tuple[int, LaneId], ReportRow]:
    """Assign rows to lanes; a lane that has ended never comes back, so later lanes reuse its row."""
    ends: dict[tuple[int, LaneId], Micros] = {}
    for span in spans:
        place = span.device, span.lane
        ends[place] = max(ends.get(place, 0), span.end_us)
    slots: dict[tuple[int, LaneId], ReportRow] = {}
    free_from: dict[ReportRow, Micros] = {}
    for span in spans:
        place = span.device, span.lane
        if place not in slots:
            slot = 1
            while free_from.get(ReportRow(span.device, slot), 0) > span.begin_us:
                slot += 1
            slots[place] = ReportRow(span.device, slot)
            free_from[slots[place]] = ends[place]
    return slots


class PlainLines:
    """Ends lines with a newline.

    csv.writer must end them with CR and LF, because only then it quotes both in cells.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> None:
        """Write a line with the line end of Unix."""
        self._file.write(line.removesuffix("\r\n") + "\n")


JOB_COLUMNS = (
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
        writer.writerow(JOB_COLUMNS)
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


RUN_COLUMNS = ("device", "lane", "job_id", "begin_s", "end_s")


def write_runs_csv(result: Result, path: Path) -> None:
    """Write the file for a recorded result.  Lanes are numbered from 1, as in the report; 0 is a whole device.

    Times are exact decimal seconds.  Raises OSError.
    """
    assert result.recording is not None
    spans = sorted(result.recording.spans, key=lambda span: (span.begin_us, span.device, span.lane, span.job))
    rows, _ = rows_of(result, spans, result.options.devices)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(PlainLines(file))
        writer.writerow(RUN_COLUMNS)
        for span, row in zip(spans, rows, strict=True):
            times = _seconds(span.begin_us), _seconds(span.end_us)
            writer.writerow((row.device, row.slot, result.jobs[span.job].job.id, *times))
