"""Another daemon takes over what it finds."""

from __future__ import annotations

from dataclasses import replace

from carpool.core import events
from carpool.core.machine import Machine
from carpool.core.model import JobId, JobPhase, JobSpec, Memory
from tests.core.modelled.facts import Facts
from tests.core.seats import Process
from tests.core.serving import ServiceProcess
from tests.core.suspended import Suspended


class Restarts(Facts):
    """Seats are the truth, and what the journal has kept of jobs."""

    def restart(self) -> None:
        """Another daemon: seats are the truth, unread packets stay, those about finished turns are dropped."""
        self.begin_with(Machine(self.settings))
        self.promised_to.clear()
        self.story_so_far.clear()
        for process in self.processes.values():
            process.may_be_named_awake = True
            if isinstance(process, Suspended):
                process.orphaned()
            if isinstance(process, ServiceProcess) and not process.turn:
                process.placed = None  # it is promised anew what it waits for
        used = {process.lane for process in self.processes.values() if process.attached}
        self.lanes = {lane: what for lane, what in self.lanes.items() if lane in used}
        self.handle(events.RestartBegan())
        for name, capacity in self.devices.items():
            self.handle(events.DeviceAdded(self.device(name, capacity)))
            self.handle(events.ForeignMemory(name, self.foreign[name], spare=self.spare[name]))
        for (device, owner, key), size in self.weights.items():
            self.handle(events.WeightsFound(device, owner, key, size, size // 1000))
        live = [number for number in self.specs if number not in self.ended]
        for number in live:
            self.handle(events.Submitted(number, self._surviving_spec(number), past=self.past.get(number, ())))
        for process in (self.processes[number] for number in live):
            if process.alive:
                self._adopt(process)
        self.handle(events.RestartEnded())
        for number in self.busy - self.ended.keys():
            self.handle(events.ServiceBusy(number, True))  # the fronts say so again
        for number in self.served - self.ended.keys():
            self.handle(events.EngineServed(number, True))
        for process in (self.processes[number] for number in live):
            if process.alive and process.outlives_daemon() and process.asked is not None:
                self.handle(events.MemoryRequested(process.id, *process.asked))

    def _surviving_spec(self, number: JobId) -> JobSpec:
        """A dependency that has ended was met: otherwise the job would have ended, too."""
        spec = self.specs[number]
        requeued = sum(attempt <= len(self.past.get(number, ())) for attempt in self.requeued.get(number, ()))
        left: dict[str, object] = {
            name: tuple(other for other in getattr(spec, name) if other not in self.ended)
            for name in ("after", "after_any", "after_notok")
        }
        return replace(spec, **left, retries=spec.retries + requeued)  # type: ignore[arg-type]

    def _adopt(self, process: Process) -> None:
        process.channel = type(process.channel)(packet for packet in process.channel if not packet[0])
        process.bankless = process.offloaded
        if process.offloaded:  # the daemon knows that it need not hear it again
            heard = (events.Offloaded, events.OffloadFailed)
            process.channel = type(process.channel)(each for each in process.channel if not isinstance(each[1], heard))
        if not process.attached:
            process.limit, process.lane = Memory(), None
        self.handle(
            events.Adopted(
                job=process.id,
                phase=self._found_phase(process.id),
                device=self.home[process.id],
                lane=process.lane if process.attached else None,
                granted=process.limit,
                attached=process.attached,
                holds_turn=process.turn or process.paused,
                wants_turn=process.want and not process.turn,
                offloaded=process.offloaded,
                usage=process.usage(),
                started_us=0,
                offload_asked=process.offload,
                moved_out=process.kept if process.offloaded else 0,
                further=self.further.get(process.id, ()),
                paused=process.paused,
                demand=process.demand if isinstance(process, ServiceProcess) else None,
                timed_out=self.timed_out.get(process.id, ""),
                warned=(process.id, len(self.past.get(process.id, ()))) in self.warned,
                warned_of_device_time=(process.id, len(self.past.get(process.id, ()))) in self.warned_of_device_time,
            )
        )
        if len(self.past.get(process.id, ())) + 1 in self.requeued.get(process.id, ()):
            self.handle(events.RequeueRequested(process.id, "root"))
        if process.attached and (process.alone or process.immovable):
            self.handle(events.TraitsSeen(process.id, process.alone, process.immovable))

    def _found_phase(self, number: JobId) -> JobPhase:
        """One that is to be requeued is found running: the core hears that once more."""
        requeued = len(self.past.get(number, ())) + 1 in self.requeued.get(number, ())
        return JobPhase.STOPPING if number in self.stopping and not requeued else JobPhase.RUNNING
