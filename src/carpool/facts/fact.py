"""The facts: what lasts for some time, and how much memory is granted.  Sizes are bytes."""

from __future__ import annotations

import msgspec

from carpool.core.model import DeviceId, JobId, LaneId, Micros, Usage

#: How a turn ended of which no event tells the end.
UNKNOWN = "unknown"


class What:
    """The kinds of facts, which are texts: members of an enum are slow to look up.

    A job has at most one of each kind at a time; of requests one for each class of memory.
    """

    QUEUED = "queued"
    STARTS = "starts"  # until its process holds a seat
    WAITS = "waits"  # for its turn
    TURN = "turn"
    PAUSE = "pause"  # its turn is interrupted for a service
    PERSISTENT = "persistent"  # a request for memory of this class
    EPHEMERAL = "ephemeral"
    MOVE = "move"  # its memory moves to the host store
    ANSWERS = "answers"  # an engine has requests


class Fact(msgspec.Struct, frozen=True):
    """A fact that lasts: it is reported when it begins (without an end), and again when it has ended.

    Times are those of the fold's events.  ``start_us`` is None where the beginning was not among the events.  ``how``
    it ended: of a turn a `Cause`, "paused", "left", "failed", "ended" or `UNKNOWN`; of a wait "turn", of a request
    "granted", "denied" or "withdrawn", of a move "moved" or "not moved", or like a turn.
    """

    what: str
    job: JobId
    start_us: Micros | None
    device: DeviceId = ""
    lane: LaneId | None = None
    owner: int | None = None  # uid
    end_us: Micros | None = None
    how: str = ""
    usage: Usage | None = None  # of a turn that the job ended itself
    size: int = 0  # of a request: all that the job would have
    text: str = ""  # of an end: the reason, for people

    @property
    def lasted_us(self) -> Micros:
        """The length of the fact; 0 while it goes on, and where its beginning is not known."""
        return 0 if self.start_us is None or self.end_us is None else self.end_us - self.start_us


class MemoryLevel(msgspec.Struct, frozen=True):
    """The size from now on of a lane, or of what a job has been granted of persistent memory."""

    device: DeviceId
    job: JobId | None
    lane: LaneId | None
    size: int


Told = Fact | MemoryLevel
