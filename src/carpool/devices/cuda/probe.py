"""Tests of every mechanism that sharing a GPU needs: through two agents, as for jobs, and by calls of the driver.

``python -P -m carpool.devices.cuda.probe`` prints the findings about all GPUs as JSON, for `carpool doctor`, whose own
process must not load a driver.  The tests take a context and 2 MiB of each GPU for a moment.

Not yet run on a GPU.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass
from typing import TypeVar

from carpool.devices import memfd
from carpool.devices.base import DeviceError
from carpool.devices.cuda import checkpoint, driver, messages
from carpool.devices.cuda.agent_link import AgentLink
from carpool.devices.cuda.driver import DriverError, NoDriver
from carpool.protocol.missing_package import extra_hint
from carpool.telemetry.nvml import Calls
from carpool.telemetry.samples import Unmeasurable

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
CHECKPOINT_CALLS = tuple(f"cuCheckpointProcess{what}" for what in ("Lock", "Checkpoint", "Restore", "Unlock"))
_CONTEXT = "cuDevicePrimaryCtxRetain"
#: What to do when one of these functions of the driver fails.
ADVICE = {
    "cuInit": "look at `nvidia-smi`; after an update of the driver its kernel module must be reloaded (reboot)",
    "cuMemExportToShareableHandle": "memory cannot be shared as file descriptors here (WSL 2 and some virtual GPUs)",
    "cuMemImportFromShareableHandle": "descriptors of memory cannot be imported here (WSL 2, or a container's limits)",
    "cuMemHostRegister": "memory cannot be pinned: raise the limit of locked memory (ulimit -l)",
    _CONTEXT: "no context can be made: the GPU may be full (nvidia-smi)",
}
#: Modes in which processes cannot share a GPU, by CUDA's numbers.
COMPUTE_MODES = {2: "PROHIBITED", 3: "EXCLUSIVE_PROCESS"}
_FULL = "the GPU is full: end other programs there (nvidia-smi shows them)"
_OUT_OF_MEMORY, _NOT_READY = 2, 600
#: Drivers in whose cuCheckpointProcessLock processes have died (610.57).
ENDS_SUSPENDED = "610."
#: Time limit for the device to see a written value that it waits for, which takes microseconds.
SEEN_S = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finding:
    """``needed``: jobs cannot share the GPU without this mechanism."""

    name: str
    ok: bool
    text: str
    advice: str = ""  # what to do, if not ok
    needed: bool = True


class _Failed(Exception):
    """A step that later steps need has failed, and has been reported."""


class _Steps:
    """Collects findings about one GPU."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal, self._name = ordinal, f"GPU {ordinal}"
        self.found: list[Finding] = []

    def need(self, what: str, attempt: Callable[[], T], text: Callable[[T], str] = lambda _: "works") -> T:
        try:
            result = attempt()
        except DeviceError as error:
            self.found.append(Finding(f"{self._name}: {what}", False, str(error), _advice(error, self._ordinal)))
            raise _Failed from None
        self.found.append(Finding(f"{self._name}: {what}", True, text(result)))
        return result

    def like(self, what: str, attempt: Callable[[], None], use: str) -> None:
        """Test an optional mechanism, which Carpool can do without."""
        try:
            attempt()
        except DeviceError as error:
            self.found.append(Finding(f"{self._name}: {what}", False, str(error), f"without it {use}", needed=False))
        else:
            self.found.append(Finding(f"{self._name}: {what}", True, "works", needed=False))


def probe(ordinal: int) -> list[Finding]:
    """Test every mechanism on one GPU.  The driver has been started; leaves a context in this process."""
    steps = _Steps(ordinal)
    with suppress(_Failed):
        _sharing(steps, ordinal)
        steps.like(
            "waiting for a value in host memory",
            lambda: _wait_value(ordinal),
            "turns change only when all kernels have finished",
        )
        steps.like(
            "checkpoint calls", _checkpoint, "programs without libcarpool get the GPU exclusively (needs driver 575)"
        )
    return steps.found


def probe_all() -> Iterator[Finding]:
    """Yield findings about all GPUs, or one if there is no GPU.  This process must not have used the driver before."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield Finding("GPU", True, "none: this machine has no NVIDIA driver (libcuda.so.1)")
        return
    try:
        driver.start()
        count = int(driver.call("cuDeviceGetCount"))
    except NoDriver as error:
        yield Finding("GPU", False, str(error), extra_hint("cuda"))
    except DriverError as error:
        if error.code == NO_DEVICE:
            yield Finding("GPU", True, f"none: {error}")
        else:
            yield Finding("GPU", False, str(error), _advice(error))
    else:
        for ordinal in range(count):
            yield from probe(ordinal)


def _sharing(steps: _Steps, ordinal: int) -> None:
    """Test memory that one process makes and another one uses, beside the first process and after its end."""
    with ExitStack() as stack:
        first = stack.enter_context(closing(AgentLink(ordinal)))
        second = stack.enter_context(closing(AgentLink(ordinal)))
        ready = steps.need("device agent", first.ready, lambda ready: f"{ready.name}, {ready.memory >> 20} MiB")
        size = ready.granularity
        fds = steps.need("making, exporting and clearing memory", lambda: first.ask(messages.Create(size)))
        for fd in fds:
            stack.callback(os.close, fd)
        store = memfd.create("carpool-probe", size, sealed=True)
        stack.callback(os.close, store)
        pattern = os.urandom(size)
        os.pwrite(store, pattern, 0)
        copy = messages.Copy(1, size, 0, 1, 0, size, out=False)
        steps.need("copying from pinned memory", lambda: first.ask(copy, [*fds, store]))
        steps.need("a context beside another process's", lambda: second.ask(messages.Room(size)))
        first.close()
        os.pwrite(store, bytes(size), 0)
        steps.need("importing memory whose maker has ended", lambda: second.ask(messages.Check(size), fds))
        back = messages.Copy(1, size, 0, 1, 0, size, out=True)
        steps.need("copying to pinned memory", lambda: second.ask(back, [*fds, store]))
        steps.need("the memory's content", lambda: _same(os.pread(store, size, 0), pattern), lambda _: "as written")


def _same(found: bytes, expected: bytes) -> None:
    if found != expected:
        raise DeviceError("another process reads something else than was written")


def _wait_value(ordinal: int) -> None:
    """Let a stream wait for a word of host memory, and write the word.  Raises DeviceError."""
    kinds = driver.bindings()
    with ExitStack() as stack:
        word = stack.enter_context(mmap.mmap(-1, mmap.PAGESIZE))
        address = _address(word)
        device = driver.call("cuDeviceGet", ordinal)
        driver.call("cuCtxSetCurrent", driver.call("cuDevicePrimaryCtxRetain", device))
        stack.callback(driver.call, "cuDevicePrimaryCtxRelease", device)
        flags = kinds.CU_MEMHOSTREGISTER_DEVICEMAP | kinds.CU_MEMHOSTREGISTER_PORTABLE
        driver.call("cuMemHostRegister", address, mmap.PAGESIZE, flags)
        stack.callback(driver.call, "cuMemHostUnregister", address)
        stream = driver.call("cuStreamCreate", kinds.CUstream_flags.CU_STREAM_NON_BLOCKING)
        stack.callback(driver.call, "cuStreamDestroy", stream)
        there = driver.call("cuMemHostGetDevicePointer", address, 0)
        geq = kinds.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        driver.call("cuStreamWaitValue32", stream, there, 1, geq)
        waits = _busy(stream)
        word[:4] = (1).to_bytes(4, sys.byteorder)
        _until_idle(stream)
        if not waits:
            raise DeviceError("cuStreamWaitValue32: the stream does not wait")


def _address(memory: mmap.mmap) -> int:
    """Return the address of ``memory``, valid until ``memory`` is closed, which stays possible."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _until_idle(stream: object) -> None:
    deadline = time.monotonic() + SEEN_S
    while _busy(stream):
        if time.monotonic() > deadline:
            raise DeviceError("cuStreamWaitValue32: the stream does not see what was written")
        time.sleep(0.001)


def _busy(stream: object) -> bool:
    try:
        driver.call("cuStreamQuery", stream)
    except DriverError as error:
        if error.code == _NOT_READY:
            return True
        raise
    return False


def _checkpoint() -> None:
    release = _driver_release()
    if release.startswith(ENDS_SUSPENDED):
        raise DeviceError(f"driver {release} has been seen to end processes that it was to suspend")
    if (version := driver.version()) < checkpoint.SINCE:
        raise DeviceError(f"this driver is of CUDA {version // 1000}.{version % 1000 // 10}")
    missing = [call for call in CHECKPOINT_CALLS if not driver.has(call, checkpoint.SINCE)]
    if missing:
        raise DeviceError(f"this driver has no {', '.join(missing)}")


def _compute_mode(ordinal: int) -> str | None:
    """Return the GPU's compute mode if it keeps processes out, else None."""
    mode = driver.bindings().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
    with suppress(DriverError):
        return COMPUTE_MODES.get(int(driver.call("cuDeviceGetAttribute", mode, ordinal)))
    return None


def _driver_release() -> str:
    """Return the version of NVIDIA's driver, as in 580.65.06; empty if NVML does not tell."""
    try:
        with closing(Calls()) as calls:
            return str(calls.must("nvmlSystemGetDriverVersion"))
    except Unmeasurable:
        return ""


def _advice(error: DeviceError, ordinal: int | None = None) -> str:
    """Return what to do about an error.  ``ordinal``: of the GPU with the error."""
    if not isinstance(error, DriverError):
        return "look at the daemon's log, or run `carpool doctor` again"
    if error.function == _CONTEXT and ordinal is not None and (mode := _compute_mode(ordinal)) is not None:
        return f"its compute mode is {mode}: let processes share it (as root: `nvidia-smi -c 0`, with `-i` for one GPU)"
    if error.code == _OUT_OF_MEMORY:
        return _FULL
    return ADVICE.get(
        error.function, "Carpool cannot use this GPU: look for a newer driver, or another kind of machine"
    )


if __name__ == "__main__":
    print(json.dumps([asdict(finding) for finding in probe_all()]))
