"""Device memory as the agent handles it: extents, mapped into this process only to clear them and to copy.

Not yet run on a GPU.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import Any

from carpool.devices.base import DeviceError
from carpool.devices.cuda.driver import DriverError, bindings, call


@dataclass(frozen=True, slots=True)
class Mapped:
    """An extent in this process's address space."""

    handle: Any
    address: int
    size: int


class DriverDevice:
    """One device, by its number in the driver's order (``CUDA_VISIBLE_DEVICES`` included).

    The context is made when it is first needed, since it costs some hundred MiB of the device.
    """

    def __init__(self, ordinal: int) -> None:
        """The driver has been started.  Raises DriverError."""
        self.ordinal = ordinal
        self._device = call("cuDeviceGet", ordinal)
        self._context: Any = None
        self._stream: Any = None
        self._prop = self._properties()
        self.name = call("cuDeviceGetName", 256, self._device).split(b"\0")[0].decode(errors="replace")
        self.uuid = str(uuid.UUID(bytes=bytes(call("cuDeviceGetUuid", self._device).bytes)))  # no prefix like GPU-
        self.memory = int(call("cuDeviceTotalMem", self._device))
        least = bindings().CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.granularity = int(call("cuMemGetAllocationGranularity", self._prop, least))

    # Extents

    def create(self, size: int) -> int:
        """Return a descriptor of ``size`` bytes of device memory, cleared.  This process keeps no mapping of it."""
        self.stream()
        handle = call("cuMemCreate", size, self._prop, 0)
        try:
            fd = int(call("cuMemExportToShareableHandle", handle, _posix(), 0))
        except DriverError:
            call("cuMemRelease", handle)
            raise
        try:
            self._clear(self._map(handle, size))
        except DeviceError:
            os.close(fd)
            raise
        return fd

    def open(self, fd: int, size: int) -> Mapped:
        """Map the extent behind a descriptor.  Raises DeviceError for anything but memory of this device and size."""
        self.stream()
        handle = call("cuMemImportFromShareableHandle", fd, _posix())
        return self._map(handle, size)

    def unmap(self, mapped: Mapped) -> None:
        """Unmap an extent, and release its handle.  Raises DriverError."""
        for function, arguments in (
            ("cuMemUnmap", (mapped.address, mapped.size)),
            ("cuMemRelease", (mapped.handle,)),
            ("cuMemAddressFree", (mapped.address, mapped.size)),
        ):
            call(function, *arguments)

    # Copies

    def copy_out(self, address: int, host: int, size: int) -> None:
        """Queue a copy from the device to host memory."""
        call("cuMemcpyDtoHAsync", host, address, size, self.stream())

    def copy_in(self, address: int, host: int, size: int) -> None:
        """Queue a copy from host memory to the device."""
        call("cuMemcpyHtoDAsync", address, host, size, self.stream())

    def clear(self, address: int, size: int) -> None:
        """Queue the clearing of device memory."""
        call("cuMemsetD8Async", address, 0, size, self.stream())

    def wait(self) -> None:
        """Wait until all queued work is done.  After an error, this process cannot go on."""
        call("cuStreamSynchronize", self.stream())

    def pin(self, host: int, size: int) -> None:
        """Pin ``size`` bytes of host memory.  Raises DriverError."""
        self.stream()
        call("cuMemHostRegister", host, size, bindings().CU_MEMHOSTREGISTER_PORTABLE)

    def unpin(self, host: int) -> None:
        """Unpin host memory, by its address.  Raises DriverError."""
        call("cuMemHostUnregister", host)

    # The context

    def context(self) -> Any:
        """Return the context, for `enter`; make the context if necessary."""
        self.stream()
        return self._context

    def enter(self, context: Any) -> None:
        """Make the context current in this thread, for calls outside of the thread that has made the context."""
        call("cuCtxSetCurrent", context)

    def stream(self) -> Any:
        """Return this process's stream in the device's context; make both if necessary."""
        if self._context is None:
            context = call("cuDevicePrimaryCtxRetain", self._device)
            try:
                call("cuCtxSetCurrent", context)
                self._stream = call("cuStreamCreate", bindings().CUstream_flags.CU_STREAM_NON_BLOCKING)
            except DriverError:
                call("cuDevicePrimaryCtxRelease", self._device)
                raise
            self._context = context
        return self._stream

    def rest(self) -> None:
        """Give the context up.  Nothing may be pinned."""
        if self._context is not None:
            self._context = None
            call("cuStreamDestroy", self._stream)
            call("cuCtxSetCurrent", bindings().CUcontext(0))
            call("cuDevicePrimaryCtxRelease", self._device)

    def _clear(self, mapped: Mapped) -> None:
        """Clear an extent and unmap it, also after an error."""
        try:
            self.clear(mapped.address, mapped.size)
        except DriverError:
            self.unmap(mapped)
            raise
        self.wait()  # if this fails, the device may still be clearing: the memory must stay mapped
        self.unmap(mapped)

    def _map(self, handle: Any, size: int) -> Mapped:
        """Map an extent; own the handle, also after an error."""
        try:
            prop = call("cuMemGetAllocationPropertiesFromHandle", handle)
            if prop.location.id != self.ordinal:
                raise DeviceError(f"it is memory of device {prop.location.id}, not of {self.ordinal}")
            address = int(call("cuMemAddressReserve", size, 0, 0, 0))
        except DeviceError:
            call("cuMemRelease", handle)
            raise
        try:
            call("cuMemMap", address, size, 0, handle, 0)
        except DriverError:
            call("cuMemAddressFree", address, size)
            call("cuMemRelease", handle)
            raise
        mapped = Mapped(handle, address, size)
        try:
            call("cuMemSetAccess", address, size, [self._access()], 1)
        except DriverError:
            self.unmap(mapped)
            raise
        return mapped

    def _properties(self) -> Any:
        driver = bindings()
        prop = driver.CUmemAllocationProp()
        prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.requestedHandleTypes = _posix()
        prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        prop.location.id = self.ordinal
        return prop

    def _access(self) -> Any:
        driver = bindings()
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = self.ordinal
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        return access


def _posix() -> Any:
    return bindings().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
