"""Figures of many simulations: each number of their summaries becomes a mean with a range."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

from carpool.sim.results.summary import Summary
from carpool.sim.study.simulations import Combination, StudyRun

#: Shares of the runs below the ends of a range.
LOW, HIGH = 0.05, 0.95
#: A summary as plain values: numbers, texts, None, and dictionaries and lists of them.
Tree = Any


class FigureRange(NamedTuple):
    """A figure of several runs: their mean, 5th and 95th percentile (interpolated linearly between neighbours)."""

    mean: float
    p5: float
    p95: float


@dataclass(frozen=True)
class StudyRow:
    """The runs of one policy under one load, by seed."""

    policy: str
    load: float | None
    runs: Sequence[StudyRun]

    @property
    def finished(self) -> list[tuple[Combination, Summary]]:
        """The runs that have a summary."""
        return [(run.combination, run.summary) for run in self.runs if run.summary is not None]

    @property
    def failed(self) -> list[StudyRun]:
        """The runs that have none."""
        return [run for run in self.runs if run.summary is None]

    @cached_property
    def figures(self) -> dict[str, Tree]:
        """The fields of a `Summary`: of one run as they are, of several with a `FigureRange` for each number.

        Empty if no run has finished.
        """
        found = [asdict(summary) for _, summary in self.finished]
        if not found:
            return {}
        figures: dict[str, Tree] = found[0] if len(self.runs) == 1 else _joined(found)
        return figures


def rows_of_study(runs: Iterable[StudyRun], combinations: Sequence[Combination]) -> list[StudyRow]:
    """Return the rows of a study whose runs have ended in any order; ``combinations``: all, in the study's order."""
    ended = {run.combination: run for run in runs}
    rows: dict[tuple[str, float | None], list[StudyRun]] = defaultdict(list)
    for combination in combinations:
        rows[combination.policy, combination.load].append(ended[combination])
    policies = {policy: place for place, policy in enumerate(dict.fromkeys(policy for policy, _ in rows))}
    ordered = sorted(rows.items(), key=lambda row: policies[row[0][0]])
    return [StudyRow(policy, load, found) for (policy, load), found in ordered]


def _joined(trees: Sequence[Tree]) -> Tree:
    """Join trees of the same shape; a text in which they differ, and a figure that none has, becomes None."""
    first = trees[0]
    if isinstance(first, dict):
        return {name: _joined([tree[name] for tree in trees]) for name in first}
    if isinstance(first, (list, tuple)):
        return [_joined(parts) for parts in zip(*trees, strict=True)]
    known = [tree for tree in trees if tree is not None]
    if not known or isinstance(known[0], str):
        return first if all(tree == first for tree in trees) else None
    return range_of(known)


def range_of(values: Sequence[float]) -> FigureRange:
    """Return mean and range of at least one value."""
    ordered = sorted(values)
    if ordered[0] == ordered[-1]:
        return FigureRange(ordered[0], ordered[0], ordered[0])
    return FigureRange(math.fsum(ordered) / len(ordered), _percentile(ordered, LOW), _percentile(ordered, HIGH))


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    before = int(place)
    after = min(before + 1, len(ordered) - 1)
    return ordered[before] + (ordered[after] - ordered[before]) * (place - before)


def means(tree: Tree) -> Tree:
    """Return a tree with the mean in place of each range."""
    if isinstance(tree, FigureRange):
        return tree.mean
    if isinstance(tree, dict):
        return {name: means(part) for name, part in tree.items()}
    return [means(part) for part in tree] if isinstance(tree, list) else tree


def ranges(tree: Tree) -> Tree:
    """Return the ranges of a tree, without their means; what has no range is left out, or None in a list."""
    if isinstance(tree, FigureRange):
        return {"p5": tree.p5, "p95": tree.p95}
    if isinstance(tree, dict):
        parts = {name: ranges(part) for name, part in tree.items()}
        return {name: part for name, part in parts.items() if part is not None}
    return [ranges(part) for part in tree] if isinstance(tree, list) else None
