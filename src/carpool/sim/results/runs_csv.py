"""Which job was on which device, and when, as CSV: one line per run, in the order of their beginnings."""

from __future__ import annotations

import csv
from pathlib import Path

from carpool.core.model import Micros
from carpool.sim.model.csv_lines import PlainLines
from carpool.sim.model.result import Result, Span
from carpool.sim.results.lane_rows import rows_of

COLUMNS = ("device", "lane", "job_id", "begin_s", "end_s")


def write_runs_csv(result: Result, path: Path) -> None:
    """Write the file for a recorded result.  Lanes are numbered from 1, as in the report; 0 is a whole device.

    Times are exact decimal seconds.  Raises OSError.
    """
    assert result.recording is not None
    spans = sorted(result.recording.spans, key=_order)
    rows, _ = rows_of(result, spans, result.options.devices)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(PlainLines(file))
        writer.writerow(COLUMNS)
        for span, row in zip(spans, rows, strict=True):
            times = _seconds(span.begin_us), _seconds(span.end_us)
            writer.writerow((row.device, row.slot, result.jobs[span.job].job.id, *times))


def _order(span: Span) -> tuple[Micros, int, int, int]:
    return span.begin_us, span.device, span.lane, span.job


def _seconds(us: Micros) -> str:
    return f"{us // 1_000_000}.{us % 1_000_000:06}"
