"""The daemon's driver of the core: events in, in order, one at a time; commands out; one timer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from carpool.core.commands import Command
from carpool.core.events import Event, Tick
from carpool.core.machine import Inbox, Machine
from carpool.core.model import JobId
from carpool.daemon.journal.events import Feed
from carpool.daemon.system.clock import Clock, MonotonicClock, Timer
from carpool.daemon.system.errors import is_refusal, refusal_text
from carpool.daemon.system.log_limit import caused_by

log = logging.getLogger(__name__)


class Executor(Protocol):
    """Carries out the core's commands."""

    def execute(self, command: Command) -> None:
        """Carry out a command without waiting."""
        ...


E = TypeVar("E", bound=Executor)


class CoreLoop(Generic[E]):
    """The only caller of `Machine.handle`.

    Carrying out a command may post further events; they are handled after all commands of the present event.  The loop
    makes its executor with its own `post`, because neither can exist before the other. ``owner`` returns the uid of a
    job's user.
    """

    def __init__(
        self,
        machine: Machine,
        feed: Feed,
        make_executor: Callable[[Callable[[Event], None]], E],
        owner: Callable[[JobId], int | None],
        clock: Clock | None = None,
    ) -> None:
        self.machine = machine
        self._clock = MonotonicClock() if clock is None else clock
        self._feed = feed
        self._owner = owner
        self._inbox = Inbox(self._handle)
        self._fault: str | None = None
        self._placement_fault: str | None = None
        self._now = 0
        self._timer: Timer | None = None
        self._timer_us: int | None = None
        self.executor = make_executor(self.post)

    def post(self, event: Event) -> None:
        """Handle ``event`` now, or right after the event that is being handled."""
        if self._inbox.post(event):
            self._arm()

    def stop(self) -> None:
        """Stop the timer; no further tick comes."""
        if self._timer is not None:
            self._timer.cancel()

    def now(self) -> int:
        """Return the time of the core, which never goes back."""
        self._now = max(self._now, self._clock.now_us())
        return self._now

    def _handle(self, event: Event) -> None:
        now = self.now()
        try:
            commands = self.machine.handle(event, now)
        except Exception:
            # An illegal event changes nothing in the core; the daemon goes on, because other jobs depend on it.
            log.exception("the core refused %r", event, extra=self._caused_by(event))
            commands = []
        for timeout in self.machine.timeouts():  # before the event, which a replay handles afterwards
            self._feed.record(now, timeout)
        self._feed.record(now, event)
        self._report_fault()
        for command in commands:
            self._feed.record(now, command)
        for command in commands:
            try:
                self.executor.execute(command)
            except Exception as error:
                traceback = None if is_refusal(error) else error
                extra = self._caused_by(command)
                log.error("could not carry out %r: %s", command, refusal_text(error), exc_info=traceback, extra=extra)

    def _caused_by(self, about: Event | Command) -> dict[str, int | None]:
        job = getattr(about, "job", None)
        return caused_by(None if job is None else self._owner(job))

    def _report_fault(self) -> None:
        """Log each fault of a policy once; `carpool policy` shows it too."""
        placement = self.machine.placement_fault
        if placement is not None and placement != self._placement_fault:
            log.error("the placement policy failed, and magm decided instead: %s", placement)
        self._placement_fault = placement
        fault = self.machine.policy_fault
        if fault is not None and fault != self._fault:
            log.error("the policy failed, and jobs were served in order of arrival: %s", fault)
        self._fault = fault

    def _arm(self) -> None:
        due = self.machine.next_timer()
        if due == self._timer_us and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_us = due
        if due is not None:
            self._timer = self._clock.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.post(Tick())
