"""The part of `fakejob.py` that maps a lane and a bank extent by extent, as src/native/abi/seat.h says of CUDA devices.

On the stub driver (``tools/emulator/``) a descriptor of device memory is a file, so nothing here calls a driver.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
from collections.abc import Callable

from carpool.protocol.seat import PACKET_BYTES, Packet, PacketType, Seat

BANK, LANE = 0, 1
WORDS = {BANK: "bank", LANE: "lane"}


def values(data: bytes) -> set[int]:
    """Those of its bytes.  Mostly it is one, and looking at each of a hundred million takes seconds."""
    return set(data[:1]) if data == data[:1] * len(data) else set(data)


class ExtentMover:
    """What a fake job has mapped.  ``answer`` sends CUT_DONE; whoever calls holds the job's gate."""

    def __init__(self, seat: Seat, channel: socket.socket, setup: Packet, answer: Callable[..., None]) -> None:
        self._seat = seat
        self._channel = channel
        self._answer = answer
        self._numbers = {BANK: setup.e, LANE: setup.c}
        self._maps: dict[int, list[mmap.mmap]] = {BANK: [], LANE: []}

    def end(self, kind: int) -> int:
        return sum(map(len, self._maps[kind]))

    def follow(self) -> None:
        """Read what has been sent; wait for it as long as the seat names another lane or bank."""
        self.drain()
        while any(self._seat.get(word) != self._numbers[kind] for kind, word in WORDS.items()):
            self._receive(0)

    def drain(self) -> None:
        while self._receive(socket.MSG_DONTWAIT):
            pass

    def write(self, kind: int, size: int, value: int) -> None:
        left = size
        for memory in self._maps[kind]:
            part = min(left, len(memory))
            memory[:part] = bytes([value]) * part
            left -= part
        assert not left, f"{size} bytes wanted, {self.end(kind)} there"
        if kind == BANK:
            self._seat.set("p_used", max(size, self._seat.get("p_used")))

    def read(self, kind: int, size: int) -> set[int]:
        left, found = size, set[int]()
        for memory in self._maps[kind]:
            found |= values(memory[: min(left, len(memory))])
            left -= min(left, len(memory))
        assert not left, f"{size} bytes wanted, {self.end(kind)} there"
        return found

    def _receive(self, flags: int) -> bool:
        """Handle one packet.  False if there is none."""
        try:
            # Not recv_fds, which overlooks its flags.
            data, extra, _, _ = self._channel.recvmsg(PACKET_BYTES, socket.CMSG_LEN(4), flags)
        except BlockingIOError:
            return False
        fds = [int.from_bytes(bytes_, sys.byteorder) for _, _, bytes_ in extra]
        packet = Packet.decode(data)
        try:
            self._handle(packet, fds)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _handle(self, packet: Packet, fds: list[int]) -> None:
        if packet.type in (PacketType.LANE, PacketType.BANK):
            kind = LANE if packet.type is PacketType.LANE else BANK
            self._cut(kind, 0)
            self._numbers[kind] = packet.a
        elif packet.type is PacketType.EXTENT:
            if packet.a == self._numbers[packet.b] and packet.c == self.end(packet.b):
                self._maps[packet.b].append(mmap.mmap(fds[0], packet.d))
        elif packet.type is PacketType.CUT:
            if packet.a == self._numbers[packet.b]:
                self._cut(packet.b, packet.c)
            self._answer(PacketType.CUT_DONE, packet.a, packet.b, packet.c)

    def _cut(self, kind: int, end: int) -> None:
        while self.end(kind) > end:
            self._maps[kind].pop().close()
        assert self.end(kind) <= end, "a cut in the middle of an extent"
