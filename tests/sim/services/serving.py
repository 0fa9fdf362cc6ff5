"""Small services and the simulation of them, with the core checked after every event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from carpool.core.commands import Command
from carpool.core.events import Event
from carpool.core.model import Micros, Settings
from carpool.sim.driver import Simulation
from carpool.sim.model.options import Options, check_options
from carpool.sim.model.result import Result
from carpool.sim.model.served_engines import EngineRequest, EngineResult, ServedEngine
from carpool.sim.model.served_models import ModelResult, ServedModel, Services, ServicesResult
from carpool.sim.model.trace_job import TraceJob

MS: Micros = 1000
SIZE = 60_000_000  # bytes: 10 ms at the usual rate, and 15 groups of 4 MB
FIRST = 677  # microseconds until the first of them is there: 10 and 4 MB / 6 GB/s
ALL = 15 * 10 + 10 * MS

Story = list[tuple[Micros, Event | Command]]


class FiniteStory(list[tuple[Micros, Event | Command]]):
    """Breaks off a simulation that does not end."""

    def append(self, told: tuple[Micros, Event | Command]) -> None:
        assert len(self) < 20_000, f"no end: {self[-20:]}"
        super().append(told)


class CheckedSimulation(Simulation):
    def _handle(self, event: Event) -> None:
        super()._handle(event)
        self._machine.check()


def model(
    name: str = "m", at: Sequence[float] = (0,), compute: float = 30, size: int = SIZE, **more: int
) -> ServedModel:
    """Times in milliseconds, but for those of ``more``."""
    return ServedModel(name, size, round(compute * MS), tuple(round(time * MS) for time in at), **more)


def serve(
    *models: ServedModel, jobs: Sequence[TraceJob] = (), settings: Settings | None = None, story: Story | None = None,
    services: Services | None = None, **options: object,
) -> Result:  # fmt: skip
    """``services``: what holds for all models; without it one worker per device."""
    served = replace(services or Services((), workers=1), models=models)
    made = replace(Options(settings=settings or Settings(), services=served), **options)
    check_options(made)
    seen = story if story is not None else []
    simulation = CheckedSimulation(jobs, made, lambda now, happened: seen.append((now, happened)))
    simulation.run()
    return simulation.result(1.0)


def of_services(result: Result) -> ServicesResult:
    assert result.services is not None
    return result.services


def engine(at: Sequence[float] = (0,), prompt: float = 30, tokens: int = 1, **more: Any) -> ServedEngine:
    """Requests that are alike, each token 5 ms; times in milliseconds, but for those of ``more``."""
    asked = tuple(EngineRequest(round(time * MS), round(prompt * MS), tokens) for time in at)
    return ServedEngine(**{"name": "e", "requests": asked, "token_us": 5 * MS, **more})


def serve_engines(*engines: ServedEngine, **more: Any) -> Result:
    """Simulate engines, beside what else `serve` takes."""
    return serve(services=Services((), engines=engines), **more)


def engine_books(result: Result) -> list[EngineResult]:
    return of_services(result).engines


def books(result: Result) -> list[ModelResult]:
    return of_services(result).models


def latencies(result: Result) -> list[list[float]]:
    """Of each model, in milliseconds."""
    return [[latency / MS for latency in each.latencies_us] for each in books(result)]
