"""Simulated engines: the front of each takes requests, starts and ends its process, and says when there are requests.

The core hears what it hears from a live front (`carpool.serve.engines`): an engine has requests from the first that
finds its process ready until `ENGINE_LINGER_US` after the last has been answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from carpool.core import commands
from carpool.core.commands import Command
from carpool.core.events import CancelRequested, ServiceBusy, Submitted
from carpool.core.model import ENGINE_LINGER_US, DeviceId, Estimate, JobId, JobSpec, Memory, Micros, Service
from carpool.sim.jobs.ledger import Ledger
from carpool.sim.jobs.modelled_device import ModelledDevice
from carpool.sim.model.agenda import Driver
from carpool.sim.model.options import Options
from carpool.sim.model.result import Rates
from carpool.sim.model.served_engines import EngineRequest, EngineResult, ServedEngine
from carpool.sim.model.served_models import ServicesResult
from carpool.sim.services.engine_process import EngineProcess
from carpool.sim.services.engine_work import SimulatedAnswer


class EngineFront:
    """The front of one engine.  ``launch`` submits a process; ``settled`` is called when all requests are settled."""

    def __init__(
        self,
        driver: Driver,
        result: EngineResult,
        launch: Callable[[EngineFront], None],
        settled: Callable[[], None],
    ) -> None:
        self.result = result
        self.process: EngineProcess | None = None
        self._driver = driver
        self._engine = result.engine
        self._launch = launch
        self._settled = settled
        self._coming = list(reversed(result.engine.requests))
        self._waiting: list[EngineRequest] = []  # for the process to be ready
        self._in_flight = 0
        self._busy = False  # as the core has been told
        self._moment = 0  # changes whenever it has a request
        self._unsettled = bool(result.engine.requests)

    def begin(self) -> None:
        """Plan the first request, and the start of a process that does not wait for one."""
        if self._engine.begin_us is not None:
            self._driver.plan(self._engine.begin_us, self._start)
        if self._engine.end_us:
            self._driver.plan(self._engine.end_us, self._end_if_done)
        self._await_request()

    def _await_request(self) -> None:
        if self._coming:
            self._driver.plan(self._coming[-1].at_us, self._arrive)

    def _start(self) -> None:
        if self.process is None:
            self.result.starts += 1
            self._launch(self)

    def _arrive(self) -> None:
        request = self._coming.pop()
        self._await_request()
        if self._in_flight >= self._engine.most:
            self.result.refused += 1
            self._note_settled()
            return
        self._in_flight += 1
        self._moment += 1
        self._waiting.append(request)
        self._start()
        if self.process is not None and self.process.ready:
            self._ready()

    def _compute(self, process: EngineProcess, request: EngineRequest) -> None:
        if not self._busy:
            self._busy = True
            self._driver.post(ServiceBusy(process.number, True))
        process.add(request)

    # What it hears of its process

    def hear(self, answers: Sequence[SimulatedAnswer] | None) -> None:
        """Take answers that have ended; None: the process is ready."""
        if answers is None:
            self._ready()
        else:
            self._answered(answers)

    def _ready(self) -> None:
        assert self.process is not None
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._compute(self.process, request)
        if not self._in_flight:
            self._await_end(self._driver.now)
            self._driver.plan(self._driver.now, self._end_if_done)

    def _answered(self, answers: Sequence[SimulatedAnswer]) -> None:
        now = self._driver.now
        for answer in answers:
            record(self.result, answer, now)
        self.result.ended_us = now
        self._in_flight -= len(answers)
        if not self._in_flight:
            self._driver.plan(now + ENGINE_LINGER_US, self._rest, self._moment, now)

    def ended(self) -> None:
        """Note that its process has ended, and with it the requests that it had."""
        if self._in_flight:
            self.result.ended_us = self._driver.now
        self.process, self._waiting, self._busy = None, [], False
        self.result.failed += self._in_flight
        self._in_flight = 0
        self._note_settled()

    def _note_settled(self) -> None:
        """Note that all requests are settled, and the last turn is over."""
        if self._unsettled and not self._busy and self.result.settled == len(self._engine.requests):
            self._unsettled = False
            self._settled()

    # The end of requests

    def _rest(self, moment: int, last_us: Micros) -> None:
        """Say that there are no requests, unless one has come."""
        if self._moment != moment or self.process is None or not self._busy:
            return
        self._busy = False
        self._driver.post(ServiceBusy(self.process.number, False))
        self._note_settled()
        self._await_end(last_us)
        self._end_if_done()

    def _await_end(self, last_us: Micros) -> None:
        if self._engine.ttl_us is not None:
            when = max(self._driver.now, last_us + self._engine.ttl_us)
            self._driver.plan(when, self._end_unused, self._moment)

    def _end_unused(self, moment: int) -> None:
        if self._moment == moment:
            self._end()

    def _end_if_done(self) -> None:
        """End a process that need not be kept longer, unless there are requests, or some will come."""
        engine = self._engine
        kept = engine.end_us > self._driver.now or (engine.ttl_us is not None and not engine.end_us)
        if not (kept or self._coming or self._in_flight or self._busy):
            self._end()

    def _end(self) -> None:
        process = self.process
        if process is not None and process.started:
            process.exit(0)
        elif process is not None:
            self._driver.post(CancelRequested(process.number))


def record(result: EngineResult, answer: SimulatedAnswer, now: Micros) -> None:
    """Add an answer to the figures of its engine."""
    request, first_us = answer.request, answer.first_us
    result.latencies_us.append(now - request.at_us)
    result.tokens += request.tokens
    if first_us is not None:
        result.first_us.append(first_us - request.at_us)
        if request.tokens > 1:
            result.token_us.append((now - first_us) // (request.tokens - 1))


class EngineJobs:
    """All engines, and the core's commands on their processes.  ``number`` gives each process its own."""

    def __init__(
        self, driver: Driver, ledger: Ledger, options: Options, devices: dict[DeviceId, ModelledDevice],
        engines: Sequence[ServedEngine], number: Callable[[], JobId],
    ) -> None:  # fmt: skip
        self._driver = driver
        self._ledger = ledger
        self._devices = devices
        self._number = number
        self._declared = options.declare_memory
        self._rates = Rates(options.offload_bytes_per_us, options.restore_bytes_per_us)
        self._processes: dict[JobId, tuple[EngineFront, EngineProcess]] = {}
        self._books = ledger.services = ledger.services or ServicesResult([])
        self._books.engines = [EngineResult(engine) for engine in engines]
        self._fronts = [EngineFront(driver, result, self._submit, self._settled) for result in self._books.engines]
        ledger.left += sum(bool(engine.requests) for engine in engines)

    def begin(self) -> None:
        """Wait for requests."""
        for front in self._fronts:
            front.begin()

    def concerns(self, command: Command) -> bool:
        """Whether a command is about the process of an engine."""
        return getattr(command, "job", None) in self._processes

    def execute(self, command: Any) -> None:
        """Carry a command out."""
        front, process = self._processes[command.job]
        if isinstance(command, commands.EndJob):
            del self._processes[command.job]
            process.end()
            front.ended()
        elif isinstance(command, commands.RetryJob):
            process.end()
            front.process = self._process(front, command.job)
        else:
            process.execute(command)

    def _submit(self, front: EngineFront) -> None:
        number = self._number()
        front.process = self._process(front, number)
        self._driver.post(Submitted(number, spec_of(front.result.engine, self._declared)))

    def _process(self, front: EngineFront, number: JobId) -> EngineProcess:
        process = EngineProcess(self._driver, self._devices, self._books, front.result, number, self._rates, front.hear)
        self._processes[number] = front, process
        return process

    def _settled(self) -> None:
        self._ledger.left -= 1


def spec_of(engine: ServedEngine, declared: bool) -> JobSpec:
    """Return the spec of a process; ``declared``: whether the core is told its memory."""
    estimate = Estimate(Memory(engine.memory, 0), "hint") if declared else None
    return JobSpec(engine.owner, engine.name, estimate=estimate, service=Service(engine.priority, engine=True))
