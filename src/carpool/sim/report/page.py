"""The page: the figures, the distribution of JCT, and what happened under each policy."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.io import json as plotly_json
from plotly.offline import get_plotlyjs

from carpool.core.model import GIB, Allocation, Micros
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.report.charts import jct_figure, load_figure, policy_figure
from carpool.sim.results.provenance import MadeWith
from carpool.sim.results.summary import summarize
from carpool.sim.study.figures import FigureRange, StudyRow
from carpool.sim.traces.numbers import print_decimal

#: The page loads nothing, which the browser enforces.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1200px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } th, td { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child { text-align: left; font-weight: normal; } .wide { overflow-x: auto; } .note { color: #666; }
h2 { margin-top: 2em; } .facts td { text-align: left; overflow-wrap: anywhere; }
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


def write_report(results: Sequence[Result], path: Path, made_with: MadeWith | None = None) -> None:
    """Write a report of several policies side by side; the same results give the same bytes.

    Raises ValueError for results without a recording (`Options.record`), OSError if the file cannot be written.
    """
    _write(path, _of_results(results), made_with)


def write_study(rows: Sequence[StudyRow], path: Path, made_with: MadeWith | None = None) -> None:
    """Write a report of a study: the ranges of all figures, and the mean JCT over load.  Raises OSError."""
    _write(path, _of_study(rows), made_with)


def _write(path: Path, body: Iterator[str], made_with: MadeWith | None) -> None:
    plotly_json.config.default_engine = "json"  # always the same encoder, whatever is installed
    path.write_text("".join(_page(body, made_with)), encoding="utf-8")


def _page(body: Iterator[str], made_with: MadeWith | None) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Carpool simulation</title>\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<style>{_STYLE}</style>\n'
    yield f"<script>{get_plotlyjs()}</script>\n</head>\n<body>\n<h1>Carpool simulation</h1>\n"
    yield from body
    if made_with is not None:
        facts = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>\n" for name, value in made_with.facts())
        yield f'<h2>Made with</h2>\n<div class="wide"><table class="facts">\n{facts}</table></div>\n'
    yield "</body>\n</html>\n"


def _of_results(results: Sequence[Result]) -> Iterator[str]:
    names = [result.options.settings.policy for result in results]
    yield _table(names, [asdict(summarize(result)) for result in results])
    yield f"<h2>Job completion times</h2>\n{_embedded(jct_figure(results), 'jct')}"
    end = max((job.ended_us for result in results for job in result.jobs), default=0)
    for number, result in enumerate(results):
        yield from _section(result, f"policy-{number}", end)


def _of_study(rows: Sequence[StudyRow]) -> Iterator[str]:
    shown = [row for row in rows if row.figures]
    failed = sum(len(row.failed) for row in rows)
    yield _table([_head(row) for row in shown], [row.figures for row in shown])
    lost = f" {failed} simulations failed; the figures are those of the others." if failed else ""
    yield f'<p class="note">Means, with the 5th and the 95th percentile of the simulations.{lost}</p>\n'
    yield f"<h2>Mean job completion time</h2>\n{_embedded(load_figure(shown), 'load')}"


def _head(row: StudyRow) -> str:
    return row.policy if row.load is None else f"{row.policy}, load {row.load:g}"


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


def _table(names: Sequence[str], summaries: Sequence[dict[str, Any]]) -> str:
    """Return figures as rows, policies as columns."""
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = "".join(f"<tr><th>{title}</th>{_cells(summaries, *about)}</tr>\n" for title, *about in _ROWS)
    return f'<div class="wide"><table>\n<tr><th></th>{heads}</tr>\n{rows}</table></div>\n'


def _cells(summaries: Sequence[dict[str, Any]], field: str, form: str) -> str:
    return "".join(f"<td>{_cell(summary[field], form)}</td>" for summary in summaries)


def _cell(value: Any, form: str) -> str:
    if value is None:
        return "–"
    if not isinstance(value, FigureRange):
        return format(value, form)
    mean, low, high = (format(part, ",.1f" if form == _COUNT and isinstance(part, float) else form) for part in value)
    return mean if low == high else f"{mean} ({low}–{high})"


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
