"""Gives the content of managed memory up again and again, and does nothing else on the device.

discard.py RESULT [--iterations N]
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
from pathlib import Path

import torch  # noqa: F401 - attaches
from gpu import MIB, Gpu
from meeting import again, meet

import carpool
from carpool.runtime import native

GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL

parser = argparse.ArgumentParser()
parser.add_argument("result", type=Path)
parser.add_argument("--iterations", type=int, default=20)
given = parser.parse_args()

gpu = Gpu()
address, size = ctypes.c_uint64(), ctypes.c_size_t(MIB)
gpu.call("cuMemAllocManaged", ctypes.byref(address), size, GLOBAL)
meet()
for _ in range(given.iterations):
    again()
    with carpool.iteration():
        list_of_one = (ctypes.byref(address), ctypes.byref(size), ctypes.c_size_t(1))
        gpu.call("cuMemDiscardBatchAsync", *list_of_one, ctypes.c_ulonglong(0), gpu.stream)
        gpu.call("cuStreamSynchronize", gpu.stream)
ours = native.preloaded()
digest = hashlib.sha256(ctypes.string_at(address.value, MIB)).hexdigest()
given.result.write_text(json.dumps({"digest": digest, "counters": ours.counters() if ours else {}}))
