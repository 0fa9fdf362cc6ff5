"""A GPU that is none: memory of the host, into which weights come only when an operation says that it follows them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

import pytest
import torch

from carpool.serve.model import bound_model
from carpool.serve.model.native_groups import CopyStopped, Waits
from carpool.serve.model.torch_device import OnGpu, OnHost
from carpool.serve.model.weights_device import Plain, WeightsDemand, WeightsMemory

STREAM = 1


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that are bound to an address from now on are on such a GPU."""
    monkeypatch.setattr(bound_model, "Groups", LateGroups)
    monkeypatch.setattr(OnGpu, "device", OnHost.device)
    monkeypatch.setattr(OnGpu, "memory", OnHost.memory)
    monkeypatch.setattr(OnGpu, "stream", lambda self: STREAM)


class Gpu(Plain):
    """Memory for weights, in two places in turn."""

    def __init__(self) -> None:
        super().__init__()
        self._memory: dict[int, list[torch.Tensor]] = {}

    def place(self, demand: WeightsDemand) -> WeightsMemory:
        if demand.key not in self._memory:
            self._memory[demand.key] = [torch.empty(demand.size, dtype=torch.uint8) for _ in range(2)]
        pieces = self._memory[demand.key]
        pieces.reverse()
        return WeightsMemory(super().place(demand).file, pieces[0].data_ptr())


class LateGroups:
    """Stands in for `Groups` on a GPU.  What nobody has followed or waited for is noise.

    ``followed``: groups and streams, in the order of the calls.  With ``stopped`` nobody brings anything.
    """

    def __init__(self, device: int, image: int, bounds: Sequence[int], key: bytes, address: int) -> None:
        self.bounds, self.address, self.count = tuple(bounds), address, len(bounds) - 1
        self.followed: list[tuple[int, int]] = []
        self.stopped = False
        self._image = os.dup(image)
        self.drop()

    def load(self) -> None:
        pass

    def follow(self, count: int, stream: int) -> None:
        self.followed.append((count, stream))
        self.wait(count)

    def guard(self, on: bool) -> None:
        pass

    def operation(self, begins: bool) -> None:
        pass

    def wait(self, count: int | None = None) -> None:
        if self.stopped:
            raise CopyStopped
        count = self.count if count is None else count
        begin, end = self.bounds[self.there], self.bounds[max(self.there, count)]
        ctypes.memmove(self.address + begin, os.pread(self._image, end - begin, begin), end - begin)
        self.there = max(self.there, count)

    @property
    def waits(self) -> Waits:
        return Waits(0, 0)

    def stop(self) -> None:
        pass

    def drop(self) -> None:
        self.there = 0
        self.followed.clear()
        ctypes.memset(self.address, 0xFF, self.bounds[-1])

    def close(self) -> None:
        os.close(self._image)
