"""Moving persistent memory to the host store and back, against plain copies of as much memory there and back."""

from __future__ import annotations

from benchmarks.figures import Figure, median_figure
from benchmarks.programs import run_program

TARGET = 0.8


def run(quick: bool) -> list[Figure]:
    results = [run_program("offload", *([256] if quick else [])) for _ in range(1 if quick else 3)]
    return [_size([result["sizes"][index] for result in results]) for index in range(len(results[0]["sizes"]))]


def _size(rows: list[dict[str, float]]) -> Figure:
    rates = [row["memcpy_us"] / (row["offload_us"] + row["restore_us"]) for row in rows]
    label = f"{rows[0]['mib']:.0f} MiB: rate of offload + restore / rate of memcpy"
    return median_figure("offload", label, "ratio", rates, target=TARGET, at_least=True, detail={"runs": rows})
