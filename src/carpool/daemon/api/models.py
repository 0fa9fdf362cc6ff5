"""Registered models: added, listed, shown and removed, and what their owner's fronts report of them; and engines.

Only administrators see models of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from carpool.core.model import JobId
from carpool.core.spelling import did_you_mean
from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.checks import check_directory, check_numbers, check_texts
from carpool.daemon.api.context import Caller, Context, administers
from carpool.daemon.api.quotas import check_model_room
from carpool.daemon.hooks.engine_requests import EngineRequests
from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.models import RegisteredModel
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import RequestError
from carpool.protocol.display import user_name
from carpool.protocol.engines import (
    MAKE_ROOM,
    READY,
    WISHES,
    EngineInfo,
    EngineList,
    EngineReport,
    EngineState,
    EngineWishes,
    Wish,
)
from carpool.protocol.models import (
    ModelEnvironment,
    ModelList,
    ModelRequest,
    ServingReport,
    check_factory,
    check_name,
    check_weights,
)

_LARGEST_UID = 2.0**32
_SMALLEST = {"deadline_us": 1, "max_batch": 1, "max_delay_us": 0, "priority": 1}


async def put_model(call: ApiCall) -> object:
    """Register a model.  Durable before the answer.  ``replace``: replace a model of the caller's with that name."""
    context = call.context
    models = context.models
    spec, replace = await call.body(ModelRequest), call.flag("replace")
    model = RegisteredModel(call.who.uid, call.path("name"), spec, wall_us())
    check(model)
    room = partial(check_model_room, context)
    if not await asyncio.shield(models.add(model, replace=replace, check=room)):
        text = f"model {model.name!r} exists already"
        raise RequestError(
            409, "model_exists", text, "choose another name, or replace the model: --replace (replace=1)"
        )
    return context.model_states.info(model)


async def list_models(call: ApiCall) -> object:
    """List the caller's models by name; administrators get the models of all users."""
    context, who = call.context, call.who
    listed = [model for model in context.models.listed() if _knows(context, who, model)]
    return ModelList([context.model_states.info(model) for model in listed])


async def show_model(call: ApiCall) -> object:
    """Return one model.  ``owner``: whose model, for administrators; by default the caller's own."""
    return call.context.model_states.info(_found(call))


async def show_environment(call: ApiCall) -> object:
    """Return the environment of a model's workers, for the model's owner, root, and the user who runs the daemon.

    ``owner``: whose model, for root and that user; by default the caller's own.
    """
    model, uid = _found(call), call.who.uid
    if uid not in (0, call.context.uid, model.owner):
        text = f"model {model.name!r} belongs to user {user_name(model.owner)}; user {user_name(uid)}"
        text += " may not read its environment"
        raise RequestError(403, "not_owner", text)
    return ModelEnvironment(model.spec.env)


async def remove_model(call: ApiCall) -> object:
    """Remove a model and return it.  Durable before the answer.

    ``owner``: whose model, for administrators; by default the caller's own.
    """
    model = _found(call)
    removed = await asyncio.shield(call.context.models.remove(model.owner, model.name))
    if removed is None:  # another request has removed it
        raise _unknown(model.name)
    return removed.info()


async def report_serving(call: ApiCall) -> object:
    """Record a front's report of its models, valid until its next report on this connection, or the connection's end.

    A front reports models of its own user only; other names in the report are ignored.
    """
    context, uid = call.context, call.who.uid
    report = await call.body(ServingReport)
    if call.request.transport is not None:  # else the front has gone meanwhile
        own = {name: state for name, state in report.models.items() if context.models.find(uid, name) is not None}
        context.model_states.report(call.request.transport, uid, own)
    return {}


def check(model: RegisteredModel) -> None:
    """Check that workers can be started from the request.  Raises RequestError 400.

    Only the request itself is checked: a daemon of root must not reveal which files there are.
    """
    spec = model.spec
    _check("name", check_name, model.name)
    _check("factory", check_factory, spec.factory)
    check_texts("a path", (spec.python, spec.cwd, spec.weights or ""), spec.env)
    check_directory(spec.cwd)
    if not Path(spec.python).is_absolute():
        raise RequestError(
            400, "bad_python", f"the path of the interpreter {spec.python!r} is not absolute", "give the absolute path"
        )
    if spec.weights is not None:
        _check("weights", check_weights, spec.weights)
        if not Path(spec.weights).is_absolute():
            text = f"the path of the weights {spec.weights!r} is not absolute"
            raise RequestError(400, "bad_weights", text, "give the absolute path")
    check_numbers(spec, _SMALLEST)


def _check(what: str, check: Callable[[str], str], text: str) -> None:
    try:
        check(text)
    except ValueError as error:
        raise RequestError(400, f"bad_{what}", str(error)) from None


def _found(call: ApiCall) -> RegisteredModel:
    """Return the model that the path names.  Raises RequestError 404, also for a model hidden from the caller."""
    context, who, name = call.context, call.who, call.path("name")
    model = context.models.find(call.number("owner", who.uid, _LARGEST_UID), name)
    if model is None or not _knows(context, who, model):
        raise _unknown(name, [each.name for each in context.models.listed() if _knows(context, who, each)])
    return model


def _knows(context: Context, who: Caller, model: RegisteredModel) -> bool:
    return who.uid == model.owner or administers(context, who)


def _unknown(name: str, known: Sequence[str] = ()) -> RequestError:
    hint = f"{did_you_mean(name, known)}carpool model ls lists them"
    return RequestError(404, "unknown_model", f"there is no model {name!r}", hint)


# Engines: nothing of them is kept; a report counts as long as its connection is open, and a wish until the next report


async def report_engines(call: ApiCall) -> object:
    """Record a front's report of its engines, valid until its next report on this connection, or the connection's end.

    The answer has what users have wished of these engines since the last report, and which are to make room.
    """
    context, uid, front = call.context, call.who.uid, call.request.transport
    report = await call.body(EngineReport)
    if front is None:  # it has gone meanwhile
        return EngineWishes()
    context.engine_states.report(front, uid, report.engines)
    ready = {job.id: name for name, job in _ready_engines(context, uid, report.engines)}
    wishes: dict[str, Wish] = {ready[job]: MAKE_ROOM for job in context.hooks.of(EngineRequests).serve(ready)}
    return EngineWishes(wishes | context.engine_states.wishes(front))


def _ready_engines(context: Context, uid: int, engines: Mapping[str, EngineState]) -> Iterator[tuple[str, JobRecord]]:
    """Yield the engines that are ready for requests, by name."""
    for name, state in engines.items():
        job = _job_of(context, uid, state)
        if job is not None and job.is_engine and state.state == READY:
            yield name, job


async def list_engines(call: ApiCall) -> object:
    """List the engines that fronts serve, by name; those of others if users may see others' jobs."""
    return EngineList(sorted(_visible_engines(call), key=lambda each: (each.name, each.owner)))


async def wish_engine(call: ApiCall) -> object:
    """Pass a wish on to the front of an engine: to start it, to end its process, or to move its memory out.

    ``owner``: whose engine, for administrators; by default the caller's own.
    """
    name, owner = call.path("name"), call.number("owner", call.who.uid, _LARGEST_UID)
    wish = next((each for each in WISHES if each == call.path("wish")), None)
    if wish is None:
        raise RequestError(404, "unknown_wish", f"{call.path('wish')!r} is none of {', '.join(WISHES)}")
    visible = _visible_engines(call)
    found = next((each for each in visible if (each.name, each.owner) == (name, owner)), None)
    if found is None:
        raise RequestError(404, "unknown_engine", *_unknown_engine(name, visible))
    if call.who.uid != owner and not administers(call.context, call.who):
        raise RequestError(403, "not_owner", f"engine {name!r} belongs to another user", "ask an administrator")
    call.context.engine_states.wish(owner, name, wish)
    return found


def _unknown_engine(name: str, visible: Sequence[EngineInfo]) -> tuple[str, str]:
    """Return text and hint about an engine that this owner does not have."""
    owners = sorted(each.owner for each in visible if each.name == name)
    if owners:
        users = ", ".join(map(user_name, owners))
        return f"engine {name!r} is of another user ({users})", "administrators name the owner: --owner USER"
    hint = f"{did_you_mean(name, [each.name for each in visible])}carpool engine ls lists them"
    return f"no `carpool serve` has an engine {name!r}", hint


def _visible_engines(call: ApiCall) -> list[EngineInfo]:
    """Return the engines that the caller may know of."""
    present = call.context.engine_states.present()
    known = [(uid, engines) for uid, engines in present if call.sight.knows(uid)]
    return [_engine_info(call.context, uid, name, state) for uid, engines in known for name, state in engines.items()]


def _engine_info(context: Context, uid: int, name: str, state: EngineState) -> EngineInfo:
    """Return an engine with what is known of its job."""
    job = _job_of(context, uid, state)
    if job is None:
        return EngineInfo(name, uid, state)
    info = job_info(job, None)
    if job.device is not None and context.seating.devices[job.device].kind != "host":
        state = msgspec.structs.replace(state, mapped_bytes={})  # they have been copied to the GPU
    return EngineInfo(name, uid, state, info.device, info.persistent_bytes, info.offloaded)


def _job_of(context: Context, uid: int, state: EngineState) -> JobRecord | None:
    """Return the job of an engine, if it lives; a front is not believed about jobs of others."""
    job = None if state.job is None else context.jobs.live.get(JobId(state.job))
    return None if job is None or job.owner != uid else job
