"""The description of a prepared model, without its weights: plain data, which any process can read, also the front.

The places of its storages in the weights' memory (`lay_out`): the header (`src/native/weights/groups.h`), then the
pipeline groups in the order of their first use, each on its own pages, then the storages that every worker copies for
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from carpool.serve.plan.grouping import Grouping, LinkCost

PAGE = 4096
#: PyTorch's own alignment (on GPUs; on the CPU 64), so that kernels take the same paths as without Carpool.
ALIGNMENT = 512
HEADER_BYTES = 48
STATE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """``offsets``: of each storage, in bytes.  ``bounds``: group k lies from bounds[k] to bounds[k + 1].

    ``size``: bytes of the file, private storages included.
    """

    offsets: tuple[int, ...]
    bounds: tuple[int, ...]
    size: int


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def lay_out(
    sizes: Sequence[int], layers: Sequence[Sequence[int]], private: Sequence[int], grouping: Grouping
) -> Layout:
    """Lay out the storages.

    ``sizes``: bytes of each storage; ``layers``: the storages of each layer, in order; ``private``: the others.  Raises
    ValueError if that does not name every storage once, or if the groups are not all of the layers.
    """
    if sorted(chain(private, *layers)) != list(range(len(sizes))):
        raise ValueError("every storage belongs to one layer, or is private")
    if list(grouping) != sorted(set(grouping)) or not grouping or grouping[0] < 1 or grouping[-1] != len(layers):
        raise ValueError(f"the groups end at {list(grouping)}, and there are {len(layers)} layers")
    offsets = [0] * len(sizes)
    end = _round_up(HEADER_BYTES + STATE_BYTES * len(grouping), PAGE)
    bounds = [end]
    for begin, stop in zip((0, *grouping), grouping, strict=False):
        end = _place(chain(*layers[begin:stop]), sizes, offsets, end)
        bounds.append(end)
    size = _place(private, sizes, offsets, end)
    return Layout(tuple(offsets), tuple(bounds), size)


def _place(storages: Iterable[int], sizes: Sequence[int], offsets: list[int], end: int) -> int:
    for storage in storages:
        offsets[storage] = end
        end = _round_up(end + sizes[storage], ALIGNMENT)
    return _round_up(end, PAGE)


@dataclass(frozen=True, slots=True)
class Source:
    """``factory``: ``module:function``.  ``weights``: a safetensors file or index; None: as the factory leaves them.

    ``seed``: of PyTorch's random numbers while the factory runs.
    """

    factory: str
    weights: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """``storages``: those that it uses first; ``size``: their bytes; ``compute_ns``: until the next layer."""

    storages: tuple[int, ...]
    size: int
    compute_ns: int


@dataclass(frozen=True, slots=True)
class Profile:
    """``private``: storages that computing writes to, of which every worker has its own copy.

    ``total_ns``: of a whole run.  ``link``: the way to the device.  ``key`` says what was measured.
    """

    key: str
    layers: tuple[Layer, ...]
    private: tuple[int, ...]
    total_ns: int
    link: LinkCost


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Python file of the user's; ``digest``: of its content."""

    path: str
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The facts that a worker needs beside the image.  Sent as a record (`carpool.protocol.records`).

    ``plainly``: why the structure is built with initial weights in each worker, None: it is not.  ``code``: the files
    that the factory and the model have imported.
    """

    source: Source
    signature: str
    key: bytes
    layout: Layout
    profile: Profile
    plainly: str | None
    code: tuple[SourceFile, ...]

    @property
    def device_bytes(self) -> int:
        """The size of the weights' memory on a device."""
        return self.layout.bounds[-1]

    @property
    def number(self) -> int:
        """The daemon's number of these weights: 64 bits of the key, not 0."""
        return int.from_bytes(self.key[:8], "little") or 1

    @property
    def daemon_key(self) -> str:
        """The number in the daemon's spelling (`carpool.daemon.seats.services.weights_key`)."""
        return f"{self.number:016x}"
