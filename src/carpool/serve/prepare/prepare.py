"""A hosted model is prepared once, for any number of workers.

`prepare` builds the model plainly, with its weights, and keeps them as an image in the order in which computing uses
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
from carpool.serve.model import factory_code, link_cost, skeleton
from carpool.serve.model import profile as profiles
from carpool.serve.model.bound_model import BoundModel
from carpool.serve.model.image_store import write_image
from carpool.serve.model.profile import Inputs
from carpool.serve.model.skeleton import Storage, Unusable
from carpool.serve.model.weights_device import WeightsMemory
from carpool.serve.plan import grouping
from carpool.serve.plan.grouping import Grouping
from carpool.serve.plan.layout import Layout, lay_out
from carpool.serve.plan.manifest import Manifest, Profile, Source

#: Bytes of a pipeline group on a GPU.  Not measured: a transfer costs some microseconds there beside its bytes, a few
#: per cent of what so many take.
GPU_GROUP = 4 << 20


class Prepared(NamedTuple):
    """``image``: descriptor of the sealed image, the receiver's to close.  ``answer``: of the plain module."""

    entry: Manifest
    image: int
    answer: Any


def pipelined(profile: Profile) -> Grouping:
    """The groups with which the last layer has computed first, as the profile has it (`serve.plan.grouping`)."""
    layers = [grouping.LayerCost(layer.size, layer.compute_ns) for layer in profile.layers]
    return grouping.optimal(layers, profile.link)


def joined(profile: Profile) -> Grouping:
    """For a GPU: the profile's times are those of the CPU."""
    return grouping.at_least([layer.size for layer in profile.layers], GPU_GROUP)


def prepare(
    source: Source,
    inputs: Inputs | Callable[[nn.Module], Inputs],
    *,
    kept: Path | None = None,
    admit: Callable[[int], None] = lambda size: None,
    group: Callable[[Profile], Grouping] = pipelined,
) -> Prepared:
    """Build, load, measure, and keep the image.

    ``inputs``: of one run, with the largest batch, or what makes them for the module.  ``kept``: file of the profile,
    which is measured again if it is of something else.  ``admit`` hears how many bytes the image will have, and raises
    whatever is to stop that.
    Raises Unusable, DeviceError or OSError (no memory), ModuleNotFoundError (safetensors), and what the model itself
    raises.
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
        return Prepared(replace(entry, code=factory_code.imported()), image, answer)
    except BaseException:
        os.close(image)
        raise


def _reader(source: Source) -> Callable[[nn.Module], None]:
    """Reads the file of weights, if there is one.  Raises ModuleNotFoundError before code of the user's has run."""
    if source.weights is None:
        return lambda module: None
    from carpool.serve.model import weights_file  # only files of weights need safetensors

    return partial(weights_file.read, path=Path(source.weights))


def _profile(module: nn.Module, inputs: Inputs, storages: Sequence[Storage], key: str, kept: Path | None) -> Profile:
    found = profiles.stored(kept, key, len(storages)) if kept else None
    if found:
        return found
    measured = profiles.measure(module, inputs, storages, key, link_cost.measure())
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
    """Does a worker compute what the plain module computes?  If not without initial weights, it builds with them.

    Raises Unusable if that does not help.
    """
    try:
        if same_bits(_answer(entry, image, inputs), expected):
            return entry
        why = "built without weights it computes something else"
    except Exception as error:  # noqa: BLE001 - whatever a factory does with parameters that have no values
        why = f"it cannot be built without weights: {error}"
    entry = replace(entry, plainly=why)
    if same_bits(_answer(entry, image, inputs), expected):
        return entry
    raise Unusable(
        f"the model of {entry.source.factory} does not compute the same with its weights in another place:"
        " either it keeps copies of them, or its answers differ from run to run"
    )


def _answer(entry: Manifest, image: int, inputs: Inputs) -> Any:
    """Of a worker to which the weights are still coming."""
    device = memfd.create("carpool-verify", entry.device_bytes, sealed=True)
    try:
        model = BoundModel(entry, image, WeightsMemory(device))
    finally:
        os.close(device)
    try:
        answer = _run(entry, model, inputs)
        model.groups.wait()
        return tree_map_only(Tensor, Tensor.clone, answer)  # it may lie in the weights
    finally:
        model.close()


def _run(entry: Manifest, model: Callable[..., Any], inputs: Inputs) -> Any:
    """With the same random numbers each time."""
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
