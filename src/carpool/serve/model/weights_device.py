"""Where the weights' memory is, and whose turn it is, as a worker sees it."""

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
    """``key``: of the weights (`Entry.number`), ``size`` their bytes on the device.

    ``reload_us``: what it takes to copy them there; ``compute_us``: to compute the batch, 0: not known yet.
    ``deadline_us``: on CLOCK_MONOTONIC, None: no matter when.
    """

    key: int
    size: int
    reload_us: int
    compute_us: int
    deadline_us: int | None


class WeightsMemory(NamedTuple):
    """Where weights are.

    ``file``: a descriptor of at least as many bytes.  ``address``: theirs on a GPU, where the file is no more than
    their header (``native/weights/groups.h``); None: the file is the memory.
    """

    file: int
    address: int | None = None


class WeightsDevice(Protocol):
    """Where weights are put: a device of Carpool's, on which the job has a seat, or a stand-in in tests."""

    def place(self, demand: WeightsDemand) -> WeightsMemory:
        """Wait until there is memory for the weights, for one turn; they may be brought there from now on.

        The descriptor stays the device's.  Raises TooLarge, Refused (`carpool.serve.model.seat_device`), and OSError.
        """

    def take(self) -> None:
        """Wait for the turn.  What the weights' memory holds stays there from now on."""

    def release(self) -> None:
        """Nothing more to compute: the turn goes back, and the weights may go.  Without a turn nothing happens."""

    def forget(self, key: int) -> None:
        """This process needs these weights no more.  Unknown keys are no error."""


class Plain:
    """For a process without Carpool: memory for everything, and always its turn."""

    def __init__(self, given: Mapping[int, int] | None = None) -> None:
        """``given``: memory for some keys, descriptors that become its own."""
        self._files = dict(given or {})

    def place(self, demand: WeightsDemand) -> WeightsMemory:
        """Raises Refused if there is no memory."""
        if demand.key not in self._files:
            try:
                self._files[demand.key] = memfd.create("carpool-weights", demand.size, sealed=True)
            except DeviceError as error:
                raise seat_device.SeatRefused(str(error)) from None
        return WeightsMemory(self._files[demand.key])

    def take(self) -> None:
        """It has it."""

    def release(self) -> None:
        """There is nobody whom to give it to."""

    def forget(self, key: int) -> None:
        if (file := self._files.pop(key, None)) is not None:
            os.close(file)


class ServiceSeat:
    """For a worker that is a job, and a service."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}

    def place(self, demand: WeightsDemand) -> WeightsMemory:
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
        seat_device.take()

    def release(self) -> None:
        seat_device.release()

    def forget(self, key: int) -> None:
        """The daemon tells libcarpool when the weights are dropped, and gives the memory to others."""


def of_process() -> WeightsDevice:
    """The one for this process."""
    return Plain() if native.preloaded() is None else ServiceSeat()
