"""Messages between the daemon and a device agent: one JSON object per packet (`carpool.protocol.packets`).

The agent speaks first (`Ready` or `Failed`); after that each request is answered by one message before the next
is sent.  `PinAhead`, `Forget` and `Rest` are not answered.

Extents and stores have numbers that the daemon chooses and never uses again while the agent lives.  What comes with a
number is always the same memory, so the agent may keep it mapped until it is told to forget the number.
"""

from __future__ import annotations

import msgspec

#: Both ends come from one installation, except while the installation is being replaced.
VERSION = 5


class Create(msgspec.Struct, tag_field="type", tag="create", frozen=True):
    """Make an extent of device memory, all zero.  Answer: `Created` with its descriptor."""

    size: int


class Room(msgspec.Struct, tag_field="type", tag="room", frozen=True):
    """Test that so much memory is free now: it is allocated, and freed before the answer.  Answer: `Done`."""

    size: int


class Check(msgspec.Struct, tag_field="type", tag="check", frozen=True):
    """Test that the attached descriptor is memory of this device and of this size.  Answer: `Done` or `Failed`."""

    size: int


class Copy(msgspec.Struct, tag_field="type", tag="copy", frozen=True):
    """Copy ``size`` bytes between an extent and a store.  Descriptors: the extent's, the store's.  Answer: `Done`."""

    extent: int
    extent_size: int
    extent_offset: int
    store: int
    store_offset: int
    size: int
    out: bool  # from the extent to the store; else back


class Hear(msgspec.Struct, tag_field="type", tag="hear", frozen=True):
    """Do nothing: the answer says that all earlier messages have been carried out.  Answer: `Done`."""


class PinAhead(msgspec.Struct, tag_field="type", tag="pin_ahead", frozen=True):
    """Pin the first ``size`` bytes of a store, when there is nothing else to do.  Descriptor: its own.  No answer."""

    store: int
    size: int


class Forget(msgspec.Struct, tag_field="type", tag="forget", frozen=True):
    """Unmap extents and unpin stores.  No answer."""

    extents: list[int] = []
    stores: list[int] = []


class Rest(msgspec.Struct, tag_field="type", tag="rest", frozen=True):
    """Free the context's memory, too, unless another request comes soon: nothing else is on the device.  No answer."""


#: Requests that are answered.
Asking = Create | Room | Check | Copy | Hear
#: Messages without an answer.
Telling = PinAhead | Forget | Rest
Request = Asking | Telling


class Ready(msgspec.Struct, tag_field="type", tag="ready", frozen=True):
    """The agent has found its device.  Sizes are bytes."""

    version: int
    name: str
    memory: int  # of the whole device
    granularity: int  # extents are multiples of this
    uuid: str  # as NVML and CUDA_VISIBLE_DEVICES name it
    checkpoint: bool = False  # the driver can suspend processes
    instances: list[str] = []  # all of the partitioned GPU that the device is a part of, by the same kind of name


class Created(msgspec.Struct, tag_field="type", tag="created", frozen=True):
    """One descriptor: the new extent."""


class Done(msgspec.Struct, tag_field="type", tag="done", frozen=True):
    """The request has been carried out.  No descriptors."""


class Failed(msgspec.Struct, tag_field="type", tag="failed", frozen=True):
    """The request failed and changed nothing.  A driver's error has text, function, number, name; others a text."""

    text: str
    function: str = ""
    code: int = 0
    name: str = ""


Answer = Ready | Created | Done | Failed

encode = msgspec.json.encode
decode_request = msgspec.json.Decoder(Request).decode
decode_answer = msgspec.json.Decoder(Answer).decode
