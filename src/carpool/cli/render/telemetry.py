"""Measurements of a device, in words."""

from __future__ import annotations

from collections.abc import Iterator

from carpool.protocol.api import DeviceInfo, ProcessInfo, TelemetryInfo
from carpool.protocol.units import format_duration, format_size

#: Quantities whose absence is reported, and their names.
NAMES = {
    "busy_ppm": "use",
    "sm_active_ppm": "SM active",
    "sm_occupancy_ppm": "SM occupancy",
    "dram_active_ppm": "DRAM active",
    "used_bytes": "memory",
    "foreign_bytes": "unmanaged memory",
    "power_mw": "power",
    "temperature_c": "temperature",
}
NONE, BASIC, HOST = "none", "basic", "host"
MJ_PER_KWH = 3.6e9  # millijoules


def measured_lines(device: DeviceInfo) -> Iterator[str]:
    """Yield lines for `carpool devices`: a device's load, other processes, what slows it, missing measurements."""
    info = device.telemetry
    for line in short_lines(device):
        yield f"  {line}"
    if info.mig:
        yield f"  {device.id} is an instance of a partitioned GPU (MIG)"
    if info.mps:
        yield f"  {device.id} is used through an MPS server"
    elif device.sharing == "mps" and info.mps is False and info.processes:
        yield f"  {device.id} is to be shared through MPS, but no process there uses an MPS server"
    if info.energy_mj is not None and info.level == HOST:
        energy = f"since the daemon's first measurement: {_energy(info.energy_mj)}"
        yield f"  {device.id} energy of the machine's processors {energy}"
    elif info.energy_mj is not None:
        yield f"  {device.id} energy since the driver was loaded: {_energy(info.energy_mj)}"
    if info.load is not None and info.load.degraded:
        yield f"  {device.id} load for placement: {info.load.degraded}"
    if info.foreign_bytes:
        yield f"  {device.id} unmanaged memory: {format_size(info.foreign_bytes)}{_foreign(info.processes)}"
    for why, names in _missing(info).items():
        yield f"  {device.id} not measured: {', '.join(names)} ({why})"


def _energy(mj: int) -> str:
    return f"{mj / MJ_PER_KWH:.2f} kWh"


def short_lines(device: DeviceInfo) -> Iterator[str]:
    """Yield lines for `carpool top`: a device's load, and what slows the device down."""
    yield summary(device)
    if device.telemetry.throttled:
        yield f"{device.id} is slowed down by: {', '.join(device.telemetry.throttled)}"


def summary(device: DeviceInfo) -> str:
    """Return one line with a device's measurements and their age."""
    info = device.telemetry
    if info.level == NONE:
        last = "" if info.age_us is None else f" (last measured {format_duration(info.age_us)} ago)"
        return f"{device.id} not measured: {info.reason or 'the daemon does not say why'}{last}"
    age = f"{format_duration(info.age_us or 0)} ago"
    less = f" ({info.level})" if info.level == BASIC else ""
    return f"{device.id} measured {age}{less}: {', '.join(_parts(info)) or 'no figures'}"


def _parts(info: TelemetryInfo) -> Iterator[str]:
    host = info.level == HOST
    if info.sm_active_ppm is not None:
        yield f"{'computing' if host else 'SM active'} {percent(info.sm_active_ppm)}"
    elif info.busy_ppm is not None and not host:
        yield f"GPU {percent(info.busy_ppm)} busy"
    if info.sm_occupancy_ppm is not None:
        yield f"{'cores' if host else 'occupancy'} {percent(info.sm_occupancy_ppm)}"
    if host and info.busy_ppm is not None:
        yield f"machine {percent(info.busy_ppm)} busy"
    if info.dram_active_ppm is not None:
        yield f"DRAM {percent(info.dram_active_ppm)}"
    if info.used_bytes is not None:
        yield f"{format_size(info.used_bytes)} in use"
    if info.power_mw is not None:
        yield _of(info.power_mw // 1000, None if info.power_limit_mw is None else info.power_limit_mw // 1000, "W")
    if info.temperature_c is not None:
        yield f"{info.temperature_c} °C"
    if info.clock_mhz is not None:
        yield _of(info.clock_mhz, info.clock_limit_mhz, "MHz")


def percent(ppm: int) -> str:
    """Return millionths as a percentage.

    >>> percent(634_999)
    '63 %'
    """
    return f"{ppm / 10_000:.0f} %"


def _of(value: int, limit: int | None, unit: str) -> str:
    return f"{value} {unit}" if limit is None else f"{value} of {limit} {unit}"


def _foreign(processes: list[ProcessInfo] | None) -> str:
    """Name the processes that belong to no job, the largest first."""
    others = [process for process in processes or () if process.job is None]
    others.sort(key=lambda process: -(process.used_bytes or 0))
    return f" (process {', '.join(str(process.pid) for process in others)})" if others else ""


def _missing(info: TelemetryInfo) -> dict[str, list[str]]:
    """Return missing quantities by reason.  A host device is not expected to have the counters of a GPU."""
    expected = ("busy_ppm", "power_mw", "temperature_c") if info.level == HOST else tuple(NAMES)
    reasons: dict[str, list[str]] = {}
    for quantity in expected:
        if quantity in info.missing:
            reasons.setdefault(info.missing[quantity], []).append(NAMES[quantity])
    return reasons
