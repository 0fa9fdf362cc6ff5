"""Has memory from the driver itself, more of it than goes unnoticed.

fixed.py RESULT MIB
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import torch  # noqa: F401 - attaches
from gpu import MIB, Gpu
from meeting import meet

import carpool

GLOBAL = 1  # CU_MEM_ATTACH_GLOBAL

gpu = Gpu()
size = int(sys.argv[2]) * MIB
address = ctypes.c_uint64()
gpu.call("cuMemAllocManaged", ctypes.byref(address), ctypes.c_size_t(size), GLOBAL)
with carpool.iteration():
    gpu.fill(address.value, MIB, 3)
print("under way", flush=True)
meet()
with carpool.iteration():
    gpu.mix(address.value, MIB, 5)
Path(sys.argv[1]).write_text(json.dumps({"digest": gpu.digest([(address.value, MIB)])}))
