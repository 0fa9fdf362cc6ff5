"""What fronts report of engines, who sees it, and how wishes of users reach the fronts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from tests.daemon.api.test_model_states import put, reporting
from tests.daemon.daemon_harness import NOBODY, Connection, Daemon, Make, as_nobody, refusal, until

READY = {"state": "ready", "models": ["l"], "url": "http://127.0.0.1:8000"}


@pytest.fixture
def front(daemon: Daemon) -> Iterator[Connection]:
    with closing(Connection(daemon.socket)) as connection:
        yield connection


def report(connection: Connection, **engines: Mapping[str, object]) -> Any:
    """Report once; return the wishes."""
    return put(connection, "/v1/engines", {"engines": engines})["engines"]


def names(daemon: Daemon) -> list[str]:
    return [each["name"] for each in daemon.get("/v1/engines")["engines"]]


def test_a_report_counts_to_the_end_of_its_connection(daemon: Daemon) -> None:
    with closing(Connection(daemon.socket)) as one, closing(Connection(daemon.socket)) as other:
        assert report(one, llama=READY, small={"state": "off", "reason": "exit code 1"}) == {}
        report(other, big=READY)
        assert names(daemon) == ["big", "llama", "small"]
        (big, llama, small) = daemon.get("/v1/engines")["engines"]
        assert llama["owner"] == os.geteuid() and llama["report"]["models"] == ["l"] and llama["device"] is None
        assert small["report"]["reason"] == "exit code 1" and big["report"]["state"] == "ready"
        report(one, llama=READY)
        assert names(daemon) == ["big", "llama"]
    until(lambda: names(daemon) == [])


def test_the_place_of_its_job(daemon: Daemon, front: Connection) -> None:
    job = daemon.submit("sleep", "600", service=100, engine=True, until="ProcessStarted")
    report(front, llama=READY | {"job": job}, other=READY | {"job": job + 1})
    llama, other = daemon.get("/v1/engines")["engines"]
    assert llama["device"] == daemon.get(f"/v1/jobs/{job}")["device"] is not None and llama["moved_out"] is False
    assert other["device"] is None


def test_the_core_hears_which_engines_are_ready(daemon: Daemon, front: Connection) -> None:
    job = daemon.submit("sleep", "600", engine=True, until="ProcessStarted")
    other = daemon.submit("sleep", "600", until="ProcessStarted")
    report(front, starting=READY | {"job": job, "state": "starting"})
    report(front, llama=READY | {"job": job}, none=READY | {"job": other}, gone=READY | {"job": 99})
    served = [event["data"] for event in daemon.events() if event["kind"] == "EngineServed"]
    assert served == [{"job": job, "served": True}]


def test_wishes(daemon: Daemon, front: Connection) -> None:
    report(front, llama=READY, small=READY)
    for name, wish in (("llama", "sleep"), ("llama", "stop"), ("small", "start")):
        assert daemon.post(f"/v1/engines/{name}/{wish}")["name"] == name
    assert report(front, llama=READY, small=READY) == {"llama": "stop", "small": "start"}, "the last one counts"
    assert report(front, llama=READY, small=READY) == {}
    assert refusal(daemon.post, "/v1/engines/llama/fly").answer == (404, "unknown_wish")
    unknown = refusal(daemon.post, "/v1/engines/lama/stop")
    assert unknown.answer == (404, "unknown_engine") and "did you mean 'llama'?" in unknown.hint


def test_a_wish_is_for_fronts_that_serve_the_engine_now(daemon: Daemon, front: Connection) -> None:
    """None is left for a later front: the user has long given up."""
    with closing(Connection(daemon.socket)) as other:
        report(other, llama=READY)
        daemon.post("/v1/engines/llama/stop")
    until(lambda: names(daemon) == [])
    assert report(front, llama=READY) == {}
    with closing(Connection(daemon.socket)) as other:
        report(other, llama=READY)
        daemon.post("/v1/engines/llama/stop")
        assert report(front, llama=READY) == report(other, llama=READY) == {"llama": "stop"}


def test_reports_are_bounded(front: Connection) -> None:
    for wrong in (
        READY | {"state": "flying"},
        READY | {"reason": "x" * 3000},
        READY | {"models": ["x" * 300]},
        READY | {"in_flight": -1},
        READY | {"secret": 1},
        READY | {"mapped_bytes": {"secret": 1}},
    ):
        assert refusal(report, front, llama=wrong).answer[0] == 400
    assert refusal(report, front, **{f"e{number}": READY for number in range(1001)}).answer[0] == 400


def test_engines_of_one_user_are_bounded(daemon: Daemon, front: Connection) -> None:
    """Everyone can list them."""
    models = [f"m{number}" for number in range(600)]
    report(front, one=READY | {"models": models})
    report(front, two=READY | {"models": models})
    with closing(Connection(daemon.socket)) as other:
        assert refusal(report, other, three=READY | {"models": models}).answer == (429, "too_many_engines")
        report(other, three=READY)
    assert refusal(report, front, one=READY | {"models": models}, two=READY | {"models": models}).answer[0] == 429
    until(lambda: names(daemon) == [])
    report(front, two=READY | {"models": models})


def test_engines_of_others(make_daemon: Make) -> None:
    """Everyone may ask them, so everyone sees them; only their owner and administrators control them."""
    daemon = make_daemon().started()
    with closing(Connection(daemon.socket)) as front:
        report(front, llama=READY)
        assert as_nobody(daemon, "daemon.get('/v1/engines')")["engines"][0]["name"] == "llama"
        wish = "attempt(lambda: daemon.post('/v1/engines/llama/stop?owner=0'))"
        assert as_nobody(daemon, wish) == "not_owner"
        assert as_nobody(daemon, "attempt(lambda: daemon.post('/v1/engines/llama/stop'))") == "unknown_engine"
        others = refusal(daemon.post, f"/v1/engines/llama/stop?owner={NOBODY}")
        assert "'llama' is of another user (root)" in str(others) and "--owner USER" in others.hint
        assert report(front, llama=READY) == {}


def test_where_users_see_only_their_own(make_daemon: Make) -> None:
    daemon = make_daemon(limits='visibility = "own"\n').started()
    with closing(Connection(daemon.socket)) as front:
        report(front, llama=READY)
        assert as_nobody(daemon, "daemon.get('/v1/engines')") == {"engines": []}


def test_a_front_is_not_believed_about_jobs_of_others(daemon: Daemon) -> None:
    job = daemon.submit("sleep", "600", until="ProcessStarted")
    daemon.home.parent.chmod(0o711)
    with reporting(daemon, NOBODY, "/v1/engines", {"engines": {"theirs": READY | {"job": job}}}):
        (theirs,) = daemon.get("/v1/engines")["engines"]
        assert theirs["owner"] == NOBODY and theirs["device"] is None
