"""Engines that fronts serve: reported by fronts, listed for users, and wishes of users that fronts are told.

The daemon keeps none of it: a report counts as long as its connection is open, and a wish until the next report.
"""

from __future__ import annotations

from carpool.core.model import JobId
from carpool.core.spelling import did_you_mean
from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.context import Context, administers
from carpool.daemon.jobs.info import job_info
from carpool.daemon.system.errors import RequestError
from carpool.protocol.engines import WISHES, EngineInfo, EngineList, EngineReport, EngineState, EngineWishes

_LARGEST_UID = 2.0**32


async def report_engines(call: ApiCall) -> object:
    """Record a front's report of its engines, valid until its next report on this connection, or the connection's end.

    The answer has what users have wished of these engines since the last report.
    """
    report, states, front = await call.body(EngineReport), call.context.engine_states, call.request.transport
    if front is None:  # it has gone meanwhile
        return EngineWishes()
    states.report(front, call.who.uid, report.engines)
    return EngineWishes(states.wishes(front))


async def list_engines(call: ApiCall) -> object:
    """List the engines that fronts serve, by name; those of others if users may see others' jobs."""
    return EngineList(sorted(_visible(call), key=lambda each: (each.name, each.owner)))


async def wish_engine(call: ApiCall) -> object:
    """Pass a wish on to the front of an engine: to start it, to end its process, or to move its memory out.

    ``owner``: whose engine, for administrators; by default the caller's own.
    """
    name, owner = call.path("name"), call.number("owner", call.who.uid, _LARGEST_UID)
    wish = next((each for each in WISHES if each == call.path("wish")), None)
    if wish is None:
        raise RequestError(404, "unknown_wish", f"{call.path('wish')!r} is none of {', '.join(WISHES)}")
    visible = _visible(call)
    found = next((each for each in visible if (each.name, each.owner) == (name, owner)), None)
    if found is None:
        hint = f"{did_you_mean(name, [each.name for each in visible])}carpool engine ls lists them"
        raise RequestError(404, "unknown_engine", f"no `carpool serve` has an engine {name!r}", hint)
    if call.who.uid != owner and not administers(call.context, call.who):
        raise RequestError(403, "not_owner", f"engine {name!r} belongs to another user", "ask an administrator")
    call.context.engine_states.wish(owner, name, wish)
    return found


def _visible(call: ApiCall) -> list[EngineInfo]:
    """Return the engines that the caller may know of."""
    present = call.context.engine_states.present()
    known = [(uid, engines) for uid, engines in present if call.sight.knows(uid)]
    return [_info(call.context, uid, name, state) for uid, engines in known for name, state in engines.items()]


def _info(context: Context, uid: int, name: str, state: EngineState) -> EngineInfo:
    """Return an engine with what is known of its job; a front is not believed about jobs of others."""
    job = None if state.job is None else context.jobs.live.get(JobId(state.job))
    if job is None or job.owner != uid:
        return EngineInfo(name, uid, state)
    info = job_info(job, None)
    return EngineInfo(name, uid, state, info.device, info.persistent_bytes, info.offloaded)
