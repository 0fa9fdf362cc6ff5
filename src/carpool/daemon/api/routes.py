"""The table of routes: the server, the OpenAPI description (GET /openapi.json) and its test are all made from it."""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

import carpool
from carpool.daemon.api import (
    admin,
    devices,
    history,
    job_control,
    jobs,
    metrics,
    models,
    quotas,
    retry,
    streams,
    submit,
    usage,
)
from carpool.daemon.api.call import ApiCall, Handler
from carpool.daemon.api.middleware import Respond
from carpool.protocol import api
from carpool.protocol.api import PROTOCOL_HEADER, ErrorBody, EventInfo, TurnHistory
from carpool.protocol.engines import EngineInfo, EngineList, EngineReport, EngineWishes
from carpool.protocol.environment import REQUEST_HEADER
from carpool.protocol.http_connections import json_response
from carpool.protocol.models import ModelEnvironment, ModelInfo, ModelList, ModelRequest, ServingReport
from carpool.protocol.notices import NoticeList


@dataclass(frozen=True, slots=True)
class Route:
    """A request that the daemon answers.

    ``summary`` is what the request does, and the handler's docstring its description, for users of the API.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answer: type | None  # None: a stream or free JSON, see ``media``
    body: type | None = None
    status: int = 200
    query: tuple[str, ...] = ()
    media: str = "application/json"


LOG, LINES, TEXT = "application/octet-stream", "application/x-ndjson", "text/plain"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/version", admin.version, "Show the daemon's version", api.VersionInfo),
    Route("POST", "/v1/jobs", submit.submit, "Submit a job", api.SubmitResponse, api.SubmitRequest, 201),
    Route(
        "POST",
        "/v1/submissions",
        submit.submit_many,
        "Submit several jobs, all or none",
        api.SubmitManyResponse,
        api.SubmitManyRequest,
        201,
    ),
    Route(
        "POST",
        "/v1/retries",
        retry.retry_jobs,
        "Run ended jobs once more",
        api.RetryResponse,
        api.RetryRequest,
        201,
    ),
    Route("GET", "/v1/jobs", jobs.list_jobs, "List jobs", api.JobList, query=("phase", "limit", "before", "array")),
    Route(
        "POST",
        "/v1/history",
        submit.history,
        "Show what earlier runs of a command needed",
        api.HistoryInfo,
        api.HistoryRequest,
    ),
    Route("GET", "/v1/jobs/{id}", jobs.show_job, "Show one job", api.JobInfo),
    Route("GET", "/v1/jobs/{id}/placement", jobs.show_placement, "Explain a job's placement", api.PlacementInfo),
    Route("GET", "/v1/jobs/{id}/notices", jobs.show_notices, "List the notices of a job", NoticeList),
    Route(
        "GET",
        "/v1/jobs/{id}/logs",
        streams.logs,
        "Read the output of a job",
        None,
        query=("follow", "offset", "attempt"),
        media=LOG,
    ),
    Route("GET", "/v1/jobs/{id}/wait", jobs.wait_job, "Wait for the end of a job", api.JobInfo, query=("timeout_s",)),
    Route("POST", "/v1/jobs/{id}/cancel", jobs.cancel_job, "Cancel a job", api.JobInfo),
    Route("PATCH", "/v1/jobs/{id}", job_control.update_job, "Change a job", api.JobInfo, api.JobUpdate),
    Route(
        "POST",
        "/v1/jobs/{id}/busy",
        job_control.report_busy,
        "Report that an engine has requests, or has none",
        api.BusyRequest,
        api.BusyRequest,
    ),
    Route("POST", "/v1/jobs/{id}/requeue", job_control.requeue_job, "Requeue a job", api.JobInfo),
    Route("POST", "/v1/jobs/{id}/pause", job_control.pause_job, "Pause a job", api.JobInfo),
    Route("POST", "/v1/jobs/{id}/resume", job_control.resume_job, "Resume a job", api.JobInfo),
    Route("POST", "/v1/jobs/{id}/hold", job_control.hold_job, "Hold a job", api.JobInfo),
    Route("POST", "/v1/jobs/{id}/release", job_control.release_job, "Release a job", api.JobInfo),
    Route("POST", "/v1/clean", retry.clean, "Remove ended jobs", api.CleanResponse, api.CleanRequest),
    Route("GET", "/v1/policy", admin.get_policy, "Show policies and settings", api.PolicyInfo),
    Route("PUT", "/v1/policy", admin.put_policy, "Change policies and settings", api.PolicyInfo, api.PolicyRequest),
    Route("GET", "/v1/log-level", admin.get_log_level, "Show the daemon's log levels", api.LogLevelInfo),
    Route(
        "PUT",
        "/v1/log-level",
        admin.put_log_level,
        "Change a log level",
        api.LogLevelInfo,
        api.LogLevelRequest,
    ),
    Route("GET", "/v1/limits", quotas.show_limits, "Show the limits of a user", api.UserLimitsInfo, query=("user",)),
    Route("GET", "/v1/devices", devices.devices, "List devices", api.DeviceList),
    Route("PUT", "/v1/devices/{device}", devices.put_device, "Change a device", api.DeviceInfo, api.DeviceRequest),
    Route(
        "GET",
        "/v1/devices/{device}/telemetry",
        history.telemetry,
        "Show a device's telemetry",
        api.TelemetryHistory,
        query=("since", "step"),
    ),
    Route("GET", "/v1/usage", usage.usage, "Show use by user and day", api.UsageHistory, query=("since", "until")),
    Route(
        "PUT",
        "/v1/models/{name}",
        models.put_model,
        "Register a model",
        ModelInfo,
        ModelRequest,
        query=("replace",),
    ),
    Route("GET", "/v1/models", models.list_models, "List models", ModelList),
    Route("GET", "/v1/models/{name}", models.show_model, "Show one model", ModelInfo, query=("owner",)),
    Route(
        "GET",
        "/v1/models/{name}/environment",
        models.show_environment,
        "Show the environment of a model's workers",
        ModelEnvironment,
        query=("owner",),
    ),
    Route("GET", "/v1/engines", models.list_engines, "List engines", EngineList),
    Route("PUT", "/v1/engines", models.report_engines, "Report states of engines", EngineWishes, EngineReport),
    Route(
        "POST",
        "/v1/engines/{name}/{wish}",
        models.wish_engine,
        "Control an engine",
        EngineInfo,
        query=("owner",),
    ),
    Route("PUT", "/v1/serving", models.report_serving, "Report states of models", None, ServingReport),
    Route("DELETE", "/v1/models/{name}", models.remove_model, "Remove a model", ModelInfo, query=("owner",)),
    Route(
        "GET",
        "/v1/events",
        streams.events,
        "Stream events",
        None,
        query=("since", "follow", "before", "limit"),
        media=LINES,
    ),
    Route(
        "GET",
        "/v1/turns",
        history.turns,
        "Show the turns of each lane",
        TurnHistory,
        query=("since", "until", "bins", "device"),
    ),
    Route("GET", "/metrics", metrics.metrics, "Show metrics for Prometheus", None, media=TEXT),
    Route("POST", "/v1/shutdown", admin.shutdown, "Stop the daemon", None, api.ShutdownRequest, 202),
)


def add_routes(app: web.Application) -> None:
    """Add all `ROUTES` to the application."""
    for route in ROUTES:
        app.router.add_route(route.method, route.path, _answering(route))


def _answering(route: Route) -> Respond:
    async def respond(request: web.Request) -> web.StreamResponse:
        answer = await route.handler(ApiCall(request))
        return answer if isinstance(answer, web.StreamResponse) else json_response(answer, route.status)

    return respond


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
    for component in components.values():
        component["description"] = inspect.cleandoc(component["description"])  # Markdown: indented text would be code
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
