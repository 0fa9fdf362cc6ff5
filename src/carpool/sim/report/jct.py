"""The distribution of job completion times, all policies in one chart."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from carpool.core.model import Micros, Outcome
from carpool.sim.model.result import Result
from carpool.sim.report.chart import Chart, figure, label
from carpool.sim.report.scale import Scale, scale_for
from carpool.sim.report.thin import MOST_POINTS

_AXES = [
    {"label": "linear", "method": "relayout", "args": [{"xaxis.type": "linear"}]},
    {"label": "logarithmic", "method": "relayout", "args": [{"xaxis.type": "log"}]},
]
_CORNER = {"x": 1, "xanchor": "right", "y": 0.02, "yanchor": "bottom"}


def jct_chart(results: Sequence[Result]) -> Chart:
    """Chart the share of jobs that succeeded within a time from their submission."""
    times = [_jcts(result) for result in results]
    scale = scale_for(max((each[-1] for each in times if each), default=0))
    traces = [
        _curve(each, result.options.settings.policy, scale) for each, result in zip(times, results, strict=True) if each
    ]
    buttons = {"type": "buttons", "direction": "right", "buttons": _AXES, **_CORNER}
    drawing = figure(traces, f"JCT ({scale.unit})", "share of jobs", 420, updatemenus=[buttons])
    drawing.update_xaxes(rangemode="tozero")
    drawing.update_yaxes(range=[0, 1.02])
    return Chart(drawing)


def _jcts(result: Result) -> list[Micros]:
    return sorted([job.jct_us for job in result.jobs if job.outcome is Outcome.SUCCEEDED])


def _curve(jcts: Sequence[Micros], policy: str, scale: Scale) -> go.Scatter:
    count, points = len(jcts), min(len(jcts), MOST_POINTS)
    # Chosen evenly by rank, including the shortest and the longest.
    ranks = [place * (count - 1) // max(points - 1, 1) for place in range(points)]
    return go.Scatter(
        x=[scale.of(jcts[0]), *(scale.of(jcts[rank]) for rank in ranks)],
        y=[0.0, *(round((rank + 1) / count, 6) for rank in ranks)],
        name=label(policy),
        mode="lines",
        line={"shape": "hv"},
        showlegend=True,
    )
