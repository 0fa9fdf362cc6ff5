"""Registered models: added, listed, shown and removed.  They are their owner's; only root sees those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from aiohttp import web

from carpool.daemon.api.checks import check_directory, check_numbers, check_texts
from carpool.daemon.api.context import CONTEXT, caller
from carpool.daemon.api.middleware import flag_parameter, json_response, number_parameter, read_body
from carpool.daemon.api.quotas import check_model_room
from carpool.daemon.journal.model_registry import RegisteredModel
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import RequestError
from carpool.protocol.models import (
    ModelEnvironment,
    ModelList,
    ModelRequest,
    check_factory,
    check_name,
    check_weights,
)

_LARGEST_UID = 2.0**32
_SMALLEST = {"deadline_us": 1, "max_batch": 1, "max_delay_us": 0, "priority": 1}


async def put_model(request: web.Request) -> web.Response:
    """Durable before it is answered.  ``replace``: one of the caller's of that name may be there already."""
    context = request.app[CONTEXT]
    models = context.models
    spec, replace = await read_body(request, ModelRequest), flag_parameter(request, "replace")
    model = RegisteredModel(caller(request).uid, request.match_info["name"], spec, wall_us())
    check(model)
    room = partial(check_model_room, context)
    if not await asyncio.shield(models.add(model, replace=replace, check=room)):
        text = f"model {model.name!r} exists already"
        raise RequestError(
            409, "model_exists", text, "choose another name, or replace the model: --replace (replace=1)"
        )
    return json_response(model.info())


async def list_models(request: web.Request) -> web.Response:
    """Those of the caller, by name; root's answer has everybody's."""
    uid = caller(request).uid
    models = request.app[CONTEXT].models.listed()
    return json_response(ModelList([model.info() for model in models if uid in (0, model.owner)]))


async def show_model(request: web.Request) -> web.Response:
    """``owner``: whose, for root; by default the caller's own."""
    return json_response(_found(request).info())


async def show_environment(request: web.Request) -> web.Response:
    """What a worker of it is started with.  ``owner``: whose, for root; by default the caller's own."""
    return json_response(ModelEnvironment(_found(request).spec.env))


async def remove_model(request: web.Request) -> web.Response:
    """Durable before it is answered, with what was removed.  ``owner``: whose, for root; else the caller's own."""
    model = _found(request)
    removed = await asyncio.shield(request.app[CONTEXT].models.remove(model.owner, model.name))
    if removed is None:  # somebody was faster
        raise _unknown(model.name)
    return json_response(removed.info())


def check(model: RegisteredModel) -> None:
    """Raises ApiError 400 for what no worker could be made of.

    Only what the request itself says: which files there are, a daemon of root's must not tell.
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


def _found(request: web.Request) -> RegisteredModel:
    """The model of the path.  Raises ApiError 404, also for those of others."""
    uid, name = caller(request).uid, request.match_info["name"]
    owner = number_parameter(request, "owner", uid, _LARGEST_UID)
    model = request.app[CONTEXT].models.find(int(uid if owner is None else owner), name)
    if model is None or uid not in (0, model.owner):
        raise _unknown(name)
    return model


def _unknown(name: str) -> RequestError:
    return RequestError(404, "unknown_model", f"there is no model {name!r}", "carpool model ls lists them")
