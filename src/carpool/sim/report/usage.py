"""Utilization and memory over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from carpool.core.model import GIB, Micros
from carpool.sim.model.result import Result, Series
from carpool.sim.report.chart import Chart, figure
from carpool.sim.report.scale import Scale
from carpool.sim.report.thin import MOST_POINTS, between, mean, thinned

MOST_DEVICES = 16
#: Number of curves from which on they are drawn on request only (a click in the legend), beside their mean.
_CROWDED = 3


def utilization_chart(busy: Sequence[Series], scale: Scale, end_us: Micros) -> Chart:
    """Chart the share of each device in use, and the mean over all of them."""
    visible: Any = "legendonly" if len(busy) >= _CROWDED else True
    curves = [
        _curve(between(series, end_us), scale, 1.0, name=f"device {device}", line={"width": 1}, visible=visible)
        for device, series in enumerate(busy[:MOST_DEVICES])
    ]
    average = between(mean(busy), end_us)
    curves.append(_curve(average, scale, 1.0, name="mean", line={"width": 2, "color": "black"}))
    drawing = figure(curves, f"time ({scale.unit})", "share in use")
    drawing.update_xaxes(range=[0, scale.of(end_us)])
    drawing.update_yaxes(range=[0, 1.05])
    return Chart(drawing, _note([*busy, average], len(busy), " The mean is over all devices."))


def memory_chart(result: Result, memory: Sequence[Series], scale: Scale, end_us: Micros) -> Chart:
    """Chart the GiB reserved on each device, without the host store; a dashed line is the device's capacity."""
    curves = [
        _curve(between(series, end_us), scale, 1.0 / GIB, name=f"device {device}", line={"width": 1})
        for device, series in enumerate(memory[:MOST_DEVICES])
    ]
    drawing = figure(curves, f"time ({scale.unit})", "GiB reserved")
    drawing.update_xaxes(range=[0, scale.of(end_us)])
    drawing.update_yaxes(rangemode="tozero")
    drawing.add_hline(y=result.options.device_memory / GIB, line={"dash": "dash", "width": 1})
    return Chart(drawing, _note(memory, len(memory), ""))


def _curve(series: Series, scale: Scale, factor: float, line: dict[str, Any], **options: Any) -> go.Scatter:
    thin = thinned(series)
    return go.Scatter(
        x=scale.all(thin.times),
        y=[round(value * factor, 6) for value in thin.values],
        mode="lines",
        line={"shape": "hv", **line},
        showlegend=True,
        **options,
    )


def _note(curves: Sequence[Series], devices: int, more: str) -> str:
    notes = []
    if devices > MOST_DEVICES:
        notes.append(f"The first {MOST_DEVICES} of {devices} devices.{more}")
    if any(len(curve.times) > MOST_POINTS for curve in curves):
        notes.append("Long curves are thinned: of each short interval the first, lowest, highest and last value.")
    return " ".join(notes)
