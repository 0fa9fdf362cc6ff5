"""Extents of device memory: descriptors that an agent has made, and how a size is cut into them.

Not yet run on a GPU.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from carpool.devices.base import DeviceError, Extent
from carpool.devices.cuda import messages
from carpool.devices.cuda.link import Link

#: Calls of the driver take their time per extent, whatever its size.
SMALLEST = 32 << 20
#: An extent is at most this part of what lies before it: so much may stay with a lane that has been made smaller.
_PART = 4
#: All descriptors of a lane or bank fit into one message (the kernel's limit is 253) beside others.
MOST = 200


def cut(begin: int, end: int, granularity: int) -> Iterator[int]:
    """Sizes of the extents that fill a lane or bank from ``begin`` to ``end``, both whole multiples."""
    while begin < end:
        size = min(end - begin, max(SMALLEST, begin // _PART // granularity * granularity))
        yield size
        begin += size


class Extents:
    """All extents of one device.  Implements `carpool.devices.banks.Memory`; `release` may be called in any thread."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._numbers: dict[int, int] = {}  # of open descriptors
        self._next = 1
        self.total = 0  # bytes

    def grow(self, files: list[Extent], size: int) -> None:
        """Add extents until there are ``size`` bytes.  Raises DeviceError; then nothing has changed."""
        ready, new = self._link.ready(), list[Extent]()
        if size > ready.memory:
            raise DeviceError(f"{size} bytes are more than the {ready.memory} of {ready.name}")
        try:
            for piece in cut(self.used(files), size, ready.granularity):
                if len(files) + len(new) == MOST:
                    raise DeviceError(f"it would be in more than {MOST} pieces: it should grow by larger steps")
                new.append(self._create(piece))
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
                files.append(self._add(file))

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

    def _create(self, size: int) -> Extent:
        fds = self._link.ask(messages.Create(size))
        if len(fds) != 1:
            raise DeviceError("the descriptor of new device memory did not arrive: too many open files")
        return self._add(Extent(fds[0], size))

    def _add(self, file: Extent) -> Extent:
        with self._lock:
            self._numbers[file.fd] = self._next
            self._next += 1
            self.total += file.size
        return file
