"""Extents of device memory: descriptors that an agent has made, and how a size is cut into them.

Not yet run on a GPU.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from carpool.devices.base import DeviceError, Extent
from carpool.devices.cuda import messages
from carpool.devices.cuda.agent_link import AgentLink

#: The largest extents are so large, or such a part of the device: calls of the driver take their time per extent,
#: whatever its size, and every extent is a descriptor, here and in shims.
SMALLEST = 32 << 20
_PARTS = 128
#: With so many extents a lane or bank grows by whole ones, however little is asked for.
_MANY = 128


def largest(capacity: int, granularity: int) -> int:
    """Of an extent.  About so much may stay with a lane or bank that has been made smaller."""
    return -(-max(SMALLEST, capacity // _PARTS) // granularity) * granularity


def cut(size: int, piece: int) -> Iterator[int]:
    """Sizes of the extents that make ``size`` bytes, none larger than ``piece``."""
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
        """One, however large.  Raises DeviceError."""
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
        """By which the agent knows it."""
        return self._numbers[file.fd]

    def forget(self, numbers: Iterable[int]) -> None:
        """Let the agent unmap what has been released; it may have copied there until now."""
        with self._lock:
            gone = set(numbers) - set(self._numbers.values())
        if gone:
            self._link.tell(messages.Forget(extents=sorted(gone)))

    def release(self, files: Sequence[Extent]) -> None:
        """Close them.  The memory is free as soon as no job maps it and no shim keeps a descriptor."""
        if not files:
            return
        with self._lock:
            numbers = [self._numbers.pop(file.fd) for file in files]
            self.total -= sum(file.size for file in files)
        self._link.tell(messages.Forget(extents=numbers))
        for file in files:
            os.close(file.fd)

    def adopt(self, files: list[Extent], more: Sequence[Extent]) -> None:
        """Owns ``more``.  Descriptors cannot be compared, so it is their place that says which they are."""
        for place, file in enumerate(more):
            if place < len(files):
                os.close(file.fd)
            else:
                files.append(self.add(file))

    # For banks

    def create(self, name: str) -> list[Extent]:
        return []

    def used(self, files: Sequence[Extent]) -> int:
        return sum(file.size for file in files)

    def emptying(self, files: list[Extent], size: int) -> Callable[[], None]:
        gone: list[Extent] = []
        while files and size > 0:
            gone.append(files.pop())
            size -= gone[-1].size
        return lambda: self.release(gone)

    def check(self, files: Sequence[Extent], known: Sequence[Extent] | None) -> None:
        """Whether the driver takes them for memory of this device, of these sizes."""
        for ours, theirs in zip(known or (), files, strict=False):
            if ours.size != theirs.size:
                raise DeviceError("other sizes")
        for file in files:
            self._link.ask(messages.Check(file.size), [file.fd])

    def close(self, files: Sequence[Extent]) -> None:
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
        """Owns the descriptor."""
        with self._lock:
            self._numbers[file.fd] = self._next
            self._next += 1
            self.total += file.size
        return file
