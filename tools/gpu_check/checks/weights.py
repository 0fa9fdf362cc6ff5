"""Hosted models whose weights come to the GPU while they compute, without a daemon and without turns.

What copies them is a stand-in for libcarpool's thread; what waits for them is what workers use.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tools.gpu_check.registry import Needs, check, needs_packages, require
from tools.gpu_check.scripts import needs_cuda

if TYPE_CHECKING:
    from carpool.serve.prepare.prepare import Prepared

MODELS = ("residual", "tied", "recurrent", "branching", "shared", "brain", "traced")
#: Cycles of the GPU before each group's copy, some milliseconds: who does not wait reads noise.
LATE = 10_000_000


class CopiedGroups:
    """Stands in for `serve.model.native_groups.Groups`: copies in a stream of its own, and an event after each."""

    def __init__(self, device: int, image: int, bounds: Sequence[int], key: bytes, address: int) -> None:
        import torch

        from carpool.serve.model.torch_device import OnGpu

        self.bounds, self.address, self.count = tuple(bounds), address, len(bounds) - 1
        self._image = torch.frombuffer(bytearray(os.pread(image, bounds[-1], 0)), dtype=torch.uint8).pin_memory()
        self._memory = OnGpu().memory(address, bounds[-1])
        self._copying = torch.cuda.Stream()
        self.drop()

    def drop(self) -> None:
        import torch

        torch.cuda.synchronize()
        self._memory.fill_(0xFF)
        torch.cuda.synchronize()
        self._events: list[Any] = []

    @property
    def there(self) -> int:
        return self.count if len(self._events) == self.count and self._events[-1].query() else 0

    def load(self) -> None:
        import torch

        with torch.cuda.stream(self._copying):
            for place in range(len(self._events), self.count):
                group = slice(self.bounds[place], self.bounds[place + 1])
                torch.cuda._sleep(LATE)
                self._memory[group].copy_(self._image[group], non_blocking=True)
                self._events.append(self._copying.record_event())

    def follow(self, count: int, stream: int) -> None:
        import torch

        torch.cuda.ExternalStream(stream).wait_event(self._events[count - 1])

    def guard(self, on: bool) -> None:
        """Everything that is launched here is PyTorch's."""

    def operation(self, begins: bool) -> None:
        """See `guard`."""

    def wait(self) -> None:
        self._events[-1].synchronize()

    def close(self) -> None:
        self._copying.synchronize()


@check("a model whose weights come to the GPU while it computes answers as the plain module, bit for bit", Needs.TORCH)
def weights_come_late() -> None:
    needs_cuda()
    needs_packages("msgspec", "numpy", "safetensors")
    from carpool.serve.plan.manifest import Source
    from carpool.serve.prepare.prepare import prepare
    from tests.serve import zoo

    for name in MODELS:
        inputs = (zoo.INPUTS[name](),)
        prepared = prepare(Source(f"tests.serve.zoo:{name}", seed=7), inputs, group=zoo.per_layer)
        try:
            _compare(name, prepared, inputs)
        finally:
            os.close(prepared.image)


def _compare(name: str, prepared: Prepared, inputs: tuple[Any, ...]) -> None:
    import torch

    from carpool.devices import memfd
    from carpool.serve.model import bound_model as models
    from carpool.serve.model import skeleton
    from carpool.serve.model.torch_device import OnGpu
    from carpool.serve.model.weights_device import WeightsMemory
    from carpool.serve.prepare.prepare import same_bits
    from tests.serve import zoo

    entry, image, _ = prepared
    given = [value.to(OnGpu.device) for value in inputs]
    plain = skeleton.build(getattr(zoo, name), entry.source.seed, weights=True).to(OnGpu.device)
    with torch.inference_mode():
        expected = plain(*given)
    header = memfd.create("header", memfd.PAGE, sealed=True)
    memory = torch.empty(entry.device_bytes, dtype=torch.uint8, device=OnGpu.device)
    with patch.object(models, "Groups", CopiedGroups):
        model = models.BoundModel(entry, image, WeightsMemory(header, memory.data_ptr()))
    for how in ("cold", "while the first one still copies", "cold again", "ready"):
        if how.startswith("cold"):
            model.groups.drop()
        elif how == "ready":
            model.groups.wait()
        require(same_bits(model(*given), expected), f"{name} computes something else, {how}")
    model.close()
    os.close(header)
