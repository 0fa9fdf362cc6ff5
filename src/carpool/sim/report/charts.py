"""The charts: completion times of all policies; of each policy its timeline, utilization and memory on one axis."""

from __future__ import annotations

import html
from array import array
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Any

import plotly.graph_objects as go
from plotly.colors import hex_to_rgb, qualitative, unlabel_rgb
from plotly.subplots import make_subplots

from carpool.core.model import GIB, Allocation, Micros, Outcome
from carpool.sim.model.result import Recording, Result, Series, Span
from carpool.sim.report.curves import MOST_POINTS, Scale, between, curve, mean, scale_for
from carpool.sim.results.csv_files import ReportRow, rows_of
from carpool.sim.study.figures import FigureRange, StudyRow
from carpool.sim.traces.numbers import print_decimal

MOST_SPANS, MOST_ROWS = 5000, 160
#: Devices in the timeline, and devices with a curve each.
MOST_DEVICES, MOST_CURVES = 64, 16
#: Number of curves from which on they are drawn on request only (a click in the legend), beside their mean.
_CROWDED = 3
_LONGEST_NAME = 60
_ROW_PIXELS, _CHART_PIXELS, _TITLE_PIXELS = 18, 250, 40
_COLOURS = (*qualitative.D3, *qualitative.Set2)
_HOVER = "%{customdata[0]}<br>%{customdata[1]}<br>from %{customdata[2]} s<br>to %{customdata[3]} s<extra></extra>"
_THINNED = "Long curves are thinned: of each short interval the first, lowest, highest and last value."


def label(name: str) -> str:
    """Escape a user's name for a chart: plotly would interpret tags in it."""
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return html.escape(short, quote=False)


def jct_figure(results: Sequence[Result]) -> go.Figure:
    """Draw the share of jobs that succeeded within a time from their submission, all policies in one chart."""
    curves = [(label(result.options.settings.policy), _jcts(result)) for result in results]
    scale = scale_for(max((series.times[-1] for _, series in curves if series.times), default=0))
    figure = go.Figure([curve(series, scale, name=name, showlegend=True) for name, series in curves])
    axes = [{"label": kind, "method": "relayout", "args": [{"xaxis.type": kind}]} for kind in ("linear", "log")]
    figure.update_layout(template="plotly_white", height=420, updatemenus=[{"type": "buttons", "buttons": axes}])
    figure.update_xaxes(title=f"JCT ({scale.unit})", rangemode="tozero")
    return figure.update_yaxes(title="share of jobs", range=[0, 1.02])


def _jcts(result: Result) -> Series:
    times = sorted(job.jct_us for job in result.jobs if job.outcome is Outcome.SUCCEEDED)
    shares = (rank / len(times) for rank in range(len(times) + 1))
    return Series(array("q", [*times[:1], *times]), array("d", shares if times else ()))


def load_figure(rows: Sequence[StudyRow]) -> go.Figure:
    """Draw the mean JCT over the load, one line per policy, with the range as a band; without loads, one bar each."""
    known = [row for row in rows if row.figures["avg_jct_s"] is not None]
    scale = scale_for(max((round(_range(row).p95 * 1_000_000) for row in known), default=0))
    figure = go.Figure()
    for number, policy in enumerate(dict.fromkeys(row.policy for row in known)):
        own = [row for row in known if row.policy == policy]
        colour = _COLOURS[number % len(_COLOURS)]
        figure.add_traces(_over_load(own, scale, colour) if own[0].load is not None else [_bar(own[0], scale, colour)])
    figure.update_layout(template="plotly_white", height=420).update_xaxes(
        title=None if not known or known[0].load is None else "load"
    )
    return figure.update_yaxes(title=f"mean JCT ({scale.unit})", rangemode="tozero")


def _range(row: StudyRow) -> FigureRange:
    """Return the mean JCT in seconds; of one simulation, too."""
    figure = row.figures["avg_jct_s"]
    return figure if isinstance(figure, FigureRange) else FigureRange(figure, figure, figure)


def _over_load(rows: Sequence[StudyRow], scale: Scale, colour: str) -> list[go.Scatter]:
    """Return a line with a band."""
    loads, name = [row.load for row in rows], label(rows[0].policy)
    mean, low, high = (
        scale.all(round(part * 1_000_000) for part in parts) for parts in zip(*map(_range, rows), strict=True)
    )
    edge = {"mode": "lines", "line_width": 0, "hoverinfo": "skip", "showlegend": False, "legendgroup": name}
    return [
        go.Scatter(x=loads, y=high, **edge),
        go.Scatter(x=loads, y=low, fill="tonexty", fillcolor=_pale(colour), **edge),
        go.Scatter(x=loads, y=mean, name=name, legendgroup=name, mode="lines+markers", line_color=colour),
    ]


def _bar(row: StudyRow, scale: Scale, colour: str) -> go.Bar:
    mean, low, high = scale.all(round(part * 1_000_000) for part in _range(row))
    error = {"type": "data", "symmetric": False, "array": [high - mean], "arrayminus": [mean - low]}
    return go.Bar(x=[label(row.policy)], y=[mean], error_y=error, marker_color=colour, showlegend=False)


def _pale(colour: str) -> str:
    """Return a colour, as in #1f77b4 or rgb(102,194,165), nearly transparent."""
    parts = unlabel_rgb(colour) if colour.startswith("rgb") else hex_to_rgb(colour)
    return "rgba({:.0f},{:.0f},{:.0f},0.2)".format(*parts)


def policy_figure(result: Result, recording: Recording, end_us: Micros) -> tuple[go.Figure, str]:
    """Draw what happened under one policy until ``end_us``, with a note on what the figure leaves out."""
    scale, (shown, rows) = scale_for(end_us), _shown(result, recording.spans)
    heights = [_ROW_PIXELS * len(rows) + _CHART_PIXELS // 2, *[_CHART_PIXELS] * (2 if recording.memory else 1)]
    titles = ("Timeline", "Utilization", "Memory (GiB reserved)")[: len(heights)]
    space = {"row_heights": heights, "vertical_spacing": _TITLE_PIXELS / sum(heights)}
    figure = make_subplots(len(heights), 1, shared_xaxes=True, subplot_titles=titles, **space)
    figure.add_trace(_bars(result, shown, scale), 1, 1)
    figure.add_traces([*_utilization(recording.busy, scale, end_us)], 2, 1)
    if recording.memory:
        figure.add_traces([*_curves(recording.memory, scale, end_us, "Memory", GIB)], 3, 1)
        figure.add_hline(result.options.device_memory / GIB, 3, line={"dash": "dash", "width": 1})
    figure.update_layout(template="plotly_white", height=sum(heights), bargap=0.1, legend_groupclick="toggleitem")
    figure.update_xaxes(range=[0, *scale.all([end_us])]).update_xaxes(title=f"time ({scale.unit})", row=len(heights))
    figure.update_yaxes(row=1, type="category", range=[len(rows) - 0.5, -0.5], dtick=1)
    figure.update_yaxes(row=1, categoryorder="array", categoryarray=[row.name for row in rows])
    figure.update_yaxes(row=2, range=[0, 1.05]).update_yaxes(row=3, rangemode="tozero")
    return figure, " ".join(_notes(recording, [span for span, _ in shown]))


def _shown(result: Result, spans: Sequence[Span]) -> tuple[list[tuple[Span, ReportRow]], list[ReportRow]]:
    """Return the first spans of the trace, as many as fit, with their rows, and all rows."""
    order = (span for span in spans if span.device < MOST_DEVICES)
    first = nsmallest(MOST_SPANS, order, key=lambda span: (span.begin_us, span.device, span.lane, span.job))
    own, rows = rows_of(result, first, min(result.options.devices, MOST_DEVICES))
    rows = rows[:MOST_ROWS]
    return [(span, row) for span, row in zip(first, own, strict=True) if row <= rows[-1]], rows


def _bars(result: Result, shown: Sequence[tuple[Span, ReportRow]], scale: Scale) -> go.Bar:
    return go.Bar(
        orientation="h",
        y=[row.name for _, row in shown],
        base=scale.all(span.begin_us for span, _ in shown),
        x=scale.all(span.end_us - span.begin_us for span, _ in shown),
        customdata=[_facts(result, span) for span, _ in shown],
        marker={"color": [_COLOURS[span.job % len(_COLOURS)] for span, _ in shown], "line": {"width": 0}},
        hovertemplate=_HOVER,
        showlegend=False,
    )


def _facts(result: Result, span: Span) -> tuple[str, str, str, str]:
    """Return the hover text: the job, the place, begin and end in seconds."""
    job = result.jobs[span.job].job
    name = f"{label(job.id)} ({label(job.model)})" if job.model else label(job.id)
    lane = f", lane {span.lane}" if result.options.settings.allocation is Allocation.LANES else ""
    return name, f"device {span.device}{lane}", print_decimal(span.begin_us, 6), print_decimal(span.end_us, 6)


def _utilization(busy: Sequence[Series], scale: Scale, end_us: Micros) -> Iterator[go.Scatter]:
    visible: Any = "legendonly" if len(busy) >= _CROWDED else True
    yield from _curves(busy, scale, end_us, "Utilization", visible=visible)
    yield curve(between(mean(busy), end_us), scale, name="mean", line_color="black", legendgroup="Utilization")


def _curves(
    many: Sequence[Series], scale: Scale, end_us: Micros, title: str, per: float = 1.0, **options: Any
) -> Iterator[go.Scatter]:
    options |= {"legendgroup": title, "legendgrouptitle_text": title, "line_width": 1}
    for device, series in enumerate(many[:MOST_CURVES]):
        yield curve(between(series, end_us), scale, per, name=f"device {device}", **options)


def _notes(recording: Recording, shown: Sequence[Span]) -> Iterator[str]:
    count, devices = len(recording.spans), len(recording.busy)
    if len(shown) < count:
        until = print_decimal(shown[-1].begin_us, 6) if shown else "0"
        yield f"The timeline shows {len(shown):,} of {count:,} spans, those that begin first, up to {until} s, on"
        yield f"{len({span.device for span in shown})} of the devices; {count - len(shown):,} are not shown."
    if devices > MOST_CURVES:
        yield f"Curves of the first {MOST_CURVES} of {devices} devices; the mean is over all devices."
    if any(len(series.times) > MOST_POINTS for series in (*recording.busy, *recording.memory)):
        yield _THINNED
