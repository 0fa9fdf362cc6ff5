"""Hand-over of a turn through the gate, last thing on the device to first; on the stub driver.

Against two processes without Carpool that wait for their stream, pass a word on and launch.  Besides, how many streams
the end of a turn asks about where each job has many that it has used once.
"""

from __future__ import annotations

from benchmarks.figures import Figure, median_figure
from benchmarks.programs import run_program
from benchmarks.stub import LIBRARY, stub_driver

#: The goal for a GPU; the stub driver has no contexts to switch.
GOAL_US = 1000.0
SIDE_STREAMS = 128


def run(quick: bool) -> list[Figure]:
    with stub_driver() as stub:
        env = stub | {"LD_PRELOAD": str(LIBRARY)}
        rounds = 600 if quick else 3000
        results = [run_program("cuda_handover", rounds, env=env) for _ in range(2 if quick else 7)]
        many = [run_program("cuda_handover", rounds, SIDE_STREAMS, env=env) for _ in range(2 if quick else 7)]
    asked = [result["queries"] for result in many]
    name = f"streams asked about per hand-over, {SIDE_STREAMS} idle ones"
    figures = [median_figure("hand-over (gate)", name, "queries", asked)]
    for quantile, goal in (("p50_us", GOAL_US), ("p99_us", None)):
        ours, bare = ([result[side][quantile] for result in results] for side in ("hand_over", "bare"))
        name = f"stub driver, last kernel to first kernel, {quantile.removesuffix('_us')}"
        detail = {"bare_us": bare, "carpool_us": ours}
        figures.append(median_figure("hand-over (gate)", name, "us", ours, target=goal, detail=detail))
        ratios = [mine / other for mine, other in zip(ours, bare, strict=True)]
        figures.append(median_figure("hand-over (gate)", f"{name}, Carpool / without", "ratio", ratios))
    return figures
