"""A small synchronous client of the daemon's HTTP API.  Standard library and msgspec only, so that it starts fast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from carpool.protocol.api import (
    LOG_OFFSET_HEADER,
    BusyRequest,
    CleanRequest,
    CleanResponse,
    DeviceInfo,
    DeviceList,
    DeviceRequest,
    EventInfo,
    HistoryInfo,
    HistoryRequest,
    JobInfo,
    JobList,
    JobUpdate,
    LogLevelInfo,
    LogLevelRequest,
    PlacementInfo,
    PolicyInfo,
    PolicyRequest,
    RetryRequest,
    RetryResponse,
    SubmitManyRequest,
    SubmitManyResponse,
    SubmitRequest,
    SubmitResponse,
    TelemetryHistory,
    TurnHistory,
    UsageHistory,
    UserLimitsInfo,
    VersionInfo,
)
from carpool.protocol.engines import EngineInfo, EngineList, EngineReport, EngineState, EngineWishes, Wish
from carpool.protocol.models import ModelEnvironment, ModelInfo, ModelList, ModelRequest, ModelState, ServingReport
from carpool.protocol.notices import NoticeInfo, NoticeList
from carpool.protocol.paths import Home
from carpool.protocol.unix_http import (
    ApiError,
    ClientError,
    DaemonNotAnswering,
    DaemonNotRunning,
    NotYourSocket,
    UnixConnection,
    UnusablePath,
    VersionMismatch,
)

__all__ = [
    "ApiError",
    "DaemonClient",
    "ClientError",
    "DaemonNotAnswering",
    "DaemonNotRunning",
    "NotYourSocket",
    "UnusablePath",
    "VersionMismatch",
]

T = TypeVar("T")
TIMEOUT_S = 60.0  # for one ordinary answer: a loaded machine may be slow, a broken daemon never answers
SLACK_S = 30.0
PAGE = 1000  # jobs or events that one answer lists
_EVENTS = msgspec.json.Decoder(EventInfo)


class DaemonClient:
    """One daemon.  Not for use by several threads at once.  Every method may raise `ClientError`."""

    def __init__(self, home: Path, *, timeout_s: float | None = TIMEOUT_S, check_version: bool = True) -> None:
        self.home = Home(home)
        self._timeout_s = timeout_s
        self._check_version = check_version
        self._connection = self._new_connection(timeout_s)

    def _new_connection(self, timeout_s: float | None) -> UnixConnection:
        return UnixConnection(self.home.socket, timeout_s=timeout_s, check_version=self._check_version)

    def __enter__(self) -> DaemonClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Connect now instead of with the first request, to find out whether a daemon is running."""
        if self._connection.sock is None:
            self._connection.connect()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    # Requests, in the order of the API

    def version(self) -> VersionInfo:
        """Return the daemon's version."""
        return self._get("/v1/version", VersionInfo)

    def submit(self, request: SubmitRequest) -> int:
        """Submit a job and return its id.  When this returns the submission is on disk."""
        return self._send("POST", "/v1/jobs", request, SubmitResponse).id

    def history(self, argv: Sequence[str], cwd: str) -> HistoryInfo:
        """Return the caller's earlier runs of this command in this directory."""
        return self._send("POST", "/v1/history", HistoryRequest(list(argv), cwd), HistoryInfo)

    def submit_many(self, request: SubmitManyRequest) -> list[int]:
        """Submit jobs and return their ids, in order.  Either all are on disk, or the error says why none is."""
        return self._send("POST", "/v1/submissions", request, SubmitManyResponse).ids

    def jobs(self, phases: Sequence[str] = (), limit: int | None = None) -> list[JobInfo]:
        """Return the jobs in these phases (none given: in all), ordered by id; with ``limit`` the newest only."""
        return self.job_list(phases, limit).jobs

    def job_list(self, phases: Sequence[str] = (), limit: int | None = None) -> JobList:
        """Return the jobs as `jobs` does, with the daemon's notice about its journal.

        Reads pages if there is no ``limit``.
        """
        if limit is not None:
            return self._page(phases, limit)
        page = self._page(phases, PAGE)
        found = page.jobs
        while len(page.jobs) >= PAGE:
            page = self._page(phases, PAGE, before=found[0].id)
            found = page.jobs + found
        return JobList(found, page.notice)

    def _page(self, phases: Sequence[str], limit: int | None = None, before: int | None = None) -> JobList:
        query = {"phase": ",".join(phases), "limit": limit, "before": before}
        return self._get(_target("/v1/jobs", query), JobList)

    def array(self, array: int) -> list[JobInfo]:
        """Return the known elements of an array, ordered by id; an empty list if there is no such array.

        For an element that was tried again, return the newest job.
        """
        return self._get(_target("/v1/jobs", {"array": array}), JobList).jobs

    def job(self, job: int) -> JobInfo:
        """Return a job."""
        return self._get(f"/v1/jobs/{job}", JobInfo)

    def placement(self, job: int) -> PlacementInfo:
        """Return why the job is where it is, or why it waits."""
        return self._get(f"/v1/jobs/{job}/placement", PlacementInfo)

    def notices(self, job: int) -> list[NoticeInfo]:
        """Return which targets were, or are still to be, told of the job's starts and its end."""
        return self._get(f"/v1/jobs/{job}/notices", NoticeList).notices

    def wait(self, job: int, timeout_s: float) -> JobInfo:
        """Return the job when it has ended, or as it is after ``timeout_s``."""
        target = _target(f"/v1/jobs/{job}/wait", {"timeout_s": f"{timeout_s:.3f}"})
        with self._own_connection(timeout_s + SLACK_S) as connection:
            return self._decode(connection.read(connection.ask("GET", target)), JobInfo)

    def cancel(self, job: int) -> None:
        """Ask for the job's end; it has ended when its phase says so.

        Raises ApiError `already_ended` if it had ended before.
        """
        self._connection.read(self._connection.ask("POST", f"/v1/jobs/{job}/cancel"))

    def hold(self, job: int) -> JobInfo:
        """Keep the queued job from being placed until it is released."""
        return self._job("hold", job)

    def release(self, job: int) -> JobInfo:
        """Let the held job be placed."""
        return self._job("release", job)

    def pause(self, job: int) -> JobInfo:
        """Take the job off its device until it is resumed."""
        return self._job("pause", job)

    def resume(self, job: int) -> JobInfo:
        """Let the paused job go on."""
        return self._job("resume", job)

    def set_busy(self, job: int, busy: bool) -> None:
        """Tell that an engine has requests, or has none any more."""
        self._send("POST", f"/v1/jobs/{job}/busy", BusyRequest(busy), BusyRequest)

    def requeue(self, job: int) -> JobInfo:
        """Stop the started job and let it wait for its next attempt."""
        return self._job("requeue", job)

    def update(self, job: int, changes: JobUpdate) -> JobInfo:
        """Change what was submitted.  When this returns the change is on disk."""
        return self._send("PATCH", f"/v1/jobs/{job}", changes, JobInfo)

    def retry(self, jobs: Sequence[int], env: Mapping[str, str], given: Sequence[str] = ()) -> RetryResponse:
        """Submit new jobs in the places of ended ones, at most 1000.  Raises an error if none can be tried again.

        ``given``: names in ``env`` that are not only those of the shell.
        """
        return self._send("POST", "/v1/retries", RetryRequest(list(jobs), dict(env), list(given)), RetryResponse)

    def clean(self, jobs: Sequence[int]) -> CleanResponse:
        """Remove ended jobs for good.

        When this returns the removal is on disk; directories are deleted in the background.
        """
        parts = [list(jobs[first : first + PAGE]) for first in range(0, len(jobs), PAGE)]
        answers = [self._send("POST", "/v1/clean", CleanRequest(part), CleanResponse) for part in parts]
        removed, kept = ([job for each in answers for job in getattr(each, name)] for name in ("removed", "kept"))
        return CleanResponse(removed, kept)

    def _job(self, action: str, job: int) -> JobInfo:
        """Return the job after an action, which is on disk by then."""
        return self._decode(self._connection.read(self._connection.ask("POST", f"/v1/jobs/{job}/{action}")), JobInfo)

    def logs(self, job: int, *, follow: bool = False, offset: int = 0, attempt: int | None = None) -> Iterator[bytes]:
        """Yield an attempt's output (None: the latest) from byte ``offset`` on; with ``follow`` until its end."""
        query = {"follow": 1 if follow else None, "offset": offset, "attempt": attempt}
        target = _target(f"/v1/jobs/{job}/logs", query)
        with self._own_connection(None if follow else self._timeout_s) as connection:
            yield from connection.chunks(connection.ask("GET", target))

    def past_log(self, job: int, *, attempt: int | None = None) -> tuple[bytes, int]:
        """Return what is kept of an attempt's output so far, and the offset of its end."""
        answer = self._connection.ask("GET", _target(f"/v1/jobs/{job}/logs", {"attempt": attempt}))
        begin = int(answer.headers.get(LOG_OFFSET_HEADER, 0))
        past = self._connection.read(answer)
        return past, begin + len(past)

    def policy(self) -> PolicyInfo:
        """Return the policy and its settings."""
        return self._get("/v1/policy", PolicyInfo)

    def set_policy(self, request: PolicyRequest) -> PolicyInfo:
        """Change the policy or its settings, and return them as they are then."""
        return self._send("PUT", "/v1/policy", request, PolicyInfo)

    def log_level(self) -> LogLevelInfo:
        """Return the levels at which the daemon writes its log."""
        return self._get("/v1/log-level", LogLevelInfo)

    def set_log_level(self, request: LogLevelRequest) -> LogLevelInfo:
        """Set the level of the daemon's log, or of one logger, until the daemon ends."""
        return self._send("PUT", "/v1/log-level", request, LogLevelInfo)

    def limits(self, user: str | None = None) -> UserLimitsInfo:
        """Return the limits and use of the caller, or (for administrators) of a user by name or uid."""
        return self._get(_target("/v1/limits", {"user": user}), UserLimitsInfo)

    def devices(self) -> list[DeviceInfo]:
        """Return the devices."""
        return self.device_list().devices

    def device_list(self) -> DeviceList:
        """Return the devices and the host store."""
        return self._get("/v1/devices", DeviceList)

    def set_device(self, device: str, request: DeviceRequest) -> DeviceInfo:
        """Change a device's settings and return the device as it is afterwards."""
        return self._send("PUT", f"/v1/devices/{device}", request, DeviceInfo)

    def telemetry(self, device: str, *, since_us: int | None = None, step_us: int | None = None) -> TelemetryHistory:
        """Return a device's telemetry since that time (wall clock), in steps."""
        target = _target(f"/v1/devices/{quote(device, safe='')}/telemetry", {"since": since_us, "step": step_us})
        return self._get(target, TelemetryHistory)

    def usage(self, since_us: int | None = None, until_us: int | None = None) -> UsageHistory:
        """Return users' use and devices' busy time on the days between (wall clock); by default 14 days."""
        return self._get(_target("/v1/usage", {"since": since_us, "until": until_us}), UsageHistory)

    def turns(
        self, *, since_us: int | None = None, until_us: int | None = None, bins: int = 1000, device: str | None = None
    ) -> TurnHistory:
        """Return which job had the turn in each lane, at most ``bins`` entries per lane.

        Times are the wall clock's; the default is the last hour.
        """
        asked = {"since": since_us, "until": until_us, "bins": bins, "device": device}
        return self._get(_target("/v1/turns", asked), TurnHistory)

    def add_model(self, name: str, request: ModelRequest, *, replace: bool = False) -> ModelInfo:
        """Register a model.  When this returns the model is on disk."""
        return self._send("PUT", _target(f"/v1/models/{name}", {"replace": 1 if replace else None}), request, ModelInfo)

    def models(self) -> list[ModelInfo]:
        """Return the caller's models by name; for administrators, the models of all users."""
        return self._get("/v1/models", ModelList).models

    def model(self, name: str, *, owner: int | None = None) -> ModelInfo:
        """Return a registered model.  ``owner``: its owner, for administrators; None: the caller."""
        return self._get(_target(f"/v1/models/{name}", {"owner": owner}), ModelInfo)

    def model_environment(self, name: str, *, owner: int | None = None) -> dict[str, str]:
        """Return the environment that workers of the model start with, secrets included."""
        return self._get(_target(f"/v1/models/{name}/environment", {"owner": owner}), ModelEnvironment).env

    def remove_model(self, name: str, *, owner: int | None = None) -> ModelInfo:
        """Remove a model and return it.  When this returns the removal is on disk."""
        answer = self._connection.ask("DELETE", _target(f"/v1/models/{name}", {"owner": owner}))
        return self._decode(self._connection.read(answer), ModelInfo)

    def report_serving(self, models: Mapping[str, ModelState]) -> None:
        """Report the state of the caller's models in this process.

        A report counts until the next report, or `close`.
        """
        body = msgspec.json.encode(ServingReport(dict(models)))
        self._connection.read(self._connection.ask("PUT", "/v1/serving", body))

    def report_engines(self, engines: Mapping[str, EngineState]) -> EngineWishes:
        """Report the states of this process's engines, and return what users have wished of them.

        A report counts until the next report, or `close`.
        """
        return self._send("PUT", "/v1/engines", EngineReport(dict(engines)), EngineWishes)

    def engines(self) -> list[EngineInfo]:
        """Return the engines that fronts serve."""
        return self._get("/v1/engines", EngineList).engines

    def wish_engine(self, name: str, wish: Wish, *, owner: int | None = None) -> EngineInfo:
        """Ask the front of an engine to start it, to stop it, or to move its memory out."""
        target = _target(f"/v1/engines/{quote(name, safe='')}/{wish}", {"owner": owner})
        return self._decode(self._connection.read(self._connection.ask("POST", target)), EngineInfo)

    def events(self, *, since: int = 0, follow: bool = False) -> Iterator[EventInfo]:
        """Yield events after number ``since``; with ``follow`` for ever."""
        target = _target("/v1/events", {"since": since, "follow": 1 if follow else None})
        with self._own_connection(None if follow else self._timeout_s) as connection:
            for lines in connection.whole_lines(connection.ask("GET", target)):
                yield from self._decode_events(lines)

    def past_events(self) -> Iterator[EventInfo]:
        """Yield all events so far, the newest first, read in pages."""
        before: int | None = None
        while page := self._events_before(before):
            yield from reversed(page)
            before = page[0].seq

    def _events_before(self, before: int | None) -> list[EventInfo]:
        answer = self._connection.ask("GET", _target("/v1/events", {"before": before, "limit": PAGE}))
        return self._decode_events(self._connection.read(answer))

    def shutdown(self, *, stop_jobs: bool) -> None:
        """Ask the daemon to stop; it may still run when this returns."""
        body = msgspec.json.encode({"stop_jobs": stop_jobs})
        self._connection.read(self._connection.ask("POST", "/v1/shutdown", body))
        self.close()

    # Requests and answers

    def _get(self, target: str, kind: type[T]) -> T:
        return self._decode(self._connection.read(self._connection.ask("GET", target)), kind)

    def _send(self, method: str, target: str, request: msgspec.Struct, kind: type[T]) -> T:
        answer = self._connection.ask(method, target, msgspec.json.encode(request))
        return self._decode(self._connection.read(answer), kind)

    def _decode(self, body: bytes, kind: type[T]) -> T:
        with self._known_form():
            return msgspec.json.decode(body, type=kind)

    def _decode_events(self, lines: bytes) -> list[EventInfo]:
        with self._known_form():
            return _EVENTS.decode_lines(lines)

    @contextmanager
    def _known_form(self) -> Iterator[None]:
        try:
            yield
        except msgspec.DecodeError as error:
            raise DaemonNotAnswering(self.home.socket, f"answers in an unknown form ({error})") from None

    def _own_connection(self, timeout_s: float | None) -> _Closing:
        """Open a separate connection for an answer that takes long; other requests can go on meanwhile."""
        return _Closing(self._new_connection(timeout_s))


class _Closing:
    """Closes a connection at the end of a block (http.client's has no context manager)."""

    def __init__(self, connection: UnixConnection) -> None:
        self._connection = connection

    def __enter__(self) -> UnixConnection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _target(path: str, query: Mapping[str, object]) -> str:
    """Join path and query.  All values are numbers or Carpool's own words: nothing needs quoting."""
    pairs = [f"{name}={value}" for name, value in query.items() if value not in (None, "")]
    return f"{path}?{'&'.join(pairs)}" if pairs else path
