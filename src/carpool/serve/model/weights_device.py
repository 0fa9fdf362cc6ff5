"""The weights' memory and the turn, as a worker sees them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from carpool.devices import memfd
from carpool.devices.base import DeviceError
from carpool.runtime import native
from carpool.serve.model import seat_device


@dataclass(frozen=True, slots=True)
class WeightsDemand:
    """``key``: of the weights (`Manifest.number`), ``size`` their bytes on the device.

    ``reload_us``: the time to copy them there; ``compute_us``: the time to compute the batch, 0: not known yet.
    ``deadline_us``: on CLOCK_MONOTONIC, None: no deadline.
    """

    key: int
    size: int
    reload_us: int
    compute_us: int
    deadline_us: int | None


class WeightsMemory(NamedTuple):
    """The memory of weights.

    ``file``: a descriptor of at least as many bytes.  ``address``: theirs on a GPU, where the file is no more than
    their header (``src/native/weights/groups.h``); None: the file is the memory.
    """

    file: int
    address: int | None = None


class WeightsDevice(Protocol):
    """A device for weights: one of Carpool's, on which the job has a seat, or a stand-in in tests."""

    def place(self, demand: WeightsDemand) -> WeightsMemory:
        """Wait until there is memory for the weights, for one turn; they may be copied there from then on.

        The descriptor stays the device's.  Raises TooLarge, SeatRefused (`carpool.serve.model.seat_device`), and
        OSError.
        """

    def take(self) -> None:
        """Wait for the turn.  The content of the weights' memory stays there from then on."""

    def release(self) -> None:
        """Give the turn back; the weights may then be dropped.  Does nothing without a turn."""

    def forget(self, key: int) -> None:
        """Note that this process no longer needs these weights.  Unknown keys are not an error."""


class Plain:
    """A device for a process without Carpool: memory for everything, and always the turn."""

    def __init__(self, given: Mapping[int, int] | None = None) -> None:
        """Accept memory for some keys in ``given``: descriptors, which this object then owns."""
        self._files = dict(given or {})

    def place(self, demand: WeightsDemand) -> WeightsMemory:
        """Return memory for the weights.  Raises SeatRefused if there is none."""
        if demand.key not in self._files:
            try:
                self._files[demand.key] = memfd.create("carpool-weights", demand.size, sealed=True)
            except DeviceError as error:
                raise seat_device.SeatRefused(str(error)) from None
        return WeightsMemory(self._files[demand.key])

    def take(self) -> None:
        """Do nothing: the process always has the turn."""

    def release(self) -> None:
        """Do nothing: no other process wants the turn."""

    def forget(self, key: int) -> None:
        """Close the memory of these weights."""
        if (file := self._files.pop(key, None)) is not None:
            os.close(file)


class ServiceSeat:
    """The device of a worker that is a job, and a service."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}

    def place(self, demand: WeightsDemand) -> WeightsMemory:
        """Wait until the daemon has placed the weights; see `WeightsDevice`."""
        file = seat_device.place(
            demand.key,
            demand.size,
            reload_us=demand.reload_us,
            compute_us=demand.compute_us,
            deadline_us=demand.deadline_us,
        )
        if file is not None:
            before = self._files.pop(demand.key, None)
            self._files[demand.key] = file
            if before is not None:
                os.close(before)
        return WeightsMemory(self._files[demand.key], seat_device.address(demand.key))

    def take(self) -> None:
        """Wait for the turn."""
        seat_device.take()

    def release(self) -> None:
        """Give the turn back."""
        seat_device.release()

    def forget(self, key: int) -> None:
        """Do nothing: the daemon tells libcarpool when weights are dropped, and gives their memory to others."""


def of_process() -> WeightsDevice:
    """Return the device for this process."""
    return Plain() if native.preloaded() is None else ServiceSeat()
