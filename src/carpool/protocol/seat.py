"""The seat and the job channel's packets; the mirror of ``src/native/abi/seat.h``.

A seat is a shared-memory record of 512 bytes, one per attached job process.  A board is a memfd with one
page of header and `SEATS` seats.  Every word has one writer at a time (see the header file).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Literal, NamedTuple

BOARD_MAGIC = 0x4452424C
PROTOCOL = 2
SEATS = 4096
HEADER_BYTES = 4096
SEAT_BYTES = 512
BOARD_BYTES = HEADER_BYTES + SEATS * SEAT_BYTES

#: name -> (offset in the seat, struct format)
FIELDS: dict[str, tuple[int, Literal["I", "Q"]]] = {
    "turn": (0, "I"),
    "bell": (4, "I"),
    "yield": (8, "I"),
    "successor": (12, "I"),
    "want": (16, "I"),
    "passed_to": (20, "I"),
    "pid": (24, "I"),
    "grace_us": (28, "I"),
    "p_limit": (32, "Q"),
    "e_limit": (40, "Q"),
    "grow_seq": (48, "I"),
    "grow_ack": (52, "I"),
    "grow_status": (56, "I"),
    "offload": (60, "I"),
    "p_live": (64, "Q"),
    "p_peak": (72, "Q"),
    "e_live": (80, "Q"),
    "e_peak": (88, "Q"),
    "p_used": (96, "Q"),
    "iterations": (104, "Q"),
    "progress_done": (112, "Q"),
    "progress_total": (120, "Q"),
    "turns": (128, "Q"),
    "held_us": (136, "Q"),
    "turn_start_us": (144, "Q"),
    "residue": (152, "Q"),
    "residue_total": (160, "Q"),
    "switch_us": (168, "I"),
    "cause": (172, "I"),
    "boundary_us": (176, "Q"),
    "first_use_us": (184, "Q"),
    "traps": (192, "Q"),
    "early": (200, "Q"),
    "forced": (208, "I"),
    "coming": (212, "I"),
    "promoted": (216, "Q"),
    "passed_seq": (224, "Q"),
    "offloaded": (232, "I"),
    "grow_class": (236, "I"),
    "lane": (240, "Q"),
    "grow_total": (248, "Q"),
    "watch": (256, "I"),
    "offload_error": (260, "I"),
    "bank": (264, "Q"),
    "stored": (272, "Q"),
    "store_bytes": (280, "Q"),
    "out_bytes": (288, "Q"),
    "out_us": (296, "Q"),
    "in_bytes": (304, "Q"),
    "in_us": (312, "Q"),
    "resume_us": (320, "Q"),
    "demanded": (328, "Q"),
    "traits": (336, "I"),
    "whole": (340, "I"),
    "fixed": (344, "Q"),
    "close_lane": (352, "I"),
    "paused": (356, "I"),
    "leave": (360, "I"),
    "out_of_memory": (364, "I"),
    "pause_seq": (368, "I"),
    "demand_seq": (372, "I"),
    "weights": (376, "Q"),
    "weights_bytes": (384, "Q"),
    "reload_us": (392, "Q"),
    "compute_us": (400, "Q"),
    "deadline_us": (408, "Q"),
    "placed_seq": (416, "I"),
    "placed": (420, "I"),
    "paused_us": (424, "Q"),
    "ahead_us": (432, "Q"),
    "others": (440, "Q"),
    "handles": (488, "Q"),
    "made": (496, "Q"),
}


#: The field with the name of a function of the driver; all other fields are words.
PASSING_OFFSET, PASSING_BYTES = 448, 40

#: Offset in the board's header of the kind of its device (`Kind`).
KIND_OFFSET = 8


class Kind(IntEnum):
    """The kind of device that a board is for."""

    HOST = 0
    CUDA = 1


class Trait(IntFlag):
    """Facts about a job's use of its device that the daemon must know; bits are set and never taken back."""

    DEVICE = 1
    SHARED = 2
    UNGATED = 4
    COLLECTIVE = 8
    FIXED = 16


class Yield(IntEnum):
    """A request of the daemon to a turn's holder: let go at the next boundary or at once, or pause for a service."""

    NO = 0
    BOUNDARY = 1
    NOW = 2
    PAUSE = 3


class Grow(IntEnum):
    """The daemon's answer to a request for memory."""

    NONE = 0
    GRANTED = 1
    DENIED = 2


class Leave(IntEnum):
    """Whether the seat is to be handed to another process of the job, and what its holder has answered."""

    NO = 0
    ASKED = 1
    LEFT = 2
    STAYS = 3


class Whole(IntEnum):
    """Whose a process's device memory is (CUDA): by grant, or its driver's: all of it, or as much as it was granted."""

    NO = 0
    ALL = 1
    SHARE = 2


class Placed(IntEnum):
    """The answer to a service's demand: its weights are on the device, or why they never will be."""

    YES = 1
    TOO_LARGE = 2
    CHANGED = 3
    NO_SERVICE = 4


class OutOf(IntEnum):
    """The resource for want of which the job's main process has died.  `NOTHING`: the process has not named any."""

    NOTHING = 0
    DEVICE = 1
    HEAP = 2
    OTHER = 3  # for want of nothing: the process ended in another way


class OffloadState(IntEnum):
    """The progress of a request to move the job's memory to its store."""

    NO = 0
    ASKED = 1
    DONE = 2
    DROP = 3


#: The host store's file: the layout of a bank, then one byte per chunk that says where the chunk's content is.
CHUNK = 2 << 20
IN_DEVICE, IN_STORE = 0, 1


class PacketType(IntEnum):
    """Job channel.  Below 100: from the job; above: from the daemon."""

    HELLO = 1
    WANT = 2
    URGENT = 3
    RELEASED = 4
    PASSED = 5
    GROW = 6
    SHRUNK = 7
    OFFLOADED = 8
    CUT_DONE = 9
    LEFT = 10
    WITHDRAWN = 11
    PAUSED = 12
    SETUP = 101
    LANE = 102
    REFUSED = 103
    BANK = 104
    EXTENT = 105
    CUT = 106
    WEIGHTS = 107


_PACKET = struct.Struct("=IIQQQQQ")
PACKET_BYTES = _PACKET.size


@dataclass(frozen=True, slots=True)
class Packet:
    """One message on the job channel; what ``a`` to ``e`` mean depends on the type (see ``src/native/abi/seat.h``)."""

    type: PacketType
    pid: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0

    def encode(self) -> bytes:
        """Return the bytes of the packet."""
        return _PACKET.pack(self.type, self.pid, self.a, self.b, self.c, self.d, self.e)

    @classmethod
    def decode(cls, data: bytes) -> Packet:
        """Decode a packet.  Raises ValueError for anything that is not a packet of this protocol."""
        if len(data) != PACKET_BYTES:
            raise ValueError(f"a packet has {PACKET_BYTES} bytes, got {len(data)}")
        kind, *rest = _PACKET.unpack(data)
        return cls(PacketType(kind), *rest)


def _format() -> str:
    """Return the layout of all words: native, so that CPython copies each as a whole, in the order of the offsets."""
    codes, end = ["@"], 0
    for offset, code in FIELDS.values():
        codes.append(f"{offset - end}x{code}")
        end = offset + struct.calcsize(code)
    return "".join(codes)


_WORDS = struct.Struct(_format())


class Seat:
    """One seat of a mapped board, field by field.  Writers other than those named in the header are errors."""

    __slots__ = ("_board", "_offset", "slot")

    def __init__(self, board: memoryview, slot: int) -> None:
        if not 0 <= slot < SEATS:
            raise ValueError(f"slot {slot} is not in 0..{SEATS - 1}")
        self._board = board
        self._offset = HEADER_BYTES + slot * SEAT_BYTES
        self.slot = slot

    def get(self, name: str) -> int:
        """Return the value of a field."""
        offset, code = FIELDS[name]
        # A cast view reads the aligned word in one access.
        start = self._offset + offset
        view = self._board[start : start + (4 if code == "I" else 8)].cast(code)
        return int(view[0])

    def passing(self) -> str:
        """Return which form of a hooked call passes because libcarpool does not know it; empty if none does."""
        start = self._offset + PASSING_OFFSET
        name = bytes(self._board[start : start + PASSING_BYTES]).partition(b"\0")[0]
        return name.decode() if re.fullmatch(rb"cu\w+", name) else ""

    def snapshot(self) -> SeatWords:
        """Return all words, each read once: a decision that needs several must not see one of them change in between.

        Words are read in ascending order of their offsets, while the job goes on writing.  Where the job says something
        by the order of two writes (a turn that has ended, src/native/turn/turn.c), read the word that comes last there
        first, by `get`, and take the snapshot afterwards.
        """
        return SeatWords._make(_WORDS.unpack_from(self._board, self._offset))

    def set(self, name: str, value: int) -> None:
        """Set the value of a field."""
        offset, code = FIELDS[name]
        start = self._offset + offset
        view = self._board[start : start + (4 if code == "I" else 8)].cast(code)
        view[0] = value

    def clear(self) -> None:
        """Zero the seat before it is given to a new process."""
        self._board[self._offset : self._offset + SEAT_BYTES] = bytes(SEAT_BYTES)


class SeatWords(NamedTuple):
    """The words of ``src/native/abi/seat.h`` in their order, under the names of `carpool.protocol.seat.FIELDS`.

    ``yield_`` is the word ``yield``.
    """

    turn: int
    bell: int
    yield_: int
    successor: int
    want: int
    passed_to: int
    pid: int
    grace_us: int
    p_limit: int
    e_limit: int
    grow_seq: int
    grow_ack: int
    grow_status: int
    offload: int
    p_live: int
    p_peak: int
    e_live: int
    e_peak: int
    p_used: int
    iterations: int
    progress_done: int
    progress_total: int
    turns: int
    held_us: int
    turn_start_us: int
    residue: int
    residue_total: int
    switch_us: int
    cause: int
    boundary_us: int
    first_use_us: int
    traps: int
    early: int
    forced: int
    coming: int
    promoted: int
    passed_seq: int
    offloaded: int
    grow_class: int
    lane: int
    grow_total: int
    watch: int
    offload_error: int
    bank: int
    stored: int
    store_bytes: int
    out_bytes: int
    out_us: int
    in_bytes: int
    in_us: int
    resume_us: int
    demanded: int
    traits: int
    whole: int
    fixed: int
    close_lane: int
    paused: int
    leave: int
    out_of_memory: int
    pause_seq: int
    demand_seq: int
    weights: int
    weights_bytes: int
    reload_us: int
    compute_us: int
    deadline_us: int
    placed_seq: int
    placed: int
    paused_us: int
    ahead_us: int
    others: int
    handles: int
    made: int
