"""The model store: one complete, sealed memory file with weights per model, the same for every process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable

from carpool.devices import memfd
from carpool.protocol.units import format_size

#: Seals after which no process can change the file, not even its creator.
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class OverBudget(Exception):
    """The model does not fit into the store beside the others; the text gives their sizes."""


def write_image(name: str, size: int, parts: Iterable[tuple[int, memoryview]]) -> int:
    """Make a sealed file of ``size`` bytes with each part at its offset, and return its descriptor.

    Raises DeviceError if there is no memory, OSError if memory runs out on the way; nothing is left of the file then.
    """
    fd = memfd.create(f"carpool-model-{name}"[:200], size, sealed=False)
    try:
        for offset, part in parts:
            _write(fd, part, offset)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write(fd: int, part: memoryview, offset: int) -> None:
    """Write a whole part, in pieces, because the kernel writes at most 2 GiB at once."""
    while part:
        written = os.pwrite(fd, part, offset)
        part, offset = part[written:], offset + written


def is_image(fd: int, size: int) -> bool:
    """Whether ``fd`` is a sealed file of ``size`` bytes: descriptors from another process are not trusted."""
    try:
        return os.fstat(fd).st_size == size and fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:  # another kind of file
        return False


class ImageStore:
    """The images of all models of a front, within ``budget`` bytes.  The store owns descriptors from `put` on."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._images: dict[str, int] = {}

    def __enter__(self) -> ImageStore:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._images):
            self.remove(name)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each image, by model."""
        return {name: os.fstat(fd).st_size for name, fd in self._images.items()}

    def check(self, name: str, size: int) -> None:
        """Check that an image would fit, before its weights are read.  Raises OverBudget."""
        others = {other: taken for other, taken in self.sizes().items() if other != name}
        if size + sum(others.values()) <= self.budget:
            return
        listed = ", ".join(f"{other} {format_size(taken)}" for other, taken in sorted(others.items()))
        raise OverBudget(
            f"model {name} has {format_size(size)} of weights; the store's budget is {format_size(self.budget)}, of"
            f" which {format_size(sum(others.values()))} are taken{f' ({listed})' if listed else ''}:"
            " remove a model or raise the budget"
        )

    def put(self, name: str, image: int, size: int) -> None:
        """Store an image in place of an earlier one of this name.

        Raises OverBudget, or ValueError if the file is not an image of that size.  After an error the descriptor is
        still the caller's.
        """
        if not is_image(image, size):
            raise ValueError(f"the received weights of {name} are not a sealed file of {size} bytes")
        self.check(name, size)
        self.remove(name)
        self._images[name] = image

    def image(self, name: str) -> int:
        """Return the descriptor of a model's image.  Raises KeyError."""
        return self._images[name]

    def remove(self, name: str) -> None:
        """Remove an image; processes that have mapped it keep it until they end.  An unknown name is not an error."""
        if (fd := self._images.pop(name, None)) is not None:
            os.close(fd)
