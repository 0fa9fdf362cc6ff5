"""Two jobs that need the device each, under `tq` with quanta from 0.2 s to 60 s, with and without the lower bound."""

from __future__ import annotations

from statistics import fmean

from benchmarks.copies import Load, apart, load, rates, together
from benchmarks.figures import Figure, measured_once, rounds_of

QUANTA_S = (0.2, 0.5, 1, 2, 5, 10, 30, 60)
QUICK_S = (0.2, 1, 5)
#: Seconds of device work of each job: some of the quanta are longer.
WORK_S, QUICK_WORK_S = 16, 4
#: Of the work that is run without Carpool before and after each quantum: the machine's speed drifts by more than what
#: is to be seen.
REFERENCE_S = 4
ROUNDS = 2
NO_BOUND = {"max_move_share_ppm": 1_000_000}
SIDES = ("adaptive", "fixed")
TARGET = 1.05

#: quantum -> side -> times together as multiples of one after another, one for each round
Ratios = dict[float, dict[str, list[float]]]


def run(quick: bool) -> list[Figure]:
    speed = rates()
    work, reference = (load(speed, 1, 0, seconds) for seconds in (QUICK_WORK_S if quick else WORK_S, REFERENCE_S))
    quanta = QUICK_S if quick else QUANTA_S
    ratios: Ratios = {quantum: {side: [] for side in SIDES} for quantum in quanta}
    for number in range(1 if quick else rounds_of(ROUNDS)):
        _round(work, reference, ratios, number)
    points = [
        {"quantum_s": quantum} | {side: fmean(sides[side]) for side in SIDES} for quantum, sides in ratios.items()
    ]
    best, worst = min(point["fixed"] for point in points), max(point["adaptive"] for point in points)
    label = "worst quantum with the lower bound / best quantum without"
    return [measured_once("quantum", label, "ratio", worst / best, target=TARGET, points=points), *_curve(ratios)]


def _round(work: Load, reference: Load, ratios: Ratios, number: int) -> None:
    before = _step_s(reference)
    for index, (quantum, sides) in enumerate(ratios.items()):
        settings = {"quantum_us": round(quantum * 1e6)}
        seconds = {}
        for side in sorted(SIDES, reverse=(index + number) % 2 == 1):
            chosen = settings | (NO_BOUND if side == "fixed" else {})
            seconds[side] = together(work, policy="tq", settings=chosen).seconds
        after = _step_s(reference)
        alone = 2 * work.steps * (before + after) / 2
        for side in SIDES:
            sides[side].append(seconds[side] / alone)
        before = after


def _step_s(reference: Load) -> float:
    """Seconds of a step at present, without Carpool."""
    return apart(reference, 1) / reference.steps


def _curve(ratios: Ratios) -> list[Figure]:
    return [
        measured_once(
            "quantum",
            f"quantum {quantum:g} s, {side}: time together / one after another",
            "ratio",
            fmean(values),
            rounds=[round(value, 3) for value in values],
        )
        for quantum, sides in ratios.items()
        for side, values in sides.items()
    ]
