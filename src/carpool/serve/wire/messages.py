"""Messages between the front and its processes, as bytes.

A *frame* is a prefix (two sizes), a header (one of the messages below, as JSON) and a body: the tensors that
the header names, one after the other.  A descriptor travels with the first byte of a frame.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from carpool.protocol.records import Kinds, Malformed, Range, encode_tagged
from carpool.serve.oip.values import DATATYPES, LARGEST, ModelMetadata, Tensor
from carpool.serve.plan.manifest import Manifest, Source

#: Bytes of the header, and of the body.
PREFIX = struct.Struct("<IQ")
LARGEST_HEADER = 64 << 20  # a model of a million parameters
LARGEST_BODY = 4 << 30

Count = Annotated[int, Range(0, LARGEST)]
#: The errors of `carpool.serve.oip.errors` that a worker can report.
Kind = Literal["wrong_input", "unknown_model", "model_failed", "model_too_large", "code_changed", "left"]


class Broken(Exception):
    """The received bytes are not a message that may come here, or half of one.  The connection is unusable."""


class TooMuch(Exception):
    """The tensors are larger than a message may be."""


@dataclass(frozen=True, slots=True)
class Head:
    """A tensor whose bytes are in the body."""

    name: str
    datatype: str
    shape: tuple[Count, ...]
    size: Count  # bytes


# From the front to a worker


@dataclass(frozen=True, slots=True)
class Load:
    """Prepare the structure of a model, in place of one of this name.  Carries the image.

    Answer: `Loaded`, or `Failed` with the same number.
    """

    number: Count
    name: str
    entry: Manifest
    max_batch: Count


@dataclass(frozen=True, slots=True)
class Unload:
    """Forget a model.  Unknown names are not an error.  There is no answer."""

    name: str


@dataclass(frozen=True, slots=True)
class Infer:
    """Compute the requests as one batch.  The body: the inputs of each request, in the order of the model.

    Answer: `Answer`, or `Failed` with the same number.
    """

    number: Count
    model: str
    requests: tuple[tuple[Head, ...], ...]
    deadline_us: int | None  # on CLOCK_MONOTONIC


@dataclass(frozen=True, slots=True)
class Leave:
    """Drop the `Infer` of this number, whose client has gone.  Answer: `Failed`, or the result if that comes first."""

    number: Count


@dataclass(frozen=True, slots=True)
class MakeWay:
    """Another model has less time: give the turn away between two layers, and compute the rest of `Infer` later."""

    number: Count


# From a worker to the front


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message: the framework is loaded."""

    token: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The answer to `Load`: the model is ready to compute."""

    number: Count


@dataclass(frozen=True, slots=True)
class Begun:
    """About an `Infer`: the worker has its turn, and computes."""

    number: Count


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a batch.  ``compute_us``: without waiting for the turn or for weights.

    The rest: weights that came meanwhile.
    """

    compute_us: Count
    copied_groups: Count
    copied_bytes: Count


@dataclass(frozen=True, slots=True)
class Answer:
    """The body: the outputs of each request."""

    number: Count
    requests: tuple[tuple[Head, ...], ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer to `Load` or `Infer` that could not be done; ``text`` is for the client."""

    number: Count
    kind: Kind
    text: str


# Between the front and a process that prepares a model


@dataclass(frozen=True, slots=True)
class Prepare:
    """``kept``: the file of the profile.  ``on_gpu``: workers are on GPUs; this process never is."""

    name: str
    source: Source
    max_batch: Count
    kept: str | None
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class Admit:
    """The image will have so many bytes.  Answer: `Admitted`; a process that is not admitted is killed."""

    size: Count


@dataclass(frozen=True, slots=True)
class Admitted:
    """The answer to `Admit`: there is room for the image."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is prepared.  Carries the image."""

    entry: Manifest
    model: ModelMetadata


@dataclass(frozen=True, slots=True)
class NotReady:
    """The model cannot be prepared; the text is for users."""

    text: str


ToWorker = Load | Unload | Infer | Leave | MakeWay
FromWorker = Hello | Loaded | Begun | Answer | Failed
ToPreparer = Prepare | Admitted
FromPreparer = Admit | Ready | NotReady
Message = ToWorker | FromWorker | ToPreparer | FromPreparer


#: Messages that carry a descriptor.
BRINGING = Load | Ready
#: Messages whose tensors are in the body.
CARRYING = Infer | Answer


class Frame(NamedTuple):
    """A received message, the tensors of its body, and its descriptor, which is the receiver's to close."""

    message: Any
    requests: list[list[Tensor]]
    fd: int | None


def heads(requests: Sequence[Sequence[Tensor]]) -> tuple[tuple[Head, ...], ...]:
    """Return the header's description of the tensors in the body."""
    return tuple(tuple(Head(t.name, t.datatype, t.shape, len(t.data)) for t in request) for request in requests)


def encode(message: Message, requests: Sequence[Sequence[Tensor]] = ()) -> list[bytes | memoryview]:
    """Return the buffers to send.  Tensors are not copied.  Raises TooMuch."""
    header = encode_tagged(message)
    body = [tensor.data for request in requests for tensor in request]
    size = sum(map(len, body))
    if size > LARGEST_BODY or len(header) > LARGEST_HEADER:
        raise TooMuch(f"the message would have {size + len(header)} bytes; it may have {LARGEST_BODY}")
    return [PREFIX.pack(len(header), size) + header, *filter(len, body)]


def sizes(prefix: bytearray) -> tuple[int, int]:
    """Return the sizes of header and body.  Raises Broken."""
    header, body = PREFIX.unpack(prefix)
    if header > LARGEST_HEADER or body > LARGEST_BODY:
        raise Broken(f"a message cannot have {header} and {body} bytes")
    return header, body


def decode(kinds: Kinds, header: bytearray, body: bytearray, fd: int | None) -> Frame:
    """Return the message, and its tensors, which lie in ``body``.  Raises Broken; ``fd`` is the caller's then."""
    try:
        message = kinds.decode(header)
    except Malformed as error:
        raise Broken(f"an invalid header: {error}") from None
    if isinstance(message, BRINGING) != (fd is not None):
        raise Broken(f"{type(message).__name__} {'without a' if fd is None else 'with a'} descriptor")
    cut = _Cut(memoryview(body))
    named = message.requests if isinstance(message, CARRYING) else ()
    requests = [[cut.tensor(head) for head in heads] for heads in named]
    cut.check_end()
    return Frame(message, requests, fd)


class _Cut:
    """A body from which tensor after tensor is taken."""

    def __init__(self, body: memoryview) -> None:
        self._left = body

    def tensor(self, head: Head) -> Tensor:
        datatype = DATATYPES.get(head.datatype)
        if datatype is None:
            raise Broken(f"there is no datatype {head.datatype!r}")
        if datatype.item_bytes is not None and head.size != math.prod(head.shape) * datatype.item_bytes:
            raise Broken(f"{head.name!r} has {head.size} bytes, and shape {head.shape} of {head.datatype}")
        if head.size > len(self._left):
            raise Broken(f"{head.name!r} has {head.size} bytes, of which {len(self._left)} have come")
        data, self._left = self._left[: head.size], self._left[head.size :]
        return Tensor(head.name, head.datatype, head.shape, data)

    def check_end(self) -> None:
        if self._left:
            raise Broken(f"{len(self._left)} bytes belong to no tensor")
