"""Jobs of the checkpoint engine, for which the daemon speaks: nothing of Carpool is in their processes.

Such a job always wants a turn.  Its process is started with its first one; later ones begin with a resume and end with
a suspend, by the driver, in a thread.  What a resume needs is on the disk before anything is suspended.  A job that the
driver cannot suspend keeps its turn, and has its device to itself.  One that cannot be resumed is lost: it is killed,
and its end says why.

Not yet run on a GPU.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
from collections.abc import Callable
from contextlib import closing
from enum import Enum

from carpool.core.events import Attached, Event, Sampled, StartFailed, TraitsSeen, TurnReleased, TurnWanted
from carpool.core.model import Cause, DeviceId, JobId, Memory, Micros, Reason, Usage
from carpool.daemon.aside import aside
from carpool.daemon.clock import monotonic_us
from carpool.daemon.jobs import Job, JobTable
from carpool.daemon.processes import Processes
from carpool.daemon.procstate import is_stopped
from carpool.daemon.proctree import below
from carpool.daemon.seating import Seating
from carpool.daemon.suspended import Note, Notes
from carpool.devices.base import DeviceError, ExtentDevice, in_extents
from carpool.devices.cuda.checkpoint import NotGuaranteed, Stuck, Unsupported
from carpool.devices.cuda.suspension import Suspension
from carpool.monitor.gpus import Gpus

log = logging.getLogger(__name__)
RETRY_S = 0.05
BUSY_S = 1.0
RESTART_S = 60.0
#: However often others ask for it, a turn is longer than what comes before and after it.
LEAST_TURN_US: Micros = 100_000
#: A turn whose memory does not come is given back after so long, if others ask for it.
PATIENCE_US: Micros = 2_000_000
NO_ROOM = "the driver has not got it free yet"
NOT_CUT = "others have not let go of it yet"


class Stage(Enum):
    NEW = "new"  # it has no process yet
    OFF = "off"  # suspended
    COMING = "coming"
    ON = "on"
    LEAVING = "leaving"


@dataclasses.dataclass(slots=True)
class Guest:
    stage: Stage
    yield_asked: bool = False
    since_us: Micros = 0  # of its present turn
    on_us: Micros = 0  # since when it is on its device
    moved_us: Micros = 0  # what its last suspend and resume have taken
    was_busy: bool = False  # at a restart: it has its device to itself until it has a turn, which can be asked back


class Checkpointing:
    def __init__(
        self, notes: Notes, jobs: JobTable, seating: Seating, processes: Processes, post: Callable[[Event], None]
    ) -> None:
        self._notes = notes
        self._jobs = jobs
        self._seating = seating
        self._processes = processes
        self._post = post
        self._of: dict[JobId, Guest] = {}
        self._changes = 0

    # The core's commands

    def start(self, job: Job) -> None:
        """`StartJob`: the process itself waits for its turn."""
        self._of[job.id] = Guest(Stage.NEW)
        self._post(Attached(job.id))
        self._post(TurnWanted(job.id))

    def turn(self, job: Job) -> None:
        """`GrantTurn`: its memory is reserved, and nobody else computes there."""
        guest = self._of[job.id]
        job.switches += 1
        guest.yield_asked, guest.since_us = False, monotonic_us()
        if guest.stage is not Stage.ON:  # one that could not be suspended may be
            self._come(job, guest)
        elif guest.was_busy:
            guest.was_busy, job.stays = False, None
            self._post(TraitsSeen(job.id))

    def request_yield(self, job: Job) -> None:
        guest = self._of[job.id]
        if not guest.yield_asked and guest.stage is Stage.ON:
            guest.yield_asked = True
            self._leave(job, guest)
        guest.yield_asked = True

    def withdraw_yield(self, job: Job) -> None:
        self._of[job.id].yield_asked = False

    def signal(self, job: Job, number: int) -> None:
        """To all its processes.  If they are stopped, all but SIGKILL arrives with a turn, which is urgent now."""
        guest = self._of.get(job.id)
        if guest is not None and guest.stage is Stage.NEW:
            self._post(StartFailed(job.id, "it was stopped before its first turn"))
            return
        self._processes.signal(job, number)
        if guest is not None and guest.stage is Stage.OFF and number != signal.SIGKILL:
            self._post(TurnWanted(job.id, urgent=True))

    def forget(self, job: Job) -> None:
        """It has ended."""
        guest = self._of.pop(job.id, None)
        if guest is not None:
            self._changes += 1
            self._account(job, guest)
            job.on_device, job.grant_waits = False, None
        self._notes.forget(job.id)

    def present(self, device: DeviceId) -> tuple[int, frozenset[JobId]] | None:
        """Those on a device, and a number that changes with them; None while one comes or leaves."""
        here = [(job, guest) for job in self._guests(device) if (guest := self._of.get(job.id)) is not None]
        if any(guest.stage in (Stage.COMING, Stage.LEAVING) for _, guest in here):
            return None
        return self._changes, frozenset(job.id for job, guest in here if guest.stage is Stage.ON)

    # A turn begins

    def _come(self, job: Job, guest: Guest) -> None:
        """As soon as the memory that is reserved for it is really there."""
        if self._of.get(job.id) is not guest:
            return
        if guest.stage is not Stage.NEW:
            self._enter(guest, Stage.COMING)
        device = self._device(job)
        device.give_way()
        if any(other.cuts for other in self._jobs.live.values() if other.device == job.device):
            self._wait(job, guest, NOT_CUT)
        elif guest.stage is Stage.NEW:
            self._processes.start(job)
            self._is_on(job, guest)
        else:
            needed, granted = job.usage.persistent_live, job.granted.persistent
            work = self._suspension(job)

            def resume() -> str | None:
                obstacle = self._unready(job, device, needed)
                if obstacle is None:
                    work.resume(needed, granted)
                return obstacle

            begun = monotonic_us()
            aside(f"resume-{job.id}", resume, lambda result: self._came(job, guest, result, begun))

    def _unready(self, job: Job, device: ExtentDevice, needed: int) -> str | None:
        """Why it cannot be resumed yet.  From now on its note does not say any more that it is suspended."""
        try:
            if needed and not device.has_room(needed):
                return NO_ROOM
            self._notes.write(job.id, Note(needed))
        except (DeviceError, OSError) as error:
            return str(error)
        return None

    def _wait(self, job: Job, guest: Guest, obstacle: str) -> None:
        if guest.yield_asked and monotonic_us() - guest.since_us > PATIENCE_US:
            self._give_up(job, guest)
            return
        waits = Reason("device_memory", f"what it has been granted is not there yet: {obstacle}")
        if waits != job.grant_waits and obstacle not in (NO_ROOM, NOT_CUT):
            log.warning("job %d waits: %s", job.id, obstacle)
        job.grant_waits = waits
        asyncio.get_running_loop().call_later(RETRY_S, self._come, job, guest)

    def _give_up(self, job: Job, guest: Guest) -> None:
        """Its turn has not come to anything, and others want theirs."""
        if guest.stage is not Stage.NEW:
            self._enter(guest, Stage.OFF)
        job.granted, job.grant_waits = Memory(), None
        self._released(job)

    def _released(self, job: Job) -> None:
        """Its turn is over, and it wants another one, soon if it is to end."""
        self._post(TurnReleased(job.id, Cause.FORCED, job.usage))
        self._post(TurnWanted(job.id, urgent=job.cancelled))

    def _came(self, job: Job, guest: Guest, result: str | Exception | None, begun: Micros) -> None:
        if self._of.get(job.id) is not guest:
            return
        if isinstance(result, str | NotGuaranteed):
            self._wait(job, guest, str(result))
        elif result is not None:
            self._lost(job, f"it could not be resumed: {result}")
        else:
            took = monotonic_us() - begun
            guest.moved_us += took
            moved = job.usage.in_bytes + job.usage.persistent_live
            job.usage = dataclasses.replace(job.usage, in_bytes=moved, in_us=job.usage.in_us + took)
            self._is_on(job, guest)

    def _is_on(self, job: Job, guest: Guest) -> None:
        self._enter(guest, Stage.ON)
        job.on_device, job.grant_waits = True, None
        guest.on_us = monotonic_us()
        if guest.yield_asked:
            self._leave(job, guest)

    # A turn ends

    def _leave(self, job: Job, guest: Guest) -> None:
        """When its turn was worth its price, and its process is known: that may still be being started."""
        if self._of.get(job.id) is not guest or guest.stage is not Stage.ON or not guest.yield_asked:
            return
        left_us = guest.on_us + max(LEAST_TURN_US, guest.moved_us) - monotonic_us()
        if job.pid is None or left_us > 0:
            asyncio.get_running_loop().call_later(max(RETRY_S, left_us / 1e6), self._leave, job, guest)
            return
        self._enter(guest, Stage.LEAVING)
        work, most, begun = self._suspension(job), job.granted.persistent, monotonic_us()
        aside(f"suspend-{job.id}", lambda: work.suspend(0, most), lambda result: self._left(job, guest, result, begun))

    def _left(self, job: Job, guest: Guest, result: int | Exception, begun: Micros) -> None:
        if self._of.get(job.id) is not guest:
            return
        if isinstance(result, Exception):
            self._enter(guest, Stage.ON)
            self._not_left(job, guest, result)
            return
        self._account(job, guest)
        guest.moved_us = monotonic_us() - begun
        moved, took = job.usage.out_bytes + result, job.usage.out_us + guest.moved_us
        usage = dataclasses.replace(job.usage, out_bytes=moved, out_us=took)
        self._is_off(job, guest, usage, result)
        self._released(job)

    def _is_off(self, job: Job, guest: Guest, usage: Usage, needed: int) -> None:
        peak = max(usage.persistent_peak, needed)
        job.usage = dataclasses.replace(usage, persistent_live=needed, persistent_peak=peak)
        job.on_device, job.granted = False, Memory()
        self._enter(guest, Stage.OFF)

    def _not_left(self, job: Job, guest: Guest, error: Exception) -> None:
        """It keeps its turn."""
        if isinstance(error, Stuck):
            self._lost(job, str(error))
        elif isinstance(error, Unsupported):
            self._stays(job, error)
        else:
            log.warning("job %d cannot be suspended now: %s", job.id, error)
            asyncio.get_running_loop().call_later(BUSY_S, self._leave, job, guest)

    def _stays(self, job: Job, error: Exception) -> None:
        log.warning("job %d cannot be suspended and keeps %s: %s", job.id, job.device, error)
        job.stays = f"it cannot be suspended: {error}"
        self._post(TraitsSeen(job.id, alone=job.stays))

    def _lost(self, job: Job, why: str) -> None:
        log.error("job %d is killed: %s", job.id, why)
        job.fault = Reason("checkpoint", f"killed by Carpool: {why}")
        self._processes.signal(job, signal.SIGKILL)

    # Restart

    async def restart(self) -> None:
        """Before the core is told anything: whoever an earlier daemon has left on its device is suspended.

        Nobody else computes there meanwhile, because it had the device to itself.
        """
        found = [job for job in self._jobs.live.values() if job.guest and self._processes.shim_pid(job.id)]
        await asyncio.gather(*map(self._suspend_again, found))

    def resume(self, job: Job) -> None:
        """The core knows it, and has a lane for it."""
        guest = self._of.get(job.id)
        if guest is None:
            return
        self._post(Attached(job.id))
        self._post(Sampled(job.id, job.usage))
        self._post(TurnWanted(job.id))

    async def _suspend_again(self, job: Job) -> None:
        job.device = self._found_on(job)
        if job.device is None:
            self._lost(job, "no device here can suspend it any more")
            return
        guest = self._of[job.id] = Guest(Stage.LEAVING, since_us=monotonic_us())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RESTART_S
        while True:
            result: asyncio.Future[int | Exception] = loop.create_future()
            aside(f"suspend-{job.id}", self._again(job), result.set_result)
            answer = await result
            if not isinstance(answer, Exception):
                self._is_off(job, guest, job.usage, answer)
                return
            if isinstance(answer, Stuck):
                self._is_off(job, guest, job.usage, 0)
                self._lost(job, str(answer))
                return
            if isinstance(answer, Unsupported) or loop.time() > deadline:
                job.stays, job.on_device = f"it cannot be suspended: {answer}", True
                guest.was_busy = not isinstance(answer, Unsupported)
                self._enter(guest, Stage.ON)
                return
            await asyncio.sleep(BUSY_S)

    def _found_on(self, job: Job) -> DeviceId | None:
        """Where it is; if no earlier daemon has written that down, where it can have been."""
        devices = self._seating.devices
        if job.device is not None:
            return job.device if job.device in devices and in_extents(devices[job.device]) else None
        able = [name for name, device in devices.items() if device.checkpoint]
        return job.spec.device if job.spec.device in able else next(iter(able), None)

    def _again(self, job: Job) -> Callable[[], int]:
        work, note, most = self._suspension(job), self._notes.read(job.id), self._device(job).capacity

        def suspend() -> int:
            return note.needed if note.complete and work.suspended() else work.suspend(note.needed, most)

        return suspend

    # What both need

    def _suspension(self, job: Job) -> Suspension:
        shim, uuid = self._processes.shim_pid(job.id), self._device(job).uuid

        def measure(pids: list[int]) -> int | None:
            with closing(Gpus()) as gpus:  # of this thread
                return gpus.held(uuid, pids, monotonic_us())

        def holds(pids: list[int]) -> bool:
            with closing(Gpus()) as gpus:
                return any(gpus.held(uuid, [pid], monotonic_us()) for pid in pids)

        return Suspension(
            lambda: below(shim) if shim is not None else [],
            lambda pid: is_stopped(pid, job.owner),
            measure,
            holds,
            lambda needed, complete: self._notes.write(job.id, Note(needed, complete)),
        )

    def _device(self, job: Job) -> ExtentDevice:
        assert job.device is not None
        device = self._seating.devices[job.device]
        assert in_extents(device), "only such devices can suspend jobs"
        return device

    def _guests(self, device: DeviceId) -> list[Job]:
        return [job for job in self._jobs.live.values() if job.guest and job.device == device]

    def _enter(self, guest: Guest, stage: Stage) -> None:
        guest.stage = stage
        self._changes += 1

    def _account(self, job: Job, guest: Guest) -> None:
        """Its turn counts as device time, suspending and resuming included."""
        if guest.stage in (Stage.ON, Stage.LEAVING):
            now = monotonic_us()
            lasted, guest.since_us = max(0, now - guest.since_us), now
            job.usage = dataclasses.replace(job.usage, device_us=job.usage.device_us + lasted)
