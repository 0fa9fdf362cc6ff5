"""Which job was on which device, and when: a bar for each span."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

import plotly.graph_objects as go
from plotly.colors import qualitative

from carpool.core.model import Allocation, Micros
from carpool.sim.model.result import Result, Span
from carpool.sim.report.chart import Chart, figure, label
from carpool.sim.report.scale import Scale
from carpool.sim.results.lane_rows import ReportRow, rows_of
from carpool.sim.traces.numbers import print_decimal

MOST_SPANS = 5000
MOST_DEVICES = 64
MOST_ROWS = 160
_ROW_PIXELS = 18
_COLOURS = (*qualitative.D3, *qualitative.Set2)
_HOVER = "%{customdata[0]}<br>%{customdata[1]}<br>from %{customdata[2]} s<br>to %{customdata[3]} s<extra></extra>"


def timeline_chart(result: Result, spans: Sequence[Span], scale: Scale, end_us: Micros) -> Chart:
    """Chart the first spans of the trace; the note counts spans beyond the limits."""
    first = nsmallest(MOST_SPANS, (span for span in spans if span.device < MOST_DEVICES), key=_order)
    own, rows = rows_of(result, first, min(result.options.devices, MOST_DEVICES))
    rows = rows[:MOST_ROWS]
    shown = [(span, row) for span, row in zip(first, own, strict=True) if row <= rows[-1]]
    drawing = figure(
        [_bars(result, shown, scale)], f"time ({scale.unit})", "", 90 + _ROW_PIXELS * len(rows), barmode="overlay"
    )
    drawing.update_layout(bargap=0.1)
    drawing.update_xaxes(range=[0, scale.of(end_us)])
    names = [row.name for row in rows]
    drawing.update_yaxes(
        type="category", categoryorder="array", categoryarray=names, range=[len(rows) - 0.5, -0.5], dtick=1
    )
    return Chart(drawing, _note(len(spans), [span for span, _ in shown]))


def _order(span: Span) -> tuple[Micros, int, int, int]:
    return span.begin_us, span.device, span.lane, span.job


def _bars(result: Result, shown: Sequence[tuple[Span, ReportRow]], scale: Scale) -> go.Bar:
    return go.Bar(
        orientation="h",
        y=[row.name for _, row in shown],
        base=scale.all(span.begin_us for span, _ in shown),
        x=scale.all(span.end_us - span.begin_us for span, _ in shown),
        customdata=[_facts(result, span) for span, _ in shown],
        marker={"color": [_COLOURS[span.job % len(_COLOURS)] for span, _ in shown], "line": {"width": 0}},
        hovertemplate=_HOVER,
    )


def _facts(result: Result, span: Span) -> tuple[str, str, str, str]:
    """Return the hover text: the job, the place, begin and end in seconds."""
    job = result.jobs[span.job].job
    name = f"{label(job.id)} ({label(job.model)})" if job.model else label(job.id)
    lane = f", lane {span.lane}" if result.options.settings.allocation is Allocation.LANES else ""
    return name, f"device {span.device}{lane}", print_decimal(span.begin_us, 6), print_decimal(span.end_us, 6)


def _note(count: int, shown: Sequence[Span]) -> str:
    if len(shown) == count:
        return ""
    until = print_decimal(shown[-1].begin_us, 6) if shown else "0"
    devices = len({span.device for span in shown})
    return (
        f"The timeline shows {len(shown):,} of {count:,} spans, those that begin first, up to {until} s,"
        f" on {devices} of the devices; {count - len(shown):,} are not shown."
    )
