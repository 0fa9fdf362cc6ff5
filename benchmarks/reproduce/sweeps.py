"""Salus, section 5.2.2: 300 trials of one model at once; makespan under FIFO over that under PACK."""

from __future__ import annotations

from benchmarks.reproduce.markdown import table
from benchmarks.reproduce.paper import SALUS_SWEEPS
from benchmarks.reproduce.runs import Data, figures, in_lanes, no_reservations
from benchmarks.reproduce.spread import crossing
from carpool.core.model import GIB, MIB
from carpool.sim.generators import generate
from carpool.sim.model.options import suggested_resolution_us
from carpool.sim.model.trace_job import TraceJob

UTILIZATIONS = (1.0, 0.95, 0.9, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
SEED = 0  # all trials arrive at once and are alike: other seeds give the same ratios to the third digit


def run(jobs: int = 300) -> Data:
    return {"jobs": jobs, "models": {model: _model(model, jobs) for model in SALUS_SWEEPS}}


def _model(model: str, count: int) -> Data:
    trials = {share: generate(f"sweep:jobs={count},model={model},utilization={share}", SEED) for share in UTILIZATIONS}
    one = trials[1.0][0]
    fifo = _makespan(trials[1.0], "fifo")  # one at a time: utilization makes no difference
    gains = {share: round(fifo / _makespan(jobs, "pack"), 3) for share, jobs in trials.items()}
    paper = SALUS_SWEEPS[model]
    return {
        "persistent_mib": round(one.persistent / MIB),
        "ephemeral_mib": round(one.ephemeral / MIB),
        "lanes_that_fit": 16 * GIB // (one.persistent + one.ephemeral),
        "fifo_makespan": fifo,
        "gains": {f"{share:g}": gain for share, gain in gains.items()},
        "fitted": crossing([(share, -gain) for share, gain in gains.items()], -paper),
    }


def _makespan(jobs: list[TraceJob], policy: str) -> float:
    """Minutes."""
    settings = no_reservations(policy)
    makespan: float = figures(in_lanes(jobs, settings, resolution_us=suggested_resolution_us(jobs, settings)))[
        "makespan"
    ]
    return makespan


def tables(data: Data) -> dict[str, str]:
    models: dict[str, Data] = data["models"]
    shares = next(iter(models.values()))["gains"]
    gains = [(f"FIFO / PACK if a trial alone uses {share}", *_each(models, share)) for share in shares]
    rows: list[tuple[object, ...]] = [
        ("FIFO / PACK, paper", *(SALUS_SWEEPS[model] for model in models)),
        ("persistent + ephemeral, MiB", *(f"{m['persistent_mib']} + {m['ephemeral_mib']}" for m in models.values())),
        ("lanes that fit on 16 GiB", *(model["lanes_that_fit"] for model in models.values())),
        *gains,
        ("**fitted**: use that gives the paper's ratio", *(model["fitted"] or "none" for model in models.values())),
    ]
    return {"salus-sweeps": table(("", *models), rows)}


def _each(models: dict[str, Data], share: str) -> list[str]:
    return [f"{model['gains'][share]:.2f}" for model in models.values()]
