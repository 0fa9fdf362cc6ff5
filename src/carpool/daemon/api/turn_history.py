"""Turn history: which job had the turn in each lane, over seconds to months, in as many bins as the caller can show."""

from __future__ import annotations

from aiohttp import web

from carpool.daemon.api.context import CONTEXT, Context, caller, viewer
from carpool.daemon.api.devices import find_device
from carpool.daemon.api.middleware import json_response, number_parameter
from carpool.daemon.config.limits import Visibility
from carpool.daemon.journal.past_turns import Lanes
from carpool.daemon.journal.turn_blocks import CAUSES, TurnSpan
from carpool.daemon.journal.turn_keeping import HOUR
from carpool.daemon.journal.turn_table import TurnQuery
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import RequestError
from carpool.protocol.api import LaneTurns, TurnHistory, TurnsOfBin

LARGEST = 2.0**53
MOST_BINS, BINS = 4000, 1000


async def turns(request: web.Request) -> web.Response:
    """Return the turns of each lane; turns that begin in the same bin are one entry.

    ``since``, ``until``: wall clock in microseconds, the last hour by default; ``bins``: 1 to 4000.
    """
    context = request.app[CONTEXT]
    asked = _asked(context, request)
    lanes, kept_from = await context.turns.read(asked)
    return json_response(TurnHistory(asked.since_us, asked.until_us, kept_from, _shown(lanes)))


def _asked(context: Context, request: web.Request) -> TurnQuery:
    """Return what the request asks for.  Raises RequestError.

    Lanes have one owner each: where users see only their own jobs, lanes of other users are left out.
    """
    until = int(number_parameter(request, "until", wall_us(), LARGEST) or 0)
    since = int(number_parameter(request, "since", max(0, until - HOUR), LARGEST) or 0)
    bins = number_parameter(request, "bins", BINS, MOST_BINS) or 0
    if bins < 1 or bins % 1:
        text = f"bins={request.query['bins']} is not a whole number from 1 to {MOST_BINS}"
        raise RequestError(400, "bad_parameter", text, "leave bins out for 1000")
    if since >= until:
        raise RequestError(400, "bad_parameter", f"since={since} is not before until={until}", "name an earlier since")
    device = request.query.get("device")
    sight = viewer(context, caller(request))
    owner = sight.uid if sight.sees is Visibility.OWN else None
    return TurnQuery(since, until, int(bins), None if device is None else find_device(context, device).id, owner)


def _shown(lanes: Lanes) -> list[LaneTurns]:
    return [LaneTurns(device, lane, [_entry(span) for span in spans]) for (device, lane), spans in lanes.items()]


def _entry(span: TurnSpan) -> TurnsOfBin:
    return TurnsOfBin(span.begin_us, span.end_us, span.job, span.turns, CAUSES[span.cause], span.busy_us)
