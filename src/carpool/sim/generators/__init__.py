"""Generated traces: ``salus:jobs=100`` and a seed always give the same jobs.  docs/traces.md lists the kinds.

A kind is a dataclass of parameters with a method that makes the jobs; to add one, write it and enter it below.
"""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from carpool.core.spelling import did_you_mean
from carpool.sim.generators.families import Bursty, Inference, Poisson, Salus, Sweep
from carpool.sim.generators.parameters import has_parameter, parse_parameters
from carpool.sim.model.trace_job import TraceJob


class GeneratorKind(Protocol):
    """A kind of trace.  All randomness comes from ``random``."""

    def make(self, random: Random) -> list[TraceJob]:
        """Return the jobs."""


KINDS: dict[str, type[GeneratorKind]] = {
    "bursty": Bursty,
    "inference": Inference,
    "poisson": Poisson,
    "salus": Salus,
    "sweep": Sweep,
}


def available_generators() -> tuple[str, ...]:
    """Return the names of the kinds, sorted."""
    return tuple(sorted(KINDS))


def generate(text: str, seed: int, load: float | None = None, devices: int = 1) -> list[TraceJob]:
    """Return the jobs of ``kind[:key=value,...]``, in order of submission.

    ``load`` takes the place of the load in the text, and refers to ``devices`` where the text does not say another
    number.  Raises ValueError that names the kinds, or the parameters of the kind.
    """
    name, _, rest = text.partition(":")
    name = name.strip()
    kind = KINDS.get(name)
    if kind is None:
        meant = did_you_mean(name, KINDS)
        raise ValueError(f'"{name}" is not a generator; {meant}use one of {", ".join(available_generators())}')
    values = parse_parameters(name, kind, rest)
    if load is not None:
        values = _loaded(name, values, load, devices)
    jobs = kind(**values).make(Random(seed))
    return sorted(jobs, key=lambda job: job.submit_us)


def _loaded(name: str, values: dict[str, Any], load: float, devices: int) -> dict[str, Any]:
    """Return the parameters of a kind with another load.  Raises ValueError for a kind that has none."""
    able = [each for each in available_generators() if has_parameter(KINDS[each], "load")]
    if name not in able:
        raise ValueError(f"{name} has no load; {' and '.join(able)} have")
    if values.get("mean_interarrival_s") is not None:
        raise ValueError(f"{name}: a load and mean_interarrival_s both say when jobs arrive; give one of them")
    return {"devices": devices, **values, "load": load}
