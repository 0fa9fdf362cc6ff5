"""GET /v1/usage: what users have used, and how busy devices were, by day.

The loop only collects what is in memory; the journal is read, and the answer made, in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
from aiohttp import web

from carpool.core.model import DeviceId, Micros
from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.context import Context
from carpool.daemon.api.history import written_and_opened
from carpool.daemon.config.limits import Visibility
from carpool.daemon.journal.usage import (
    KEPT_DAYS,
    AttemptUse,
    BusyTime,
    DailyUse,
    DeviceHistory,
    running,
    stored,
)
from carpool.daemon.system.clock import begin_of, day_after, day_of, days_between, wall_us
from carpool.daemon.system.errors import RequestError
from carpool.protocol.api import DeviceDay, UsageHistory, UserDay
from carpool.protocol.display import user_name

DAYS = 14
MOST_ROWS = 50_000  # of an answer: a hundred users in a hundred days, whose jobs end in five ways


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Days of the daemon's clock, both ends included.  ``owner``: whose jobs; None: all users'."""

    first: str
    last: str
    until: Micros
    owner: int | None


@dataclass(slots=True)
class _Sum:
    device_us: Micros = 0
    waited_us: Micros = 0
    ended: dict[str, int] = field(default_factory=dict)

    def add(self, row: DailyUse) -> None:
        """Add what ended jobs used on the day."""
        self.add_time(row.device_us)
        self.waited_us += row.waited_us
        if row.jobs:
            self.ended[row.outcome] = self.ended.get(row.outcome, 0) + row.jobs

    def add_time(self, device_us: Micros) -> None:
        """Add device time, as that of a running job."""
        self.device_us += device_us


async def usage(call: ApiCall) -> object:
    """Return use by user and day, and how busy devices were; users who may not see others' jobs get their own use.

    ``since`` and ``until``: wall clock in microseconds, whose whole days count; by default 14 days until now.
    """
    context = call.context
    asked = _asked(call)
    devices = {device: await _busy(context.history, device, asked) for device in context.seating.devices}
    await context.store.flushed()
    rows = await asyncio.to_thread(stored, context.home.journal, asked.first, asked.last, asked.owner)
    if len(rows) > MOST_ROWS:
        text = f"that is more than {MOST_ROWS} rows"
        raise RequestError(400, "too_many_rows", text, "ask for fewer days: since and until")
    # After the rows have been read: a job that ends meanwhile may be missing, and never counts twice.
    body = await asyncio.to_thread(_answer, asked, rows, _running(context, asked), devices)
    return web.Response(body=body, content_type="application/json")


def _asked(call: ApiCall) -> UsageQuery:
    """Return the days and the owner that are asked for.  Raises RequestError 400."""
    now, sight = wall_us(), call.sight
    until = call.number("until", now, now)
    first = day_after(day_of(until), 1 - DAYS)
    since = call.number("since", begin_of(first), now)
    if since > until:
        raise RequestError(400, "bad_parameter", f"since={since} is after until={until}", "swap the two")
    kept = day_after(day_of(now), 1 - KEPT_DAYS)
    owner = sight.uid if sight.sees is Visibility.OWN else None
    return UsageQuery(max(day_of(since), kept), day_of(until), until, owner)


async def _busy(history: DeviceHistory, device: DeviceId, asked: UsageQuery) -> list[BusyTime]:
    """Return how busy a device was on each day; an hour that lies in two days counts for the first."""
    days = [*days_between(asked.first, asked.last)]
    bounds = [begin_of(day) for day in (*days, day_after(asked.last))]
    found, opened = await written_and_opened(history, device, partial(history.busy_times, device, bounds))
    if opened is not None and (day := day_of(opened[0])) in days:
        place = days.index(day)
        found[place] = found[place].with_(opened[1].get("jobs_busy_ppm"))
    return found


def _running(context: Context, asked: UsageQuery) -> list[AttemptUse]:
    now = context.jobs.now_us()
    owned = (job for job in context.jobs.live.values() if asked.owner in (None, job.owner))
    return [use for use in (running(job, now) for job in owned) if use is not None and use.device_us]


def _answer(
    asked: UsageQuery,
    rows: Sequence[DailyUse],
    running: Iterable[AttemptUse],
    devices: dict[DeviceId, list[BusyTime]],
) -> bytes:
    """Return the answer as JSON."""
    sums: dict[tuple[str, int], _Sum] = {}
    for row in rows:
        sums.setdefault((row.day, row.owner), _Sum()).add(row)
    for use in running:
        for day, part in use.parts().items():
            if asked.first <= day <= asked.last:
                sums.setdefault((day, use.owner), _Sum()).add_time(part)
    days = [_user_day(day, uid, found) for (day, uid), found in sorted(sums.items())]
    answer = UsageHistory(begin_of(asked.first), asked.until, days, _device_days(asked, devices))
    return msgspec.json.encode(answer)


def _user_day(day: str, uid: int, found: _Sum) -> UserDay:
    jobs = sum(found.ended.values())
    return UserDay(day, uid, user_name(uid), found.device_us, jobs, found.waited_us, found.ended)


def _device_days(asked: UsageQuery, devices: dict[DeviceId, list[BusyTime]]) -> list[DeviceDay]:
    days = enumerate(days_between(asked.first, asked.last))
    return [DeviceDay(day, device, times[number].mean_ppm) for number, day in days for device, times in devices.items()]
