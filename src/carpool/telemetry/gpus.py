"""GPUs through NVML: a `Sample` of each, with all quantities that the driver gives.  Not yet run on a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from carpool.core.model import Micros
from carpool.telemetry.gpm import METRICS, Gpm
from carpool.telemetry.nvml import Calls, GpuGone, LibraryGone, NvmlUnsupported, Unanswered
from carpool.telemetry.process_trees import BusyProcesses
from carpool.telemetry.quantities import READERS, Quantities, processes, total
from carpool.telemetry.samples import CapabilityLevel, ProcessMemory, Sample, Unavailable, Unmeasurable

UNKNOWN = "this driver does not say"
REOPEN_US: Micros = 30_000_000  # after losing a GPU: minimum age of the library before it is initialized again


class GpuReaders:
    """NVML with its GPUs, opened at the first call, and again after NVML has failed.  For one thread."""

    def __init__(self) -> None:
        self._calls: Calls | None = None
        self._opened_us: Micros = 0
        self._gpus: dict[str, Gpu] = {}

    def sample(self, uuid: str, now: Micros) -> Sample:
        """Measure one GPU.  Raises Unmeasurable, with the reason."""
        try:
            return self._gpu(uuid, now).sample(now)
        except LibraryGone:
            self.close()
            raise
        except GpuGone:
            self._forget(uuid, now)
            raise

    def held(self, uuid: str, pids: Collection[int], now: Micros) -> int | None:
        """Return the bytes of a GPU that these processes hold together, contexts included; None if unknown."""
        try:
            found = self._gpu(uuid, now).processes()
        except Unmeasurable:
            return None
        return total(found.get(pid) for pid in pids)

    def close(self) -> None:
        """Close NVML and all GPUs; the next call opens them again."""
        for gpu in self._gpus.values():
            gpu.close()
        self._gpus.clear()
        if self._calls is not None:
            self._calls.close()
            self._calls = None

    def _gpu(self, uuid: str, now: Micros) -> Gpu:
        if self._calls is None:
            self._calls, self._opened_us = Calls(), now
        if uuid not in self._gpus:
            self._gpus[uuid] = Gpu(self._calls, uuid)
        return self._gpus[uuid]

    def _forget(self, uuid: str, now: Micros) -> None:
        """Drop a lost GPU, or close the library if it is old enough.

        Closing is rare because the other GPUs lose their GPM samples when the library is opened anew.
        """
        if now - self._opened_us >= REOPEN_US:
            self.close()
        elif uuid in self._gpus:
            self._gpus.pop(uuid).close()


class Gpu:
    """One GPU, or one MIG device.  Raises Unmeasurable if NVML does not know it."""

    def __init__(self, calls: Calls, uuid: str) -> None:
        self._calls = calls
        try:
            self._handle = calls.must("nvmlDeviceGetHandleByUUID", uuid)
        except Unanswered as error:
            raise Unanswered(f"NVML does not find the GPU {uuid} ({error})") from None
        self._busy = BusyProcesses()
        self._gpm: Gpm | None = None
        self._no_gpm = ""
        whole, self._instance = self._whole()
        try:
            self._gpm = Gpm(calls, whole, self._instance)
        except Unanswered as error:
            self._no_gpm = str(error)

    def close(self) -> None:
        """Free the samples of the counters."""
        if self._gpm is not None:
            self._gpm.close()

    def sample(self, now: Micros) -> Sample:
        """Measure the GPU.

        Raises Unmeasurable if NVML gives no quantity at all; Unavailable if it never will.
        """
        found, missing = self._read()
        if self._instance is not None:  # for a MIG device the driver does not report MIG mode
            found["mig"] = True
            missing.pop("mig", None)
        if "processes" in found:
            found["processes"] = self._with_busy(found["processes"], now)
        reason = self._counters(now, found, missing)
        level = CapabilityLevel.BASIC if reason else CapabilityLevel.GPM
        return Sample(taken_us=now, level=level, reason=reason, missing=missing, **found)

    def _read(self) -> tuple[Quantities, dict[str, str]]:
        """Return what NVML says, and why what it does not say is missing."""
        found: Quantities = {}
        missing: dict[str, str] = {}
        able = False
        for names, read in READERS.items():
            try:
                answers = read(self._calls, self._handle)
            except Unanswered as error:
                missing |= dict.fromkeys(names, str(error))
                able |= not isinstance(error, NvmlUnsupported)
                continue
            for name, value in answers.items():
                if value is None:
                    missing[name] = UNKNOWN
                else:
                    found[name] = value
        if not found:
            raise (Unanswered if able else Unavailable)(next(iter(missing.values())))
        return found, missing

    def processes(self) -> dict[int, int | None]:
        """Return the bytes that each process holds, None where the driver does not say.  Raises Unmeasurable."""
        return {process.pid: process.used_bytes for process in processes(self._calls, self._handle)}

    def _with_busy(self, processes: tuple[ProcessMemory, ...], now: Micros) -> tuple[ProcessMemory, ...]:
        times = self._busy.since_last(self._calls, self._handle, now)
        if times is None:
            return processes
        return tuple(dataclasses.replace(process, busy_us=times.get(process.pid, 0)) for process in processes)

    def _counters(self, now: Micros, found: Quantities, missing: dict[str, str]) -> str:
        """Add GPM's quantities to ``found`` and ``missing``; return why there are none, or an empty text."""
        reason = self._no_gpm
        try:
            if self._gpm is not None:
                values, absent = self._gpm.read(now)
                found |= values
                missing |= absent
        except Unanswered as error:
            reason = str(error)
        if reason:
            missing |= dict.fromkeys(METRICS, reason)
        return reason

    def _whole(self) -> tuple[Any, int | None]:
        """Return the whole GPU and, for a MIG device, the number of its instance."""
        try:
            if not self._calls.must("nvmlDeviceIsMigDeviceHandle", self._handle).value:
                return self._handle, None
        except Unanswered:  # a driver without MIG
            return self._handle, None
        instance = self._calls.must("nvmlDeviceGetGpuInstanceId", self._handle)
        return self._calls.must("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", self._handle), instance
