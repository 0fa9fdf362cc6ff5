"""The driver of the modelled world: carries out commands, moves jobs, delivers packets, checks what is real."""

from __future__ import annotations

from dataclasses import replace

from carpool.core import events
from carpool.core.model import Demand, JobId, JobPhase, JobSpec, Oversubscribe, Settings
from tests.core.modelled.checks import Checks
from tests.core.modelled.job_commands import JobCommands
from tests.core.modelled.memory_commands import MemoryCommands
from tests.core.modelled.moves import Moves
from tests.core.modelled.restarts import Restarts
from tests.core.modelled.turn_commands import TurnCommands
from tests.core.seats import Program

#: What a `Tick` decides may set a timer that is due at once: a boundary for which no job can wait any more.
MOST_TICKS = 3


class World(Checks, JobCommands, MemoryCommands, TurnCommands, Moves, Restarts):
    """All of it: what happens reaches the core, and what the core decides is done and checked at once."""

    def __init__(
        self, settings: Settings, devices: dict[str, int], oversubscribe: Oversubscribe = Oversubscribe.OFF
    ) -> None:
        super().__init__(settings, devices, oversubscribe)
        for name, capacity in devices.items():
            self.handle(events.DeviceAdded(self.device(name, capacity)))

    def handle(self, event: events.Event) -> None:
        before = self.promised()
        self.alone_before = {name: device.alone for name, device in self.seen.devices.items()}
        out = self.machine.handle(event, self.now)
        self.seen = self.machine.view()
        self.story_so_far.append((event, self.now, out))
        self.machine.check()
        if not isinstance(event, events.Adopted):
            self.check_foreign(before)
        for command in out:
            getattr(self, "_" + type(command).__name__.lower())(command)
        self.check()
        if self.promised_to:
            self.check_promises()

    def tick(self, when: int) -> None:
        self.now = max(self.now, when)
        for _ in range(MOST_TICKS):
            due = self.machine.next_timer()
            if due is None or due > self.now:
                return
            self.handle(events.Tick())
        raise AssertionError("timers that are due again and again at once")

    # What happens

    def drain(self, name: str, why: str) -> None:
        self.drained[name] = why
        self.handle(events.DeviceDrained(name, why))

    def others_hold(self, device: str, size: int, programs: bool = False) -> None:
        """Programs that are not Carpool's, or its own jobs beside their grants."""
        self.foreign[device] = size
        self.handle(events.ForeignMemory(device, size, size * programs, self.spare[device]))

    def is_larger(self, device: str, spare: int) -> None:
        """Bytes that are free beside its capacity."""
        self.spare[device] = spare
        self.others_hold(device, self.foreign[device])

    def keep(self, device: str, reserve: int) -> None:
        """For other programs."""
        mode = self.seen.devices[device].oversubscribe
        self.handle(events.DeviceChanged(device, None, mode, reserve))

    def hold(self, number: JobId, by: str | None) -> None:
        """A job that is not queued hears nothing of that."""
        if self.seen.jobs[number].phase is JobPhase.QUEUED:
            self.specs[number] = replace(self.specs[number], held_by=by)
        self.handle(events.HoldChanged(number, by))

    def pause(self, number: JobId, by: str | None) -> None:
        """What it was promised it has no more."""
        self.specs[number] = replace(self.specs[number], paused_by=by)
        self.promised_to.pop(number, None)
        self.handle(events.PauseChanged(number, by))

    def say_busy(self, number: JobId, busy: bool) -> None:
        """The front of an engine says whether there are requests."""
        self.busy = self.busy | {number} if busy else self.busy - {number}
        self.handle(events.ServiceBusy(number, busy))

    def say_served(self, number: JobId, served: bool) -> None:
        """The front of an engine comes or goes."""
        self.served = self.served | {number} if served else self.served - {number}
        self.handle(events.EngineServed(number, served))

    def update(self, number: JobId, **changes: object) -> None:
        """A job that is being stopped hears nothing of that."""
        before, stopping = self.specs[number], self.seen.jobs[number].phase is JobPhase.STOPPING
        self.specs[number] = replace(before, **changes)  # type: ignore[arg-type]
        event = events.JobChanged(number, self._surviving_spec(number))
        if stopping:
            self.specs[number] = before
        self.handle(event)

    def requeue(self, number: JobId) -> None:
        if self.seen.jobs[number].phase in (JobPhase.STARTING, JobPhase.RUNNING):
            self.requeued.setdefault(number, set()).add(len(self.past.get(number, ())) + 1)
        self.handle(events.RequeueRequested(number, "root"))

    def submit(self, spec: JobSpec, program: Program, demands: tuple[Demand, ...] = ()) -> JobId:
        """``demands``: what the batches of a service need."""
        number = len(self.specs) + 1
        self.programs[number], self.demands[number] = replace(program), demands
        self.specs[number] = spec
        self.processes[number] = self._process(number, program)
        self.handle(events.Submitted(number, spec))
        return number

    def finish(self, limit: int = 20_000) -> None:
        """A fair world: nobody else uses the devices, everybody moves, every packet arrives, every timer is served.

        Then all jobs must end.
        """
        for device in self.devices:
            self.others_hold(device, 0)
            self.keep(device, 0)
            self.drain(device, "")
        for number in sorted(self.busy - {*self.ended}):
            self.say_busy(number, False)
        for number in [number for number in self.specs if number not in self.ended]:
            if number not in self.ended:  # others may end when one is released
                self.hold(number, None)
            if number not in self.ended:
                self.pause(number, None)
        for _ in range(limit):
            if len(self.ended) == len(self.specs):
                self.check_repeats()
                return
            moved = False
            for number in self.specs:
                moved |= self.deliver(number)
                moved |= self.step(number)
            due = self.machine.next_timer()
            if not moved:
                assert due is not None, f"nothing moves: {self.story()}"
                self.tick(due)
            elif due is not None and due <= self.now:
                self.tick(self.now)
        raise AssertionError(f"not ended: {self.story()}")
