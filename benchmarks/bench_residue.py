"""Residue per switch of the usual loops, against the bytes that are alive at each loop's own emptiest point."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.jobs import argv, result_of, run_bare, submit
from benchmarks.workloads.loops import MANNERS, SETTLED
from carpool.core.model import Cause, Usage
from carpool.facts.fact import Fact, Told, What
from carpool.facts.recorded import RecordedFacts
from carpool.protocol.client import DaemonClient
from tools.demo.session import Session

KIB = 1 << 10
FACTOR = 2.0
#: Switch at every boundary, whatever it costs: the residue is what is measured here, not the policy's thrift.
SETTINGS = {"quantum_us": 0, "max_switch_share_ppm": 1_000_000, "max_lanes": 1}
ENDLESS = 1_000_000
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
            residues = switch_residues(client, manner, 60 if quick else 300)
        figures.append(_figure(manner, residues, trough))
    return figures


def switch_residues(client: DaemonClient, manner: str, wanted: int) -> list[int]:
    """Bytes saved at settled switches at a boundary of two equal jobs in one lane, until ``wanted`` have been seen."""
    command = argv("loops.py", manner, ENDLESS)
    jobs = [submit(client, command, name=f"{manner}{index}") for index in range(2)]
    residues: list[int] = []
    facts = RecordedFacts()
    for event in client.events(follow=True):
        if event.kind == "EndJob":
            result_of(client, jobs[0]), result_of(client, jobs[1])
            raise RuntimeError(f"a job of the loop {manner!r} ended before there were {wanted} switches")
        residues += [usage.residue for usage in _settled(facts.read(event))]
        if len(residues) >= wanted:
            break
    for job in jobs:
        client.cancel(job)
    return residues


def _settled(found: Iterable[Told]) -> Iterator[Usage]:
    for told in found:
        usage = told.usage if isinstance(told, Fact) and told.what == What.TURN and told.how == Cause.BOUNDARY else None
        if usage is not None and usage.iterations > SETTLED:
            yield usage


def _figure(manner: str, residues: list[int], trough: int) -> Figure:
    middle = statistics.median(residues) / KIB
    detail = {"trough_kib": trough / KIB, "switches": len(residues), "mean_kib": statistics.fmean(residues) / KIB}
    low, high = min(residues) / KIB, max(residues) / KIB
    name = f"{LABELS[manner]}: bytes per switch (target: twice the trough)"
    target = FACTOR * trough / KIB
    return Figure("residue", name, middle, "KiB", low, high, len(residues), target, detail=detail)
