"""Partitioned GPUs (MIG): their instances, and the name by which the driver and NVML know a device.

Not yet run on a GPU.
"""

from __future__ import annotations

from contextlib import closing

from carpool.telemetry.nvml import Calls, Unanswered
from carpool.telemetry.sample import Unmeasurable


def instances(calls: Calls, gpu: object) -> list[str]:
    """Return the uuids of a GPU's MIG devices; none if it is not partitioned.  Raises Unmeasurable."""
    try:
        most = calls.must("nvmlDeviceGetMaxMigDeviceCount", gpu)
    except Unanswered:  # a GPU or a driver without MIG
        return []
    found = []
    for number in range(most):
        try:
            found.append(calls.must("nvmlDeviceGetMigDeviceHandleByIndex", gpu, number))
        except Unanswered:  # a place without an instance
            continue
    return [str(calls.must("nvmlDeviceGetUUID", handle)) for handle in found]


def beside(name: str) -> list[str]:
    """Return all instances of the GPU that the instance ``name`` is a part of.

    Empty if ``name`` is no instance, or if NVML does not say.
    """
    if not name.startswith("MIG-"):
        return []
    try:
        with closing(Calls()) as calls:
            handle = calls.must("nvmlDeviceGetHandleByUUID", name)
            return instances(calls, calls.must("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle))
    except Unmeasurable:
        return []


def full_name(uuid: str) -> str:
    """Return ``GPU-...`` or, if NVML knows the uuid as a MIG device, ``MIG-...``.

    On a partitioned GPU the driver shows an instance as if it were a GPU, and gives the instance's uuid.
    """
    try:
        with closing(Calls()) as calls:
            for name in (f"GPU-{uuid}", f"MIG-{uuid}"):
                try:
                    calls.must("nvmlDeviceGetHandleByUUID", name)
                except Unanswered:
                    continue
                return name
    except Unmeasurable:
        pass  # without NVML the prefix is unknown; machines with partitioned GPUs have NVML
    return f"GPU-{uuid}"
