"""The wall-clock times of events, from the events' own clock, which never jumps and restarts with the machine."""

from __future__ import annotations

from carpool.protocol.api import EventInfo

#: A larger difference means that the wall clock was set; a smaller one is the delay before an event was recorded.
JUMP_US = 1_000_000


class EventClock:
    """Wall-clock times of events, which must come in order.

    An event has the core's clock (``now_us``, CLOCK_MONOTONIC) at the time it happened, and the wall clock
    (``time_us``) at the time it was recorded, a little later.  The smallest difference of the two is the offset between
    the clocks.
    """

    def __init__(self) -> None:
        self._apart_us: int | None = None
        self._latest_ns = 0

    def ns(self, event: EventInfo) -> int:
        """Return the event's time in nanoseconds of the wall clock, never less than that of the previous event."""
        apart_us = event.time_us - event.now_us
        if self._apart_us is None or apart_us < self._apart_us or apart_us - self._apart_us > JUMP_US:
            self._apart_us = apart_us
        ns = (event.now_us + self._apart_us) * 1000
        if ns > self._latest_ns:
            self._latest_ns = ns
        return self._latest_ns
