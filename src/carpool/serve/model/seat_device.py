"""The device of a worker that is a job: weights and turns through its seat (``src/native/weights/service.c``)."""

from __future__ import annotations

import ctypes
import functools

from carpool.protocol.seat import Placed
from carpool.runtime import native
from carpool.runtime.torch_hooks.live_blocks import hand_over


class SeatRefused(Exception):
    """The demand for a turn can never be met; the text gives the reason."""


class TooLarge(SeatRefused):
    """The weights do not fit onto the device beside the worker's own memory."""


_WHY = {
    Placed.TOO_LARGE: "its weights do not fit onto the device",
    Placed.CHANGED: "other weights of the same key are on the device",
    Placed.NO_SERVICE: "this job was not submitted as a service",
}


class _Demand(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("weights", "bytes", "reload_us", "compute_us", "deadline_us")]


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the preloaded libcarpool: a process without it has no seat."""
    library = ctypes.CDLL(None)
    library.cp_service_place.restype = ctypes.c_int
    library.cp_service_place.argtypes = [ctypes.POINTER(_Demand), ctypes.POINTER(ctypes.c_int)]
    library.cp_weights_address.restype, library.cp_weights_address.argtypes = ctypes.c_uint64, (ctypes.c_uint64,)
    for name, result in (("take", None), ("ending", ctypes.c_int), ("release", None)):
        function = getattr(library, f"cp_service_{name}")
        function.restype, function.argtypes = result, ()
    return library


def place(
    weights: int, size: int, *, reload_us: int = 0, compute_us: int = 0, deadline_us: int | None = None
) -> int | None:
    """Wait until there is memory for weights on the device, for one turn.

    ``weights``: their key, not 0.  ``size``: bytes.  ``deadline_us``: CLOCK_MONOTONIC, when computing must be done.
    Returns a descriptor of the memory, the caller's to close; None if the memory is the same as last time.  A turn that
    the process had ends.  Raises SeatRefused, and OSError in a process without a seat.
    """
    demand, file = _Demand(weights, size, reload_us, compute_us, deadline_us or 0), ctypes.c_int(-1)
    result = _library().cp_service_place(ctypes.byref(demand), ctypes.byref(file))
    if result in _WHY:
        raise (TooLarge if result == Placed.TOO_LARGE else SeatRefused)(_WHY[Placed(result)])
    if result:
        raise OSError(result, "this process has no seat on a device of Carpool's")
    return None if file.value < 0 else file.value


def address(weights: int) -> int | None:
    """Return where the placed memory lies on the GPU; None: a host device.  Call after each `place`: it may move."""
    return _library().cp_weights_address(weights) or None


def take() -> None:
    """Wait for the turn.  From then on the weights stay where they are."""
    _library().cp_service_take()


def release() -> None:
    """Give the turn back.  Weights may be dropped from then on, and must not be used."""
    library, ours = _library(), native.preloaded()
    if library.cp_service_ending() and ours is not None:
        hand_over(ours)
    library.cp_service_release()
