"""Scopes in which a program allocates to a pool of its own.

There is no GPU here: PyTorch's own functions are played by others.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from carpool.runtime.torch_hooks import memory_pools


def begin(device: int, pool: tuple[int, int]) -> str:
    if device:
        raise RuntimeError("no such device")
    return f"begun {pool}"


def end(device: int, pool: tuple[int, int]) -> None: ...


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """As of 2.13, where `torch.cuda.memory` uses names of its own for some of the functions."""
    functions = {"_cuda_beginAllocateCurrentThreadToPool": begin, "_cuda_endAllocateToPool": end}
    made = SimpleNamespace(
        version=SimpleNamespace(cuda="13.0"),
        _C=SimpleNamespace(**functions, _cuda_beginAllocateToPool=begin),
        cuda=SimpleNamespace(memory=SimpleNamespace(**functions)),
    )
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_begins_and_ends_are_counted_wherever_they_are_called(torch: SimpleNamespace) -> None:
    told: list[int] = []
    memory_pools.watch(told.append)
    memory, own = torch.cuda.memory, torch._C
    assert memory._cuda_beginAllocateCurrentThreadToPool(0, (0, 1)) == "begun (0, 1)"
    own._cuda_beginAllocateToPool(0, pool=(0, 2))
    own._cuda_endAllocateToPool(0, (0, 2))
    memory._cuda_endAllocateToPool(0, (0, 1))
    assert told == [1, 1, -1, -1]


def test_a_scope_that_does_not_begin_is_not_counted(torch: SimpleNamespace) -> None:
    told: list[int] = []
    memory_pools.watch(told.append)
    with pytest.raises(RuntimeError):
        torch._C._cuda_beginAllocateToPool(1, (0, 1))
    assert told == []


def test_without_cuda_nothing_is_changed(torch: SimpleNamespace) -> None:
    torch.version.cuda = None
    memory_pools.watch(lambda change: None)
    assert torch._C._cuda_endAllocateToPool is end


def test_the_names_are_those_of_this_pytorch() -> None:
    """Otherwise the scopes would go unseen."""
    import torch

    known = {name for name in dir(torch._C) if "AllocateToPool" in name or "ToPool" in name}
    ours = {*memory_pools._BEGIN, *memory_pools._END}
    assert {name for name in known if name.startswith(("_cuda_begin", "_cuda_end"))} <= ours
