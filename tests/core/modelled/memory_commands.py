"""Commands about lanes, memory, weights and the host store, each with what must hold when it comes."""

from __future__ import annotations

from carpool.core import commands
from tests.core.modelled.facts import Facts
from tests.core.serving import ServiceProcess


class MemoryCommands(Facts):
    """Limits of seats, and bytes of devices."""

    def _openlane(self, command: commands.OpenLane) -> None:
        assert command.lane not in self.lanes
        self.lanes[command.lane] = (command.device, command.size)

    def _resizelane(self, command: commands.ResizeLane) -> None:
        self.lanes[command.lane] = (self.lanes[command.lane][0], command.size)
        assert all(p.limit.ephemeral <= command.size for p in self.processes.values() if p.lane == command.lane)

    def _closelane(self, command: commands.CloseLane) -> None:
        del self.lanes[command.lane]

    def _movejob(self, command: commands.MoveJob) -> None:
        self.processes[command.job].lane = command.lane

    def _grantmemory(self, command: commands.GrantMemory) -> None:
        process = self.processes[command.job]
        process.limit = command.memory
        if process.lane is not None:
            assert command.memory.ephemeral <= self.lanes[process.lane][1], "limit raised before the lane was enlarged"
        if process.bankless and command.memory.persistent >= process.used.persistent:
            process.offloaded = process.bankless = False
        if command.answers is not None and process.is_answered():
            assert process.asked is not None and command.answers is process.asked[0], "an answer about another class"
            process.asked = None

    def _denymemory(self, command: commands.DenyMemory) -> None:
        process = self.processes[command.job]
        if process.is_answered():
            assert process.asked is not None and command.memory_class is process.asked[0], (
                "an answer about another class"
            )
            process.asked = None
            process.program.iterations, process.program.code = 0, 1  # out of memory: it ends
            process.program.out_of_memory = 1
            process.at = len(process.program.steps)

    def _placeweights(self, command: commands.PlaceWeights) -> None:
        process = self.processes[command.job]
        assert isinstance(process, ServiceProcess) and process.want and self.home[process.id] == command.device
        name = (command.device, command.owner, command.key)
        assert self.weights.setdefault(name, command.size) == command.size
        process.placed = command.key

    def _dropweights(self, command: commands.DropWeights) -> None:
        del self.weights[command.device, command.owner, command.key]
        for process in self.processes.values():
            if isinstance(process, ServiceProcess) and process.placed == command.key and process.alive:
                there = (self.home[process.id], self.specs[process.id].owner) == (command.device, command.owner)
                alone = (self.alone(process.id), self.alone_before[self.home[process.id]])
                held_off = any(job not in (None, process.id) for job in alone) and not process.turn
                assert held_off or not there, f"job {process.id} uses these weights"
                process.placed = None if there else process.placed

    def _offload(self, command: commands.Offload) -> None:
        process = self.processes[command.job]
        service, paused = self.specs[command.job].service, self.specs[command.job].paused_by is not None
        assert paused or service is None or not service.pinned, "it is pinned"
        assert process.immovable is None and self.alone(process.id) != process.id, "it must stay"
        process.offload = True
        process.kept = max(process.kept, process.limit.persistent)
        budget = self.settings.host_store
        here = [p for p in self.processes.values() if p.alive and self.home.get(p.id) == self.home[command.job]]
        stuck = not any(p.turn and p.asked is None for p in here)
        assert stuck or budget is None or self.kept() <= max(budget, self.most_kept), "the host store is too small"

    def _pinstore(self, command: commands.PinStore) -> None:
        process = self.processes[command.job]
        assert process.kept < command.size <= process.limit.persistent
        process.kept = command.size
        budget = self.settings.host_store
        assert budget is None or self.kept() <= budget, "the host store is too small"

    def _stopengine(self, command: commands.StopEngine) -> None:
        service = self.specs[command.job].service
        assert service is not None and service.engine and not service.pinned
        assert command.job in self.served - self.busy and self.settings.host_store is not None
        self.to_end.add(command.job)

    def _dropstore(self, command: commands.DropStore) -> None:
        assert not self.processes[command.job].offloaded and not self.processes[command.job].offload
        self.processes[command.job].kept = 0
