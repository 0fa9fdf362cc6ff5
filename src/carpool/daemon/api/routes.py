"""The table of routes: the server, the OpenAPI description and its test are all made from it."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from carpool.daemon.api import (
    admin,
    cleaning,
    device_history,
    devices,
    job_control,
    jobs,
    log_level,
    metrics,
    models,
    retry,
    streams,
    submit,
    turn_history,
    update,
    usage,
    user_limits,
)
from carpool.daemon.api.middleware import Handler
from carpool.protocol import api
from carpool.protocol.api import TurnHistory
from carpool.protocol.models import ModelEnvironment, ModelInfo, ModelList, ModelRequest, ServingReport
from carpool.protocol.notices import NoticeList


@dataclass(frozen=True, slots=True)
class Route:
    """A request that the daemon answers; the handler's docstring is its description for people."""

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
    Route("GET", "/v1/version", admin.version, "Who answers here", api.VersionInfo),
    Route("POST", "/v1/jobs", submit.submit, "Submit a job", api.SubmitResponse, api.SubmitRequest, 201),
    Route(
        *("POST", "/v1/submissions", submit.submit_many, "Submit several jobs, all or none"),
        *(api.SubmitManyResponse, api.SubmitManyRequest, 201),
    ),
    Route(
        *("POST", "/v1/retries", retry.retry_jobs, "Run ended jobs once more"),
        *(api.RetryResponse, api.RetryRequest, 201),
    ),
    Route("GET", "/v1/jobs", jobs.list_jobs, "List jobs", api.JobList, query=("phase", "limit", "before", "array")),
    Route("POST", "/v1/history", submit.history, "Earlier runs of a command", api.HistoryInfo, api.HistoryRequest),
    Route("GET", "/v1/jobs/{id}", jobs.show_job, "Show one job", api.JobInfo),
    Route("GET", "/v1/jobs/{id}/placement", jobs.show_placement, "Why it is on its device", api.PlacementInfo),
    Route("GET", "/v1/jobs/{id}/notices", jobs.show_notices, "Who was told of it", NoticeList),
    Route(
        "GET", "/v1/jobs/{id}/logs", streams.logs, "Its output", None, query=("follow", "offset", "attempt"), media=LOG
    ),
    Route("GET", "/v1/jobs/{id}/wait", jobs.wait_job, "Wait for its end", api.JobInfo, query=("timeout_s",)),
    Route("POST", "/v1/jobs/{id}/cancel", jobs.cancel_job, "Cancel it", api.JobInfo),
    Route("PATCH", "/v1/jobs/{id}", update.update_job, "Change it", api.JobInfo, api.JobUpdate),
    Route("POST", "/v1/jobs/{id}/requeue", job_control.requeue_job, "Start it again", api.JobInfo),
    Route("POST", "/v1/jobs/{id}/pause", job_control.pause_job, "Take it off its device", api.JobInfo),
    Route("POST", "/v1/jobs/{id}/resume", job_control.resume_job, "Let it go on", api.JobInfo),
    Route("POST", "/v1/jobs/{id}/hold", job_control.hold_job, "Keep it from being placed", api.JobInfo),
    Route("POST", "/v1/jobs/{id}/release", job_control.release_job, "Let it be placed", api.JobInfo),
    Route("POST", "/v1/clean", cleaning.clean, "Remove ended jobs", api.CleanResponse, api.CleanRequest),
    Route("GET", "/v1/policy", admin.get_policy, "The policy and all settings", api.PolicyInfo),
    Route("PUT", "/v1/policy", admin.put_policy, "Change them", api.PolicyInfo, api.PolicyRequest),
    Route("GET", "/v1/log-level", log_level.get_log_level, "Levels of the daemon's log", api.LogLevelInfo),
    Route(
        *("PUT", "/v1/log-level", log_level.put_log_level, "Change one of them"),
        *(api.LogLevelInfo, api.LogLevelRequest),
    ),
    Route("GET", "/v1/limits", user_limits.show_limits, "What a user may have", api.UserLimitsInfo, query=("user",)),
    Route("GET", "/v1/devices", devices.devices, "Devices, lanes, turns", api.DeviceList),
    Route("PUT", "/v1/devices/{device}", devices.put_device, "Change one", api.DeviceInfo, api.DeviceRequest),
    Route(
        *("GET", "/v1/devices/{device}/telemetry", device_history.telemetry, "What it did", api.TelemetryHistory),
        query=("since", "step"),
    ),
    Route("GET", "/v1/usage", usage.usage, "Use by user and day", api.UsageHistory, query=("since", "until")),
    Route(
        *("PUT", "/v1/models/{name}", models.put_model, "Register a model", ModelInfo, ModelRequest),
        query=("replace",),
    ),
    Route("GET", "/v1/models", models.list_models, "List models", ModelList),
    Route("GET", "/v1/models/{name}", models.show_model, "Show one model", ModelInfo, query=("owner",)),
    Route(
        *("GET", "/v1/models/{name}/environment", models.show_environment, "Of its workers", ModelEnvironment),
        query=("owner",),
    ),
    Route("PUT", "/v1/serving", models.report_serving, "Report states of models", None, ServingReport),
    Route("DELETE", "/v1/models/{name}", models.remove_model, "Remove a model", ModelInfo, query=("owner",)),
    Route(
        *("GET", "/v1/events", streams.events, "Events and commands", None),
        query=("since", "follow", "before", "limit"),
        media=LINES,
    ),
    Route(
        *("GET", "/v1/turns", turn_history.turns, "Who had the turn in each lane", TurnHistory),
        query=("since", "until", "bins", "device"),
    ),
    Route("GET", "/metrics", metrics.metrics, "Metrics for Prometheus", None, media=TEXT),
    Route("POST", "/v1/shutdown", admin.shutdown, "Stop the daemon", None, api.ShutdownRequest, 202),
)


def add_routes(app: web.Application) -> None:
    """Add all `ROUTES` to the application."""
    for route in ROUTES:
        app.router.add_route(route.method, route.path, route.handler)
