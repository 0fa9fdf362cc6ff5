"""The process of a simulated engine: it loads weights, computes answers in turns, and its memory leaves and returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from carpool.core import commands
from carpool.core.commands import Command
from carpool.core.events import (
    Attached,
    MemoryRequested,
    Offloaded,
    OffloadFailed,
    ProcessExited,
    ProcessStarted,
    Sampled,
    TurnReleased,
    TurnWanted,
)
from carpool.core.model import Cause, DeviceId, JobId, Memory, MemoryClass, Micros, Usage
from carpool.sim.jobs.modelled_device import ModelledDevice
from carpool.sim.model.agenda import Driver
from carpool.sim.model.result import HostStore, Rates
from carpool.sim.model.served_engines import EngineRequest, EngineResult
from carpool.sim.model.served_models import ServicesResult
from carpool.sim.services.engine_work import EngineWork, SimulatedAnswer

NO_MEMORY = 1  # exit code


class EngineProcess:
    """One process, from its start to its end.  ``heard``: told of answers that end, and (None) when it is ready."""

    def __init__(
        self, driver: Driver, devices: dict[DeviceId, ModelledDevice], books: ServicesResult, result: EngineResult,
        number: JobId, rates: Rates, heard: Callable[[Sequence[SimulatedAnswer] | None], None],
    ) -> None:  # fmt: skip
        self.number = number
        self.ready = False
        self._store = HostStore(rates)
        self._driver = driver
        self._devices = devices
        self._device: ModelledDevice | None = None
        self._books = books
        self._result = result
        self._engine = engine = result.engine
        self._heard = heard
        self._work = EngineWork(engine.token_us, engine.further_us)
        self._loading_us = -(-engine.weights // rates.restore) if rates.restore else 0
        self._limit = Memory()
        self._content = 0  # bytes of its memory
        self._holds = self._asks = False
        self._began_us: Micros = 0  # of the present turn
        self._held_us: Micros = 0  # time of the turns before it
        self._since_us: Micros | None = None  # it has computed since then; None: it does not compute
        self._computed_us: Micros = 0  # in the present turn
        self._grace_us: Micros | None = None  # a turn ends after so long off the device; None: not
        self._leaves_us: Micros | None = None  # when all of its memory will be in the store
        self._plan_number = 0
        self._over = False
        self._table: dict[type, Callable[[Any], None]] = {
            commands.StartJob: self._start,
            commands.GrantMemory: self._grant_memory,
            commands.DenyMemory: lambda command: self._plan(self._driver.now, self.exit, NO_MEMORY),
            commands.GrantTurn: self._grant_turn,
            commands.RequestYield: self._request_yield,
            commands.WatchIdle: self._watch_idle,
            commands.WithdrawYield: self._withdraw_yield,
            commands.Offload: self._offload,
            # Commands about lanes and kept pages, which nothing here depends on.
            **dict.fromkeys((commands.MoveJob, commands.PinStore, commands.DropStore), lambda command: None),
        }

    @property
    def started(self) -> bool:
        """Whether there is a process; before that its job waits for a place."""
        return self._device is not None

    def execute(self, command: Command) -> None:
        """Carry a command out."""
        self._table[type(command)](command)

    def add(self, request: EngineRequest) -> None:
        """Compute a request, once there is a turn: until then the first touch of the device waits."""
        self._note()
        self._work.add(request)
        self._go_on()

    def exit(self, code: int) -> None:
        """End the process."""
        self._driver.post(ProcessExited(self.number, code))

    def end(self) -> None:
        """Free what the process has had."""
        self._over = True
        if self._holds:
            self._leave_turn()
        if self._device is not None:
            self._device.holds_memory(self.number, Memory(), self._driver.now)

    # Its start

    def _start(self, command: commands.StartJob) -> None:
        self._device = self._devices[command.device]
        self._driver.post(ProcessStarted(self.number))
        self._driver.plan(self._driver.now + self._engine.start_us, self._attach)

    def _attach(self) -> None:
        if self._over:
            return
        self._driver.post(Attached(self.number))
        if self._engine.memory:
            self._driver.post(MemoryRequested(self.number, MemoryClass.PERSISTENT, self._engine.memory))
        else:
            self._go_on()

    def _grant_memory(self, command: commands.GrantMemory) -> None:
        self._limit = command.memory
        self._here.holds_memory(self.number, command.memory, self._driver.now)
        if command.answers is not None:
            self._content = self._engine.memory
            self._go_on()

    @property
    def _here(self) -> ModelledDevice:
        assert self._device is not None, "it has been started"
        return self._device

    # What it computes

    @property
    def _left_us(self) -> Micros | None:
        """The computing time until something changes; None: there is nothing to compute."""
        return self._work.left_us if self.ready else self._loading_us

    def _go_on(self) -> None:
        """Compute, or ask for the turn that this needs."""
        if not self.ready and not self._loading_us:
            self.ready = True
            self._heard(None)
        now, left = self._driver.now, self._left_us
        if not self._holds:
            self._driver.plan(now, self._ask)
        elif self._since_us is not None and left is not None:
            self._plan(now + left, self._reach)
        elif self._since_us is not None and self._grace_us is not None:
            self._plan(now + self._grace_us, self._release, Cause.EARLY)

    def _ask(self) -> None:
        """Touch the device without a turn."""
        if not (self._holds or self._asks or self._over or self._left_us is None):
            self._asks = True
            self._driver.post(TurnWanted(self.number))

    def _reach(self) -> None:
        """Reach the time at which something changes."""
        self._note()
        self._go_on()

    def _note(self) -> None:
        """Note what has been computed up to now."""
        now = self._driver.now
        if self._since_us is None:
            return
        elapsed, self._since_us = now - self._since_us, now
        if self._left_us is None:
            return
        self._computed_us += elapsed
        if not self.ready:
            self._loading_us -= elapsed
        elif ended := self._work.computed(elapsed, now):
            self._heard(ended)

    # Turns

    def _grant_turn(self, command: commands.GrantTurn) -> None:
        now = self._driver.now
        self._holds, self._asks, self._began_us, self._computed_us = True, False, now, 0
        self._since_us = self._grace_us = None
        if self._leaves_us is not None:
            self._leaves_us = None
            self._driver.post(OffloadFailed(self.number, "it got a turn first"))
        self._here.serves(True, now)
        self._plan(now + self._store.return_us, self._restored)

    def _restored(self) -> None:
        self._bring_back()
        self._since_us = self._driver.now
        self._go_on()

    def _bring_back(self) -> None:
        """Restore from the store as much as there was time for since the turn began."""
        before = self._store.in_bytes
        self._store.returned(self._driver.now - self._began_us)
        self._result.moved_bytes += self._store.in_bytes - before

    def _release(self, cause: Cause) -> None:
        """Give the turn back; what is left to compute needs another one."""
        self._note()
        self._leave_turn()
        self._driver.post(TurnReleased(self.number, cause, self._usage()))
        self._driver.plan(self._driver.now, self._ask)

    def _leave_turn(self) -> None:
        now = self._driver.now
        if self._since_us is None:
            self._bring_back()
        turn_us = now - self._began_us
        self._plan_number += 1
        self._holds, self._since_us, self._held_us = False, None, self._held_us + turn_us
        self._books.turns_us += turn_us
        self._books.stalled_us += turn_us - self._computed_us
        self._here.serves(False, now, turn_us - self._computed_us)

    def _request_yield(self, command: commands.RequestYield) -> None:
        """Let go at any instruction if forced; an engine comes to no boundary."""
        if self._holds and command.forced:
            self._release(Cause.FORCED)

    def _watch_idle(self, command: commands.WatchIdle) -> None:
        self._grace_us = command.grace_us
        if self._holds and self._left_us is None:
            self._go_on()

    def _withdraw_yield(self, command: commands.WithdrawYield) -> None:
        self._grace_us = None
        if self._left_us is None:
            self._plan_number += 1

    # The host store

    def _offload(self, command: commands.Offload) -> None:
        if self._holds:
            self._driver.post(OffloadFailed(self.number, "it has a turn"))
            return
        self._leaves_us = self._driver.now + self._store.leave_us(self._content)
        self._driver.plan(self._leaves_us, self._left)

    def _left(self) -> None:
        if self._leaves_us != self._driver.now or self._over:
            return
        self._leaves_us = None
        self._result.offloads += 1
        self._result.moved_bytes += self._content - self._store.stored
        self._store.left(self._content)
        self._driver.post(Sampled(self.number, self._usage()))
        self._driver.post(Offloaded(self.number))

    def _usage(self) -> Usage:
        """Return its counters, as its seat would show them."""
        memory, store = self._limit.persistent, self._store
        held_us = self._held_us + (self._driver.now - self._began_us if self._holds else 0)
        moved = {name: getattr(store, name) for name in ("stored", "out_bytes", "out_us", "in_bytes", "in_us")}
        return Usage(persistent_live=memory, persistent_peak=memory, device_us=held_us, **moved)

    def _plan(self, when: Micros, call: Callable[..., None], *arguments: Any) -> None:
        """Plan a call, in place of the previous plan."""
        self._plan_number += 1
        self._driver.plan(when, self._if_meant, self._plan_number, call, arguments)

    def _if_meant(self, number: int, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if number == self._plan_number and not self._over:
            call(*arguments)
