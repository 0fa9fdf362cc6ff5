"""The description of a prepared model, without its weights.  Plain data, which any process can read, also the front."""

from __future__ import annotations

from dataclasses import dataclass

from carpool.serve.plan.grouping import LinkCost
from carpool.serve.plan.layout import Layout


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
    """A Python file of the user's; ``digest``: of what was in it."""

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
        """The number in the daemon's spelling (`carpool.daemon.seats.demands.weights_key`)."""
        return f"{self.number:016x}"
