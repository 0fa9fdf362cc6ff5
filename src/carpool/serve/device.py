"""Where the weights' memory is, and whose turn it is, as a worker sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from carpool.devices import memfd
from carpool.devices.base import DeviceError


class TooLarge(Exception):
    """The weights do not fit onto the device, however long one waits; the text is for people."""


class Refused(Exception):
    """There will be no turn for these weights; the text says why."""


class Demand(msgspec.Struct, frozen=True):
    """``key``: of the weights (`Entry.number`), ``size`` their bytes on the device.

    ``reload_us``: what it takes to copy them there; ``compute_us``: to compute the batch, 0: not known yet.
    ``deadline_us``: on CLOCK_MONOTONIC, None: no matter when.
    """

    key: int
    size: int
    reload_us: int
    compute_us: int
    deadline_us: int | None


class Device(Protocol):
    def place(self, demand: Demand) -> int | None:
        """Wait until there is memory for the weights.  The turn may come later: device memory waits for it (the trap).

        Returns the memory's descriptor, the caller's to close, when it is new or another than before; None: it is that
        of last time.  Raises TooLarge, Refused.
        """

    def release(self) -> None:
        """Nothing more to compute: the turn goes back.  Without a turn nothing happens."""

    def forget(self, key: int) -> None:
        """This process has let go of the memory: `place` brings its descriptor again.  Unknown keys are no error."""


class Plain:
    """For a process without Carpool: memory for everything, and always its turn."""

    def __init__(self, given: Mapping[int, int] | None = None) -> None:
        """``given``: memory for some keys, descriptors that become its own."""
        self._given = dict(given or {})
        self._placed: set[int] = set()

    def place(self, demand: Demand) -> int | None:
        """Raises Refused if there is no memory."""
        if demand.key in self._placed:
            return None
        device = self._given.pop(demand.key, None)
        try:
            device = memfd.create("carpool-weights", demand.size, sealed=True) if device is None else device
        except DeviceError as error:
            raise Refused(str(error)) from None
        self._placed.add(demand.key)
        return device

    def release(self) -> None:
        """There is nobody whom to give it to."""

    def forget(self, key: int) -> None:
        self._placed.discard(key)


def of_process() -> Device:
    """The one for this process."""
    return Plain()
