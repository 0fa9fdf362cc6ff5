"""Extents of device memory: descriptors that an agent has made, and how a size is cut into extents.

Not yet run on a GPU.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from carpool.devices.base import DeviceError, Extent
from carpool.devices.cuda import messages
from carpool.devices.cuda.agent_link import AgentLink

#: The largest extents have this size, or this part of the device: a call of the driver costs the same for an extent of
#: any size, and every extent is a descriptor, here and in shims.
SMALLEST = 32 << 20
_PARTS = 128
#: From so many extents on, a lane or bank grows by extents of the largest size, however little is asked for.
_MANY = 128


def largest(capacity: int, granularity: int) -> int:
    """Return the largest size of an extent; a lane or bank that was made smaller may keep about as much too much."""
    return -(-max(SMALLEST, capacity // _PARTS) // granularity) * granularity


def cut(size: int, piece: int) -> Iterator[int]:
    """Yield the sizes of the extents that make ``size`` bytes, none larger than ``piece``."""
    while size > 0:
        yield min(size, piece)
        size -= piece


class Extents:
    """All extents of one device.  Implements `devices.banks.BufferMemory`; `release` may be called in any thread."""

    def __init__(self, link: AgentLink, capacity: int) -> None:
        self._link = link
        self._capacity = capacity
        self._lock = threading.Lock()
        self._numbers: dict[int, int] = {}  # of open descriptors
        self._next = 1
        self.total = 0  # bytes

    def make(self, size: int) -> Extent:
        """Make one extent, however large.  Raises DeviceError."""
        self._possible(size)
        return self._create(size)

    def grow(self, files: list[Extent], size: int) -> None:
        """Add extents until there are ``size`` bytes.  Raises DeviceError; then nothing has changed."""
        self._possible(size)
        new = list[Extent]()
        missing, piece = size - self.used(files), largest(self._capacity, self._link.ready().granularity)
        if missing > 0 and len(files) >= _MANY:
            missing = -(-missing // piece) * piece
        try:
            for part in cut(missing, piece):
                new.append(self._create(part))
        except DeviceError:
            self.release(new)
            raise
        files += new

    def cut_off(self, files: list[Extent], size: int) -> list[Extent]:
        """Take whole extents off the end as long as ``size`` bytes remain; the caller releases them."""
        end, gone = self.used(files), []
        while files and end - files[-1].size >= size:
            gone.append(files.pop())
            end -= gone[-1].size
        return gone

    def number(self, file: Extent) -> int:
        """Return the agent's number of an extent."""
        return self._numbers[file.fd]

    def forget(self, numbers: Iterable[int]) -> None:
        """Let the agent unmap released extents, to which the agent may have copied until now."""
        with self._lock:
            gone = set(numbers) - set(self._numbers.values())
        if gone:
            self._link.tell(messages.Forget(extents=sorted(gone)))

    def release(self, files: Sequence[Extent]) -> None:
        """Close extents.  The memory is free as soon as no job maps it and no shim keeps a descriptor."""
        if not files:
            return
        with self._lock:
            numbers = [self._numbers.pop(file.fd) for file in files]
            self.total -= sum(file.size for file in files)
        self._link.tell(messages.Forget(extents=numbers))
        for file in files:
            os.close(file.fd)

    def adopt(self, files: list[Extent], more: Sequence[Extent]) -> None:
        """Take ownership of ``more``.  Descriptors cannot be compared, so their places identify the extents."""
        for place, file in enumerate(more):
            if place < len(files):
                os.close(file.fd)
            else:
                files.append(self.add(file))

    # For banks

    def create(self, name: str) -> list[Extent]:
        """Return no extents: a new bank is empty."""
        return []

    def used(self, files: Sequence[Extent]) -> int:
        """Return the bytes of these extents."""
        return sum(file.size for file in files)

    def emptying(self, files: list[Extent], size: int) -> Callable[[], None]:
        """See `BufferMemory`; whole extents are given back."""
        gone: list[Extent] = []
        while files and size > 0:
            gone.append(files.pop())
            size -= gone[-1].size
        return lambda: self.release(gone)

    def check(self, files: Sequence[Extent], known: Sequence[Extent] | None) -> None:
        """Check that the driver takes files for memory of this device, of these sizes.  Raises DeviceError."""
        for ours, theirs in zip(known or (), files, strict=False):
            if ours.size != theirs.size:
                raise DeviceError("other sizes")
        for file in files:
            self._link.ask(messages.Check(file.size), [file.fd])

    def close(self, files: Sequence[Extent]) -> None:
        """Close extents."""
        self.release(files)

    def _possible(self, size: int) -> None:
        ready = self._link.ready()
        if size > ready.memory:
            raise DeviceError(f"{size} bytes are more than the {ready.memory} of {ready.name}")

    def _create(self, size: int) -> Extent:
        fds = self._link.ask(messages.Create(size))
        if len(fds) != 1:
            raise DeviceError("the descriptor of new device memory did not arrive: too many open files")
        return self.add(Extent(fds[0], size))

    def add(self, file: Extent) -> Extent:
        """Take ownership of an extent's descriptor, and number the extent."""
        with self._lock:
            self._numbers[file.fd] = self._next
            self._next += 1
            self.total += file.size
        return file
