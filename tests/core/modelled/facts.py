"""What is so in the modelled world, whatever the core knows of it."""

from __future__ import annotations

from carpool.core import commands, events
from carpool.core.machine import Machine
from carpool.core.model import Attempt, Demand, DeviceSpec, JobId, JobSpec, LaneId, Memory, Oversubscribe, Settings
from tests.core.seats import Process, Program
from tests.core.serving import ServiceProcess


class Facts:
    """Devices, lanes, jobs with their processes, and who is alone where."""

    def __init__(
        self, settings: Settings, devices: dict[str, int], oversubscribe: Oversubscribe = Oversubscribe.OFF
    ) -> None:
        self.oversubscribe = oversubscribe
        self.most_kept = 0  # more than the budget only because the budget was lowered, or by a restart
        self.settings = settings
        self.devices = devices
        self.drained: dict[str, str] = {}
        self.foreign = dict.fromkeys(devices, 0)
        self.spare = dict.fromkeys(devices, 0)
        self.now = 0
        self.specs: dict[JobId, JobSpec] = {}
        self.programs: dict[JobId, Program] = {}  # as submitted
        self.demands: dict[JobId, tuple[Demand, ...]] = {}
        self.processes: dict[JobId, Process] = {}
        self.lanes: dict[LaneId, tuple[str, int]] = {}
        self.weights: dict[tuple[str, int, str], int] = {}  # bytes by device, owner and key
        self.ended: dict[JobId, commands.EndJob] = {}
        self.home: dict[JobId, str] = {}
        self.further: dict[JobId, tuple[str, ...]] = {}  # devices that a job has besides
        self.promised_to: dict[JobId, tuple[Memory, int]] = {}  # what was promised to jobs that have used nothing yet
        self.story_so_far: list[tuple[events.Event, int, list[commands.Command]]] = []
        self.busy: set[JobId] = set()  # engines that have requests
        self.served: set[JobId] = set()  # engines that have a front
        self.to_end: set[JobId] = set()  # engines of which the front is to end the process
        self.stopping: set[JobId] = set()
        self.leaving: set[JobId] = set()  # their processes are gone, but that has not been heard yet
        self.killed: set[JobId] = set()
        self.past: dict[JobId, tuple[Attempt, ...]] = {}  # attempts that came to nothing
        self.requeued: dict[JobId, set[int]] = {}  # those that were to be stopped, so that another one follows
        self.timed_out: dict[JobId, str] = {}
        self.warned: set[tuple[JobId, int]] = set()
        self.warned_of_device_time: set[tuple[JobId, int]] = set()
        self.last_exit: dict[JobId, events.ProcessExited] = {}
        self.alone_before: dict[str, JobId | None] = {}  # who had each device to itself before the last event
        self.begin_with(Machine(settings))

    def begin_with(self, machine: Machine) -> None:
        """By the settings of this moment."""
        self.machine, self.began_with = machine, self.settings
        self.seen = machine.view()  # after the latest event: it costs more than all the rest

    def handle(self, event: events.Event) -> None:
        """Something happens, of which the core hears."""
        raise NotImplementedError

    def context(self, capacity: int) -> int:
        """What a job takes of a GPU."""
        return capacity // 10

    def device(self, name: str, capacity: int) -> DeviceSpec:
        """All but the first are GPUs: jobs take something of their memory by being there, and stores are pinned."""
        gpu = name != min(self.devices)
        return DeviceSpec(
            name,
            capacity,
            oversubscribe=self.oversubscribe,
            checkpoint=True,
            pins=gpu,
            drained=self.drained.get(name, ""),
            context=self.context(capacity) if gpu else 0,
        )

    def _present(self, number: JobId) -> bool:
        """Whether it is on its devices as far as the core can know."""
        return self.processes[number].alive or number in self.leaving

    def on(self, number: JobId) -> tuple[str, ...]:
        """The devices of a job."""
        return (self.home[number], *self.further.get(number, ()))

    def kept(self) -> int:
        """Bytes of the host store."""
        return sum(process.kept for process in self.processes.values())

    def alone(self, number: JobId) -> JobId | None:
        """Who has the device of a job to itself."""
        return self.seen.devices[self.home[number]].alone

    def beside_others(self, process: Process) -> bool:
        """Whether other users have jobs on its device, whom it does not keep from computing by what it says."""
        spec, home = self.specs[process.id], self.home[process.id]
        others = {self.specs[number].owner for number in self.processes if self.home.get(number) == home}
        return not spec.exclusive and spec.gang == 1 and others != {spec.owner}

    def alone_beside(self, process: Process) -> JobId | None:
        """Another job that has the process's device to itself, need not wait for memory, and is not off it, paused.

        One that was not submitted as exclusive has the device to itself among the jobs of its user only.
        """
        number = self.alone(process.id)
        if number is None or number == process.id or self._waits(self.processes[number]):
            return None
        first, second = self.specs[number], self.specs[process.id]
        return number if first.exclusive or first.gang > 1 or first.owner == second.owner else None

    def _waits(self, process: Process) -> bool:
        """For memory, for the weights of its next batch, or until a user resumes it."""
        lacks_weights = isinstance(process, ServiceProcess) and process.want and not process.may_compute()
        off = self.specs[process.id].paused_by is not None and not process.turn
        return process.asked is not None or process.offloaded or lacks_weights or off

    def story(self) -> str:
        """For people: every job that has not ended, and why it waits."""
        lines = [f"now {self.now}"]
        for number, process in self.processes.items():
            if number not in self.ended:
                lines.append(f"{process!r}\n    {self.machine.explain(number)}")
        return "\n".join(lines)
