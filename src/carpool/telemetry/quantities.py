"""The NVML queries about a GPU, and how their answers become quantities of a `Sample`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from carpool.telemetry.nvml import Calls, Unanswered
from carpool.telemetry.samples import ProcessMemory

#: NVML's reasons why a GPU runs below its top speed.  Not listed: idle GPUs, clocks set by an administrator.
THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "temperature (driver)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}
PROCESS_LISTS = ("Compute", "Graphics", "MPSCompute")
Quantities = dict[str, Any]


def _memory(calls: Calls, handle: Any) -> Quantities:
    """Read the sizes of memory; only version 2 of the call reports separately what the driver keeps for itself."""
    try:
        info = calls.must("nvmlDeviceGetMemoryInfo", handle, calls.nvml.nvmlMemory_v2)
        reserved = info.reserved
    except Unanswered:
        info, reserved = calls.must("nvmlDeviceGetMemoryInfo", handle), None
    return {
        "total_bytes": info.total,
        "used_bytes": info.used,
        "free_bytes": info.free,
        "reserved_bytes": reserved,
    }


def _utilization(calls: Calls, handle: Any) -> Quantities:
    rates = calls.must("nvmlDeviceGetUtilizationRates", handle)
    return {"busy_ppm": rates.gpu * 10_000, "memory_busy_ppm": rates.memory * 10_000}


def _processes(calls: Calls, handle: Any) -> Quantities:
    """Read the processes, and whether they use MPS; None for a driver without MPS.

    An MPS server without clients is not seen.
    """
    lists = _lists(calls, handle)
    served = lists["MPSCompute"]
    return {"processes": _merged(lists), "mps": None if served is None else bool(served)}


def processes(calls: Calls, handle: Any) -> tuple[ProcessMemory, ...]:
    """Return the processes on a GPU.  Raises Unmeasurable."""
    return _merged(_lists(calls, handle))


def _lists(calls: Calls, handle: Any) -> dict[str, Sequence[Any] | None]:
    """Read NVML's lists of processes, by kind; None where the driver has no such list."""
    return {kind: _list(calls, handle, kind) for kind in PROCESS_LISTS}


def _merged(lists: Mapping[str, Sequence[Any] | None]) -> tuple[ProcessMemory, ...]:
    """Merge the lists, in which a process may be repeated; a process's memory on several MIG instances adds up."""
    parts: dict[tuple[int, int], int | None] = {}
    for found in lists.values():
        for process in found or ():
            key = (process.pid, process.gpuInstanceId)
            size = process.usedGpuMemory
            parts[key] = size if parts.get(key) is None else max(parts[key] or 0, size or 0)
    sizes: dict[int, list[int | None]] = defaultdict(list)
    for (pid, _), part in sorted(parts.items()):
        sizes[pid].append(part)
    return tuple(ProcessMemory(pid, total(known)) for pid, known in sizes.items())


def _list(calls: Calls, handle: Any, kind: str) -> Sequence[Any] | None:
    name = f"nvmlDeviceGet{kind}RunningProcesses"
    try:
        found: Sequence[Any] = calls.first((f"{name}_v3", f"{name}_v2"), handle)
    except Unanswered:
        if kind == "Compute":
            raise
        return None  # a GPU without a display, a driver without MPS
    return found


def total(sizes: Iterable[int | None]) -> int | None:
    """Return the sum of sizes; None if one of them is not known."""
    known = list(sizes)
    return None if None in known else sum(size for size in known if size is not None)


def _throttled(calls: Calls, handle: Any) -> Quantities:
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    bits = calls.first(names, handle)
    return {"throttled": tuple(text for bit, text in THROTTLES.items() if bits & bit)}


def _temperature(calls: Calls, handle: Any) -> Quantities:
    names = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
    return {"temperature_c": calls.first(names, handle, calls.nvml.NVML_TEMPERATURE_GPU)}


def _clocks(calls: Calls, handle: Any) -> Quantities:
    kind = calls.nvml.NVML_CLOCK_SM
    return {
        "clock_mhz": calls.must("nvmlDeviceGetClockInfo", handle, kind),
        "clock_limit_mhz": calls.must("nvmlDeviceGetMaxClockInfo", handle, kind),
    }


def _mig(calls: Calls, handle: Any) -> Quantities:
    return {"mig": bool(calls.must("nvmlDeviceGetMigMode", handle)[0])}


def _one(quantity: str, name: str) -> Callable[[Calls, Any], Quantities]:
    """Return a reader of a quantity that is one number."""
    return lambda calls, handle: {quantity: calls.must(name, handle)}


#: Readers by the quantities that they give.
READERS: dict[tuple[str, ...], Callable[[Calls, Any], Quantities]] = {
    ("total_bytes", "used_bytes", "free_bytes", "reserved_bytes"): _memory,
    ("processes", "mps"): _processes,
    ("busy_ppm", "memory_busy_ppm"): _utilization,
    ("power_mw",): _one("power_mw", "nvmlDeviceGetPowerUsage"),
    ("power_limit_mw",): _one("power_limit_mw", "nvmlDeviceGetEnforcedPowerLimit"),
    ("energy_mj",): _one("energy_mj", "nvmlDeviceGetTotalEnergyConsumption"),
    ("temperature_c",): _temperature,
    ("clock_mhz", "clock_limit_mhz"): _clocks,
    ("throttled",): _throttled,
    ("mig",): _mig,
}
