"""The client against a stand-in daemon: what it asks, what it makes of the answers, what it says about problems."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from carpool.protocol import unix_http
from carpool.protocol.api import EventInfo, JobList, PolicyRequest, SubmitRequest
from carpool.protocol.client import (
    ApiError,
    DaemonClient,
    DaemonNotAnswering,
    DaemonNotRunning,
    NotYourSocket,
    UnusablePath,
    VersionMismatch,
)
from tests.cli.standin import Answer, StandIn, as_json, device, device_list, job, problem


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cp-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def standin(home: Path) -> Iterator[StandIn]:
    with StandIn(home) as standin:
        yield standin


def test_jobs_carry_filters(standin: StandIn) -> None:
    standin.reactions["GET /v1/jobs"] = Answer(msgspec.json.encode(JobList([job(3), job(4)])))
    with DaemonClient(standin.home) as client:
        assert [info.id for info in client.jobs(("queued", "running"), 5)] == [3, 4]
        client.jobs()
    assert [request.query for request in standin.requests] == ["phase=queued,running&limit=5", "limit=1000"]


def test_submission_arrives_as_it_was_made(standin: StandIn) -> None:
    standin.reactions["POST /v1/jobs"] = as_json({"id": 7}, 201)
    request = SubmitRequest(argv=["python", "a b.py"], cwd="/tmp", env={"A": "ä"}, weight=3, after=[1, 2])
    with DaemonClient(standin.home) as client:
        assert client.submit(request) == 7
    assert msgspec.convert(standin.requests[0].body, SubmitRequest) == request
    sent = standin.requests[0].body
    assert isinstance(sent, dict)
    assert {*sent} == {"argv", "cwd", "env", "weight", "after"}


def test_requests_share_one_connection(standin: StandIn) -> None:
    standin.reactions["GET /v1/devices"] = device_list(device([1]))
    with DaemonClient(standin.home) as client:
        client.connect()
        first = client._connection.sock
        assert client.devices() == client.devices()
        assert client._connection.sock is first


def test_refusals_keep_code_message_hint_and_status(standin: StandIn) -> None:
    standin.reactions["PUT /v1/policy"] = problem(400, "bad_policy", "unknown policy 'x'", "known: fair")
    with DaemonClient(standin.home) as client, pytest.raises(ApiError) as caught:
        client.set_policy(PolicyRequest(name="x"))
    assert caught.value.status == 400
    assert (caught.value.info.code, caught.value.info.hint) == ("bad_policy", "known: fair")
    assert str(caught.value) == "unknown policy 'x'"


def test_logs_and_events_stream(standin: StandIn) -> None:
    standin.reactions["GET /v1/jobs/1/logs"] = Answer(b"one\ntwo\n")
    line = {"seq": 5, "time_us": 1, "now_us": 1, "kind": "Tick", "job": None, "data": {}}
    standin.reactions["GET /v1/events"] = Answer(2 * (msgspec.json.encode(line) + b"\n"))
    with DaemonClient(standin.home) as client:
        assert b"".join(client.logs(1, follow=True, offset=4)) == b"one\ntwo\n"
        assert [event.seq for event in client.events(since=4)] == [5, 5]
    assert [request.query for request in standin.requests] == ["follow=1&offset=4", "since=4"]


def test_events_that_come_in_many_pieces(standin: StandIn) -> None:
    """Lines of different lengths, more than one piece of an answer; the last one without an end of its own."""
    lines = [msgspec.json.encode(EventInfo(n, 1, 2, "Tick", None, {"text": "x" * (n % 700)})) for n in range(1, 1001)]
    standin.reactions["GET /v1/events"] = Answer(b"\n".join(lines))
    with DaemonClient(standin.home) as client:
        assert [(event.seq, len(event.data["text"])) for event in client.events()] == [
            (n, n % 700) for n in range(1, 1001)
        ]


def test_nobody_listens(home: Path) -> None:
    with DaemonClient(home) as client, pytest.raises(DaemonNotRunning, match="no daemon is running"):
        client.version()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(home / "carpool.sock"))
    stale.close()
    with DaemonClient(home) as client, pytest.raises(DaemonNotRunning):
        client.version()


@pytest.mark.parametrize("theirs", ["99", None])
def test_another_version_is_not_talked_to(home: Path, theirs: str | None) -> None:
    with StandIn(home, protocol=theirs, reactions={"GET /v1/jobs": as_json({"jobs": []})}):
        with (
            DaemonClient(home) as client,
            pytest.raises(VersionMismatch, match="version 99" if theirs else "not a Carpool"),
        ):
            client.jobs()
        if theirs:
            with DaemonClient(home, check_version=False) as client:
                assert client.jobs() == []


def test_a_strangers_daemon_is_not_talked_to(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    # The stand-in belongs to whoever runs the tests; we claim to be somebody else, and that the other is not root.
    stranger = SimpleNamespace(size=12, unpack=lambda _: (os.getpid(), 12345, 12345))
    monkeypatch.setattr(unix_http.os, "geteuid", lambda: 54321)
    monkeypatch.setattr(unix_http, "_UCRED", stranger)
    with DaemonClient(standin.home) as client, pytest.raises(NotYourSocket, match="belongs to user 12345"):
        client.version()
    assert standin.requests == []


def test_a_directory_that_may_not_be_entered_is_somebody_elses(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(unix_http, "check_owner", refuse)
    with StandIn(home), DaemonClient(home) as client, pytest.raises(NotYourSocket, match="belongs to another user"):
        client.version()


def test_a_path_too_long_for_a_socket(home: Path) -> None:
    with DaemonClient(home / ("x" * 120)) as client, pytest.raises(UnusablePath, match="107"):
        client.version()


@pytest.mark.parametrize(("hangs_up", "says"), [(True, "hung up"), (False, r"0\.05 s")], ids=["hangs up", "is silent"])
def test_a_daemon_that_does_not_answer(home: Path, hangs_up: bool, says: str) -> None:
    def hang_up() -> None:
        peer, _ = server.accept()
        peer.recv(1000)
        peer.close()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home / "carpool.sock"))
        server.listen()
        thread = threading.Thread(target=hang_up if hangs_up else lambda: None)
        thread.start()
        timeout_s = 60 if hangs_up else 0.05
        with DaemonClient(home, timeout_s=timeout_s) as client, pytest.raises(DaemonNotAnswering, match=says):
            client.version()
        thread.join()


def test_an_answer_of_another_form(standin: StandIn) -> None:
    standin.reactions["GET /v1/policy"] = as_json({"nom": "fair"})
    with DaemonClient(standin.home) as client, pytest.raises(DaemonNotAnswering, match="unknown form"):
        client.policy()
