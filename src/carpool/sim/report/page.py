"""The page: the figures, the distribution of JCT, and what happened under each policy."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from plotly.offline import get_plotlyjs

from carpool.core.model import GIB, Allocation, Micros
from carpool.sim.model.options import Options
from carpool.sim.model.result import Result
from carpool.sim.report.chart import Chart, embedded
from carpool.sim.report.figures import figures_table
from carpool.sim.report.jct import jct_chart
from carpool.sim.report.scale import Scale, scale_for
from carpool.sim.report.timeline import timeline_chart
from carpool.sim.report.usage import memory_chart, utilization_chart
from carpool.sim.results.summary import summarize
from carpool.sim.traces.numbers import print_decimal

#: The page loads nothing, which the browser enforces.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1200px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } th, td { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child { text-align: left; font-weight: normal; } .wide { overflow-x: auto; } .note { color: #666; }
h2 { margin-top: 2em; }
"""


def write_report(results: Sequence[Result], path: Path) -> None:
    """Write a report of several policies side by side; the same results give the same bytes.

    Raises ValueError for results without a recording (`Options.record`), OSError if the file cannot be written.
    """
    path.write_text("".join(_page(results)), encoding="utf-8")


def _page(results: Sequence[Result]) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Carpool simulation</title>\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<style>{_STYLE}</style>\n'
    yield f"<script>{get_plotlyjs()}</script>\n</head>\n<body>\n<h1>Carpool simulation</h1>\n"
    yield figures_table([summarize(result) for result in results])
    yield "<h2>Job completion times</h2>\n"
    yield embedded(jct_chart(results), "jct")
    end = max((job.ended_us for result in results for job in result.jobs), default=0)
    for number, result in enumerate(results):
        yield from _section(result, number, scale_for(end), end)
    yield "</body>\n</html>\n"


def _section(result: Result, number: int, scale: Scale, end_us: Micros) -> Iterator[str]:
    """Yield the section of one policy; all policies have the same axis of time, so that they can be compared by eye."""
    yield f"<h2>{html.escape(result.options.settings.policy)}</h2>\n<p>{html.escape(_about(result.options))}</p>\n"
    for title, name, chart in _charts(result, scale, end_us):
        yield f"<h3>{title}</h3>\n{embedded(chart, f'{name}-{number}')}"


def _charts(result: Result, scale: Scale, end_us: Micros) -> Iterator[tuple[str, str, Chart]]:
    recording = result.recording
    if recording is None:
        raise ValueError("a report needs results with a recording: simulate with Options.record")
    yield "Timeline", "timeline", timeline_chart(result, recording.spans, scale, end_us)
    yield "Utilization", "utilization", utilization_chart(recording.busy, scale, end_us)
    if recording.memory:
        yield "Memory", "memory", memory_chart(result, recording.memory, scale, end_us)


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
