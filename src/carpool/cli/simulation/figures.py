"""The table of ``carpool simulate``: one row per policy, and below it what should not be overlooked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from carpool.cli.common import plural
from carpool.cli.style import Style
from carpool.cli.table import one_line, table
from carpool.cli.words import duration
from carpool.core.model import GIB
from carpool.protocol.sizes import format_size

if TYPE_CHECKING:
    from carpool.sim.summary import Summary

HEADER = (
    *("POLICY", "MEAN JCT", "MEDIAN", "P95", "P99", "QUEUEING", "MAKESPAN"),
    *("IN USE", "PREEMPTIONS", "JOBS/S"),
)


def lines(summaries: Sequence[Summary], style: Style, width: int | None) -> list[str]:
    shown = table(HEADER, [_row(summary) for summary in summaries], style, width)
    first = summaries[0]
    about = f"{plural(first.jobs, 'job')} on {plural(first.devices, 'device')}"
    mixed = len({summary.allocation for summary in summaries}) > 1
    return [*shown, style.dim(about), *(line for summary in summaries for line in _remarks(summary, mixed))]


def _row(summary: Summary) -> tuple[str, ...]:
    jct = (summary.avg_jct_s, summary.median_jct_s, summary.p95_jct_s, summary.p99_jct_s)
    return (
        one_line(summary.policy),
        *map(_time, (*jct, summary.avg_queueing_s, summary.makespan_s)),
        f"{summary.utilization:.1%}",
        str(summary.preemptions),
        f"{summary.jobs_per_second_simulated:,.0f}",
    )


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration(round(seconds * 1_000_000))


def _remarks(summary: Summary, mixed: bool) -> Iterator[str]:
    name = one_line(summary.policy)
    if mixed:
        yield f"{name}: {'whole devices' if summary.allocation == 'devices' else 'lanes'}"
    if summary.offloads:
        yield (
            f"{name}: {plural(summary.offloads, 'offload')}, {format_size(round(summary.moved_gib * GIB))} moved,"
            f" {summary.moving:.1%} of the time"
        )
    if summary.out_of_memory:
        yield (
            f"{name}: memory was denied {plural(summary.out_of_memory, 'time')}; {plural(summary.recovered, 'job')}"
            f" recovered, {_time(summary.lost_s)} of work lost"
        )
    if summary.failed:
        yield f"{name}: {plural(summary.failed, 'job')} failed"
    if summary.refused:
        yield f"{name}: {plural(summary.refused, 'job')} refused; {one_line(summary.first_refusal or '')}"
    if summary.deadlines_missed is not None:
        yield f"{name}: {plural(summary.deadlines_missed, 'deadline')} missed"
