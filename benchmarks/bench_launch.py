"""What the gate adds to a launch, turn held, against the same launch beside the gate; on the stub driver."""

from __future__ import annotations

from benchmarks.figures import Figure, median_figure
from benchmarks.programs import run_program
from benchmarks.stub import LIBRARY, stub_driver

OVER_NS = 15.0


def run(quick: bool) -> list[Figure]:
    """Differences of nanoseconds: the stub's launch of an empty kernel is no measure of a real one's."""
    with stub_driver() as stub:
        env = stub | {"LD_PRELOAD": str(LIBRARY)}
        results = [run_program("launch", 31 if quick else 201, env=env) for _ in range(2 if quick else 7)]
    detail = {"bare_ns": [r["bare_ns"] for r in results], "gated_ns": [r["gated_ns"] for r in results]}
    over = [r["over_ns"] for r in results]
    ratios = [r["gated_ns"] / r["bare_ns"] for r in results]
    loose = [r["over_unattached_ns"] for r in results]
    return [
        median_figure("launch", "gate, turn held: added to the bare call", "ns", over, target=OVER_NS, detail=detail),
        median_figure("launch", "gate, turn held: gated / bare call of the stub", "ratio", ratios),
        median_figure("launch", "gate of a process that has not attached: added to the bare call", "ns", loose),
    ]
