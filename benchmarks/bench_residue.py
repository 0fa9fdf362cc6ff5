"""Residue per switch of the usual loops, against the bytes that are alive at each loop's own emptiest point."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, Skipped
from benchmarks.jobs import argv, result_of, run_bare, submit
from benchmarks.workloads.loops import MANNERS, SETTLED
from carpool.protocol.api import EventInfo
from carpool.protocol.client import Client
from demo.session import Session

KIB = 1 << 10
FACTOR = 2.0
#: Switch at every boundary, whatever it costs: the residue is what is measured here, not the policy's thrift.
SETTINGS = {"quantum_us": 0, "max_switch_share_ppm": 1_000_000, "max_lanes": 1}
LABELS = {
    "after": "zero_grad after the step",
    "before": "zero_grad before the forward pass",
    "keep": "gradients never to None",
    "ema": "average of the weights",
    "lbfgs": "LBFGS",
}


def run(quick: bool) -> list[Figure]:
    figures = []
    for manner in MANNERS:
        trough = run_bare(argv("loops.py", manner, 0, "--trough"))["trough_bytes"]
        with tempfile.TemporaryDirectory() as home, Session(Path(home), ["host:512MiB"], "fair", SETTINGS) as client:
            residues = switch_residues(client, manner, 30 if quick else 80)
        figures.append(_figure(manner, residues, trough))
    return figures


def switch_residues(client: Client, manner: str, iterations: int) -> list[int]:
    """Bytes saved at every settled switch at a boundary of two equal jobs in one lane."""
    jobs = [submit(client, argv("loops.py", manner, iterations), name=f"{manner}{index}") for index in range(2)]
    for job in jobs:
        result_of(client, job)
    return [event.data["usage"]["residue"] for event in client.events() if _settled(event)]  # type: ignore[index]


def _settled(event: EventInfo) -> bool:
    usage = event.data.get("usage")
    return (
        event.kind == "TurnPassed"
        and event.data.get("cause") == "boundary"
        and isinstance(usage, dict)
        and usage["iterations"] > SETTLED
    )


def _figure(manner: str, residues: list[int], trough: int) -> Figure:
    if not residues:
        raise Skipped(f"the two jobs of the loop {manner!r} never switched at a boundary")
    middle = statistics.median(residues) / KIB
    detail = {"trough_kib": trough / KIB, "switches": len(residues), "mean_kib": statistics.fmean(residues) / KIB}
    low, high = min(residues) / KIB, max(residues) / KIB
    name = f"{LABELS[manner]}: bytes per switch (target: twice the trough)"
    target = FACTOR * trough / KIB
    return Figure("residue", name, middle, "KiB", low, high, len(residues), target, detail=detail)
