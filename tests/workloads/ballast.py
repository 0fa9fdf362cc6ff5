"""Memory that a script keeps beside its model: ``$BALLAST_MIB`` of it, none by default.

A part of it changes with every loss, so that memory which comes back as it was once, or not at all, is noticed.  It is
in no result and draws no random numbers: results are the same with and without.
"""

from __future__ import annotations

import os

import torch

PARTS = 8
NAME = "BALLAST_MIB"


class Ballast:
    """Whole numbers, whose sums are exact: number i of all begins as i, and each part is raised in its turn."""

    def __init__(self, mib: int) -> None:
        count = mib << 18  # of four bytes each
        self._parts = list(torch.arange(count, dtype=torch.int32).chunk(PARTS)) if count else []
        self._raised = [0] * PARTS
        self._steps = 0

    def step(self) -> None:
        if not self._parts:
            return
        part = self._steps % PARTS
        self._steps += 1
        with torch.no_grad():
            self._parts[part].add_(self._steps)
        self._raised[part] += self._steps

    def check(self) -> None:
        """Raises AssertionError if a single number is not what it has to be."""
        begin = 0
        for number, (part, raised) in enumerate(zip(self._parts, self._raised, strict=False)):
            should = torch.arange(begin, begin + len(part), dtype=torch.int32).add_(raised)
            if not torch.equal(part, should):
                wrong = int((part != should).sum())
                raise AssertionError(f"{wrong} of {len(part)} numbers of part {number} after {self._steps} steps")
            begin += len(part)


_present: list[Ballast] = []


def load() -> None:
    _present.append(Ballast(int(os.environ.get(NAME, "0"))))


def step() -> None:
    for one in _present:
        one.step()


def check() -> None:
    for one in _present:
        one.check()
