"""A chart on the page: a figure of plotly, with a note for the reader."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

_CONFIG = '{"displaylogo":false,"responsive":true}'
_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Chart:
    """``note`` says what the figure leaves out; empty if nothing."""

    figure: go.Figure
    note: str = ""


def figure(traces: list[Any], x: str, y: str, height: int = 320, **layout: Any) -> go.Figure:
    """Return a figure with titles for its axes, in the style of the page."""
    drawing = go.Figure(traces)
    drawing.update_layout(
        template="plotly_white",
        height=height,
        margin={
            "l": 120,
            "r": 20,
            "t": 30,
            "b": 45,
        },  # room for names on the left, so that all charts begin at one line
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom"},
        hoverlabel={"align": "left"},
        **layout,
    )
    drawing.update_xaxes(title=x)
    drawing.update_yaxes(title=y, automargin=False)
    return drawing


def label(name: str) -> str:
    """Escape a user's name for a chart: plotly would interpret tags in it."""
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return html.escape(short, quote=False)


def embedded(chart: Chart, name: str) -> str:
    """Return the chart as HTML.  ``name`` becomes the id of its element, so that equal charts are equal bytes."""
    parts = chart.figure.to_dict()
    # Always the same encoder, whatever is installed; it also escapes what would end a script.
    data, layout = (to_json_plotly(parts[part], engine="json") for part in ("data", "layout"))
    note = f'<p class="note">{html.escape(chart.note)}</p>\n' if chart.note else ""
    return (
        f'{note}<div id="{name}" class="chart"></div>\n'
        f'<script>Plotly.newPlot("{name}",{data},{layout},{_CONFIG});</script>\n'
    )
