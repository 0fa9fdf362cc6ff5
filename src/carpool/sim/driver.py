"""Virtual time: the core handles what modelled jobs do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from carpool.sim.job import TraceJob
from carpool.sim.options import Options
from carpool.sim.result import Result


def simulate(jobs: Sequence[TraceJob], options: Options, progress: Callable[[int], None] | None = None) -> Result:
    """Run a trace to its end.  ``progress`` is told, now and then, how many jobs have ended.

    Jobs may come in any order; those submitted at the same instant are taken in the order given.
    Raises ValueError for options that make no sense, and for jobs that cannot be simulated with them.
    """
    raise NotImplementedError
