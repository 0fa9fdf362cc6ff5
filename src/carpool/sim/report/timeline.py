"""Who was on which device, and when: a bar for each span."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

import plotly.graph_objects as go
from plotly.colors import qualitative

from carpool.core.model import Allocation, Micros
from carpool.sim.report.chart import Chart, figure, label
from carpool.sim.report.scale import Scale
from carpool.sim.result import Result, Span
from carpool.sim.traces.numbers import print_decimal

MOST_SPANS = 5000
MOST_DEVICES = 64
_ROW_PIXELS = 18
_COLOURS = (*qualitative.D3, *qualitative.Set2)
_HOVER = "%{customdata[0]}<br>%{y}<br>from %{customdata[1]} s<br>to %{customdata[2]} s<extra></extra>"


def timeline_chart(result: Result, spans: Sequence[Span], scale: Scale, end_us: Micros) -> Chart:
    """The first spans of the trace; what is beyond the limits is counted in the note."""
    shown = nsmallest(MOST_SPANS, (span for span in spans if span.device < MOST_DEVICES), key=_order)
    rows = _rows(result, shown)
    bars = go.Bar(
        orientation="h",
        y=[_row(result, span) for span in shown],
        base=scale.all(span.begin_us for span in shown),
        x=scale.all(span.end_us - span.begin_us for span in shown),
        customdata=[_facts(result, span) for span in shown],
        marker={"color": [_COLOURS[span.job % len(_COLOURS)] for span in shown], "line": {"width": 0}},
        hovertemplate=_HOVER,
    )
    drawing = figure([bars], f"time ({scale.unit})", "", 90 + _ROW_PIXELS * len(rows), barmode="overlay", bargap=0.1)
    drawing.update_xaxes(range=[0, scale.of(end_us)])
    drawing.update_yaxes(
        type="category", categoryorder="array", categoryarray=rows, range=[len(rows) - 0.5, -0.5], automargin=True
    )
    return Chart(drawing, _note(result, len(spans), shown))


def _order(span: Span) -> tuple[Micros, int, int, int]:
    return span.begin_us, span.device, span.lane, span.job


def _row(result: Result, span: Span) -> str:
    device = f"device {span.device}"
    return device if result.options.settings.allocation is Allocation.DEVICES else f"{device}, lane {span.lane}"


def _rows(result: Result, shown: Sequence[Span]) -> list[str]:
    """Devices that nobody uses have a row too; lanes have one when somebody uses them."""
    if result.options.settings.allocation is Allocation.DEVICES:
        return [f"device {device}" for device in range(min(result.options.devices, MOST_DEVICES))]
    places = {(span.device, span.lane): span for span in shown}
    return [_row(result, places[place]) for place in sorted(places)]


def _facts(result: Result, span: Span) -> tuple[str, str, str]:
    job = result.jobs[span.job].job
    name = f"{label(job.id)} ({label(job.model)})" if job.model else label(job.id)
    return name, print_decimal(span.begin_us, 6), print_decimal(span.end_us, 6)


def _note(result: Result, count: int, shown: Sequence[Span]) -> str:
    if len(shown) == count:
        return ""
    devices = f" on the first {MOST_DEVICES} devices" if result.options.devices > MOST_DEVICES else ""
    until = print_decimal(shown[-1].begin_us, 6) if shown else "0"
    return (
        f"The first {len(shown):,} of {count:,} spans{devices}, begun up to {until} s;"
        f" {count - len(shown):,} are not shown."
    )
