"""The driver of the modelled world: carries out commands, moves jobs, delivers packets, checks what is real."""

from __future__ import annotations

from dataclasses import replace

from carpool.core import commands, events
from carpool.core.machine import Machine
from carpool.core.model import (
    Attempt,
    Cause,
    Demand,
    DeviceSpec,
    Engine,
    JobId,
    JobPhase,
    JobSpec,
    LaneId,
    Memory,
    Outcome,
    Oversubscribe,
    Settings,
)
from carpool.core.state.job import Job
from tests.core.seats import E, P, Process, Program
from tests.core.serving import ServiceProcess
from tests.core.suspended import Suspended

#: What a `Tick` decides may set a timer that is due at once: a boundary for which no job can wait any more.
MOST_TICKS = 3


class World:
    def __init__(
        self, settings: Settings, devices: dict[str, int], oversubscribe: Oversubscribe = Oversubscribe.OFF
    ) -> None:
        self.oversubscribe = oversubscribe
        self.most_kept = 0  # more than the budget only because the budget was lowered, or by a restart
        self.settings = settings
        self.devices = devices
        self.drained: dict[str, str] = {}
        self.foreign = dict.fromkeys(devices, 0)
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
        self.stopping: set[JobId] = set()
        self.leaving: set[JobId] = set()  # their processes are gone, but that has not been heard yet
        self.killed: set[JobId] = set()
        self.past: dict[JobId, tuple[Attempt, ...]] = {}  # attempts that came to nothing
        self.requeued: dict[JobId, set[int]] = {}  # those that were to be stopped, so that another one follows
        self.timed_out: dict[JobId, str] = {}
        self.warned: set[tuple[JobId, int]] = set()
        self.last_exit: dict[JobId, events.ProcessExited] = {}
        self.alone_before: dict[str, JobId | None] = {}  # who had each device to itself before the last event
        self.machine = Machine(settings)
        self.began_with = settings
        for name, capacity in devices.items():
            self.handle(events.DeviceAdded(self.device(name, capacity)))

    def device(self, name: str, capacity: int) -> DeviceSpec:
        drained = self.drained.get(name, "")
        return DeviceSpec(name, capacity, oversubscribe=self.oversubscribe, checkpoint=True, drained=drained)

    def drain(self, name: str, why: str) -> None:
        self.drained[name] = why
        self.handle(events.DeviceDrained(name, why))

    # The core

    def handle(self, event: events.Event) -> None:
        before = self.promised()
        self.alone_before = {name: device.alone for name, device in self.machine.view().devices.items()}
        out = self.machine.handle(event, self.now)
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
        view = self.machine.view()
        lanes = {name: sum(view.lanes[lane].size for lane in device.lanes) for name, device in view.devices.items()}
        return {name: device.persistent + lanes[name] for name, device in view.devices.items()}

    def check_foreign(self, before: dict[str, int]) -> None:
        """Memory of others is never promised to jobs, however much they take."""
        for name, promised in self.promised().items():
            usable = max(0, self.devices[name] - self.foreign[name])
            assert promised <= max(before.get(name, 0), usable), f"{name}: others hold {self.foreign[name]} of it"

    def kept(self) -> int:
        """Bytes of the host store."""
        return sum(process.kept for process in self.processes.values())

    # Commands

    def _startjob(self, command: commands.StartJob) -> None:
        process = self.processes[command.job]
        assert not process.alive and command.job not in self.ended
        spec = self.specs[command.job]
        assert spec.held_by is None and spec.paused_by is None and self.now >= (spec.begin_us or 0), (
            "it must not start yet"
        )
        assert all(
            number in self.ended and kind.met_by(self.ended[number].outcome)
            for kind, numbers in spec.dependencies
            for number in numbers
        )
        past = self.past.get(command.job, ())
        if any(attempt.out_of_memory for attempt in past):
            beside = [each for each in self.home if self._present(each) and command.device in self.on(each)]
            assert not beside, f"job {command.job} has run out of memory, and is started beside {beside}"
            assert all(self.devices[command.device] > attempt.outgrown for attempt in past), "the same again"
        self._check_placement(command)
        process.alive, process.lane, self.home[command.job] = True, command.lane, command.device
        self.further[command.job] = command.further
        process.send(events.ProcessStarted(command.job))

    def _check_placement(self, command: commands.StartJob) -> None:
        """All devices or none, to itself where that was asked for, and as its record says."""
        spec, decision = self.specs[command.job], command.decision
        devices = (command.device, *command.further)
        assert not any(self.drained.get(name) for name in devices), "nothing new is placed there"
        assert len(set(devices)) == spec.gang and decision is not None
        assert {row.device for row in decision.rows if row.chosen} == set(devices)
        for row in (row for row in decision.rows if row.chosen):
            there = [each for each in self.home if self._present(each) and row.device in self.on(each)]
            assert sorted(there) == sorted(row.jobs) and row.refusal is None
            lonely = spec.exclusive or spec.gang > 1 or self.settings.placement == "exclusive"
            assert not there or not lonely, f"job {command.job} is not alone on {row.device}"
            assert not any(self.specs[number].gang > 1 or self.specs[number].exclusive for number in there)
            assert not self.settings.placement_strict or row.reluctance is None
            assert self.settings.max_jobs is None or len(there) < self.settings.max_jobs
            assert not self.settings.warm_window_us or len(row.warming) < self.settings.warm_limit
        believed = spec.estimate.memory if spec.estimate is not None else Memory()
        (need, *_) = (row.need for row in decision.rows if row.chosen)
        if need and need == believed.total and self.oversubscribe is Oversubscribe.OFF:
            self.promised_to[command.job] = (believed, self.now + self.settings.warm_timeout_us)

    def _present(self, number: JobId) -> bool:
        """Whether it is on its devices as far as the core can know."""
        return self.processes[number].alive or number in self.leaving

    def on(self, number: JobId) -> tuple[str, ...]:
        """The devices of a job."""
        return (self.home[number], *self.further.get(number, ()))

    def _signaljob(self, command: commands.SignalJob) -> None:
        (self.killed if command.signal == 9 else self.stopping).add(command.job)

    def _warnjob(self, command: commands.WarnJob) -> None:
        self.warned.add((command.job, len(self.past.get(command.job, ()))))

    def _timeout(self, command: commands.TimeOut) -> None:
        assert self.specs[command.job].time_us or self.specs[command.job].device_time_us, "it has no limit"
        self.timed_out[command.job] = command.text

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

    def _grantturn(self, command: commands.GrantTurn) -> None:
        process = self.processes[command.job]
        assert self.alone_beside(process) is None, "it computes, though another has the device to itself"
        paused = self.specs[process.id].paused_by is not None and process.id not in self.stopping
        assert not paused or process.paused, "it is paused, and gets a turn"
        assert process.lane == command.lane and not process.offloaded
        assert process.limit.persistent >= process.used.persistent, "it computes without its memory"
        assert process.limit.ephemeral >= process.used.ephemeral, "it computes beyond its lane"
        assert not isinstance(process, ServiceProcess) or process.may_compute(), "it computes without its weights"
        if process.paused:  # its seat says that it does not wait any more
            still = (packet for packet in process.channel if not isinstance(packet[1], events.TurnWanted))
            process.channel = type(process.channel)(still)
        process.turn, process.want, process.yield_, process.watched, process.successor = True, False, 0, False, None
        process.pause, process.paused = 0, False
        if isinstance(process, Suspended):
            process.resume()

    def _namesuccessor(self, command: commands.NameSuccessor) -> None:
        self.processes[command.holder].successor = command.successor

    def _requestyield(self, command: commands.RequestYield) -> None:
        process = self.processes[command.job]
        paused = self.specs[process.id].paused_by is not None
        alone = self.alone(process.id) == process.id and not self.beside_others(process)
        assert not alone or process.asked is not None or paused, "asked, though it is alone"
        if process.turn or (process.paused and command.forced):
            process.yield_, process.pause = 2 if command.forced else 1, 0

    def _pauseturn(self, command: commands.PauseTurn) -> None:
        process = self.processes[command.job]
        assert not isinstance(process, Suspended | ServiceProcess)
        if process.turn:
            process.yield_, process.watched, process.pause = 0, False, 2 if command.forced else 1

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

    def _denyturn(self, command: commands.DenyTurn) -> None:
        process = self.processes[command.job]
        assert isinstance(process, ServiceProcess) and command.reason.text
        process.want = False
        process.program.iterations, process.program.code, process.at = 0, 1, len(process.program.steps)

    def _watchidle(self, command: commands.WatchIdle) -> None:
        assert command.grace_us > 0
        process = self.processes[command.job]
        alone = self.alone(process.id) == process.id and not self.beside_others(process)
        assert not alone or process.asked is not None, "watched, though it is alone"
        process.watched = process.turn

    def _withdrawyield(self, command: commands.WithdrawYield) -> None:
        self.processes[command.job].yield_ = self.processes[command.job].pause = 0
        self.processes[command.job].watched = False

    def _offload(self, command: commands.Offload) -> None:
        process = self.processes[command.job]
        assert process.immovable is None and self.alone(process.id) != process.id, "it must stay"
        process.offload = True
        process.kept = max(process.kept, process.limit.persistent)
        budget = self.settings.host_store
        here = [p for p in self.processes.values() if p.alive and self.home.get(p.id) == self.home[command.job]]
        stuck = not any(p.turn and p.asked is None for p in here)
        assert stuck or budget is None or self.kept() <= max(budget, self.most_kept), "the host store is too small"

    def alone(self, number: JobId) -> JobId | None:
        """Who has the device of a job to itself."""
        return self.machine.view().devices[self.home[number]].alone

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

    def _dropstore(self, command: commands.DropStore) -> None:
        assert not self.processes[command.job].offloaded and not self.processes[command.job].offload
        self.processes[command.job].kept = 0

    def _retryjob(self, command: commands.RetryJob) -> None:
        number, exit_ = command.job, self.last_exit[command.job]
        requeued = self.requeued.get(number, set())
        wanted = command.attempt - 1 in requeued
        assert number not in self.ended and (wanted or number not in self.stopping), "started again after its end"
        assert (exit_.code, exit_.signal) == (command.code, command.signal) and (wanted or exit_.code != 0)
        self.stopping.discard(number)
        self.killed.discard(number)
        past = self.past[number] = (*self.past.get(number, ()), command.past)
        assert command.attempt == len(past) + 1
        assert command.past.out_of_memory == (exit_.out_of_memory is not None and not wanted)
        short = sum(attempt.out_of_memory for attempt in past)
        assert (
            short <= self.settings.max_recoveries and len(past) - short - len(requeued) <= self.specs[number].retries
        ), "too often"
        self.specs[number] = replace(self.specs[number], estimate=command.estimate)
        self.promised_to.pop(number, None)  # that was for the attempt that is over
        program = replace(self.programs[number], out_of_memory=max(0, self.programs[number].out_of_memory - len(past)))
        self.processes[number] = self._process(number, program)

    def _endjob(self, command: commands.EndJob) -> None:
        assert command.job not in self.ended, "ended twice"
        assert (command.outcome is Outcome.TIMED_OUT) <= (command.job in self.timed_out), "it has reached no limit"
        self.ended[command.job] = command
        process = self.processes[command.job]
        process.alive, process.attached, process.turn, process.limit = False, False, False, Memory()
        process.lane, process.kept = None, 0

    # What happens

    def others_hold(self, device: str, size: int, programs: bool = False) -> None:
        """Programs that are not Carpool's, or its own jobs beside their grants."""
        self.foreign[device] = size
        self.handle(events.ForeignMemory(device, size, size * programs))

    def keep(self, device: str, reserve: int) -> None:
        """For other programs."""
        mode = self.machine.view().devices[device].oversubscribe
        self.handle(events.DeviceChanged(device, None, mode, reserve))

    def hold(self, number: JobId, by: str | None) -> None:
        """A job that is not queued hears nothing of that."""
        if self.machine.view().jobs[number].phase is JobPhase.QUEUED:
            self.specs[number] = replace(self.specs[number], held_by=by)
        self.handle(events.HoldChanged(number, by))

    def pause(self, number: JobId, by: str | None) -> None:
        """What it was promised it has no more."""
        self.specs[number] = replace(self.specs[number], paused_by=by)
        self.promised_to.pop(number, None)
        self.handle(events.PauseChanged(number, by))

    def update(self, number: JobId, **changes: object) -> None:
        """A job that is being stopped hears nothing of that."""
        before, stopping = self.specs[number], self.machine.view().jobs[number].phase is JobPhase.STOPPING
        self.specs[number] = replace(before, **changes)  # type: ignore[arg-type]
        event = events.JobChanged(number, self._surviving_spec(number))
        if stopping:
            self.specs[number] = before
        self.handle(event)

    def requeue(self, number: JobId) -> None:
        if self.machine.view().jobs[number].phase in (JobPhase.STARTING, JobPhase.RUNNING):
            self.requeued.setdefault(number, set()).add(len(self.past.get(number, ())) + 1)
        self.handle(events.RequeueRequested(number, "root"))

    def has_traits(self, number: JobId, alone: str | None, immovable: str | None) -> None:
        """Traits come one by one, and are never taken back."""
        process = self.processes[number]
        process.alone, process.immovable = process.alone or alone, process.immovable or immovable
        self.handle(events.TraitsSeen(number, process.alone, process.immovable))

    def submit(self, spec: JobSpec, program: Program, demands: tuple[Demand, ...] = ()) -> JobId:
        """``demands``: what the batches of a service need."""
        number = len(self.specs) + 1
        self.programs[number], self.demands[number] = replace(program), demands
        self.specs[number] = spec
        self.processes[number] = self._process(number, program)
        self.handle(events.Submitted(number, spec))
        return number

    def _process(self, number: JobId, program: Program) -> Process:
        spec = self.specs[number]
        if spec.service is not None:
            return ServiceProcess(number, program, demands=self.demands[number])
        return (Suspended if spec.engine is Engine.CHECKPOINT else Process)(number, program)

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
            if process.yield_ or isinstance(process, ServiceProcess):
                process.let_go(Cause.BOUNDARY, self.processes)
            elif process.pause:
                process.pauses()

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

    def restart(self) -> None:
        """Another daemon: seats are the truth, unread packets stay, those about finished turns are dropped."""
        self.machine = Machine(self.settings)
        self.began_with = self.settings
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
            self.handle(events.ForeignMemory(name, self.foreign[name]))
        for (device, owner, key), size in self.weights.items():
            self.handle(events.WeightsFound(device, owner, key, size, size // 1000))
        live = [number for number in self.specs if number not in self.ended]
        for number in live:
            self.handle(events.Submitted(number, self._surviving_spec(number), past=self.past.get(number, ())))
        for process in (self.processes[number] for number in live):
            if process.alive:
                self._adopt(process)
        self.handle(events.RestartEnded())
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
                further=self.further.get(process.id, ()),
                paused=process.paused,
                demand=process.demand if isinstance(process, ServiceProcess) else None,
                timed_out=self.timed_out.get(process.id, ""),
                warned=(process.id, len(self.past.get(process.id, ()))) in self.warned,
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

    def finish(self, limit: int = 20_000) -> None:
        """A fair world: nobody else uses the devices, everybody moves, every packet arrives, every timer is served.

        Then all jobs must end.
        """
        for device in self.devices:
            self.others_hold(device, 0)
            self.keep(device, 0)
            self.drain(device, "")
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

    def story(self) -> str:
        """For people: every job that has not ended, and why it waits."""
        lines = [f"now {self.now}"]
        for number, process in self.processes.items():
            if number not in self.ended:
                lines.append(f"{process!r}\n    {self.machine.explain(number)}")
        return "\n".join(lines)
