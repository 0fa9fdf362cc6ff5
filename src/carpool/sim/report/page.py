"""The page: the figures, the distribution of JCT, and what happened under each policy."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.io import json as plotly_json
from plotly.offline import get_plotlyjs

from carpool.core.model import GIB, Allocation, Micros
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.report.charts import jct_figure, policy_figure
from carpool.sim.results.summary import Summary, summarize
from carpool.sim.traces.numbers import print_decimal

#: The page loads nothing, which the browser enforces.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1200px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } th, td { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child { text-align: left; font-weight: normal; } .wide { overflow-x: auto; } .note { color: #666; }
h2 { margin-top: 2em; }
"""
_SECONDS, _COUNT = ",.1f", ","
#: Rows of the table: title, field of `Summary`, format.  They are the same for equal simulations: no real time.
_ROWS = (
    ("mean JCT (s)", "avg_jct_s", _SECONDS),
    ("median JCT (s)", "median_jct_s", _SECONDS),
    ("95th percentile of JCT (s)", "p95_jct_s", _SECONDS),
    ("99th percentile of JCT (s)", "p99_jct_s", _SECONDS),
    ("makespan (s)", "makespan_s", _SECONDS),
    ("mean queueing delay (s)", "avg_queueing_s", _SECONDS),
    ("mean time without devices (s)", "avg_waiting_s", _SECONDS),
    ("preemptions", "preemptions", _COUNT),
    ("utilization", "utilization", ".1%"),
    ("offloads", "offloads", _COUNT),
    ("moved to the host store and back (GiB)", "moved_gib", ",.1f"),
    ("time spent moving", "moving", ".1%"),
    ("service (s)", "service_s", _SECONDS),
    ("devices at work (s)", "occupied_s", _SECONDS),
    ("out of memory", "out_of_memory", _COUNT),
    ("recovered after that", "recovered", _COUNT),
    ("work lost by that (s)", "lost_s", _SECONDS),
    ("jobs", "jobs", _COUNT),
    ("succeeded", "succeeded", _COUNT),
    ("failed", "failed", _COUNT),
    ("refused", "refused", _COUNT),
    ("deadlines missed", "deadlines_missed", _COUNT),
    ("events", "events", _COUNT),
)


def write_report(results: Sequence[Result], path: Path) -> None:
    """Write a report of several policies side by side; the same results give the same bytes.

    Raises ValueError for results without a recording (`Options.record`), OSError if the file cannot be written.
    """
    plotly_json.config.default_engine = "json"  # always the same encoder, whatever is installed
    path.write_text("".join(_page(results)), encoding="utf-8")


def _page(results: Sequence[Result]) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Carpool simulation</title>\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<style>{_STYLE}</style>\n'
    yield f"<script>{get_plotlyjs()}</script>\n</head>\n<body>\n<h1>Carpool simulation</h1>\n"
    yield _table([summarize(result) for result in results])
    yield f"<h2>Job completion times</h2>\n{_embedded(jct_figure(results), 'jct')}"
    end = max((job.ended_us for result in results for job in result.jobs), default=0)
    for number, result in enumerate(results):
        yield from _section(result, f"policy-{number}", end)
    yield "</body>\n</html>\n"


def _section(result: Result, name: str, end_us: Micros) -> Iterator[str]:
    """Yield the section of one policy; all policies have the same axis of time, so that they can be compared by eye."""
    if result.recording is None:
        raise ValueError("a report needs results with a recording: simulate with Options.record")
    yield f"<h2>{html.escape(result.options.settings.policy)}</h2>\n<p>{html.escape(_about(result.options))}</p>\n"
    figure, note = policy_figure(result, result.recording, end_us)
    yield f'<p class="note">{html.escape(note)}</p>\n{_embedded(figure, name)}'


def _embedded(figure: go.Figure, name: str) -> str:
    """Return the figure as HTML.  ``name`` becomes the id of its element, so that equal figures are equal bytes."""
    config = {"displaylogo": False, "responsive": True}
    return str(figure.to_html(config, include_plotlyjs=False, full_html=False, div_id=name))


def _table(summaries: Sequence[Summary]) -> str:
    """Return figures as rows, policies as columns."""
    heads = "".join(f"<th>{html.escape(summary.policy)}</th>" for summary in summaries)
    rows = "".join(f"<tr><th>{title}</th>{_cells(summaries, *about)}</tr>\n" for title, *about in _ROWS)
    return f'<div class="wide"><table>\n<tr><th></th>{heads}</tr>\n{rows}</table></div>\n'


def _cells(summaries: Sequence[Summary], field: str, form: str) -> str:
    values = (getattr(summary, field) for summary in summaries)
    return "".join(f"<td>{'–' if value is None else format(value, form)}</td>" for value in values)


def _about(options: Options) -> str:
    count = f"{options.devices} device" if options.devices == 1 else f"{options.devices} devices"
    if options.settings.allocation is Allocation.DEVICES:
        return f"{count}, each given to one job at a time"
    turns = f"; turns of {print_decimal(options.resolution_us, 6)} s or longer" if options.resolution_us else ""
    return (
        f"{count} of {options.device_memory / GIB:g} GiB, shared in lanes;"
        f" oversubscribe {options.oversubscribe};"
        f" jobs that compute at the same time: {options.interference.name}{turns}"
    )
