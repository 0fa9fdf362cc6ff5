"""The modelled workers: they want turns for batches, have weights copied, compute, and answer.

Workers follow the contract of services (`docs/internals/contract.md`): a worker names what a turn is for, copies
weights as soon as they are placed, also while others compute, and if there is more to do it says so before it gives its
turn back.  When the last request is settled the workers end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from carpool.core import commands
from carpool.core.commands import Command
from carpool.core.events import (
    Attached,
    CancelRequested,
    MemoryRequested,
    Offloaded,
    OffloadFailed,
    ProcessExited,
    ProcessStarted,
    Submitted,
    TurnReleased,
    TurnWanted,
)
from carpool.core.model import (
    Cause,
    Demand,
    DeviceId,
    Estimate,
    JobId,
    JobSpec,
    Memory,
    MemoryClass,
    Micros,
    Outcome,
    Service,
    Serving,
    Usage,
)
from carpool.serve.queue.batching import Batch
from carpool.sim.jobs.ledger import Ledger
from carpool.sim.jobs.modelled_device import ModelledDevice
from carpool.sim.model.agenda import Driver
from carpool.sim.model.options import Options
from carpool.sim.model.served_models import Services, ServicesResult
from carpool.sim.services.front import ModelledFront, WeightCopies, finish_us


@dataclass(eq=False, slots=True)
class ModelledWorker:
    """One modelled worker: the state of its process and its seat; `ServiceJobs` changes it."""

    number: JobId
    device: int
    started: bool = False
    attached: bool = False
    holds: bool = False
    began_us: Micros = 0  # of the present turn
    held_us: Micros = 0  # time of the turns before it
    batch: Batch | None = None  # the batch that it wants its turn for, or computes
    left_us: Micros = 0  # remaining computing time of the batch when a turn begins
    ends_us: Micros | None = None  # when the batch will be computed
    batches: int = 0
    limit: Memory = field(default_factory=Memory)
    idle_since: int = 0  # number of the moment: the worker that has been idle for longest is next
    plan: int = 0  # number of the valid plan

    @property
    def idle(self) -> bool:
        """Whether it waits for a batch."""
        return self.attached and self.batch is None

    def usage(self, now: Micros) -> Usage:
        """Return its counters, as its seat would show them."""
        held = self.held_us + (now - self.began_us if self.holds else 0)
        return Usage(ephemeral_peak=self.limit.ephemeral, iterations=self.batches, device_us=held)


class ServiceJobs:
    """Carries out the core's commands on workers, which have the numbers from ``first`` on."""

    def __init__(
        self, driver: Driver, ledger: Ledger, options: Options, names: Sequence[DeviceId],
        devices: Sequence[ModelledDevice], services: Services, first: JobId,
    ) -> None:  # fmt: skip
        self._driver = driver
        self._ledger = ledger
        self._services = services
        self._declared = options.declare_memory
        self._names = names
        self._devices = devices
        self._front = ModelledFront(services, Serving(options.settings.serving))
        rate = options.restore_bytes_per_us
        self._copies = [WeightCopies(rate, services.group, services.transfer_us) for _ in names]
        places = [place for place in range(len(names)) for _ in range(services.workers)]
        self._workers = {number: ModelledWorker(number, place) for number, place in enumerate(places, first)}
        ledger.left += len(self._workers)
        ledger.services = ServicesResult(list(self._front.models.values()))
        self._result = ledger.services
        self._moment = 0
        self._look_us: int | None = None  # the next planned look at the queues
        self._table: dict[type, Callable[[Any], None]] = {
            commands.StartJob: self._start,
            commands.GrantMemory: self._grant_memory,
            commands.DenyMemory: self._deny_memory,
            commands.PlaceWeights: self._place_weights,
            commands.DropWeights: self._drop_weights,
            commands.GrantTurn: self._grant_turn,
            commands.DenyTurn: self._deny_turn,
            commands.RequestYield: self._request_yield,
            commands.Offload: self._offload,
            commands.EndJob: self._end,
            # Commands that workers ignore: they have nothing in the host store, and their turns end with their batches.
            **dict.fromkeys(
                (commands.MoveJob, commands.WatchIdle, commands.WithdrawYield, commands.PinStore, commands.DropStore),
                _nothing,
            ),
        }

    def begin(self) -> None:
        """Submit the workers, before all jobs."""
        for worker in self._workers.values():
            spec = spec_of(self._services, self._names[worker.device], self._declared)
            self._driver.post(Submitted(worker.number, spec))
        self._await_arrival()

    def concerns(self, command: Command) -> bool:
        """Whether a command is about workers or weights."""
        return isinstance(command, commands.DropWeights) or getattr(command, "job", None) in self._workers

    def execute(self, command: Command) -> None:
        """Carry a command out."""
        self._table[type(command)](command)

    # Requests

    def _await_arrival(self) -> None:
        when = self._front.next_arrival()
        if when is not None:
            self._driver.plan(when, self._arrive)
        self._look()

    def _arrive(self) -> None:
        self._front.arrive(self._driver.now)
        self._await_arrival()

    def _look(self) -> None:
        """Give due batches to idle workers; then plan the next look at the queues."""
        now = self._driver.now
        self._front.expire(now)
        while idle := [worker for worker in self._workers.values() if worker.idle]:
            batch = self._front.take(now)
            if batch is None:
                break
            self._give(min(idle, key=lambda worker: self._distance(worker, batch)), batch)
        if self._front.finished:
            self._finish()
        else:
            self._plan_look(bool(idle))

    def _distance(self, worker: ModelledWorker, batch: Batch) -> tuple[bool, int]:
        """Return a sort key: workers with the weights come first, then those that have been idle for longest."""
        return batch.model not in self._copies[worker.device], worker.idle_since

    def _plan_look(self, idle: bool) -> None:
        times = (self._front.next_late(), self._front.next_due() if idle else None)
        when = min((time for time in times if time is not None), default=None)
        if when is not None and when != self._look_us:
            self._driver.plan(when, self._looked, when)
        self._look_us = when

    def _looked(self, when: int) -> None:
        if when == self._look_us:
            self._look_us = None
            self._look()

    def _give(self, worker: ModelledWorker, batch: Batch) -> None:
        model = self._front.models[batch.model].model
        worker.batch, worker.left_us = batch, model.batch_us(len(batch.requests))
        self._want(worker)

    def _want(self, worker: ModelledWorker) -> None:
        batch = worker.batch
        assert batch is not None
        model = self._front.models[batch.model].model
        reload_us = self._copies[worker.device].copy_us(model.weights)
        deadlines = (request.deadline_us for request in batch.requests if request.deadline_us is not None)
        demand = Demand(model.name, model.weights, reload_us, worker.left_us, min(deadlines, default=None))
        self._driver.post(TurnWanted(worker.number, demand=demand))

    def _finish(self) -> None:
        """End the workers, also those that never had a place: every request is settled."""
        if not self._result.ended_us:
            self._result.ended_us = self._driver.now
        for worker in tuple(self._workers.values()):
            if worker.idle:
                worker.attached = False
                self._driver.post(ProcessExited(worker.number, 0))
            elif not worker.started:
                worker.started = True
                self._driver.post(CancelRequested(worker.number))

    # The process

    def _start(self, command: commands.StartJob) -> None:
        worker = self._workers[command.job]
        worker.started = worker.attached = True
        self._driver.post(ProcessStarted(worker.number))
        self._driver.post(Attached(worker.number))
        self._driver.plan(self._driver.now, self._look)

    def _end(self, command: commands.EndJob) -> None:
        assert command.outcome in (Outcome.SUCCEEDED, Outcome.CANCELLED), f"no device can have a worker: {command}"
        del self._workers[command.job]
        self._ledger.left -= 1

    # Memory

    def _grant_memory(self, command: commands.GrantMemory) -> None:
        worker = self._workers[command.job]
        worker.limit = command.memory
        if command.answers is not None and worker.holds and worker.ends_us is None:
            self._compute(worker)

    def _deny_memory(self, command: commands.DenyMemory) -> None:
        worker = self._workers[command.job]
        self._driver.plan(self._driver.now, self._fail, worker, worker.plan)

    def _place_weights(self, command: commands.PlaceWeights) -> None:
        place, now = self._workers[command.job].device, self._driver.now
        copies, books = self._copies[place], self._front.models[command.key]
        if copies.place(command.key, command.size, now):
            books.copies += 1
            books.copied_bytes += command.size
            self._devices[place].holds_weights(copies.resident, now)

    def _drop_weights(self, command: commands.DropWeights) -> None:
        place = self._names.index(command.device)
        self._copies[place].drop(command.key)
        self._devices[place].holds_weights(self._copies[place].resident, self._driver.now)

    def _offload(self, command: commands.Offload) -> None:
        """Report a completed offload: a worker keeps no memory between its turns."""
        number = command.job
        holds = self._workers[number].holds
        self._driver.post(OffloadFailed(number, "it has a turn") if holds else Offloaded(number))

    # Turns

    def _grant_turn(self, command: commands.GrantTurn) -> None:
        worker, now = self._workers[command.job], self._driver.now
        worker.holds, worker.began_us, worker.ends_us = True, now, None
        self._devices[worker.device].serves(True, now)
        if worker.limit.ephemeral < self._services.activations:
            self._driver.post(MemoryRequested(worker.number, MemoryClass.EPHEMERAL, self._services.activations))
        else:
            self._compute(worker)

    def _compute(self, worker: ModelledWorker) -> None:
        """Plan the end of the batch, which computes behind the first group of its weights."""
        assert worker.batch is not None, "it holds a turn for one"
        arrival = self._copies[worker.device].arrival(worker.batch.model)
        worker.ends_us = finish_us(arrival, self._driver.now, worker.left_us)
        worker.plan += 1
        self._driver.plan(worker.ends_us, self._done, worker, worker.plan)

    def _done(self, worker: ModelledWorker, plan: int) -> None:
        if worker.plan != plan:
            return
        batch, now = worker.batch, self._driver.now
        assert batch is not None
        worker.batches += 1
        self._front.answered(batch, now)
        self._next(worker, worker.left_us)

    def _next(self, worker: ModelledWorker, computed_us: int) -> None:
        """End the turn after a batch; a next batch is announced first, so that no job resumes in between."""
        batch = self._front.take(self._driver.now)
        worker.batch = None
        if batch is not None:
            self._give(worker, batch)
        else:
            self._moment += 1
            worker.idle_since = self._moment
        self._release(worker, Cause.BOUNDARY, computed_us)
        self._look()

    def _release(self, worker: ModelledWorker, cause: Cause, computed_us: int) -> None:
        now = self._driver.now
        worker.plan += 1
        worker.ends_us, turn_us = None, now - worker.began_us
        worker.held_us += turn_us
        worker.holds = False
        self._result.turns_us += turn_us
        self._result.stalled_us += turn_us - computed_us
        self._devices[worker.device].serves(False, now, turn_us - computed_us)
        self._driver.post(TurnReleased(worker.number, cause, worker.usage(now)))

    def _fail(self, worker: ModelledWorker, plan: int) -> None:
        """Fail the batch, because there is no memory for its activations."""
        if worker.plan != plan:
            return
        assert worker.batch is not None, "it asked in its turn"
        self._front.failed(worker.batch)
        self._next(worker, 0)

    def _deny_turn(self, command: commands.DenyTurn) -> None:
        """Fail the batch: its weights, or what it needs beside them, are larger than the device."""
        worker = self._workers[command.job]
        assert worker.batch is not None
        self._front.failed(worker.batch)
        worker.batch = None
        self._driver.plan(self._driver.now, self._look)

    def _request_yield(self, command: commands.RequestYield) -> None:
        """Give the turn back if forced, and compute the rest in another turn; at a boundary the turn ends anyway."""
        worker = self._workers[command.job]
        if not (command.forced and worker.holds):
            return
        left = worker.left_us
        if worker.ends_us is not None:
            worker.left_us = min(left, worker.ends_us - self._driver.now)
        self._release(worker, Cause.FORCED, left - worker.left_us)
        self._want(worker)


def spec_of(services: Services, device: DeviceId, declared: bool) -> JobSpec:
    """Return the spec of a worker; ``declared``: whether the core is told the memory for activations."""
    estimate = Estimate(Memory(0, services.activations), "hint") if declared else None
    return JobSpec(services.owner, "service", device=device, estimate=estimate, service=Service())


def _nothing(command: Command) -> None:
    pass
