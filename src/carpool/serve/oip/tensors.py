"""One tensor in a message: its values in the JSON, or its bytes behind the JSON."""

from __future__ import annotations

import functools
import itertools
import math
import re
from typing import Any

import msgspec

from carpool.serve.oip.errors import WrongInput
from carpool.serve.oip.messages import Message, WireTensor, parameter
from carpool.serve.oip.values import DATATYPES, Datatype, NotRepresentable, Tensor, pack, unpack, unpack_strings

LARGEST_RANK = 32
_NESTED = re.compile(rb"\s*\[\s*\[")


class BinaryPart:
    """The bytes behind the JSON: tensors, one after the other, without gaps."""

    def __init__(self, data: memoryview) -> None:
        self._left = data

    def cut(self, size: int, where: str) -> memoryview:
        """Return the next ``size`` bytes.  Raises WrongInput."""
        if not 0 <= size <= len(self._left):
            text = f"{where}: binary_data_size is {size}, but {len(self._left)} bytes of binary data are left"
            raise WrongInput(f"{text}; does the header say how long the JSON is?")
        data, self._left = self._left[:size], self._left[size:]
        return data

    def check_end(self) -> None:
        """Check that no bytes are left.  Raises WrongInput."""
        if self._left:
            raise WrongInput(f"{len(self._left)} bytes of binary data belong to no tensor")


def split(body: bytes, header_bytes: int | None) -> tuple[memoryview, BinaryPart]:
    """Split a body into its JSON and the bytes behind it.  Raises WrongInput."""
    whole = memoryview(body)
    if header_bytes is None:
        return whole, BinaryPart(whole[:0])
    if header_bytes > len(whole):
        raise WrongInput(f"the JSON is said to have {header_bytes} bytes, but the body has {len(whole)}")
    return whole[:header_bytes], BinaryPart(whole[header_bytes:])


def join(header: msgspec.Struct, binary: list[bytes | memoryview]) -> Message:
    """Join a header and binary data to a body, as `split` takes apart; without binary data there is no length."""
    head = msgspec.json.encode(header)
    if not binary:
        return Message(head)
    return Message(b"".join([head, *binary]), len(head))


def decode_tensor(wire: WireTensor, binary: BinaryPart, where: str) -> Tensor:
    """Decode a tensor.  Raises WrongInput unless shape, datatype and data agree.  ``where`` names the tensor."""
    datatype = DATATYPES.get(wire.datatype)
    if datatype is None:
        raise WrongInput(f"{where}: there is no datatype {wire.datatype!r}; known: {', '.join(DATATYPES)}")
    count = _count(wire.shape, where)
    size = parameter(wire.parameters, "binary_data_size", int, where)
    try:
        if size is None:
            data: bytes | memoryview = _from_json(wire, datatype, count, where)
        elif wire.data is not msgspec.UNSET:
            raise WrongInput(f"{where}: has data in the JSON and a binary_data_size; give one of them")
        else:
            data = binary.cut(size, where)
            _check_bytes(datatype, data, count, where)
    except NotRepresentable as error:
        raise WrongInput(f"{where}: {error}") from None
    return Tensor(wire.name, wire.datatype, tuple(wire.shape), data)


def encode_tensor(tensor: Tensor, *, binary: bool) -> WireTensor:
    """Return the tensor's entry in the JSON; if ``binary``, its data must follow.  Raises NotRepresentable."""
    wire = WireTensor(tensor.name, list(tensor.shape), tensor.datatype)
    if binary:
        wire.parameters = {"binary_data_size": len(tensor.data)}
        return wire
    datatype = DATATYPES[tensor.datatype]
    values = unpack(datatype, tensor.data)
    if datatype.item is float and not all(map(math.isfinite, values)):
        raise NotRepresentable("holds NaN or infinity, which JSON cannot hold")
    wire.data = msgspec.Raw(msgspec.json.encode(values))
    return wire


def _count(shape: list[int], where: str) -> int:
    """Return the number of elements of a shape."""
    if len(shape) > LARGEST_RANK:
        raise WrongInput(f"{where}: has {len(shape)} dimensions; at most {LARGEST_RANK} are possible")
    return math.prod(shape)


def _check_bytes(datatype: Datatype, data: memoryview, count: int, where: str) -> None:
    if datatype.item_bytes is None:
        found = len(unpack_strings(data))
        if found != count:
            raise WrongInput(f"{where}: has {found} elements where its shape has {count}")
    elif len(data) != count * datatype.item_bytes:
        wanted = count * datatype.item_bytes
        raise WrongInput(f"{where}: has {len(data)} bytes where its shape and datatype {datatype.name} have {wanted}")
    if datatype.item is bool and bytes(data).translate(None, b"\0\1"):
        raise WrongInput(f"{where}: a BOOL is a byte of value 0 or 1")


def _from_json(wire: WireTensor, datatype: Datatype, count: int, where: str) -> bytes:
    if wire.data is msgspec.UNSET:
        raise WrongInput(f"{where}: has no data: give `data`, or `binary_data_size` and the bytes behind the JSON")
    if datatype.item is None:
        raise WrongInput(f"{where}: {datatype.name} is sent as binary data only")
    assert isinstance(wire.data, msgspec.Raw)
    raw = bytes(wire.data)
    depth = len(wire.shape) if len(wire.shape) > 1 and _NESTED.match(raw) else 1
    try:
        values: list[Any] = _decoder(datatype.item, depth).decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WrongInput(f"{where}: the data is not as datatype and shape say: {error}") from None
    if depth > 1:
        values = _flat(values, wire.shape, where)
    if len(values) != count:
        raise WrongInput(f"{where}: has {len(values)} elements where its shape has {count}")
    return pack(datatype, values)


@functools.cache
def _decoder(item: type, depth: int) -> msgspec.json.Decoder[Any]:
    kind: Any = item
    for _ in range(depth):
        kind = list[kind]
    return msgspec.json.Decoder(kind)


def _flat(values: list[Any], shape: list[int], where: str) -> list[Any]:
    """Flatten nested lists.  Raises WrongInput unless each is as long as the shape says."""
    for size in shape[1:]:
        if any(len(row) != size for row in values):
            raise WrongInput(f"{where}: the nested data does not have the shape {shape}")
        values = list(itertools.chain.from_iterable(values))
    return values
