"""Telemetry history of a device, and turn history of lanes.

Telemetry is read from memory as far as that reaches back, then in minutes, then in hours.  Turns: which job had the
turn in each lane, over seconds to months, in as many bins as the caller can show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from carpool.core.model import Micros
from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.devices import find_device
from carpool.daemon.config.limits import Visibility
from carpool.daemon.journal.history import HOUR, MINUTE
from carpool.daemon.journal.rows import LARGEST_NUMBER
from carpool.daemon.journal.turn_blocks import CAUSES, TurnSpan
from carpool.daemon.journal.turns import Lanes, TurnQuery
from carpool.daemon.journal.usage import MINUTES_KEPT, RECENT_US, DeviceHistory
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import RequestError
from carpool.protocol.api import LaneTurns, PointInfo, SpanInfo, TelemetryHistory, TurnHistory, TurnsOfBin
from carpool.telemetry.samples import Sample, Spans, begin, buckets, spans_of

T = TypeVar("T")
MOST_POINTS = 11_000  # a week of minutes
MOST_BINS, BINS = 4000, 1000


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """A time range, and the step in which it is divided."""

    since: Micros
    until: Micros
    step: Micros

    @property
    def source(self) -> str:
        """The place where steps of this size are kept: memory, minutes or hours."""
        if self.step % MINUTE:
            return "memory"
        return "hours" if self.step % HOUR == 0 else "minutes"


async def telemetry(call: ApiCall) -> object:
    """Return a device's telemetry.  ``since``: wall clock in microseconds, an hour ago by default.

    ``step``: microseconds; by default one that suits the time range.  Steps of less than a minute reach back ten
    minutes.
    """
    context = call.context
    device = find_device(context, call.path("device")).id
    now = wall_us()
    since = call.number("since", now - HOUR, LARGEST_NUMBER)
    step = call.number("step", None, LARGEST_NUMBER)
    asked = _asked(since, now, step, context.telemetry.interval_us)
    parts = await parts_of(context.history, device, asked)
    points = [
        PointInfo(start, {name: SpanInfo(s.least, s.mean, s.most, s.samples) for name, s in sorted(spans.items())})
        for start, spans in buckets(parts, asked.step).items()
    ]
    return TelemetryHistory(device, asked.since, now, asked.step, asked.source, points)


def _asked(since: Micros, now: Micros, step: Micros | None, interval: Micros) -> HistoryQuery:
    """Return the time range and step.  Raises RequestError 400 for a step that is not kept, or too many steps."""
    if step is None:
        span = now - since
        step = interval if span <= RECENT_US else MINUTE if span <= MINUTES_KEPT else HOUR
    if step < 1 or (step >= MINUTE and step % MINUTE):
        text = f"step is {step}; it must be less than a minute, or a multiple of {MINUTE} (a minute)"
        raise RequestError(400, "bad_step", text, "leave the step out for a suitable one")
    if step < MINUTE:
        since = max(since, now - RECENT_US)
    since = begin(since, step)
    if (now - since) // step > MOST_POINTS:
        text = f"that is {(now - since) // step} steps; an answer has at most {MOST_POINTS}"
        raise RequestError(400, "too_many_points", text, "ask for larger steps, or for less time")
    return HistoryQuery(since, now, step)


async def parts_of(history: DeviceHistory, device: str, asked: HistoryQuery) -> list[tuple[Micros, Spans]]:
    """Return the parts of the time range, each once: the written rows do not include the minute that has begun."""
    if asked.source == "memory":
        return await asyncio.to_thread(_since, asked.since, history.recent(device))
    stored = HOUR if asked.source == "hours" else MINUTE
    read = partial(history.stored, device, stored, asked.since, asked.until)
    parts, opened = await written_and_opened(history, device, read)
    return [*parts, *([opened] if opened is not None and opened[0] >= asked.since else [])]


async def written_and_opened(
    history: DeviceHistory, device: str, read: Callable[[], T]
) -> tuple[T, tuple[Micros, Spans] | None]:
    """Return what ``read`` returns of the written rows, and the minute that has begun, which is not among them."""
    while True:
        before = history.opened(device)
        await history.written()
        found = await asyncio.to_thread(read)
        opened = history.opened(device)
        if _start(before) == _start(opened):  # otherwise a minute has ended, and may be among the rows or not
            return found, opened


def _start(opened: tuple[Micros, Spans] | None) -> Micros | None:
    return None if opened is None else opened[0]


def _since(since: Micros, samples: list[tuple[Micros, Sample]]) -> list[tuple[Micros, Spans]]:
    return [(when, spans_of(sample)) for when, sample in samples if when >= since]


async def turns(call: ApiCall) -> object:
    """Return the turns of each lane; turns that begin in the same bin are one entry.

    ``since``, ``until``: wall clock in microseconds, the last hour by default; ``bins``: 1 to 4000.
    """
    asked = _turns_asked(call)
    lanes, kept_from = await call.context.turns.read(asked)
    return TurnHistory(asked.since_us, asked.until_us, kept_from, _shown(lanes))


def _turns_asked(call: ApiCall) -> TurnQuery:
    """Return what the request asks for.  Raises RequestError.

    Lanes have one owner each: where users see only their own jobs, lanes of other users are left out.
    """
    until = call.number("until", wall_us(), LARGEST_NUMBER)
    since = call.number("since", max(0, until - HOUR), LARGEST_NUMBER)
    bins = call.fraction("bins", MOST_BINS)
    bins = BINS if bins is None else bins
    if bins < 1 or bins % 1:
        text = f"bins={call.request.query['bins']} is not a whole number from 1 to {MOST_BINS}"
        raise RequestError(400, "bad_parameter", text, "leave bins out for 1000")
    if since >= until:
        raise RequestError(400, "bad_parameter", f"since={since} is not before until={until}", "name an earlier since")
    device, sight = call.request.query.get("device"), call.sight
    owner = sight.uid if sight.sees is Visibility.OWN else None
    return TurnQuery(since, until, int(bins), None if device is None else find_device(call.context, device).id, owner)


def _shown(lanes: Lanes) -> list[LaneTurns]:
    return [LaneTurns(device, lane, [_entry(span) for span in spans]) for (device, lane), spans in lanes.items()]


def _entry(span: TurnSpan) -> TurnsOfBin:
    return TurnsOfBin(span.begin_us, span.end_us, span.job, span.turns, CAUSES[span.cause], span.busy_us)
