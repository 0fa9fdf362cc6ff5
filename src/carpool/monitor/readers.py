"""Samples of several devices of a kind in one go; a thread calls this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from carpool.core.model import DeviceId, JobId, Micros
from carpool.monitor.foreign import Ownership, with_foreign
from carpool.monitor.gpus import Gpus
from carpool.monitor.host import Host
from carpool.monitor.sample import Sample, Unmeasurable

Clock = Callable[[], Micros]
Roots = Mapping[int, JobId]  # processes with everything below them, by owner
Found = dict[DeviceId, Sample | Unmeasurable]


@dataclass(frozen=True, slots=True)
class Target:
    """A device to measure.  ``used_bytes``: of its lanes and banks, those that exist; ``uuid``: NVML's name of it."""

    device: DeviceId
    capacity: int
    used_bytes: int = 0
    uuid: str = ""


class Reader(Protocol):
    def read(self, targets: Sequence[Target], roots: Roots) -> Found:
        """A sample of each target, or why there is none."""
        ...

    def close(self) -> None: ...


class HostReader:
    def __init__(self, clock: Clock, host: Host | None = None) -> None:
        self._clock = clock
        self._host = Host() if host is None else host

    def read(self, targets: Sequence[Target], _roots: Roots) -> Found:
        try:
            self._host.look()
        except OSError as error:
            return {target.device: Unmeasurable(f"cannot read /proc: {error.strerror}") for target in targets}
        now = self._clock()
        return {target.device: self._host.sample(now, target.capacity, target.used_bytes) for target in targets}

    def close(self) -> None:
        """There is nothing to let go of."""


class GpuReader:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gpus = Gpus()
        self._ownerships: dict[DeviceId, Ownership] = {}

    def read(self, targets: Sequence[Target], roots: Roots) -> Found:
        return {target.device: self._one(target, roots) for target in targets}

    def close(self) -> None:
        self._gpus.close()

    def _one(self, target: Target, roots: Roots) -> Sample | Unmeasurable:
        try:
            sample = self._gpus.sample(target.uuid, self._clock())
        except Unmeasurable as error:
            return error
        owned = self._ownerships.setdefault(target.device, Ownership()).attribute(sample, roots)
        return with_foreign(owned, target.used_bytes)
