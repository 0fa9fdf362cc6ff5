"""Calls of NVML, and the meaning of their errors.

The only module that imports ``pynvml`` (nvidia-ml-py), on first use.

Partitioned GPUs (MIG): their instances, and the name by which the driver and NVML know a device.

Not yet run on a GPU.
"""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from typing import Any

from carpool.telemetry.samples import Unavailable, Unmeasurable

ADVICE = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "NVIDIA's driver is not installed here: there is no libnvidia-ml.so.1",
    "NVML_ERROR_DRIVER_NOT_LOADED": "NVIDIA's kernel module is not loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "NVIDIA's driver was updated without its kernel module: restart the machine",
    "NVML_ERROR_GPU_IS_LOST": "the GPU is lost: it has fallen off the bus; see the kernel's log",
    "NVML_ERROR_RESET_REQUIRED": "the GPU has to be reset before it can be used again",
    "NVML_ERROR_NO_PERMISSION": "no permission",
}
#: Errors after which the whole library, or below one GPU, answers no further calls.
LIBRARY_GONE = (
    "NVML_ERROR_UNINITIALIZED",
    "NVML_ERROR_LIBRARY_NOT_FOUND",
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
)
UNSUPPORTED = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND")
GPU_GONE = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")


class Unanswered(Unmeasurable):
    """One call got no answer; other calls may get one."""


class NvmlUnsupported(Unanswered):
    """This driver never answers that call for this GPU."""


class LibraryGone(Unavailable):
    """NVML must be initialized again."""


class GpuGone(Unmeasurable):
    """This GPU answers no call."""


class Calls:
    """An initialized NVML.  Raises LibraryGone if NVML cannot be initialized."""

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError:
            hint = f"{sys.executable} -m pip install nvidia-ml-py"
            raise LibraryGone(f"the Python package nvidia-ml-py is not installed: {hint}") from None
        self.nvml: Any = pynvml
        self._names = {value: name for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
        self.must("nvmlInit")

    def close(self) -> None:
        """Shut NVML down."""
        with suppress(self.nvml.NVMLError):  # NVML may already be unusable
            self.nvml.nvmlShutdown()

    def must(self, name: str, *arguments: object) -> Any:
        """Return the answer of ``pynvml.NAME``.  Raises Unanswered, LibraryGone or GpuGone."""
        try:
            return getattr(self.nvml, name)(*arguments)
        except self.nvml.NVMLError as error:
            raise self._failure(error, name) from None

    def first(self, names: tuple[str, ...], *arguments: object) -> Any:
        """Return the answer of the first call in ``names``, newest first, that this driver has."""
        for name in names[:-1]:
            try:
                return self.must(name, *arguments)
            except Unanswered:
                continue
        return self.must(names[-1], *arguments)

    def _failure(self, error: Any, name: str) -> Unmeasurable:
        code = self._names.get(error.value, "")
        kinds = {LibraryGone: LIBRARY_GONE, GpuGone: GPU_GONE, NvmlUnsupported: UNSUPPORTED}
        kind = next((kind for kind, codes in kinds.items() if code in codes), Unanswered)
        return kind(ADVICE.get(code) or f"{name}: {error}")


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

    Empty if ``name`` is not an instance, or if NVML does not say.
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
