"""Copies between a bank and a store, piece by piece, made by the agent.

Not yet run on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from carpool.devices.base import DeviceError, Extent
from carpool.devices.cuda import messages
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.extents import Extents

#: The agent answers no other request while it copies a piece: about 10 ms at the speed of the link.
PIECE = 256 << 20


class Piece(NamedTuple):
    """``place``: offset in the bank and in the store."""

    file: Extent
    offset: int
    place: int
    size: int


class StoreCopy(NamedTuple):
    """A job's store as one side of a copy.

    ``number``: the agent's number for the store; ``fd``: its descriptor, which stays the caller's; ``out``: the copy
    goes from the device to the store, else back.
    """

    number: int
    fd: int
    out: bool


def plan_copies(files: Sequence[Extent], ranges: Sequence[tuple[int, int]]) -> list[Piece]:
    """Return the pieces in which bytes (begin, end) of a bank are copied.  Raises DeviceError for a smaller bank."""
    return [piece for begin, end in ranges for piece in _plan(files, begin, end)]


def _plan(files: Sequence[Extent], begin: int, end: int) -> list[Piece]:
    found: list[Piece] = []
    place = 0
    for file in files:
        while place <= begin < min(end, place + file.size):
            size = min(end, place + file.size, begin + PIECE) - begin
            found.append(Piece(file, begin - place, begin, size))
            begin += size
        place += file.size
    if begin < end:
        raise DeviceError(f"a bank of {place} bytes has no byte {begin}")
    return found


class Copying:
    """One copy, with descriptors of its own: its bank and store may be closed while it runs.

    ``forget_store``: called at the end with the store's number.
    """

    def __init__(
        self,
        link: AgentLink,
        extents: Extents,
        plan: list[Piece],
        store: StoreCopy,
        forget_store: Callable[[int], None],
    ) -> None:
        self._link = link
        self._extents = extents
        self._forget_store = forget_store
        self._fds: dict[int, int] = {}
        self._store = store._replace(fd=os.dup(store.fd))
        self._plan = [(extents.number(piece.file), self._dup(piece.file.fd), piece) for piece in plan]

    def run(self) -> None:
        """Copy; to be called once.  Raises DeviceError."""
        try:
            for number, fd, piece in self._plan:
                self._link.ask(self._message(number, piece), [fd, self._store.fd])
        finally:
            # The agent maps the memory that a request names, even if it had been told to forget it a moment ago.
            self._extents.forget(number for number, _, _ in self._plan)
            self._forget_store(self._store.number)
            for fd in (self._store.fd, *self._fds.values()):
                os.close(fd)

    def _message(self, number: int, piece: Piece) -> messages.Copy:
        store = self._store
        return messages.Copy(number, piece.file.size, piece.offset, store.number, piece.place, piece.size, store.out)

    def _dup(self, fd: int) -> int:
        if fd not in self._fds:
            self._fds[fd] = os.dup(fd)
        return self._fds[fd]
