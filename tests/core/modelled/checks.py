"""What must hold after every event."""

from __future__ import annotations

from carpool.core.machine import Machine
from carpool.core.state.job import Job
from tests.core.modelled.facts import Facts
from tests.core.serving import ServiceProcess
from tests.core.suspended import Suspended


class Checks(Facts):
    """Of real bytes and turns, of promises, and of decisions."""

    def check(self) -> None:
        """What is true of the real bytes and the real turns."""
        for lane, (_, size) in self.lanes.items():
            members = [p for p in self.processes.values() if p.lane == lane and p.attached]
            assert sum(p.turn for p in members) <= 1, f"lane {lane}: two jobs compute"
            assert all(p.limit.ephemeral <= size for p in members), f"lane {lane}: a limit beyond its pages"
        for name, capacity in self.devices.items():
            lanes = sum(size for device, size in self.lanes.values() if device == name)
            jobs = [p for p in self.processes.values() if p.alive and self.home.get(p.id) == name]
            weights = sum(size for (device, _, _), size in self.weights.items() if device == name)
            assert lanes + weights + sum(p.limit.persistent for p in jobs) <= capacity, f"{name} is overcommitted"
            whole = [p for p in jobs if isinstance(p, Suspended | ServiceProcess) and p.turn]
            assert not whole or sum(p.turn for p in jobs) == 1, f"{name}: {whole} do not compute alone"

    def _beside_others(self, job: Job) -> bool:
        device = self.machine._state.device_of(job)
        return device is not None and bool(device.others or device.spec.reserve)

    def check_promises(self) -> None:
        """What was promised to a job is there for it until it uses its device, or has not come near it for long.

        Other programs do not wait for that: where there are some, or a reserve, nothing is promised.
        """
        jobs = self.machine._state.jobs  # a view of everything would cost more than all the rest
        for number, (memory, until) in tuple(self.promised_to.items()):
            if not self.processes[number].alive or self.now >= until or self._beside_others(jobs[number]):
                del self.promised_to[number]
                continue
            reserved = jobs[number].reserved
            assert reserved.persistent >= memory.persistent, f"job {number} has lost what it was promised"
            assert reserved.ephemeral >= memory.ephemeral, f"job {number} has lost what it was promised"

    def check_repeats(self) -> None:
        """The same events lead to the same commands."""
        machine = Machine(self.began_with)
        for event, now, out in self.story_so_far:
            assert machine.handle(event, now) == out, f"another decision after {event}"

    def promised(self) -> dict[str, int]:
        """Bytes of each device that the core has reserved."""
        view = self.seen
        lanes = {name: sum(view.lanes[lane].size for lane in device.lanes) for name, device in view.devices.items()}
        return {name: device.persistent + lanes[name] for name, device in view.devices.items()}

    def check_foreign(self, before: dict[str, int]) -> None:
        """Memory of others is never promised to jobs, however much they take."""
        for name, promised in self.promised().items():
            usable = max(0, self.devices[name] - self.foreign[name])
            assert promised <= max(before.get(name, 0), usable), f"{name}: others hold {self.foreign[name]} of it"
