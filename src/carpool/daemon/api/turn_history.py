"""Who had the turns of the lanes: from the journal's blocks and from what is in memory."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from carpool.core.model import Micros
from carpool.daemon.api.context import CONTEXT, caller, viewer
from carpool.daemon.api.devices import find_device
from carpool.daemon.api.middleware import json_response, number_parameter
from carpool.daemon.journal.turn_blocks import TurnSpan
from carpool.daemon.journal.turn_store import LaneKey
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import RequestError
from carpool.protocol.api import LaneTurns, TurnHistory, TurnRow

LARGEST = 2.0**53
MOST_BINS = 4000
DEFAULT_BINS = 1000
DEFAULT_US: Micros = 600_000_000


@dataclass(frozen=True, slots=True)
class TurnQuery:
    """A stretch of time, in so many bins; ``device``: only there."""

    since: Micros
    until: Micros
    bins: int
    device: str | None


async def turns(request: web.Request) -> web.Response:
    """``since`` and ``until``: wall clock in microseconds, by default the last ten minutes; ``bins``: 1 to 4000.

    Lanes of which the caller does not hear are left out.
    """
    context = request.app[CONTEXT]
    asked, sight = _asked(request), viewer(context, caller(request))

    def wanted(key: LaneKey) -> bool:
        return asked.device in (None, key[0]) and sight.knows(key[2])

    kept_from, found = await context.turns.between(asked.since, asked.until, asked.bins, wanted)
    lanes = [
        LaneTurns(device, lane, list(map(_row, spans))) for (device, lane, _), spans in sorted(found.items()) if spans
    ]
    return json_response(TurnHistory(asked.since, asked.until, kept_from, lanes))


def _asked(request: web.Request) -> TurnQuery:
    """Raises RequestError 400."""
    until = int(number_parameter(request, "until", wall_us(), LARGEST) or 0)
    since = int(number_parameter(request, "since", until - DEFAULT_US, LARGEST) or 0)
    bins = int(number_parameter(request, "bins", DEFAULT_BINS, LARGEST) or 0)
    if since >= until or not 1 <= bins <= MOST_BINS:
        text = f"since ({since}) must be before until ({until}), and bins ({bins}) from 1 to {MOST_BINS}"
        raise RequestError(400, "bad_parameter", text, "leave them out for the last ten minutes")
    name = request.query.get("device")
    device = None if name is None else find_device(request.app[CONTEXT], name).id
    return TurnQuery(since, until, bins, device)


def _row(span: TurnSpan) -> TurnRow:
    return (span.begin_us, span.end_us, span.job, span.turns, span.cause, span.busy_us)
