"""The figures of the services of one simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from carpool.core.model import GIB, Outcome
from carpool.core.stats import percentile_s
from carpool.core.units import SECOND_US
from carpool.sim.model.result import Result
from carpool.sim.model.served_engines import EngineResult
from carpool.sim.model.served_models import ModelResult, ServicesResult


@dataclass(frozen=True, slots=True)
class ServedSummary:
    """Figures of one model, or of all.  Latencies are of the answered requests; None: there are none."""

    model: str | None  # None: all of them
    requests: int
    answered: int
    missed: int | None  # answered late, or given up to avoid that; None: there are no deadlines
    refused: int  # because too many waited
    failed: int  # because there was no memory
    p50_s: float | None
    p99_s: float | None
    requests_per_s: float  # answered, until the last request was settled
    batches: int
    copies: int  # of weights to a device
    copied_gib: float


@dataclass(frozen=True, slots=True)
class EngineSummary:
    """Figures of one engine, or of all.  Times are of the answered requests; None: there are none.

    First tokens and tokens are known of answers with a number of tokens.
    """

    engine: str | None  # None: all of them
    requests: int
    answered: int
    refused: int  # because too many were there
    failed: int  # its process could not start, or ended
    first_token_p50_s: float | None  # from arrival to the first token
    first_token_p99_s: float | None
    token_p50_s: float | None  # mean time of an answer's further tokens
    token_p99_s: float | None
    p50_s: float | None  # from arrival to the last token
    p99_s: float | None
    tokens_per_s: float  # until the last request was settled
    starts: int  # of its process
    offloads: int  # times that its memory left the device
    moved_gib: float  # out and back


@dataclass(frozen=True, slots=True)
class ServicesSummary:
    """Shares and times of all devices together, until the last request was settled."""

    all: ServedSummary
    models: tuple[ServedSummary, ...]  # as they were given
    engines: tuple[EngineSummary, ...]  # in the order of their names' first appearance, and all of several
    turns: float  # share of the time in which services had their devices to themselves
    computing: float  # and of the time in which they computed; the difference is waiting for weights
    jobs_pauses: int  # of the trace's jobs
    jobs_slowdown: float | None  # mean of completion time / time alone, over those that have succeeded
    jobs_share: float | None  # of the time that services did not compute while jobs were there: jobs computed


def summarize_services(result: Result, services: ServicesResult) -> ServicesSummary:
    """Return the figures of each model and of all, while there were requests; rates are per second of that time."""
    span_us = max([services.ended_us, *(each.ended_us for each in services.engines)])
    alone = [job.jct_us / job.job.duration_us for job in result.jobs if job.outcome is Outcome.SUCCEEDED]
    span = result.options.devices * span_us or 1
    return ServicesSummary(
        all=_served(None, services.models, span_us),
        models=tuple(_served(each.model.name, [each], span_us) for each in services.models),
        engines=tuple(_engines(services.engines, span_us)),
        turns=services.turns_us / span,
        computing=(services.turns_us - services.stalled_us) / span,
        jobs_pauses=sum(job.pauses for job in result.jobs),
        jobs_slowdown=sum(alone) / len(alone) if alone else None,
        jobs_share=result.occupied_us / result.left_us if result.left_us else None,
    )


def _served(name: str | None, models: Sequence[ModelResult], span_us: int) -> ServedSummary:
    latencies = sorted(latency for each in models for latency in each.latencies_us)

    def total(field: str) -> int:
        return sum(map(attrgetter(field), models))

    deadlines = any(each.model.deadline_us is not None for each in models)
    return ServedSummary(
        model=name,
        requests=total("settled"),
        answered=len(latencies),
        missed=total("missed") if deadlines else None,
        refused=total("refused"),
        failed=total("failed"),
        p50_s=percentile_s(latencies, 50),
        p99_s=percentile_s(latencies, 99),
        requests_per_s=len(latencies) * SECOND_US / span_us if span_us else 0.0,
        batches=total("batches"),
        copies=total("copies"),
        copied_gib=total("copied_bytes") / GIB,
    )


def _engines(results: Sequence[EngineResult], span_us: int) -> Iterator[EngineSummary]:
    names = dict.fromkeys(each.engine.name for each in results)
    for name in names:
        yield _engine(name, [each for each in results if each.engine.name == name], span_us)
    if len(names) > 1:
        yield _engine(None, results, span_us)


def _engine(name: str | None, engines: Sequence[EngineResult], span_us: int) -> EngineSummary:
    first, token, whole = (
        sorted(time for each in engines for time in getattr(each, times))
        for times in ("first_us", "token_us", "latencies_us")
    )

    def total(field: str) -> int:
        return sum(map(attrgetter(field), engines))

    return EngineSummary(
        engine=name,
        requests=total("settled"),
        answered=len(whole),
        refused=total("refused"),
        failed=total("failed"),
        first_token_p50_s=percentile_s(first, 50),
        first_token_p99_s=percentile_s(first, 99),
        token_p50_s=percentile_s(token, 50),
        token_p99_s=percentile_s(token, 99),
        p50_s=percentile_s(whole, 50),
        p99_s=percentile_s(whole, 99),
        tokens_per_s=total("tokens") * SECOND_US / span_us if span_us else 0.0,
        starts=total("starts"),
        offloads=total("offloads"),
        moved_gib=total("moved_bytes") / GIB,
    )
