"""The wall clock of events: their own clock never jumps, and is that of one start of the machine."""

from __future__ import annotations

from carpool.protocol.api import EventInfo

#: By more the wall clock has been set; less is the time until an event was recorded.
JUMP_US = 1_000_000


class EventClock:
    """Times of events, which must come in their order.

    An event has the time of the core's clock (``now_us``, CLOCK_MONOTONIC) when it happened, and of the wall clock
    (``time_us``) when it was recorded, a little later.  The smallest difference of the two is how far the clocks are
    apart.
    """

    def __init__(self) -> None:
        self._apart_us: int | None = None
        self._latest_ns = 0

    def ns(self, event: EventInfo) -> int:
        """Nanoseconds of the wall clock, never before those of the event before."""
        apart_us = event.time_us - event.now_us
        if self._apart_us is None or apart_us < self._apart_us or apart_us - self._apart_us > JUMP_US:
            self._apart_us = apart_us
        ns = (event.now_us + self._apart_us) * 1000
        if ns > self._latest_ns:
            self._latest_ns = ns
        return self._latest_ns
