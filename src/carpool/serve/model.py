"""A hosted model: prepared once, then bound to its weights' memory in any number of workers.

`prepare` builds the model plainly, with its weights, and keeps them as an image in the order in which computing uses
them.  A worker (`Model`) has the structure only; its parameters lie in the device's copy of the weights, which may be
on its way.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from carpool.devices import memfd
from carpool.serve import profile as profiles
from carpool.serve import structure, weights_file
from carpool.serve.groups import Groups
from carpool.serve.layout import Grouping, Layout, grouped, lay_out
from carpool.serve.profile import Inputs, Layer, Profile
from carpool.serve.store import write_image
from carpool.serve.structure import Storage, Unusable


class Source(msgspec.Struct, frozen=True):
    """``factory``: ``module:function``.  ``weights``: a safetensors file or index; None: as the factory leaves them.

    ``seed``: of PyTorch's random numbers while the factory runs.
    """

    factory: str
    weights: str | None = None
    seed: int = 0


class Entry(msgspec.Struct, frozen=True):
    """What a worker has to know beside the image.  Any process can read it: it is encoded with msgspec.

    ``plainly``: why the structure is built with initial weights in each worker, None: it is not.
    """

    source: Source
    signature: str
    key: bytes
    layout: Layout
    profile: Profile
    plainly: str | None

    @property
    def device_bytes(self) -> int:
        """Of the weights' memory on a device."""
        return self.layout.bounds[-1]


class Prepared(NamedTuple):
    """``image``: descriptor of the sealed image, the receiver's to close."""

    entry: Entry
    image: int


def by_bytes(layers: Sequence[Layer]) -> Grouping:
    """One group per 4 MiB or so."""
    return grouped([layer.size for layer in layers])


def prepare(
    source: Source,
    inputs: Inputs,
    *,
    kept: Path | None = None,
    admit: Callable[[int], None] = lambda size: None,
    grouping: Callable[[Sequence[Layer]], Grouping] = by_bytes,
) -> Prepared:
    """Build, load, measure, and keep the image.

    ``inputs``: of one run, with the largest batch.  ``kept``: file of the profile, which is measured again if it is of
    something else.  ``admit`` hears how many bytes the image will have, and raises whatever is to stop that.
    Raises Unusable, DeviceError or OSError (no memory), and what the model itself raises.
    """
    module = structure.build(structure.resolve(source.factory), source.seed, weights=True)
    if source.weights is not None:
        weights_file.read(module, Path(source.weights))
    storages = structure.storages(module)
    if not storages:
        raise Unusable(f"the model of {source.factory} has neither parameters nor buffers")
    digest = _digest(storages)
    profile = _profile(module, inputs, storages, profiles.profile_key(digest, source.factory, inputs), kept)
    layout = _layout(storages, profile, grouping(profile.layers))
    admit(layout.size)
    key = hashlib.sha256(digest + msgspec.json.encode(layout)).digest()
    entry = Entry(source, structure.signature(storages), key, layout, profile, None)
    parts = ((offset, _bytes_of(storage)) for offset, storage in zip(layout.offsets, storages, strict=True))
    image = write_image(source.factory, layout.size, parts)
    try:
        return Prepared(_verified(entry, image, module, inputs), image)
    except BaseException:
        os.close(image)
        raise


def _profile(module: nn.Module, inputs: Inputs, storages: Sequence[Storage], key: str, kept: Path | None) -> Profile:
    found = profiles.stored(kept, key, len(storages)) if kept else None
    if found:
        return found
    measured = profiles.measure(module, inputs, storages, key)
    if kept:
        profiles.keep(measured, kept)
    return measured


def _layout(storages: Sequence[Storage], profile: Profile, grouping: Grouping) -> Layout:
    layers = [layer.storages for layer in profile.layers]
    return lay_out([storage.size for storage in storages], layers, profile.private, grouping)


def _digest(storages: Sequence[Storage]) -> bytes:
    digest = hashlib.sha256(structure.signature(storages).encode())
    for storage in storages:
        digest.update(_bytes_of(storage))
    return digest.digest()


def _bytes_of(storage: Storage) -> memoryview:
    return memoryview((ctypes.c_char * storage.size).from_address(storage.address)).cast("B")


def _verified(entry: Entry, image: int, module: nn.Module, inputs: Inputs) -> Entry:
    """Does a worker compute what the plain module computes?  If not without initial weights, it builds with them.

    Raises Unusable if that does not help.
    """
    expected = _run(entry, module, inputs)
    try:
        if same_bits(_answer(entry, image, inputs), expected):
            return entry
        why = "built without weights it computes something else"
    except Exception as error:  # noqa: BLE001 - whatever a factory does with parameters that have no values
        why = f"it cannot be built without weights: {error}"
    entry = msgspec.structs.replace(entry, plainly=why)
    if same_bits(_answer(entry, image, inputs), expected):
        return entry
    raise Unusable(
        f"the model of {entry.source.factory} does not compute the same with its weights in another place:"
        " either it keeps copies of them, or its answers differ from run to run"
    )


def _answer(entry: Entry, image: int, inputs: Inputs) -> Any:
    """Of a worker to which the weights are still coming."""
    device = memfd.create("carpool-verify", entry.device_bytes, sealed=True)
    try:
        model = Model(entry, image, device)
    finally:
        os.close(device)
    try:
        answer = _run(entry, model, inputs)
        model.groups.wait()
        return tree_map_only(Tensor, Tensor.clone, answer)  # it may lie in the weights
    finally:
        model.close()


def _run(entry: Entry, model: Callable[..., Any], inputs: Inputs) -> Any:
    """With the same random numbers each time."""
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(entry.source.seed)
        return model(*inputs)


class Model:
    """A worker's copy of a model.  The weights' memory is ``device`` (a descriptor of ``entry.device_bytes`` bytes)."""

    def __init__(self, entry: Entry, image: int, device: int) -> None:
        """Both descriptors stay the caller's.  Raises Unusable, OSError, and what the factory raises."""
        factory = structure.resolve(entry.source.factory)
        self.module = structure.build(factory, entry.source.seed, weights=entry.plainly is not None)
        storages = structure.storages(self.module)
        if structure.signature(storages) != entry.signature:
            raise Unusable(f"{entry.source.factory} makes another model than when its weights were prepared")
        self.groups = Groups(device, image, entry.layout.bounds, entry.key)
        private = set(entry.profile.private)
        for index, (storage, offset) in enumerate(zip(storages, entry.layout.offsets, strict=True)):
            own = index in private
            structure.bind(storage, _own(image, offset, storage.size) if own else self._shared(offset, storage.size))

    def _shared(self, offset: int, size: int) -> Tensor:
        return torch.frombuffer((ctypes.c_char * size).from_address(self.groups.address + offset), dtype=torch.uint8)

    def __call__(self, *inputs: Any) -> Any:
        """Bring what is not there, and compute with what is there already."""
        self.groups.load()
        with torch.inference_mode():
            return self.module(*inputs)

    def close(self) -> None:
        """The module must not be used any more."""
        self.groups.close()


def _own(image: int, offset: int, size: int) -> Tensor:
    return torch.frombuffer(bytearray(os.pread(image, size, offset)), dtype=torch.uint8).clone()


def same_bits(one: Any, other: Any) -> bool:
    """Whether two outputs, however nested, are the same to the last bit."""
    ours, theirs = tree_leaves(one), tree_leaves(other)
    return len(ours) == len(theirs) and all(_same(a, b) for a, b in zip(ours, theirs, strict=True))


def _same(one: Any, other: Any) -> bool:
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return bool(one == other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(torch.equal(*(tensor.contiguous().flatten().view(torch.uint8) for tensor in (one, other))))
