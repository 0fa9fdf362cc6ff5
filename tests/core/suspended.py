"""A modelled checkpoint job, as the daemon would lead it: it allocates without asking."""

from __future__ import annotations

from dataclasses import dataclass

from carpool.core import events
from carpool.core.model import Cause, JobId, Memory, Usage
from tests.core.seats import Process


@dataclass(eq=False)
class Suspended(Process):
    """``held``: bytes of the device that it has now; ``used``: what was measured when it was last suspended."""

    held: int = 0

    def usage(self) -> Usage:
        return Usage(persistent_live=self.used.persistent, device_us=self.device_us, switch_cost_us=20)

    def resume(self) -> None:
        assert self.limit.persistent >= self.used.persistent, "a restore whose memory is not reserved"
        self.held = self.used.persistent

    def suspend(self) -> None:
        self.turn, self.yield_, self.watched = False, 0, False
        self.used, self.held = Memory(self.held), 0

    def let_go(self, cause: Cause, processes: dict[JobId, Process]) -> None:
        """All of it is off the device; it always wants to come back."""
        self.suspend()
        self.turns += 1
        self.send(events.TurnReleased(self.id, cause, self.usage()), self.turns)
        self.touches()

    def orphaned(self) -> None:
        """Its daemon is gone: the next one suspends it before it tells the core anything."""
        if self.turn:
            self.suspend()
        self.attached = self.want = False
        self.channel.clear()

    def compute(self) -> bool:
        """A little.  True: it is done, or there is no memory for it."""
        self.held = self.program.persistent
        self.device_us += 1000
        self.done += 1
        return self.done >= self.program.iterations or self.held > self.limit.persistent
