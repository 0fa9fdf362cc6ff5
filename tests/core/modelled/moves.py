"""Jobs move, one at a time, and their packets arrive."""

from __future__ import annotations

from dataclasses import replace

from carpool.core import events
from carpool.core.model import Cause, JobId
from tests.core.modelled.facts import Facts
from tests.core.seats import E, P, Process
from tests.core.serving import EngineProcess, ServiceProcess
from tests.core.suspended import Suspended


class Moves(Facts):
    """The test says which job is next."""

    def deliver(self, number: JobId) -> bool:
        """The next packet of one job reaches the core."""
        process = self.processes[number]
        if not process.channel:
            return False
        _, event = process.channel.popleft()
        answer = isinstance(event, events.Offloaded | events.OffloadFailed)
        if answer and (process.offload or process.offloaded is not isinstance(event, events.Offloaded)):
            return True  # packets are hints: the seat says whether this is the answer to what was asked last
        if not process.hears(event):
            return True
        if isinstance(process, ServiceProcess) and isinstance(event, events.TurnWanted):
            if not process.want or process.turn:
                return True
            event = replace(event, demand=process.demand)  # what its seat says now
        process.bankless |= isinstance(event, events.Offloaded)
        if isinstance(event, events.MemoryRequested | events.TurnWanted):
            self.promised_to.pop(number, None)
        self.handle(event)
        return True

    def step(self, number: JobId) -> bool:
        """One job moves a little.  False if it cannot."""
        process = self.processes[number]
        if not process.alive:
            return False
        if number in self.killed or (number in self.stopping and not process.blocked):
            self.kill(number, 9 if number in self.killed else 15)
            return True
        if not process.attached:
            return self._begin(process)
        if process.pause == 2 or (process.pause == 1 and self._off_device(process)):
            process.pauses()
            return True
        if process.paused and process.yield_:
            process.let_go(Cause.FORCED, self.processes)
            return True
        asked = process.yield_ == 1 or process.watched
        if process.turn and (process.yield_ == 2 or (asked and self._off_device(process))):
            process.let_go(Cause.FORCED if process.yield_ == 2 else Cause.EARLY, self.processes)
            return True
        if process.offload and not (process.turn or process.paused):
            process.offload = False
            if process.unwilling:
                process.unwilling -= 1
                process.send(events.OffloadFailed(number, "no host memory"))
            else:
                process.offloaded = True
                process.send(events.Offloaded(number))
            return True
        if isinstance(process, Suspended):
            return not process.blocked and self._go_on(process)
        return not process.blocked and self._compute(process)

    def _go_on(self, process: Suspended) -> bool:
        if process.touches():
            return True
        self.now += 1000
        if process.compute():
            self._exit(process, process.program.code, None)
        elif process.yield_:
            process.let_go(Cause.BOUNDARY, self.processes)
        return True

    @staticmethod
    def _off_device(process: Process) -> bool:
        return process.at == len(process.program.steps)

    def _begin(self, process: Process) -> bool:
        if process.channel:
            return False  # its start has not been heard of yet
        if not process.program.attaches:
            self._exit(process, process.program.code, None)
            return True
        process.attached = True
        self.handle(events.Attached(process.id))
        if isinstance(process, Suspended):
            self.handle(events.Sampled(process.id, process.usage()))
        return True

    def _compute(self, process: Process) -> bool:
        """Build, then iterate: allocate and touch step by step, come to the boundary, spend a while on the CPU."""
        program = process.program
        if process.at < 0:
            if not process.needs(P, program.persistent) and not process.touches():
                process.at = 0
                if program.alone or program.immovable:
                    self.has_traits(process.id, program.alone, program.immovable)
        elif process.at < len(program.steps):
            total = sum(program.steps[: process.at + 1])
            if not process.needs(E, total) and not process.touches():
                process.at += 1
                process.device_us += 1000
                self.now += 1000
                self._boundary(process)
        elif process.done < program.iterations:
            process.at = 0
        else:
            self._exit(process, program.code, None)
        return True

    def _boundary(self, process: Process) -> None:
        if process.at == len(process.program.steps):
            process.done += 1
            serves = isinstance(process, ServiceProcess) and not isinstance(process, EngineProcess)
            if process.yield_ or serves:
                process.let_go(Cause.BOUNDARY, self.processes)
            elif process.pause:
                process.pauses()

    def has_traits(self, number: JobId, alone: str | None, immovable: str | None) -> None:
        """Traits come one by one, and are never taken back."""
        process = self.processes[number]
        process.alone, process.immovable = process.alone or alone, process.immovable or immovable
        self.handle(events.TraitsSeen(number, process.alone, process.immovable))

    def kill(self, number: JobId, signal: int) -> None:
        if self.processes[number].alive:
            self._exit(self.processes[number], None, signal)

    def _exit(self, process: Process, code: int | None, signal: int | None) -> None:
        """What it said before counts first; then everybody hears that it is gone."""
        process.alive = False
        self.leaving.add(process.id)
        while self.deliver(process.id):
            pass
        process.turn = False
        if process.attached:
            process.attached = False
            process.kept = 0
            self.handle(events.Detached(process.id))
        short = process.program.out_of_memory > 0 and signal is None
        code = (code or 5) if short else code
        exit_ = events.ProcessExited(process.id, code, signal, "it said so" if short else None)
        self.last_exit[process.id] = exit_
        self.leaving.discard(process.id)
        self.handle(exit_)
