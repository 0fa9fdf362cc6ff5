"""What there is to be known of a GPU before anything is tried: its driver, its attributes, what a context takes.

Each part is written down as soon as it is known: a driver that hangs later takes none of them along.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from carpool.devices.base import DeviceError
from carpool.devices.cuda import driver
from tools.gpu_check import evidence
from tools.gpu_check.registry import Figures, check, needs_packages, require
from tools.gpu_check.scripts import PROGRAMS
from tools.gpu_check.worker import workers

MIB = 1 << 20
PROC = Path("/proc/driver/nvidia")
MOST = 1 << 16  # bytes of a file there
OPEN = "Open Kernel Module"
#: Numbers of attributes that this version of the bindings has no names for may follow.
BEYOND = 200
#: What describes a card, and does not say what it can do: an emulated GPU can be like it.
DESCRIBING = (
    "WARP_SIZE", "MULTIPROCESSOR_COUNT", "MAX_THREADS_PER_BLOCK", "MAX_BLOCK_DIM_X", "MAX_BLOCK_DIM_Y",
    "MAX_BLOCK_DIM_Z", "MAX_GRID_DIM_X", "MAX_GRID_DIM_Y", "MAX_GRID_DIM_Z", "MAX_SHARED_MEMORY_PER_BLOCK",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "RESERVED_SHARED_MEMORY_PER_BLOCK", "MAX_REGISTERS_PER_BLOCK",
    "TOTAL_CONSTANT_MEMORY", "MAX_THREADS_PER_MULTIPROCESSOR", "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", "MAX_REGISTERS_PER_MULTIPROCESSOR", "CLOCK_RATE", "MEMORY_CLOCK_RATE",
    "GLOBAL_MEMORY_BUS_WIDTH", "L2_CACHE_SIZE", "ASYNC_ENGINE_COUNT", "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO",
    "MAX_PITCH", "TEXTURE_ALIGNMENT", "TEXTURE_PITCH_ALIGNMENT", "SURFACE_ALIGNMENT", "ECC_ENABLED",
)  # fmt: skip
PREFIX = "CU_DEVICE_ATTRIBUTE_"
#: What `tools/emulator/run` and all emulated GPUs read.
EMULATOR = "emulator.env"


@check("what there is: driver and flavour, modes, all attributes, granularities; also in the form of the emulated GPU")
def facts() -> Figures:
    known: dict[str, Any] = {}
    parts: dict[str, Callable[[], Any]] = {
        "/proc/driver/nvidia": kernel_files,
        "flavour": lambda: flavour(known["/proc/driver/nvidia"]),
        "nvml": modes,
        "cuInit": driver.start,
        "driver": lambda: driver.call("cuDriverGetVersion"),
        "memory": lambda: int(driver.call("cuDeviceTotalMem", 0)),
        "attributes": attributes,
        "granularities": granularities,
    }
    for name, part in parts.items():
        known[name] = said(part)
        evidence.found("facts.json").write_text(json.dumps(known, indent=1))
    require(isinstance(known["attributes"], dict), f"{known['cuInit'] or known['attributes']}")
    emulated = {"EMULATOR_DEVICES": known["memory"], "EMULATOR_ATTRIBUTES": described(known["attributes"])}
    evidence.found(EMULATOR).write_text("".join(f"{name}={value}\n" for name, value in emulated.items()))
    return {"attributes": float(len(known["attributes"])), "GiB": known["memory"] / (1 << 30)}


def said(part: Callable[[], Any]) -> Any:
    """What the part says, or why it says nothing: the others are worth as much without it."""
    try:
        return part()
    except Exception as error:  # noqa: BLE001 - a fact, too
        return f"{type(error).__name__}: {error}"


def kernel_files() -> dict[str, str]:
    found = {}
    for path in sorted(PROC.rglob("*")):
        if path.is_file() and os.access(path, os.R_OK):
            with path.open(errors="replace") as file:
                found[os.fspath(path.relative_to(PROC))] = file.read(MOST)
    return found


def flavour(files: dict[str, str]) -> str:
    version = files.get("version", "")
    return (
        ("open" if OPEN in version else "proprietary")
        if version
        else "unknown: there is no /proc/driver/nvidia/version"
    )


def modes() -> dict[str, Any]:
    needs_packages("pynvml")
    import pynvml

    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    asked = ("ComputeMode", "PersistenceMode", "MigMode", "EccMode", "BAR1MemoryInfo", "CurrPcieLinkGeneration")
    answers = {name: said(lambda name=name: str(getattr(pynvml, f"nvmlDeviceGet{name}")(gpu))) for name in asked}
    return {"driver": said(pynvml.nvmlSystemGetDriverVersion), **answers}


def attributes() -> dict[str, int]:
    """By name, or by number where there is none."""
    kinds = driver.bindings().CUdevice_attribute
    names = {int(each): each.name.removeprefix(PREFIX) for each in kinds if each.name != f"{PREFIX}MAX"}
    found = {}
    for number in sorted({*names, *range(1, BEYOND)}):
        try:
            found[names.get(number, str(number))] = int(driver.call("cuDeviceGetAttribute", kinds(number), 0))
        except (DeviceError, ValueError):  # this driver, or this version of the bindings, does not know it
            continue
    return found


def described(values: dict[str, int]) -> str:
    """As ``number=value,...``."""
    kinds = driver.bindings().CUdevice_attribute
    return ",".join(f"{int(getattr(kinds, PREFIX + name))}={values[name]}" for name in DESCRIBING if name in values)


def granularities() -> dict[str, Any]:
    """Bytes, by what memory can be exported as."""
    cuda = driver.bindings()
    found = {}
    for handle in ("NONE", "POSIX_FILE_DESCRIPTOR", "FABRIC"):
        wanted = cuda.CUmemAllocationProp()
        wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.requestedHandleTypes = getattr(cuda.CUmemAllocationHandleType, f"CU_MEM_HANDLE_TYPE_{handle}")
        for kind in cuda.CUmemAllocationGranularity_flags:
            name = f"{handle}, {kind.name.rpartition('_')[2]}"
            found[name] = said(lambda w=wanted, k=kind: int(driver.call("cuMemGetAllocationGranularity", w, k)))
    return found


@check("what a process takes of the GPU's memory by phase: driver, context, stream, PyTorch, cuBLAS, cuDNN; MiB")
def context_by_phase() -> Figures:
    figures: Figures = {}
    with workers(1) as (watcher,), phases() as reached:
        free, _ = watcher.ask("free")
        for phase in reached:
            left, _ = watcher.ask("free")
            figures[f"{phase}, MiB"] = (free - left) / MIB
            free = left
    require("stream, MiB" in figures, f"the process has come to {list(figures)} only")
    before = ("driver", "context", "stream")
    context = sum(figures[f"{phase}, MiB"] for phase in before)
    evidence.found(EMULATOR).write_text(f"EMULATOR_CONTEXT={round(context * MIB)}\n")
    return figures


@contextmanager
def phases() -> Iterator[Iterator[str]]:
    """A process that goes on to its next phase when the one before has been looked at."""
    command = [sys.executable, os.fspath(PROGRAMS / "phases.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield _each(process.stdin, process.stdout)
        finally:
            process.kill()


def _each(go: Any, said_there: Any) -> Iterator[str]:
    for line in said_there:
        yield line.strip()
        print(file=go, flush=True)
