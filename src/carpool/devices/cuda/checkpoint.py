"""The driver takes a whole process off the device and puts it back.

For programs that libcarpool cannot be loaded into.  The program itself is not changed: the driver stops its calls
(the process is *locked*), moves its device memory to host memory, and frees even its context.  A resumed process finds
its memory at the same addresses.  Drivers of version 575 and later can do it to PyTorch.

A restore that runs out of device memory leaves the process *failed*: it can only be killed.  So `resume` is told how
much the process needs and how much is set aside for it, and refuses if that is not enough.

All calls block, for as long as the copies take.  Not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn

from carpool.devices.base import DeviceError
from carpool.devices.cuda import driver
from carpool.protocol.packets import OVER, STATE, stat_fields

LOCK_TIMEOUT_MS = 10_000
#: CUDA's version of the first driver (575) whose calls suspend PyTorch.
SINCE = 12090

_INVALID_VALUE = 1
_OUT_OF_MEMORY = 2
_NOT_READY = 600
_NOT_SUPPORTED = 801


class CheckpointState(Enum):
    """The driver's state of a process; the values are the driver's."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class CheckpointUnsupported(DeviceError):
    """The driver cannot suspend processes, or not this one."""


class NoSuchProcess(DeviceError):
    """The process has ended, or does not use CUDA."""


class Busy(DeviceError):
    """The process could not be locked in time; the process goes on as if nothing had happened."""


class NotGuaranteed(DeviceError):
    """The memory that a restore needs is not set aside; nothing has been done."""


class CheckpointStuck(DeviceError):
    """A restore has failed.  The process can only be killed."""


def supported() -> bool:
    """Whether the driver has calls that can suspend PyTorch.  Raises NoDriver and DriverError like `driver.start`."""
    driver.start()
    return driver.version() >= SINCE and driver.has("cuCheckpointProcessLock", SINCE)


class Checkpoint:
    """One process.  Keeps no state: another object, or a later daemon, may go on with the same process."""

    def __init__(self, pid: int) -> None:
        """Raise NoDriver, DriverError, or CheckpointUnsupported if the driver is older than 575."""
        self.pid = pid
        if not supported():
            raise CheckpointUnsupported(
                "this NVIDIA driver cannot take processes off the device: version 575 or later is needed"
            )

    def state(self) -> CheckpointState:
        """Return the driver's state of the process.  Raises NoSuchProcess."""
        return CheckpointState(int(self._call("GetState")))

    def suspend(self, timeout_ms: int = LOCK_TIMEOUT_MS) -> None:
        """Take the process off the device; nothing happens if the process is off already.

        ``timeout_ms`` limits the wait for calls of the process that are under way (0: none).  Raises Busy,
        CheckpointUnsupported (managed memory, or memory shared with other processes), NoSuchProcess and
        CheckpointStuck; after all but the last the process runs on.
        """
        self.lock(timeout_ms)
        self.take_off()

    def lock(self, timeout_ms: int = LOCK_TIMEOUT_MS) -> None:
        """Do the first half of `suspend`: calls of the process wait from now on, so that its memory does not change."""
        if self._usable() is CheckpointState.RUNNING:
            self._lock(timeout_ms)

    def take_off(self) -> None:
        """Do the second half of `suspend`, for a locked process."""
        if self.state() is not CheckpointState.CHECKPOINTED:
            self._take_off()

    def resume(self, needed: int, guaranteed: int | Callable[[], int]) -> None:
        """Put the process back and let it run; nothing happens if the process runs already.

        ``needed``: bytes of the device that the process held when suspended, context included; ``guaranteed``: bytes
        that no other process takes until this returns, or a function that sets memory aside and returns its size.
        Raises NotGuaranteed (try again with more), NoSuchProcess and CheckpointStuck.
        """
        state = self._usable()
        if state is CheckpointState.CHECKPOINTED:
            self._check(needed, guaranteed() if callable(guaranteed) else guaranteed)
            self._put_back()
        if state is not CheckpointState.RUNNING:
            self._call("Unlock", None)

    def _usable(self) -> CheckpointState:
        state = self.state()
        if state is CheckpointState.FAILED:
            raise CheckpointStuck(f"process {self.pid} could not be restored earlier: it can only be killed")
        return state

    def _check(self, needed: int, guaranteed: int) -> None:
        if needed <= 0:
            raise ValueError("the needs of a checkpointed process are unknown: measure them before it is suspended")
        if guaranteed < needed:
            raise NotGuaranteed(
                f"process {self.pid} needs {needed} bytes of device memory and {guaranteed} are set aside:"
                " a restore that runs out of memory would lose it"
            )

    def _lock(self, timeout_ms: int) -> None:
        args = driver.bindings().CUcheckpointLockArgs()
        args.timeoutMs = timeout_ms
        try:
            self._call("Lock", args)
        except driver.DriverError as error:
            if error.code == _NOT_READY:
                raise Busy(f"process {self.pid} was not done with its calls after {timeout_ms} ms") from None
            if _ended(self.pid):
                raise NoSuchProcess(f"process {self.pid} has ended while it was locked ({error})") from None
            raise

    def _take_off(self) -> None:
        try:
            self._call("Checkpoint", None)
        except DeviceError as error:
            if self.state() is CheckpointState.LOCKED:
                self._call("Unlock", None)
            if isinstance(error, driver.DriverError) and error.code == _OUT_OF_MEMORY:
                raise CheckpointUnsupported(
                    f"process {self.pid} cannot be taken off the device: the host has no memory for its copy, or the"
                    f" driver cannot do it on this device, as on MIG instances ({error})"
                ) from None
            raise

    def _put_back(self) -> None:
        try:
            self._call("Restore", None)
        except driver.DriverError as error:
            if self.state() is CheckpointState.FAILED or error.code == _OUT_OF_MEMORY:
                raise CheckpointStuck(
                    f"process {self.pid} could not be restored and can only be killed: {error}"
                ) from None
            raise

    def _call(self, what: str, *arguments: object) -> Any:
        try:
            return driver.call(f"cuCheckpointProcess{what}", self.pid, *arguments)
        except driver.DriverError as error:
            self._explain(error)

    def _explain(self, error: driver.DriverError) -> NoReturn:
        if error.code == _INVALID_VALUE:
            raise NoSuchProcess(f"process {self.pid} is not there or does not use CUDA") from None
        if error.code == _NOT_SUPPORTED:
            raise CheckpointUnsupported(
                f"process {self.pid} cannot be taken off the device: it has managed memory, or shares memory ({error})"
            ) from None
        raise error


def _ended(pid: int) -> bool:
    fields = stat_fields(pid)
    return not fields or fields[STATE] in OVER
