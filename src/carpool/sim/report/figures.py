"""The table of the report: figures as rows, policies as columns."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

from carpool.sim.results.summary import Summary

Show = Callable[[Summary], str]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


#: Figures that are the same for equal simulations: no real time.
_ROWS: tuple[tuple[str, Show], ...] = (
    ("mean JCT (s)", lambda summary: _seconds(summary.avg_jct_s)),
    ("median JCT (s)", lambda summary: _seconds(summary.median_jct_s)),
    ("95th percentile of JCT (s)", lambda summary: _seconds(summary.p95_jct_s)),
    ("99th percentile of JCT (s)", lambda summary: _seconds(summary.p99_jct_s)),
    ("makespan (s)", lambda summary: _seconds(summary.makespan_s)),
    ("mean queueing delay (s)", lambda summary: _seconds(summary.avg_queueing_s)),
    ("mean time without devices (s)", lambda summary: _seconds(summary.avg_waiting_s)),
    ("preemptions", lambda summary: _count(summary.preemptions)),
    ("utilization", lambda summary: f"{summary.utilization:.1%}"),
    ("offloads", lambda summary: _count(summary.offloads)),
    ("moved to the host store and back (GiB)", lambda summary: f"{summary.moved_gib:,.1f}"),
    ("time spent moving", lambda summary: f"{summary.moving:.1%}"),
    ("service (s)", lambda summary: _seconds(summary.service_s)),
    ("devices at work (s)", lambda summary: _seconds(summary.occupied_s)),
    ("out of memory", lambda summary: _count(summary.out_of_memory)),
    ("recovered after that", lambda summary: _count(summary.recovered)),
    ("work lost by that (s)", lambda summary: _seconds(summary.lost_s)),
    ("jobs", lambda summary: _count(summary.jobs)),
    ("succeeded", lambda summary: _count(summary.succeeded)),
    ("failed", lambda summary: _count(summary.failed)),
    ("refused", lambda summary: _count(summary.refused)),
    ("deadlines missed", lambda summary: _count(summary.deadlines_missed)),
    ("events", lambda summary: _count(summary.events)),
)


def figures_table(summaries: Sequence[Summary]) -> str:
    """Return the table as HTML."""
    heads = "".join(f"<th>{html.escape(summary.policy)}</th>" for summary in summaries)
    rows = "".join(
        f"<tr><th>{name}</th>{''.join(f'<td>{show(summary)}</td>' for summary in summaries)}</tr>\n"
        for name, show in _ROWS
    )
    return f'<div class="wide"><table>\n<tr><th></th>{heads}</tr>\n{rows}</table></div>\n'
