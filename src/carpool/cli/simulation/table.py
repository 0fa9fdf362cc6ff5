"""The table of ``carpool simulate``: one row per policy and load, and remarks below it.

A figure of one simulation is a number; of several it is their mean, with the range in parentheses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from carpool.cli.base.options_common import plural
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output
from carpool.core.model import GIB
from carpool.protocol.display import escaped
from carpool.protocol.units import format_duration, format_size

if TYPE_CHECKING:
    from carpool.sim.study.figures import StudyRow

#: The fields of a summary, each a number, a `FigureRange` or None.
Figures = dict[str, Any]
Found = Sequence[tuple[str, Figures]]


def _time(seconds: float) -> str:
    return format_duration(round(seconds * 1_000_000))


def _latency(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"


def _count(count: float) -> str:
    return str(count) if isinstance(count, int) else f"{count:,.1f}"


def _rate(rate: float) -> str:
    return f"{rate:,.1f}"


def _share(share: float) -> str:
    return f"{share:.1%}"


def _gib(gib: float) -> str:
    return format_size(round(gib * GIB))


class Shown(NamedTuple):
    """A column: the field of a summary that it shows, and how."""

    title: str
    field: str
    form: Callable[[float], str]
    gives_way: int = 0


JOBS = (
    Shown("MEAN JCT", "avg_jct_s", _time),
    Shown("MEDIAN", "median_jct_s", _time, 1),
    Shown("P95", "p95_jct_s", _time),
    Shown("P99", "p99_jct_s", _time, 2),
    Shown("QUEUEING", "avg_queueing_s", _time),
    Shown("MAKESPAN", "makespan_s", _time),
    Shown("IN USE", "utilization", _share),
    Shown("PREEMPTIONS", "preemptions", _count, 3),
    # Last: it is about the simulator, and has no range.
    Shown("JOBS/S", "jobs_per_second_simulated", "{:,.0f}".format, 4),
)
SERVED = (
    Shown("P50", "p50_s", _latency),
    Shown("P99", "p99_s", _latency),
    Shown("MISSED", "missed", _count),
    Shown("REQUESTS", "requests", _count),
    Shown("REQUESTS/S", "requests_per_s", _rate, 1),
    Shown("BATCHES", "batches", _count, 2),
    Shown("COPIES", "copies", _count),
    Shown("COPIED", "copied_gib", _gib, 3),
)
ENGINES = (
    Shown("TTFT P50", "first_token_p50_s", _latency),
    Shown("P99", "first_token_p99_s", _latency),
    Shown("TPOT P50", "token_p50_s", _latency),
    Shown("P99", "token_p99_s", _latency),
    Shown("ANSWER P50", "p50_s", _latency, 1),
    Shown("P99", "p99_s", _latency),
    Shown("REQUESTS", "requests", _count),
    Shown("TOKENS/S", "tokens_per_s", _rate, 2),
    Shown("STARTS", "starts", _count, 4),
    Shown("MOVED", "moved_gib", _gib, 3),
)


def lines(rows: Sequence[StudyRow], output: Output) -> list[str]:
    """Return the table of jobs, then that of services, as far as either was simulated."""
    served = _served(rows, output)
    first = rows[0].figures
    if served and not _mean(first["jobs"]):
        return served
    most = max(len(row.runs) for row in rows)
    shown = _table(
        JOBS if most == 1 else JOBS[:-1], [(_key(row), row.figures) for row in rows], ("POLICY", "LOAD"), output
    )
    how = "whole devices" if first["allocation"] == "devices" else "shared in lanes"
    about = f"{plural(_mean(first['jobs']), 'job')} on {plural(_mean(first['devices']), 'device')}, {how}"
    ranged = f"; means of {most} simulations (5th to 95th percentile)" if most > 1 else ""
    remarks = output.wrapped(line for row in rows for line in _remarks(_name(row), row.figures))
    described = [f"{about}{ranged}", *_host(first["host"])]
    return [*shown, *(output.painted("dim", line) for line in described), *remarks, *served]


def _host(host: Figures | None) -> Iterator[str]:
    """Yield what is said about the machine, if one is modelled."""
    if host is not None:
        measured = f" as calibrated on {host['measured']}" if host["measured"] else ""
        yield f"host: {plural(_mean(host['cores']), 'core')}{measured}"


def _table(
    columns: Sequence[Shown], rows: Sequence[tuple[tuple[str, ...], Figures]], keys: Sequence[str], output: Output
) -> list[str]:
    """Return the lines of a table whose rows begin with their ``keys``."""
    heads = [*map(TableColumn, keys), *(TableColumn(each.title, gives_way=each.gives_way) for each in columns)]
    cells = [(*key, *(_cell(figures[each.field], each.form) for each in columns)) for key, figures in rows]
    return output.table(heads, cells)


def _cell(figure: Any, form: Callable[[float], str]) -> str:
    """Return a figure, or a mean with its range, unless that cannot be told from the mean."""
    if figure is None:
        return "-"
    if not isinstance(figure, tuple):
        return form(figure)
    mean, low, high = map(form, figure)
    return mean if low == high else f"{mean} ({low}–{high})"


def _mean(figure: Any) -> Any:
    return figure[0] if isinstance(figure, tuple) else figure


def _counted(figure: Any, noun: str) -> str:
    """Return a count, or the mean of several, and its noun."""
    if isinstance(_mean(figure), int):
        return plural(_mean(figure), noun)
    return f"{_cell(figure, _count)} {noun}s"


def _key(row: StudyRow) -> tuple[str, str]:
    return row.policy, "" if row.load is None else f"{row.load:g}"


def _name(row: StudyRow) -> str:
    """Name the row in a remark."""
    return escaped(row.policy) + ("" if row.load is None else f", load {row.load:g}")


def _served(rows: Sequence[StudyRow], output: Output) -> list[str]:
    """Return the tables of models and of engines: each for one row; for several rows, all of them together."""
    found = [(_name(row), row.figures["services"]) for row in rows if row.figures["services"] is not None]
    if not found:
        return []
    models = _models(found, output) if found[0][1]["models"] else []
    engines = _engines(found, output) if found[0][1]["engines"] else []
    notes = [line for name, services in found for line in _beside(name, services)]
    return [*models, *engines, *output.wrapped(notes)]


def _models(found: Found, output: Output) -> list[str]:
    first, rows = "POLICY", [((name,), services["all"]) for name, services in found]
    if len(found) == 1:
        services = found[0][1]
        first, rows = "MODEL", [((each["model"] or "all",), each) for each in (*services["models"], services["all"])]
    return _table(SERVED, rows, (first,), output)


def _engines(found: Found, output: Output) -> list[str]:
    first, rows = "POLICY", [((name,), services["engines"][-1]) for name, services in found]
    if len(found) == 1:
        first, rows = "ENGINE", [((escaped(each["engine"] or "all"),), each) for each in found[0][1]["engines"]]
    return _table(ENGINES, rows, (first,), output)


def _beside(name: str, services: Figures) -> Iterator[str]:
    """Yield notes about the device time of services, what remained for jobs, and refused requests."""
    turns, computing = (_cell(services[field], _share) for field in ("turns", "computing"))
    yield f"{name}: services had devices for {turns} of the time, and computed for {computing}"
    if services["jobs_share"] is not None and services["jobs_slowdown"] is not None:
        share, slowdown = _cell(services["jobs_share"], _share), _cell(services["jobs_slowdown"], "{:.2f}".format)
        yield (
            f"{name}: jobs computed in {share} of the time that services left, paused"
            f" {_counted(services['jobs_pauses'], 'time')}, and took {slowdown} times as long as alone"
        )
    engines = services["engines"][-1:]
    for refused, what in (
        *((services["all"][field], what) for field, what in _REFUSED),
        *((each[field], what) for each in engines for field, what in _REFUSED_BY_ENGINE),
    ):
        if _mean(refused):
            yield f"{name}: {_counted(refused, 'request')} refused: {what}"


_REFUSED = (("refused", "the queue was full"), ("failed", "not enough memory"))
_REFUSED_BY_ENGINE = (("refused", "the engine had too many"), ("failed", "the engine could not start, or ended"))


def _remarks(name: str, figures: Figures) -> Iterator[str]:
    def has(field: str) -> bool:
        return bool(_mean(figures[field]))

    if has("offloads"):
        yield (
            f"{name}: {_counted(figures['offloads'], 'offload')}, {_cell(figures['moved_gib'], _gib)} moved,"
            f" {_cell(figures['moving'], _share)} of the time"
        )
    if has("out_of_memory"):
        yield (
            f"{name}: memory was denied {_counted(figures['out_of_memory'], 'time')};"
            f" {_counted(figures['recovered'], 'job')} recovered, {_cell(figures['lost_s'], _time)} of work lost"
        )
    if has("failed"):
        yield f"{name}: {_counted(figures['failed'], 'job')} failed"
    if has("refused"):
        yield f"{name}: {_counted(figures['refused'], 'job')} refused; {escaped(figures['first_refusal'] or '')}"
    if figures["deadlines_missed"] is not None:
        yield f"{name}: {_counted(figures['deadlines_missed'], 'deadline')} missed"
