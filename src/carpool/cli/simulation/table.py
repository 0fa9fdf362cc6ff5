"""The table of ``carpool simulate``: one row per policy, and remarks below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from carpool.cli.base.options_common import plural
from carpool.cli.render.columns import TableColumn
from carpool.cli.render.output import Output
from carpool.core.model import GIB
from carpool.protocol.display import escaped
from carpool.protocol.units import format_duration, format_size

if TYPE_CHECKING:
    from carpool.sim.results.summary import Summary
    from carpool.sim.services.summary import EngineSummary, ServedSummary, ServicesSummary

    Found = Sequence[tuple[str, ServicesSummary]]

COLUMNS = (
    TableColumn("POLICY"),
    TableColumn("MEAN JCT"),
    TableColumn("MEDIAN", gives_way=1),
    TableColumn("P95"),
    TableColumn("P99", gives_way=2),
    TableColumn("QUEUEING"),
    TableColumn("MAKESPAN"),
    TableColumn("IN USE"),
    TableColumn("PREEMPTIONS", gives_way=3),
    TableColumn("JOBS/S", gives_way=4),
)
SERVED = (
    TableColumn("P50"),
    TableColumn("P99"),
    TableColumn("MISSED"),
    TableColumn("REQUESTS"),
    TableColumn("REQUESTS/S", gives_way=1),
    TableColumn("BATCHES", gives_way=2),
    TableColumn("COPIES"),
    TableColumn("COPIED", gives_way=3),
)
ENGINES = (
    TableColumn("TTFT P50"),
    TableColumn("P99"),
    TableColumn("TPOT P50"),
    TableColumn("P99"),
    TableColumn("ANSWER P50", gives_way=1),
    TableColumn("P99"),
    TableColumn("REQUESTS"),
    TableColumn("TOKENS/S", gives_way=2),
    TableColumn("STARTS", gives_way=4),
    TableColumn("MOVED", gives_way=3),
)


def lines(summaries: Sequence[Summary], output: Output) -> list[str]:
    """Return the table of jobs, then that of services, as far as either was simulated."""
    served = _served(summaries, output)
    if served and not summaries[0].jobs:
        return served
    shown = output.table(COLUMNS, [_row(summary) for summary in summaries])
    first = summaries[0]
    how = "whole devices" if first.allocation == "devices" else "shared in lanes"
    about = f"{plural(first.jobs, 'job')} on {plural(first.devices, 'device')}, {how}"
    remarks = output.wrapped(line for summary in summaries for line in _remarks(summary))
    return [*shown, output.painted("dim", about), *remarks, *served]


def _row(summary: Summary) -> tuple[str, ...]:
    jct = (summary.avg_jct_s, summary.median_jct_s, summary.p95_jct_s, summary.p99_jct_s)
    return (
        summary.policy,
        *map(_time, (*jct, summary.avg_queueing_s, summary.makespan_s)),
        f"{summary.utilization:.1%}",
        str(summary.preemptions),
        f"{summary.jobs_per_second_simulated:,.0f}",
    )


def _served(summaries: Sequence[Summary], output: Output) -> list[str]:
    """Return the tables of models and of engines: each for one policy; for several policies, all of them together."""
    found = [(each.policy, each.services) for each in summaries if each.services is not None]
    if not found:
        return []
    models = _models(found, output) if found[0][1].models else []
    engines = _engines(found, output) if found[0][1].engines else []
    notes = [line for name, services in found for line in _beside(escaped(name), services)]
    return [*models, *engines, *output.wrapped(notes)]


def _models(found: Found, output: Output) -> list[str]:
    first, rows = "POLICY", [(name, *_requests(services.all)) for name, services in found]
    if len(found) == 1:
        services = found[0][1]
        first, rows = "MODEL", [(each.model or "all", *_requests(each)) for each in (*services.models, services.all)]
    return output.table((TableColumn(first), *SERVED), rows)


def _engines(found: Found, output: Output) -> list[str]:
    first, rows = "POLICY", [(name, *_answers(services.engines[-1])) for name, services in found]
    if len(found) == 1:
        first, rows = "ENGINE", [(escaped(each.engine or "all"), *_answers(each)) for each in found[0][1].engines]
    return output.table((TableColumn(first), *ENGINES), rows)


def _answers(engine: EngineSummary) -> tuple[str, ...]:
    return (
        _latency(engine.first_token_p50_s),
        _latency(engine.first_token_p99_s),
        _latency(engine.token_p50_s),
        _latency(engine.token_p99_s),
        _latency(engine.p50_s),
        _latency(engine.p99_s),
        str(engine.requests),
        f"{engine.tokens_per_s:,.1f}",
        str(engine.starts),
        format_size(round(engine.moved_gib * GIB)),
    )


def _requests(served: ServedSummary) -> tuple[str, ...]:
    return (
        _latency(served.p50_s),
        _latency(served.p99_s),
        "-" if served.missed is None else str(served.missed),
        str(served.requests),
        f"{served.requests_per_s:,.1f}",
        str(served.batches),
        str(served.copies),
        format_size(round(served.copied_gib * GIB)),
    )


def _latency(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.1f} ms"


def _beside(name: str, services: ServicesSummary) -> Iterator[str]:
    """Yield notes about the device time of services, what remained for jobs, and refused requests."""
    turns, computing = services.turns, services.computing
    yield f"{name}: services had devices for {turns:.1%} of the time, and computed for {computing:.1%}"
    if services.jobs_share is not None and services.jobs_slowdown is not None:
        yield (
            f"{name}: jobs computed in {services.jobs_share:.1%} of the time that services left, paused"
            f" {plural(services.jobs_pauses, 'time')}, and took {services.jobs_slowdown:.2f} times as long as alone"
        )
    engines = services.engines[-1:]
    for count, what in (
        (services.all.refused, "the queue was full"),
        (services.all.failed, "not enough memory"),
        (sum(each.refused for each in engines), "the engine had too many"),
        (sum(each.failed for each in engines), "the engine could not start, or ended"),
    ):
        if count:
            yield f"{name}: {plural(count, 'request')} refused: {what}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(round(seconds * 1_000_000))


def _remarks(summary: Summary) -> Iterator[str]:
    name = escaped(summary.policy)
    if summary.offloads:
        yield (
            f"{name}: {plural(summary.offloads, 'offload')}, {format_size(round(summary.moved_gib * GIB))} moved,"
            f" {summary.moving:.1%} of the time"
        )
    if summary.out_of_memory:
        yield (
            f"{name}: memory was denied {plural(summary.out_of_memory, 'time')}; {plural(summary.recovered, 'job')}"
            f" recovered, {_time(summary.lost_s)} of work lost"
        )
    if summary.failed:
        yield f"{name}: {plural(summary.failed, 'job')} failed"
    if summary.refused:
        yield f"{name}: {plural(summary.refused, 'job')} refused; {escaped(summary.first_refusal or '')}"
    if summary.deadlines_missed is not None:
        yield f"{name}: {plural(summary.deadlines_missed, 'deadline')} missed"
