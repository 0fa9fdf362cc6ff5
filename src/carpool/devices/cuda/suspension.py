"""Suspending and resuming all processes of a job by the driver: all of them, or none.

Those that use the driver are locked first, then measured, then taken off the device.  Every process is stopped
(SIGSTOP) after that, so that none begins to use the device, or starts another one that does, while it is not the job's
turn.  One that is just about to make its first context may be stopped in the middle of it: what it has got of the
device until then stays there, and is memory that nobody can be promised.

All of this blocks.  Not yet run on a GPU.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from carpool.devices.base import DeviceError
from carpool.devices.cuda.checkpoint import LOCK_TIMEOUT_MS, Checkpoint, NoSuchProcess, State

STOP_S = 10.0
_LOOK_S = 0.002


class Suspension:
    """The processes of one job.

    ``processes``: those there are now; ``stopped``: whether one is; ``measure``: bytes of device memory that some of
    them hold together, context included, None if nobody knows; ``save``: what a resume will need, and whether all is
    suspended, written down durably.
    """

    def __init__(
        self,
        processes: Callable[[], list[int]],
        stopped: Callable[[int], bool],
        measure: Callable[[list[int]], int | None],
        save: Callable[[int, bool], None],
    ) -> None:
        self._processes = processes
        self._stopped = stopped
        self._measure = measure
        self._save = save

    def suspended(self) -> bool:
        """Whether none of them can run, and none of them has ended meanwhile."""
        found = self._processes()
        return bool(found) and all(map(self._stopped, found))

    def suspend(self, known: int, most: int, timeout_ms: int = LOCK_TIMEOUT_MS) -> int:
        """Returns the bytes that `resume` will need.

        ``known``: what was written down of those that are off the device already (0: nothing); ``most``: what they can
        have together, for where it cannot be measured.  Raises what `Checkpoint.suspend` raises, and DeviceError; after
        all but Stuck they go on.
        """
        try:
            return self._suspend(known, most, timeout_ms)
        except (DeviceError, OSError):
            self.resume(most, most)
            raise

    def resume(self, needed: int, guaranteed: int) -> None:
        """Raises Stuck, NotGuaranteed, DeviceError."""
        found = self._processes()
        for pid in found:
            _signal(pid, signal.SIGCONT)
        for user in _users(found):
            with suppress(NoSuchProcess):
                user.resume(needed, guaranteed)

    def _suspend(self, known: int, most: int, timeout_ms: int) -> int:
        needed, first = known, True
        for pid in self._processes():
            _signal(pid, signal.SIGCONT)  # somebody else may have stopped it: the driver asks it to do things
        while running := [pid for pid in self._processes() if first or not self._stopped(pid)]:
            users = _users(running)
            if first and not known and any(user.state() is State.CHECKPOINTED for user in users):
                needed = most  # nobody has written it down
            first = False
            needed = min(most, needed + self._take_off(users, needed, most, timeout_ms))
            for pid in running:
                self._stop(pid)
        self._save(needed, True)
        return needed

    def _take_off(self, users: list[Checkpoint], needed: int, most: int, timeout_ms: int) -> int:
        """Bytes of those that were on the device."""
        on = [user for user in users if user.state() is not State.CHECKPOINTED]
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
        """Raises DeviceError if it goes on."""
        deadline = time.monotonic() + STOP_S
        _signal(pid, signal.SIGSTOP)
        while pid in self._processes() and not self._stopped(pid):
            if time.monotonic() > deadline:
                raise DeviceError(f"process {pid} does not stop")
            time.sleep(_LOOK_S)


def _users(found: list[int]) -> list[Checkpoint]:
    """Those of them that use the driver."""
    users = []
    for pid in found:
        user = Checkpoint(pid)
        with suppress(NoSuchProcess):
            user.state()
            users.append(user)
    return users


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
