"""Facts from the events that the API gives, which are recorded events and commands as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from carpool.core.model import Micros
from carpool.facts.fact import Told
from carpool.facts.fold import Fold
from carpool.protocol.api import EventInfo

#: A larger difference means that the wall clock was set; a smaller one is the delay before an event was recorded.
JUMP_US: Micros = 1_000_000


class EventClock:
    """Wall-clock times of events, which must come in order.

    An event has the core's clock (``now_us``, CLOCK_MONOTONIC) at the time it happened, and the wall clock
    (``time_us``) at the time it was recorded, a little later.  The smallest difference of the two is the offset between
    the clocks.
    """

    def __init__(self) -> None:
        self._apart_us: Micros | None = None
        self._latest_us: Micros = 0

    def us(self, event: EventInfo) -> Micros:
        """Return the event's time on the wall clock, never less than that of the previous event."""
        apart_us = event.time_us - event.now_us
        if self._apart_us is None or apart_us < self._apart_us or apart_us - self._apart_us > JUMP_US:
            self._apart_us = apart_us
        self._latest_us = max(self._latest_us, event.now_us + self._apart_us)
        return self._latest_us


def core_us(event: EventInfo) -> Micros:
    """Return the event's time on the core's clock."""
    return event.now_us


class RecordedFacts:
    """Reads a daemon's events, starting at any event; ``time`` gives the facts' times."""

    def __init__(self, time: Callable[[EventInfo], Micros] = core_us) -> None:
        self._time = time
        self._fold = Fold()
        self._kinds = {kind.__name__: kind for kind in self._fold.kinds}

    @property
    def now_us(self) -> Micros:
        """The time of the latest event."""
        return self._fold.now_us

    def read(self, event: EventInfo) -> Sequence[Told]:
        """Return what begins, ends or changes with the event: nothing if its kind or its form is not known here."""
        now_us, kind = self._time(event), self._kinds.get(event.kind)
        if kind is not None:
            try:
                return self._fold.happened(now_us, msgspec.convert(_needed(event.data), kind))
            except msgspec.ValidationError:  # of another user's job the details are hidden
                pass
        self._fold.now_us = now_us
        return ()


def _needed(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data without the large parts of which no fact is made."""
    if "decision" in data:
        return {**data, "decision": None}
    if "spec" in data:
        return {**data, "spec": {"owner": data["spec"].get("owner")}}
    return data


def facts_of(events: Iterable[EventInfo], time: Callable[[EventInfo], Micros] = core_us) -> Iterator[Told]:
    """Yield the facts of a daemon's events, in order."""
    reader = RecordedFacts(time)
    for event in events:
        yield from reader.read(event)
