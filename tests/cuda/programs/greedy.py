"""Asks for more memory than the device has, in both ways, and then goes on with what it has.

greedy.py RESULT MIB
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch  # noqa: F401 - attaches
from gpu import MIB, CudaError, Gpu

import carpool


def refused(ask: object, size: int) -> int:
    try:
        ask(size)
    except CudaError as error:
        return error.code
    return 0


def main() -> None:
    result, size = Path(sys.argv[1]), int(sys.argv[2]) * MIB
    gpu = Gpu()
    codes = [refused(gpu.segment, size), refused(gpu.memory, size)]
    with carpool.iteration():
        codes.append(refused(gpu.segment, size))
        small = gpu.segment(MIB)
        gpu.fill(small, MIB, 7)
    result.write_text(json.dumps({"codes": codes, "digest": gpu.digest([(small, MIB)])}))


main()
