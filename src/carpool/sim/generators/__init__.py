"""Generated traces: ``salus:jobs=100`` and a seed always give the same jobs.  docs/traces.md lists the kinds.

A kind is a dataclass of parameters with a method that makes the jobs; to add one, write it and enter it below.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from carpool.core.spelling import did_you_mean
from carpool.sim.generators.families import Bursty, Inference, Poisson, Salus, Sweep
from carpool.sim.generators.parameters import parse_parameters
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


def generate(text: str, seed: int) -> list[TraceJob]:
    """Return the jobs of ``kind[:key=value,...]``, in order of submission.

    Raises ValueError that names the kinds, or the parameters of the kind.
    """
    name, _, rest = text.partition(":")
    kind = KINDS.get(name.strip())
    if kind is None:
        meant = did_you_mean(name.strip(), KINDS)
        raise ValueError(f'"{name.strip()}" is not a generator; {meant}use one of {", ".join(available_generators())}')
    jobs = kind(**parse_parameters(name.strip(), kind, rest)).make(Random(seed))
    return sorted(jobs, key=lambda job: job.submit_us)
