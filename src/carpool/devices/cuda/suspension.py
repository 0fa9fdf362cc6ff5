"""Suspending and resuming all processes of a job by the driver: all of them, or none.

Processes that use the driver are locked first, then measured, then taken off the device.  Every process is stopped
(SIGSTOP) after that, so that no process begins to use the device, or starts another process that does, without the
job's turn.  The driver is never asked about a stopped process: the call might wait for the process.  A process that has
begun to use the device in between is continued, and taken off like the others.  Where that cannot be measured, and for
a process that is stopped in the middle of making its first context, its memory stays on the device, unmanaged.

All calls block.  Not yet run on a GPU.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from carpool.devices.base import DeviceError
from carpool.devices.cuda.checkpoint import LOCK_TIMEOUT_MS, Checkpoint, CheckpointState, NoSuchProcess, NotGuaranteed

STOP_S = 10.0
_LOOK_S = 0.002
_MORE_ROUNDS = 2


class Suspension:
    """The processes of one job.

    ``processes``: the present processes; ``stopped``: whether a process is stopped; ``measure``: bytes of device memory
    that processes hold together, context included, None if unknown; ``holds``: whether any process is known to hold
    device memory; ``save``: records durably how many bytes a resume will need, and whether all is suspended.
    """

    def __init__(
        self,
        processes: Callable[[], list[int]],
        stopped: Callable[[int], bool],
        measure: Callable[[list[int]], int | None],
        holds: Callable[[list[int]], bool],
        save: Callable[[int, bool], None],
    ) -> None:
        self._processes = processes
        self._stopped = stopped
        self._measure = measure
        self._holds = holds
        self._save = save

    def suspended(self) -> bool:
        """Whether all processes are stopped, and none has ended meanwhile; False if there are none."""
        found = self._processes()
        return bool(found) and all(map(self._stopped, found))

    def suspend(self, known: int, most: int, timeout_ms: int = LOCK_TIMEOUT_MS) -> int:
        """Suspend all processes; return the bytes that `resume` will need.

        ``known``: the recorded bytes of processes that are off the device already (0: no record); ``most``: the bytes
        that all processes can have together, used where there is no measurement.  Raises what `Checkpoint.suspend`
        raises, and DeviceError; after all errors but CheckpointStuck the processes go on.
        """
        try:
            return self._suspend(known, most, timeout_ms)
        except Exception:
            self.resume(most, most)
            raise

    def resume(self, needed: int, guaranteed: int) -> None:
        """Resume all processes.  Raises CheckpointStuck, NotGuaranteed (then they are still stopped), DeviceError."""
        if guaranteed < needed:
            raise NotGuaranteed(f"its processes need {needed} bytes of device memory and {guaranteed} are set aside")
        found = self._processes()
        self._continue(found)
        for user in _users(found):
            with suppress(NoSuchProcess):
                user.resume(needed, guaranteed)

    def _suspend(self, known: int, most: int, timeout_ms: int) -> int:
        running = self._processes()
        self._continue(running)  # another program may have stopped one; the driver needs it running
        needed = self._stop_all(running, self._off(running, known, most), most, timeout_ms)
        for _ in range(_MORE_ROUNDS):
            stopped = self._processes()
            if not self._holds(stopped):
                break
            self._continue(stopped)  # one of them has begun to use the device meanwhile
            needed = self._stop_all(stopped, needed, most, timeout_ms)
        self._save(needed, True)
        return needed

    def _off(self, running: list[int], known: int, most: int) -> int:
        """Return the bytes of the processes that are off the device already."""
        if any(user.state() is CheckpointState.CHECKPOINTED for user in _users(running)):
            return known or most  # 0: there is no record
        return 0

    def _stop_all(self, running: list[int], needed: int, most: int, timeout_ms: int) -> int:
        """Stop processes until none runs; return ``needed`` plus the bytes that were still on the device."""
        while running:
            needed = min(most, needed + self._take_off(_users(running), needed, most, timeout_ms))
            for pid in running:
                self._stop(pid)
            running = [pid for pid in self._processes() if not self._stopped(pid)]
        return needed

    def _take_off(self, users: list[Checkpoint], needed: int, most: int, timeout_ms: int) -> int:
        """Take processes off the device; return the bytes of those that were on the device."""
        on = [user for user in users if user.state() is not CheckpointState.CHECKPOINTED]
        if not on:
            return 0
        for user in on:
            user.lock(timeout_ms)
        held = self._measure([user.pid for user in on])
        held = most if held is None else held
        self._save(min(most, needed + held), False)
        for user in on:
            user.take_off()
        return held

    def _stop(self, pid: int) -> None:
        """Stop a process, and wait until it is stopped.  Raises DeviceError if the process does not stop."""
        deadline = time.monotonic() + STOP_S
        self._signal(pid, signal.SIGSTOP)
        while pid in self._processes() and not self._stopped(pid):
            if time.monotonic() > deadline:
                raise DeviceError(f"process {pid} does not stop")
            time.sleep(_LOOK_S)

    def _continue(self, pids: list[int]) -> None:
        for pid in pids:
            self._signal(pid, signal.SIGCONT)

    def _signal(self, pid: int, number: int) -> None:
        """Send a signal, but only to a process of the job: the pid of an ended process may have been reused."""
        with suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            try:
                if pid in self._processes():
                    signal.pidfd_send_signal(process, number)
            finally:
                os.close(process)


def _users(found: list[int]) -> list[Checkpoint]:
    """Return the processes that use the driver."""
    users = []
    for pid in found:
        user = Checkpoint(pid)
        with suppress(NoSuchProcess):
            user.state()
            users.append(user)
    return users
