"""Optimizers that die with the interpreter: its modules are empty by then, and the job's log must not say so."""

from __future__ import annotations

import heapq

import pytest

from carpool.runtime.torch_hooks.optimizers import Optimizers


class Optimizer:
    param_groups = ({"params": (1, 2)},)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_an_optimizer_is_forgotten_after_modules_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizers, first, second = Optimizers(), Optimizer(), Optimizer()
    assert [optimizers.step_begins(each, (each,), {}) for each in (first, second)] == [(0, 1), (1, 1)]
    monkeypatch.setattr(heapq, "heappush", None)
    del first
    monkeypatch.undo()
    third = Optimizer()
    assert optimizers.step_begins(third, (third,), {}) == (0, 1), "its number is free again"
