"""Prepares a hosted model once, for any number of workers.

`prepare` builds the model normally, with its weights, and keeps them as an image in the order in which computing uses
them.  All of that happens on the CPU, whatever device the workers (`carpool.serve.model.bound_model`) are on.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from carpool.devices import memfd
from carpool.protocol import records
from carpool.serve.model import native_groups, skeleton
from carpool.serve.model import profile as profiles
from carpool.serve.model.bound_model import BoundModel
from carpool.serve.model.image_store import write_image
from carpool.serve.model.profile import Inputs
from carpool.serve.model.skeleton import Storage, Unusable
from carpool.serve.model.weights_device import WeightsMemory
from carpool.serve.plan import grouping
from carpool.serve.plan.grouping import Grouping
from carpool.serve.plan.manifest import Layout, Manifest, Profile, Source, lay_out

#: Bytes of a pipeline group on a GPU.  Not measured: a transfer's fixed cost is some microseconds there, a few
#: per cent of the time for these bytes.
GPU_GROUP = 4 << 20


class Prepared(NamedTuple):
    """``image``: descriptor of the sealed image, the receiver's to close.  ``answer``: of the unmodified module."""

    entry: Manifest
    image: int
    answer: Any


def pipelined(profile: Profile) -> Grouping:
    """Return the groups with the earliest finish under the profile's times (`serve.plan.grouping`)."""
    layers = [grouping.LayerCost(layer.size, layer.compute_ns) for layer in profile.layers]
    return grouping.optimal(layers, profile.link)


def joined(profile: Profile) -> Grouping:
    """Return groups of at least `GPU_GROUP` bytes, for a GPU: the profile's times are those of the CPU."""
    return grouping.at_least([layer.size for layer in profile.layers], GPU_GROUP)


def prepare(
    source: Source,
    inputs: Inputs | Callable[[nn.Module], Inputs],
    *,
    kept: Path | None = None,
    admit: Callable[[int], None] = lambda size: None,
    group: Callable[[Profile], Grouping] = pipelined,
) -> Prepared:
    """Build, load and measure a model, and keep its image.

    ``inputs``: of one run, with the largest batch, or a function that makes them for the module.  ``kept``: file of the
    profile, which is measured again if it belongs to something else.  ``admit`` is told how many bytes the image will
    have, and raises to stop the preparation.  Raises Unusable, DeviceError or OSError (no memory), ModuleNotFoundError
    (safetensors), and what the model itself raises.
    """
    read = _reader(source)
    module = skeleton.build(skeleton.resolve(source.factory), source.seed, weights=True)
    read(module)
    storages = skeleton.storages(module)
    if not storages:
        raise Unusable(f"the model of {source.factory} has neither parameters nor buffers")
    given = inputs(module) if callable(inputs) else inputs
    digest = _digest(storages)
    profile = _profile(module, given, storages, profiles.profile_key(digest, source.factory, given), kept)
    layout = _layout(storages, profile, group(profile))
    admit(layout.size)
    key = hashlib.sha256(digest + records.encode(layout)).digest()
    entry = Manifest(source, skeleton.signature(storages), key, layout, profile, None, ())
    parts = ((offset, _bytes_of(storage)) for offset, storage in zip(layout.offsets, storages, strict=True))
    image = write_image(source.factory, layout.size, parts)
    try:
        answer = _run(entry, module, given)
        entry = _verified(entry, image, given, answer)
        return Prepared(replace(entry, code=skeleton.imported_code()), image, answer)
    except BaseException:
        os.close(image)
        raise


def _reader(source: Source) -> Callable[[nn.Module], None]:
    """Return a function that reads the file of weights, if any.

    Raises ModuleNotFoundError before the user's code has run.
    """
    if source.weights is None:
        return lambda module: None
    from carpool.serve.model import weights_file  # only files of weights need safetensors

    return partial(weights_file.read, path=Path(source.weights))


def _profile(module: nn.Module, inputs: Inputs, storages: Sequence[Storage], key: str, kept: Path | None) -> Profile:
    found = profiles.stored(kept, key, len(storages)) if kept else None
    if found:
        return found
    measured = profiles.measure(module, inputs, storages, key, native_groups.measure())
    if kept:
        profiles.keep(measured, kept)
    return measured


def _layout(storages: Sequence[Storage], profile: Profile, groups: Grouping) -> Layout:
    layers = [layer.storages for layer in profile.layers]
    return lay_out([storage.size for storage in storages], layers, profile.private, groups)


def _digest(storages: Sequence[Storage]) -> bytes:
    digest = hashlib.sha256(skeleton.signature(storages).encode())
    for storage in storages:
        digest.update(_bytes_of(storage))
    return digest.digest()


def _bytes_of(storage: Storage) -> memoryview:
    return memoryview((ctypes.c_char * storage.size).from_address(storage.address)).cast("B")


def _verified(entry: Manifest, image: int, inputs: Inputs, expected: Any) -> Manifest:
    """Check that a worker computes what the unmodified module computes; if it does not, build with initial weights.

    Raises Unusable if that does not help.
    """
    try:
        if same_bits(_answer(entry, image, inputs), expected):
            return entry
        why = "built without weights, it computes other results"
    except Exception as error:  # noqa: BLE001 - a factory may raise anything over parameters that have no values
        why = f"it cannot be built without weights: {error}"
    entry = replace(entry, plainly=why)
    if same_bits(_answer(entry, image, inputs), expected):
        return entry
    raise Unusable(
        f"the model of {entry.source.factory} does not compute the same with its weights in another place:"
        " either it keeps copies of them, or its answers differ from run to run"
    )


def _answer(entry: Manifest, image: int, inputs: Inputs) -> Any:
    """Return the answer of a worker to which the weights are still being copied."""
    device = memfd.create("carpool-verify", entry.device_bytes, sealed=True)
    try:
        model = BoundModel(entry, image, WeightsMemory(device))
    finally:
        os.close(device)
    try:
        answer = _run(entry, model, inputs)
        model.groups.wait()
        return tree_map_only(Tensor, Tensor.clone, answer)  # the answer may share memory with the weights
    finally:
        model.close()


def _run(entry: Manifest, model: Callable[..., Any], inputs: Inputs) -> Any:
    """Run the model with the same random numbers each time."""
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(entry.source.seed)
        return model(*inputs)


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
