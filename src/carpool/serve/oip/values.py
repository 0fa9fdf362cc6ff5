"""Tensors, and models' descriptions of theirs.  Plain data with the standard library alone: workers use it, too."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """``data`` is row-major and little-endian; each element of BYTES has its length before it, in four bytes."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output as the model declares it; -1 in the shape: any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """``max_batch``: most rows of the first dimension, which all inputs share; 0: it is not a batch dimension."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int = 0
    platform: str = "pytorch"

    def __post_init__(self) -> None:
        if self.max_batch and not all(spec.shape and spec.shape[0] == -1 for spec in self.inputs):
            raise ValueError(f"model {self.name!r} takes batches, so the shapes of its inputs have to begin with -1")


_LENGTH = struct.Struct("<I")  # before each element of BYTES


class NotRepresentable(Exception):
    """Values that a datatype, or JSON, cannot hold.  The text continues a sentence about the tensor."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """A datatype of the protocol, as bytes and in JSON."""

    name: str
    item_bytes: int | None  # None: elements differ in length
    code: str  # of the module `struct`; empty: no code
    item: type | None  # an element in JSON; None: JSON cannot hold it


DATATYPES = {
    kind.name: kind
    for kind in (
        Datatype("BOOL", 1, "?", bool),
        *(Datatype(f"UINT{8 * size}", size, code, int) for size, code in ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))),
        *(Datatype(f"INT{8 * size}", size, code, int) for size, code in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))),
        *(Datatype(f"FP{8 * size}", size, code, float) for size, code in ((2, "e"), (4, "f"), (8, "d"))),
        Datatype("BF16", 2, "", None),
        Datatype("BYTES", None, "", str),
    )
}


def pack(datatype: Datatype, values: Sequence[Any]) -> bytes:
    """Convert elements as JSON holds them to bytes.  Raises NotRepresentable."""
    if datatype.item is str:
        return pack_strings([value.encode() for value in values])
    try:
        return struct.pack(f"<{len(values)}{datatype.code}", *values)
    except (struct.error, OverflowError) as error:
        raise NotRepresentable(f"holds a value that {datatype.name} cannot: {error}") from None


def unpack(datatype: Datatype, data: bytes | memoryview) -> Sequence[Any]:
    """Convert bytes to elements as JSON holds them.  Raises NotRepresentable.  The caller handles NaN and infinity."""
    if datatype.item is None:
        raise NotRepresentable(f"is {datatype.name}, which JSON cannot hold")
    if datatype.item_bytes is None:
        try:
            return [element.decode() for element in unpack_strings(data)]
        except UnicodeDecodeError:
            raise NotRepresentable("holds bytes that are not UTF-8, which JSON cannot hold") from None
    return struct.unpack(f"<{len(data) // datatype.item_bytes}{datatype.code}", data)


def pack_strings(elements: Sequence[bytes]) -> bytes:
    """Join elements, each preceded by its length in four bytes."""
    return b"".join(part for element in elements for part in (_LENGTH.pack(len(element)), element))


def unpack_strings(data: bytes | memoryview) -> list[bytes]:
    """Split bytes into elements.  Raises NotRepresentable if a length leads beyond the end."""
    elements, place = [], 0
    while place < len(data):
        if place + _LENGTH.size > len(data):
            raise NotRepresentable("ends within the length of an element")
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if place + length > len(data):
            raise NotRepresentable(f"ends within an element of {length} bytes")
        elements.append(bytes(data[place : place + length]))
        place += length
    return elements
