"""Kernels without a compiler: PTX, which the driver compiles; on an emulated GPU functions of the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from carpool.devices.cuda import driver
from carpool.devices.cuda.memory import DriverDevice

#: The name of an emulated GPU, whose kernels are C functions (tools/emulator/driver/kernel.c).
EMULATED = "Carpool emulated GPU"
PTX = Path(__file__).with_name("kernels.ptx")
NON_BLOCKING = 1


def kernel(gpu: DriverDevice, name: str) -> Any:
    """Of the current context."""
    image = b"stub" if gpu.name == EMULATED else PTX.read_bytes() + b"\0"
    return driver.call("cuModuleGetFunction", driver.call("cuModuleLoadData", image), name.encode())


def launch(function: Any, value: tuple[int, Any], blocks: int = 1, threads: int = 1) -> Any:
    """With one parameter, given as its value and its type, in a stream of its own, which is returned."""
    stream = driver.call("cuStreamCreate", NON_BLOCKING)
    driver.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, stream, ((value[0],), (value[1],)), 0)
    return stream
