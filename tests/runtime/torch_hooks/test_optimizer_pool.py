"""Where optimizers' state is allocated, without a GPU (the pools of ``torch.cuda`` are recorded), and its end."""

from __future__ import annotations

import contextlib
import heapq
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from carpool.runtime.torch_hooks import memory_pools
from carpool.runtime.torch_hooks.optimizer_pool import StatePool
from carpool.runtime.torch_hooks.optimizers import Optimizers


class Cuda:
    """The part of ``torch.cuda`` that is used, as it behaves in PyTorch 2.7 and later."""

    def __init__(self) -> None:
        self.entered: list[object] = []  # pools that are in use
        self.made: list[object] = []
        self.capturing = False
        self.broken = False
        self.once = False  # as in PyTorch 2.6: a pool that has been left cannot be entered again
        self._left: list[object] = []

    def MemPool(self) -> object:  # noqa: N802 - PyTorch's name
        if self.broken:
            raise RuntimeError("this allocator has no pools")
        self.made.append(object())
        return self.made[-1]

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    @contextlib.contextmanager
    def use_mem_pool(self, pool: object, device: object) -> Iterator[None]:
        if (self.once and pool in self._left) or pool in self.entered:
            raise RuntimeError("INTERNAL ASSERT FAILED")
        assert device == "cuda:0"
        self.entered.append(pool)
        yield
        self.entered.remove(pool)
        self._left.append(pool)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    fake = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=fake))
    return fake


def optimizer(*devices: str) -> object:
    parameters = [SimpleNamespace(is_cuda=device.startswith("cuda"), device=device) for device in devices]
    return SimpleNamespace(param_groups=[{"params": parameters}])


ON_GPU = optimizer("cpu", "cuda:0")


@pytest.mark.parametrize("once", [True, False])
def test_one_pool_is_entered_and_left_again_and_again_and_replaced_if_it_cannot_be(cuda: Cuda, once: bool) -> None:
    cuda.once = once
    pool = StatePool()
    for _ in range(2):
        pool.enter(ON_GPU)
        assert cuda.entered == [cuda.made[-1]]
        pool.leave()
        pool.leave()
        assert cuda.entered == []
    assert len(cuda.made) == 1 + once


def test_threads_have_steps_of_their_own(cuda: Cuda) -> None:
    pool = StatePool()
    pool.enter(ON_GPU)
    other = threading.Thread(target=lambda: (pool.enter(ON_GPU), pool.leave()))
    other.start()
    other.join()
    assert cuda.entered == [cuda.made[0]]
    pool.leave()
    assert cuda.entered == []


@pytest.mark.parametrize(
    ("first", "fault"),
    [(optimizer("cpu"), ""), (optimizer(), ""), (ON_GPU, "capturing"), (ON_GPU, "broken")],
    ids=["on the host", "without parameters", "in a capture", "an allocator without pools"],
)
def test_where_there_is_no_pool_none_is_entered(cuda: Cuda, first: object, fault: str) -> None:
    """A capture keeps its own; an allocator without pools is asked once."""
    pool = StatePool()
    if fault:
        setattr(cuda, fault, True)
    pool.enter(first)
    pool.leave()
    cuda.broken = False
    pool.enter(ON_GPU if fault == "broken" else first)
    assert cuda.made == []


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


# Scopes in which a program allocates to a pool of its own


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
