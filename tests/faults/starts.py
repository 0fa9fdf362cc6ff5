"""Starts of daemons in which a call fails: on a new home first, then where jobs have ended and one runs."""

from __future__ import annotations

from contextlib import suppress

from tests.daemon.daemon_harness import Refused
from tests.faults.nursery import Ended
from tests.faults.story import NO_ANSWER, SOUND, Fault, Story


class Starts(Story):
    """One start for each of the faults that are planned, all in one home."""

    def happen(self) -> None:
        first = [fault for fault in self.planned if fault.process == "daemon 1"]
        self.begin("daemon 1", first[0] if first else None)
        self.wait(self.submit("plain", *self.marked("plain", "echo out")))
        long = self.submit("long", *self.marked("long", "exec sleep 600"), outcome="cancelled", code=None)
        later: list[Fault | None] = [fault for fault in self.planned if fault.process == "daemon 2"]
        for fault in later if self.planned else [None]:
            self.end_of_daemon()
            self.begin("daemon 2", fault)
            self.runs(long)
        self.daemon.cancel(long)
        self.wait(long)
        self.last()

    def begin(self, process: str, fault: Fault | None) -> None:
        """With this fault only; what cannot start says why, and the next one can."""
        self.plan_for([] if fault is None else [fault])
        try:
            self.daemon.begin(process)
        except Ended as ended:
            self.effects.append(f"start: {ended}")
            assert self.daemon.process is not None
            self.until(lambda: self.daemon.process.poll() is not None, "it ends")  # type: ignore[union-attr]
            if "message" not in str(ended):
                self.errors.append(f"start with {fault}: {ended}")
            self.start(SOUND)

    def runs(self, job: int) -> None:
        """It is known to the daemon, and goes on."""
        with suppress(Refused, *NO_ANSWER):
            phase = self.daemon.show(job)["phase"]
            if phase not in ("running", "starting"):
                self.errors.append(f"long is {phase}")
