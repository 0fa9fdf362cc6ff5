"""Report what each GPU can measure, as JSON for `carpool doctor`: ``python -P -m carpool.telemetry.capabilities``.

A separate process, because a driver can hang.  Not yet run on a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass

from carpool.telemetry.gpus import GpuReaders
from carpool.telemetry.nvml import Calls, instances
from carpool.telemetry.samples import CapabilityLevel, Unmeasurable

#: Texts for users, by level.
TEXTS = {
    CapabilityLevel.GPM: "load, memory, processes, power, and the counters of the multiprocessors",
    CapabilityLevel.BASIC: "load, memory, processes and power (basic)",
}
WITHOUT = "memory of other programs on this GPU is not seen, and nothing is measured"


@dataclass(frozen=True, slots=True)
class Measurable:
    """One GPU as NVML counts GPUs, or NVML itself; ``ok``: something can be measured."""

    name: str
    ok: bool
    text: str
    advice: str = ""
    needed: bool = False  # False: jobs can share a GPU that is not measured


def measurable() -> Iterator[Measurable]:
    """Yield what can be measured of each GPU and each of its MIG instances, or why NVML cannot be used."""
    try:
        gpus_found = _uuids()
    except Unmeasurable as error:
        yield Measurable("telemetry", False, str(error), f"without it {WITHOUT}")
        return
    with closing(GpuReaders()) as gpus:
        for number, (uuid, parts) in enumerate(gpus_found):
            yield _one(gpus, f"telemetry of NVML's GPU {number}", uuid)
            for part in parts:
                yield _one(gpus, f"telemetry of --device {part}", part)


def _one(gpus: GpuReaders, name: str, uuid: str) -> Measurable:
    try:
        sample = gpus.sample(uuid, 0)
    except Unmeasurable as error:
        return Measurable(name, False, str(error), f"without it {WITHOUT}")
    why = f": {sample.reason}" if sample.reason else ""
    instance = ", partitioned (MIG)" if sample.mig else ""
    server = ", used through an MPS server" if sample.mps else ""
    return Measurable(name, True, f"{TEXTS[sample.level]}{why}{instance}{server}")


def _uuids() -> list[tuple[str, list[str]]]:
    """Return the uuid of each GPU, with the uuids of its MIG instances.  Raises Unmeasurable."""
    calls = Calls()
    try:
        handles = [calls.must("nvmlDeviceGetHandleByIndex", index) for index in range(calls.must("nvmlDeviceGetCount"))]
        return [(str(calls.must("nvmlDeviceGetUUID", handle)), instances(calls, handle)) for handle in handles]
    finally:
        calls.close()


if __name__ == "__main__":
    print(json.dumps([asdict(each) for each in measurable()]))
