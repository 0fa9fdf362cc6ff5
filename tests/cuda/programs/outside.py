"""Works on the device together with another interface, which signals a semaphore that the device waits for.

outside.py RESULT

The other interface is this process itself: to the emulated driver a timeline semaphore is a memory file.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import sys
from pathlib import Path

import torch  # noqa: F401 - attaches
from gpu import MIB, Gpu
from meeting import meet

import carpool

TIMELINE = 9  # CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
IMPORT_BYTES, STEP_BYTES = 96, 144


class Semaphore:
    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._handle = gpu, ctypes.c_void_p()
        file = os.memfd_create("semaphore")
        os.ftruncate(file, 8)
        self._value = mmap.mmap(file, 8)
        what = ctypes.create_string_buffer(struct.pack("=i4xi", TIMELINE, file), IMPORT_BYTES)
        gpu.call("cuImportExternalSemaphore", ctypes.byref(self._handle), what)

    def submit(self, call: str, value: int) -> None:
        """A wait or a signal, in stream order."""
        step = ctypes.create_string_buffer(struct.pack("=Q", value), STEP_BYTES)
        self._gpu.call(call, ctypes.byref(self._handle), step, 1, self._gpu.stream)

    def set(self, value: int) -> None:
        """What the other interface does."""
        self._value[:] = struct.pack("=Q", value)

    def get(self) -> int:
        value: int = struct.unpack("=Q", self._value[:])[0]
        return value


gpu = Gpu()
memory = gpu.memory(MIB)
semaphore = Semaphore(gpu)
with carpool.iteration():
    gpu.fill(memory, MIB, 3)
print("under way", flush=True)
meet()
with carpool.iteration():
    semaphore.submit("cuWaitExternalSemaphoresAsync", 1)
    gpu.mix(memory, MIB, 5)
    semaphore.submit("cuSignalExternalSemaphoresAsync", 2)
    assert semaphore.get() == 0
    semaphore.set(1)
    gpu.word(memory)
    assert semaphore.get() == 2
Path(sys.argv[1]).write_text(json.dumps({"digest": gpu.digest([(memory, MIB)])}))
