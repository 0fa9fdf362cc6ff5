"""Ids of requests in answers and jobs, and levels of the log for administrators only."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

from carpool.protocol.environment import REQUEST_HEADER
from tests.daemon.daemon_harness import Connection, Daemon, Refused, as_nobody

Make = Callable[..., Daemon]


def answered(daemon: Daemon, path: str, given: str | None) -> tuple[int, str | None, bytes]:
    """Status, the id of the answer, and the body."""
    connection = Connection(daemon.socket)
    connection.request("GET", path, headers={} if given is None else {REQUEST_HEADER: given})
    answer = connection.getresponse()
    found = answer.status, answer.getheader(REQUEST_HEADER), answer.read()
    connection.close()
    return found


def test_answers_repeat_the_id_also_those_of_errors_and_unknown_paths(make_daemon: Make) -> None:
    daemon = make_daemon().started()
    for path, status in (("/v1/jobs", 200), ("/v1/jobs/77", 404), ("/nothing", 404)):
        assert answered(daemon, path, "a.b-C_9")[:2] == (status, "a.b-C_9")
    made = answered(daemon, "/v1/jobs/77", None)
    assert (
        made[1] is not None and re.fullmatch("[0-9a-f]{16}", made[1]) and f'"request":"{made[1]}"'.encode() in made[2]
    )
    status, own, body = answered(daemon, "/v1/jobs", "two words")
    assert status == 400 and own != "two words" and b"bad_request_id" in body


def test_a_submission_says_no_id_itself_and_a_retry_has_its_own(make_daemon: Make) -> None:
    daemon = make_daemon().started()
    with pytest.raises(Refused, match="leave request out"):
        daemon.submit("true", request="mine")
    job = daemon.submit("false")
    first = daemon.wait(job)["request"]
    (again,) = daemon.post("/v1/retries", {"jobs": [job], "env": {}})["ids"]
    second = daemon.wait(again)["request"]
    assert first != second and all(re.fullmatch("[0-9a-f]{16}", each) for each in (first, second))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to ask as another user")
def test_levels_are_for_administrators(make_daemon: Make) -> None:
    daemon = make_daemon().started()
    daemon.home.parent.chmod(0o755)
    calls = ("daemon.get('/v1/log-level')", "daemon.put('/v1/log-level', {'level': 'debug'})")
    assert [as_nobody(daemon, f"attempt(lambda: {call})") for call in calls] == ["not_operator"] * 2
    assert daemon.put("/v1/log-level", {"level": "warning"})["level"] == "warning"
