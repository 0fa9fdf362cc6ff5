"""Completion time by quantum, with and without the lower bound, from the result of `bench_quantum`."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.demo import svg

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 80, 60
SIDES = {"fixed": (svg.ORANGE, "quantum as set"), "adaptive": (svg.BLUE, "with the lower bound (default)")}


@dataclass(frozen=True, slots=True)
class Axes:
    """Quanta on a logarithmic axis; times as multiples of one after another."""

    quanta: tuple[float, float]
    ratios: tuple[float, float]

    def x(self, quantum: float) -> float:
        low, high = map(math.log, self.quanta)
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log(quantum) - low) / (high - low)

    def y(self, ratio: float) -> float:
        low, high = self.ratios
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (ratio - low) / (high - low)


def draw(result: Path) -> str:
    """Raises KeyError if the file has no such benchmark."""
    content = json.loads(result.read_text())
    detail = next((figure["detail"] for figure in content["figures"] if "points" in figure["detail"]), None)
    if detail is None:
        raise KeyError(f"{result} has no figures of the benchmark `quantum`")
    return _picture(detail["points"])


def _picture(points: list[dict[str, Any]]) -> str:
    ratios = [point[side] for point in points for side in SIDES]
    low, high = math.floor(10 * min(1.0, *ratios)), math.ceil(10 * max(1.1, *ratios))
    axes = Axes((points[0]["quantum_s"], points[-1]["quantum_s"]), (low / 10, high / 10))
    parts = svg.legend(LEFT, 56, list(SIDES.values()))
    parts += _grid(axes, range(low, high + 1), [point["quantum_s"] for point in points])
    for side, (colour, _) in SIDES.items():
        curve = [(axes.x(point["quantum_s"]), axes.y(point[side])) for point in points]
        parts += [svg.line(curve, colour), *(svg.dot(x, y, colour) for x, y in curve)]
    return svg.page(WIDTH, HEIGHT, "Two jobs that need the device each: time together / one after another", parts)


def _grid(axes: Axes, tenths: range, quanta: list[float]) -> list[str]:
    parts = []
    for ratio in (number / 10 for number in tenths):
        y = axes.y(ratio)
        parts += [
            svg.line([(LEFT, y), (WIDTH - RIGHT, y)], svg.GREY),
            svg.text(LEFT - 8, y + 4, f"{ratio:.1f}", "dim", "end"),
        ]
    for quantum in quanta:
        parts.append(svg.text(axes.x(quantum), HEIGHT - BOTTOM + 20, f"{quantum:g}", "dim", "middle"))
    return [*parts, svg.text(WIDTH / 2, HEIGHT - 14, "time quantum in seconds", "dim", "middle")]
