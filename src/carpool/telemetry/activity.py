"""Activity of the jobs of one host device between two looks, in the terms of a GPU.

SMACT, the share of time in which a job computed.  A job computes at most as long as it has the turn, and at most as
long as its process was on a processor; the smaller time counts.  (While no other job waits, a job keeps its turn even
if it loads data or sleeps: turns alone would give 100 %.)  Turns within a lane exclude each other, so the times of its
jobs add up.  Lanes compute independently: several together are active 1 - (1 - a)(1 - b)... of the time.

SMOCC, processors in use: the time that all processes of the device's jobs were on processors, as a share of the time of
all processors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from carpool.core.model import JobId, LaneId, Micros
from carpool.telemetry.process_trees import JobProcess

MILLION = 1_000_000
#: Bytes per second between a device and the host's memory that one job may claim: more than any machine can do.
FASTEST = 1 << 40


@dataclass(frozen=True, slots=True)
class JobUse:
    """A job on a device as its seat shows it; without a seat the last three fields are None or zero.

    ``turn_us``: for a job that has its device to itself, all the time.
    """

    job: JobId
    lane: LaneId | None = None
    pid: int | None = None  # of the process that has the seat
    turn_us: Micros = 0  # total time with the turn
    moved_bytes: int = 0  # saved, offloaded and restored, in total


@dataclass(frozen=True, slots=True)
class _Seen:
    """Counters of one job at one look."""

    turn_us: Micros
    own_us: Micros | None  # None: no process has the seat
    all_us: Micros
    moved_bytes: int
    pid: int | None


class Activity:
    """Activity of one device.  A job counts from its second look on."""

    def __init__(self) -> None:
        self.computed: dict[int, Micros] = {}  # by process with a seat, between the last two looks
        self.turns_ppm = 0  # time in which a job had a turn, between the last two looks
        self._before: dict[JobId, _Seen] | None = None
        self._before_us: Micros = 0

    def between(
        self, uses: Sequence[JobUse], processes: Iterable[JobProcess], now: Micros, cores: int
    ) -> dict[str, int] | None:
        """Return the quantities since the previous look; None at the first look, or if no time has passed."""
        seen = _seen(uses, processes)
        before, elapsed = self._before, now - self._before_us
        if before is not None and elapsed <= 0:
            return None
        self._before, self._before_us = seen, now
        if before is None:
            return None
        known = [use for use in uses if use.job in before]
        return self._changes(known, [(before[use.job], seen[use.job]) for use in known], elapsed, cores)

    def _changes(
        self, known: Sequence[JobUse], pairs: Sequence[tuple[_Seen, _Seen]], elapsed: Micros, cores: int
    ) -> dict[str, int]:
        """Return the quantities.  ``pairs``: the counters of each known job at the previous look and now."""
        computed = [_computed(*pair) for pair in pairs]
        self.computed = {use.pid: us for use, us in zip(known, computed, strict=True) if use.pid is not None}
        self.turns_ppm = _share_of_lanes(known, [_had_turn(*pair) for pair in pairs], elapsed)
        busy = sum(max(0, new.all_us - old.all_us) for old, new in pairs)
        moved = [max(0, new.moved_bytes - old.moved_bytes) * MILLION // elapsed for old, new in pairs]
        return {
            "sm_active_ppm": _share_of_lanes(known, computed, elapsed),
            "sm_occupancy_ppm": min(MILLION, busy * MILLION // (elapsed * cores)),
            "moved_bytes_per_s": sum(min(each, FASTEST) for each in moved),
        }


def _share_of_lanes(uses: Sequence[JobUse], times: Sequence[Micros], elapsed: Micros) -> int:
    """Return the share of ``elapsed`` in which at least one lane computed, in millionths, from its jobs' times."""
    lanes: dict[LaneId | None, int] = defaultdict(int)
    for use, time in zip(uses, times, strict=True):
        lanes[use.lane] += time
    return _any(min(MILLION, time * MILLION // elapsed) for time in lanes.values())


def _seen(uses: Sequence[JobUse], processes: Iterable[JobProcess]) -> dict[JobId, _Seen]:
    own: dict[int, Micros] = {}
    everything: dict[JobId, Micros] = defaultdict(int)
    for process in processes:
        own[process.pid] = process.own_us
        everything[process.owner] += process.all_us
    return {use.job: _one(use, own, everything) for use in uses}


def _one(use: JobUse, own: Mapping[int, Micros], everything: Mapping[JobId, Micros]) -> _Seen:
    in_seat = None if use.pid is None else own.get(use.pid)
    return _Seen(use.turn_us, in_seat, everything.get(use.job, 0), use.moved_bytes, use.pid)


def _computed(old: _Seen, new: _Seen) -> Micros:
    """Return the computing time between two looks; 0 if another process has taken the seat, whose counters differ."""
    if old.pid != new.pid or old.own_us is None or new.own_us is None:
        return 0
    return min(_had_turn(old, new), max(0, new.own_us - old.own_us))


def _had_turn(old: _Seen, new: _Seen) -> Micros:
    return max(0, new.turn_us - old.turn_us)


def _any(shares: Iterable[int]) -> int:
    """Return the share of time in which at least one of several independent activities runs, in millionths."""
    none = MILLION
    for share in shares:
        none = none * (MILLION - share) // MILLION
    return MILLION - none
