"""A worker's copy of a model, which is bound to its weights' memory.

It has the structure only; its parameters lie in the device's copy of the weights, which may still be incomplete.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from carpool.serve.model import skeleton
from carpool.serve.model.native_groups import Groups
from carpool.serve.model.skeleton import Storage, Unusable
from carpool.serve.model.torch_device import OnDevice, where
from carpool.serve.model.weights_device import WeightsMemory
from carpool.serve.oip.errors import CodeChanged
from carpool.serve.plan.manifest import Manifest


class BoundModel:
    """A worker's copy of a model: the structure, and the weights wherever on a device they are."""

    def __init__(self, entry: Manifest, image: int, memory: WeightsMemory | None = None) -> None:
        """Build the structure.  ``memory``: see `bind`, which can be called later.

        All descriptors stay the caller's.  Raises CodeChanged, Unusable, OSError, and what the factory raises.
        """
        factory = skeleton.resolve(entry.source.factory)
        self.entry = entry
        self.module = skeleton.build(factory, entry.source.seed, weights=entry.plainly is not None)
        if (file := skeleton.changed_file(entry.code)) is not None:
            raise CodeChanged(f"{file} has changed since the model was prepared")
        storages = skeleton.storages(self.module)
        if skeleton.signature(storages) != entry.signature:
            raise Unusable(f"{entry.source.factory} makes another model than when its weights were prepared")
        self._groups: Groups | None = None
        self._place: tuple[int, int, int | None] | None = None
        self._on: OnDevice = where(None)
        self._private: list[Storage] = []
        self._shared = self._take_apart(storages, image)
        self._nowhere: Tensor | None = skeleton.untouched(entry.device_bytes)  # initial weights need no memory
        self._point_to(self._on, self._nowhere.data_ptr())
        self._image: int | None = os.dup(image)
        if memory is not None:
            try:
                self.bind(memory)
            except BaseException:
                self.close()
                raise

    def _take_apart(self, storages: Sequence[Storage], image: int) -> list[tuple[Storage, int]]:
        """Return the storages on the device with their offsets; give private storages memory of their own."""
        private, shared = set(self.entry.profile.private), []
        for index, (storage, offset) in enumerate(zip(storages, self.entry.layout.offsets, strict=True)):
            if index in private:
                own = bytearray(os.pread(image, storage.size, offset))
                skeleton.bind(storage, torch.frombuffer(own, dtype=torch.uint8).clone())
                self._private.append(storage)
            else:
                shared.append((storage, offset))
        return shared

    def _point_to(self, on: OnDevice, address: int) -> None:
        for storage, offset in self._shared:
            skeleton.bind(storage, on.memory(address + offset, storage.size))

    def bind(self, memory: WeightsMemory) -> None:
        """Bind the weights to ``memory`` (``entry.device_bytes`` bytes, the caller's).

        Does nothing if they are bound to it already.  On a host device new memory is mapped at the address of the
        earlier one.  Never call it while the model computes.  Raises OSError.
        """
        status = os.fstat(memory.file)
        place = status.st_dev, status.st_ino, memory.address
        if place == self._place:
            return
        if self._groups is not None and memory.address is None:
            self._groups.move(memory.file)
            self._place = place
            return
        assert self._image is not None, "the model has been closed"
        groups = Groups(memory.file, self._image, self.entry.layout.bounds, self.entry.key, memory.address)
        self._on = where(memory.address)
        self._point_to(self._on, groups.address)
        if self._groups is not None:
            self._groups.close()
        self._groups, self._place, self._nowhere = groups, place, None

    @property
    def device(self) -> torch.device:
        """The device on which the model is bound and takes its inputs."""
        return self._on.device

    @property
    def groups(self) -> Groups:
        """The pipeline groups of a bound model."""
        assert self._groups is not None, "the model is not bound to any memory yet"
        return self._groups

    def __call__(self, *inputs: Any) -> Any:
        """Copy missing weights, and compute with those that are there already.  Needs the turn."""
        self.groups.load()
        self._bring_private()
        with torch.inference_mode(), self._on.computing(self.module, self.groups):
            return self.module(*inputs)

    def _bring_private(self) -> None:
        """Copy private storages once to the device of the weights; not when binding, because copying needs the turn."""
        for storage in self._private:
            if storage.tensors[0].device != self.device:
                skeleton.bind(storage, skeleton.memory_of(storage).to(self.device))

    def check(self) -> None:
        """Check after an error of the module that this process can compute another batch.  Raises NoGpu."""
        self._on.check()

    def stop(self) -> None:
        """Stop copying and return when no group is being copied; the next call continues with the rest."""
        if self._groups is not None:
            self._groups.stop()

    def close(self) -> None:
        """Release the weights and the image.  The module must not be used afterwards."""
        if self._groups is not None:
            self._groups.close()
        if self._image is not None:
            os.close(self._image)
            self._image = None
