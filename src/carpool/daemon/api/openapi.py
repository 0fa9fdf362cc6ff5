"""GET /openapi.json: made from the table of routes and the message types, so that it cannot disagree with them."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

import msgspec
from aiohttp import web

import carpool
from carpool.daemon.api.middleware import json_response
from carpool.daemon.api.routes import ROUTES, Route
from carpool.protocol.api import PROTOCOL_HEADER, ErrorBody, EventInfo
from carpool.protocol.environment import REQUEST_HEADER

_TYPES = {  # others: integer
    "phase": "string",
    "follow": "boolean",
    "device": "string",
    "timeout_s": "number",
    "name": "string",
    "replace": "boolean",
}


@functools.cache
def description() -> dict[str, Any]:
    """Return the API as an OpenAPI document, made from the table of routes once."""
    types = {t for route in ROUTES for t in (route.answer, route.body) if t is not None}
    ordered = sorted([*types, ErrorBody, EventInfo], key=lambda t: t.__name__)
    reference = "#/components/schemas/{name}"
    _, components = msgspec.json.schema_components(ordered, schema_hook=_any, ref_template=reference)
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Carpool",
            "version": carpool.__version__,
            "description": "HTTP over the Unix socket $CARPOOL_HOME/carpool.sock. "
            f"Every answer carries the header {PROTOCOL_HEADER}, and {REQUEST_HEADER} with the id that the request has "
            "brought, or got; the connection's credentials say who asks.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


async def openapi(request: web.Request) -> web.Response:
    """GET /openapi.json."""
    return json_response(description())


def _operation(route: Route) -> dict[str, Any]:
    schema = _reference(route.answer) if route.answer else _reference(EventInfo) if "ndjson" in route.media else {}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "description": inspect.getdoc(route.handler) or "",
        "operationId": route.handler.__name__,
        "responses": {
            str(route.status): {"description": "done", "content": {route.media: {"schema": schema}}},
            "default": {"description": "refused", "content": {"application/json": {"schema": _reference(ErrorBody)}}},
        },
    }
    parameters = [_parameter(name, "path") for name in re.findall(r"{(\w+)}", route.path)]
    parameters += [_parameter(name, "query") for name in route.query]
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        operation["requestBody"] = {"content": {"application/json": {"schema": _reference(route.body)}}}
    return operation


def _parameter(name: str, place: str) -> dict[str, Any]:
    schema = {"type": _TYPES.get(name, "integer")}
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _any(kind: type) -> dict[str, Any]:
    """Return the schema for the data of events, which can be any JSON value."""
    if kind is not object:
        raise NotImplementedError(kind)
    return {"description": "any JSON value"}


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
