"""Reports of fronts: what the core hears, for how long it counts, and who may report."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from carpool.core.commands import StopEngine
from carpool.core.events import EngineServed, Event, ServiceBusy
from carpool.daemon.hooks import engine_requests
from carpool.daemon.hooks.base import Signals
from carpool.daemon.hooks.engine_requests import EngineRequests
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.api import SubmitRequest
from tests.daemon.daemon_harness import Daemon, Make, as_nobody, refusal

LONG_S = 3600.0


class NoSignals(Signals):
    """None is sent."""


async def test_the_core_hears_of_changes_only() -> None:
    said: list[Event] = []
    requests = EngineRequests(said.append, LONG_S)
    for busy in (False, True, True, False, False):
        requests.report(1, busy)
    assert said == [ServiceBusy(1, True), ServiceBusy(1, False)]
    requests.stop()


async def test_a_report_that_is_not_repeated_ends() -> None:
    said: list[Event] = []
    ended = asyncio.Event()

    def post(event: Event) -> None:
        said.append(event)
        if event == ServiceBusy(1, False):
            ended.set()

    requests = EngineRequests(post, 0.0)
    requests.report(1, True)
    await ended.wait()
    requests.report(1, True)
    assert said == [ServiceBusy(1, True), ServiceBusy(1, False), ServiceBusy(1, True)]
    requests.stop()


async def test_nothing_is_heard_of_an_engine_that_has_ended() -> None:
    said: list[Event] = []
    requests = EngineRequests(said.append, 0.0)
    requests.report(1, True)
    requests.ended(JobRecord(1, 1000, 1000, SubmitRequest(["true"], "/", {}), None, 1))
    await asyncio.sleep(0)
    assert said == [ServiceBusy(1, True)]


async def test_a_front_hears_once_which_of_its_engines_are_to_end() -> None:
    said: list[Event] = []
    requests = EngineRequests(said.append, LONG_S)
    stop = requests.commands(NoSignals())[StopEngine]
    assert requests.serve([1, 2]) == requests.serve([1, 2]) == []
    assert said == [EngineServed(1, True), EngineServed(2, True)]
    stop(StopEngine(2))
    assert requests.serve([1]) == [], "of another front"
    assert requests.serve([1, 2]) == [2]
    assert requests.serve([1, 2]) == []
    requests.stop()


async def test_a_front_that_comes_late_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_requests, "PATIENCE_US", 0)
    requests = EngineRequests(lambda event: None, LONG_S)
    requests.commands(NoSignals())[StopEngine](StopEngine(1))
    assert requests.serve([1]) == []
    requests.stop()


def test_who_reports_what(daemon: Daemon) -> None:
    request: dict[str, Any] = {"argv": ["sleep", "600"], "cwd": "/", "env": {}}
    engine = daemon.post("/v1/jobs", request | {"engine": True})["id"]
    other = daemon.post("/v1/jobs", request)["id"]
    busy = {"busy": True}
    assert daemon.post(f"/v1/jobs/{engine}/busy", busy) == busy
    assert refusal(daemon.post, f"/v1/jobs/{other}/busy", busy).answer == (409, "not_an_engine")
    assert refusal(daemon.post, "/v1/jobs/99/busy", busy).answer == (404, "unknown_job")
    heard = [event["data"] for event in daemon.events() if event["kind"] == "ServiceBusy"]
    assert heard == [{"job": engine, "busy": True}]
    for job in (engine, other):
        daemon.cancelled(job)
    assert refusal(daemon.post, f"/v1/jobs/{engine}/busy", busy).answer == (409, "ended")


def test_a_high_priority_and_pinned_memory_are_for_administrators(make_daemon: Make) -> None:
    daemon = make_daemon(limits='services = "everyone"\n').started()
    body = {"argv": ["true"], "cwd": "/", "env": {}, "engine": True}
    assert as_nobody(daemon, f"daemon.post('/v1/jobs', {body!r})")["id"] > 0
    for more in ({"service": 101}, {"pin": True}):
        assert as_nobody(daemon, f"attempt(lambda: daemon.post('/v1/jobs', {body | more!r}))") == "not_operator"
        assert daemon.post("/v1/jobs", body | more)["id"] > 0
    assert refusal(daemon.post, "/v1/jobs", body | {"engine": False, "pin": True}).answer == (400, "pin_engine")


def test_a_pinned_engine_says_why_it_is_not_moved(daemon: Daemon) -> None:
    engine = daemon.submit("sleep", "600", engine=True, pin=True, until="ProcessStarted")
    assert daemon.get(f"/v1/jobs/{engine}")["immovable"] == "it is a pinned engine"
    daemon.post(f"/v1/jobs/{engine}/pause")
    assert daemon.get(f"/v1/jobs/{engine}")["immovable"] is None, "its user moves it all the same"
