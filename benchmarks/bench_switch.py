"""Revoke and grant with residue on a populated lane of 1 GiB, against plain copies of the residue there and back."""

from __future__ import annotations

from benchmarks.figures import Figure, median_figure
from benchmarks.programs import run_program

RATIO = 1.3
FIXED_US = 100.0  # allowed on top of the ratio


def run(quick: bool) -> list[Figure]:
    results = [run_program("switch") for _ in range(1 if quick else 3)]
    return [
        figure for index in range(len(results[0]["sizes"])) for figure in _size([r["sizes"][index] for r in results])
    ]


def _size(rows: list[dict[str, float]]) -> list[Figure]:
    name = f"{rows[0]['residue_mib']:.0f} MiB residue in {rows[0]['blocks']:.0f} blocks"
    costs = [row["revoke_us"] + row["grant_us"] for row in rows]
    if rows[0]["residue_mib"] == 0:
        return [median_figure("switch", f"{name}: revoke + grant", "us", costs, target=FIXED_US)]
    ratios = [max(0.0, cost - FIXED_US) / row["memcpy_us"] for cost, row in zip(costs, rows, strict=True)]
    detail = {"runs": rows}
    return [
        median_figure("switch", f"{name}: (switch - 100 us) / memcpy", "ratio", ratios, target=RATIO, detail=detail)
    ]
