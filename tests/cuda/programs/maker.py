"""Makes physical memory itself, as engines do, and gives a part of it back now and then and makes it again.

    maker.py RESULT [--pieces N] [--mib MIB] [--iterations N] [--seed N] [--sleep N]

``--sleep``: every so many iterations it unmaps and releases half of the pieces, and maps new ones in their places.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from pathlib import Path

import torch  # noqa: F401 - attaches
from gpu import MIB, Gpu
from meeting import again, meet

import carpool
from carpool.runtime import native


class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


class Access(ctypes.Structure):
    _fields_ = (("location", Location), ("flags", ctypes.c_int))


DEVICE = Location(1, 0)
READ_WRITE = 3


class Piece:
    """Addresses that stay, and memory there that comes and goes."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        self._gpu, self._size = gpu, size
        self.address, self._handle = ctypes.c_uint64(), ctypes.c_uint64()
        zero = ctypes.c_uint64(0)
        gpu.call(
            "cuMemAddressReserve", ctypes.byref(self.address), ctypes.c_size_t(size), ctypes.c_size_t(0), zero, zero
        )

    def make(self) -> None:
        size, properties, access = ctypes.c_size_t(self._size), Properties(1, 0, DEVICE), Access(DEVICE, READ_WRITE)
        nothing = ctypes.c_uint64(0)
        self._gpu.call("cuMemCreate", ctypes.byref(self._handle), size, ctypes.byref(properties), nothing)
        self._gpu.call("cuMemMap", self.address, size, ctypes.c_size_t(0), self._handle, nothing)
        self._gpu.call("cuMemSetAccess", self.address, size, ctypes.byref(access), ctypes.c_size_t(1))

    def drop(self) -> None:
        self._gpu.call("cuMemUnmap", self.address, ctypes.c_size_t(self._size))
        self._gpu.call("cuMemRelease", self._handle)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("result", type=Path)
    parser.add_argument("--pieces", type=int, default=3)
    parser.add_argument("--mib", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sleep", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    given = options()
    gpu, size = Gpu(), given.mib * MIB
    pieces = [Piece(gpu, size) for _ in range(given.pieces)]
    library = gpu.memory(3 * MIB)
    gpu.fill(library, 3 * MIB, given.seed)
    for number, piece in enumerate(pieces):
        piece.make()
        gpu.fill(piece.address.value, size, given.seed + number)
    print("under way", flush=True)
    meet()
    for step in range(given.iterations):
        again()
        with carpool.iteration():
            for piece in pieces:
                gpu.mix(piece.address.value, size, given.seed + step)
            gpu.mix(library, 3 * MIB, step)
            gpu.word(library)
        if given.sleep and step % given.sleep == given.sleep - 1:
            for number, piece in enumerate(pieces[: len(pieces) // 2]):
                piece.drop()
                piece.make()
                gpu.fill(piece.address.value, size, step + number)
    ends = [(piece.address.value, size) for piece in pieces] + [(library, 3 * MIB)]
    ours = native.preloaded()
    found = {"digest": gpu.digest(ends), "counters": ours.counters() if ours else {}}
    given.result.write_text(json.dumps(found))


main()
