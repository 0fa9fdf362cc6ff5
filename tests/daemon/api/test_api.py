"""The API's manners: versions, errors, the description, what is refused."""

from __future__ import annotations

import json
import logging
import re
import threading
from contextlib import closing
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from carpool.daemon.api import context, middleware
from carpool.daemon.api.context import Caller
from carpool.daemon.api.routes import ROUTES, add_routes, description
from carpool.protocol.environment import REQUEST_HEADER
from tests.daemon.daemon_harness import Connection, Daemon, Refused, as_nobody, refusal, submission

GIB = 1 << 30


def test_every_answer_names_the_protocol_and_another_one_is_refused(shared: Daemon) -> None:
    version = shared.get("/v1/version")
    assert shared.last_headers["Carpool-Protocol"] == "1"
    assert version["home"] == str(shared.home) and version["api"] == 1
    with pytest.raises(Refused):
        shared.get("/v1/jobs/99")
    assert shared.last_headers["Carpool-Protocol"] == "1"
    assert shared.request("GET", "/v1/version", headers={"Carpool-Protocol": "1.7"})
    refused = refusal(shared.request, "GET", "/v1/version", headers={"Carpool-Protocol": "2"})
    assert refused.answer == (409, "protocol_mismatch")
    assert refused.hint


@pytest.mark.parametrize("sent", [b"GET /v1/version HTTP/1.1\r\n\r\n", b"\0\xff\r\n\r\n"])
def test_what_is_no_http_is_answered_and_writes_no_log(shared: Daemon, sent: bytes) -> None:
    before = shared.log()
    connection = Connection(shared.socket)
    connection.connect()
    with closing(connection.sock):
        connection.sock.sendall(sent)
        assert b"400 Bad Request" in connection.sock.recv(4096)
    assert shared.log() == before


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"argv": []}, 400, "empty_command"),
    ({"argv": [""]}, 400, "empty_command"),
    ({"argv": ["a\0b"]}, 400, "bad_text"),
    ({"name": "a\0b"}, 400, "bad_text"),
    ({"cwd": "relative"}, 400, "bad_directory"),
    ({"cwd": "/" + "x" * 4096}, 400, "bad_directory"),
    ({"cwd": "/" + "\u00fc" * 2048}, 400, "bad_directory"),
    ({"env": {"A=B": "c"}}, 400, "bad_environment"),
    ({"weight": 0}, 400, "bad_weight"),
    ({"weight": -5}, 400, "bad_weight"),
    ({"iterations": -1}, 400, "bad_iterations"),
    ({"duration_us": -1}, 400, "bad_duration_us"),
    ({"estimate_source": "crystal ball"}, 400, "unknown_estimator"),
    ({"persistent_bytes": -1}, 400, "bad_persistent_bytes"),
    ({"device": "host7"}, 400, "unknown_device"),
    ({"after": [77]}, 400, "unknown_dependency"),
    ({"persistent_bytes": GIB}, 422, "too_large"),
    ({"persistent_bytes": 200 << 20, "ephemeral_bytes": 200 << 20}, 422, "too_large"),
    ({"checkpoint": True, "foreground": True}, 400, "checkpoint_foreground"),
    ({"foreground": True, "requeue": True}, 400, "retries_foreground"),
    ({"checkpoint": True}, 422, "no_checkpoint"),
    ({"checkpoint": True, "device": "host0"}, 422, "no_checkpoint"),
    ({"memory": 5}, 400, "bad_request"),
    ({"weight": "heavy"}, 400, "bad_request"),
]


@pytest.mark.parametrize(("fields", "status", "code"), BAD, ids=[f"{next(iter(b[0]))}-{b[2]}" for b in BAD])
def test_bad_submissions_are_refused(shared: Daemon, fields: dict[str, Any], status: int, code: str) -> None:
    before = shared.get("/v1/jobs")["jobs"]
    refused = refusal(shared.post, "/v1/jobs", submission("true") | fields)
    assert refused.answer == (status, code)
    assert refused.message
    assert shared.get("/v1/jobs")["jobs"] == before


def test_bodies_that_are_not_json(shared: Daemon) -> None:
    connection = Connection(shared.socket)
    connection.request("POST", "/v1/jobs", b"{not json", {})
    response = connection.getresponse()
    assert response.status == 400 and json.loads(response.read())["error"]["code"] == "bad_request"
    connection.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("DELETE", "/v1/jobs", 405),
        ("GET", "/v1/jobs/abc", 404),
        pytest.param("GET", "/v1/jobs/" + "9" * 5000, 404, id="a number of 5,000 digits"),
        ("GET", "/v1/jobs?limit=-1", 400),
        ("GET", "/v1/events?since=x", 400),
        ("GET", "/v1/events?follow=maybe", 400),
        ("GET", "/v1/events?limit=-1", 400),
        ("GET", "/v1/events?limit=1&before=x", 400),
        *(("GET", f"/v1/usage?since={since}", 400) for since in ("never", "-1", "1e300", "nan", "9&until=1")),
        ("GET", f"/v1/usage?until={1 << 60}", 400),
        *(("GET", f"/v1/turns?bins={bins}", 400) for bins in ("0", "1.5", "4001")),
        *(("GET", f"/v1/turns?since={since}", 400) for since in ("9&until=9", "x")),
        ("GET", "/v1/turns?device=host9", 404),
    ],
)
def test_bad_requests(shared: Daemon, method: str, path: str, status: int) -> None:
    assert refusal(shared.request, method, path).status == status


@pytest.mark.parametrize(
    "body",
    [
        {"name": "no-such-policy"},
        {"settings": {"no_such_setting": 1}},
        {"settings": {"quantum_us": -1}},
        {"settings": {"growth_step": None}},
        {"settings": {"host_store": 1 << 49}},
        {"settings": {"policy": 1}},
    ],
)
def test_bad_policies(shared: Daemon, body: dict[str, Any]) -> None:
    before = shared.get("/v1/policy")
    refused = refusal(shared.put, "/v1/policy", body)
    assert refused.code == "bad_policy" and refused.message
    assert shared.get("/v1/policy") == before


def test_policies_change_on_the_running_daemon(daemon: Daemon) -> None:
    available = daemon.get("/v1/policy")["available"]
    assert {"fair", "fifo", "pack", "srtf"} <= set(available)
    for name in available:
        assert daemon.put("/v1/policy", {"name": name, "settings": {"max_lanes": 2}})["name"] == name
    assert daemon.put("/v1/policy", {"settings": {"max_lanes": None}})["settings"]["max_lanes"] is None


def test_the_description_is_that_of_the_routes(shared: Daemon) -> None:
    app = web.Application()
    add_routes(app)
    served = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    described = shared.get("/openapi.json")
    listed = {(method.upper(), path) for path, row in described["paths"].items() for method in row}
    assert listed == served == {(route.method, route.path) for route in ROUTES}
    assert described == json.loads(json.dumps(description()))
    text = json.dumps(described)
    names = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert names == set(described["components"]["schemas"])


def test_texts_of_the_description_are_for_users_of_the_api() -> None:
    """Each stands alone, in Markdown, and without names of Python modules."""
    described = description()
    operations = [each for row in described["paths"].values() for each in row.values()]
    summaries = [each["summary"] for each in operations]
    assert len(set(summaries)) == len(summaries)
    assert not [text for text in summaries if re.search(r"\b(it|its|them|one of|who|what it)\b", text, re.IGNORECASE)]
    texts = [each["description"] for each in (*operations, *described["components"]["schemas"].values())]
    assert all(texts) and not [text for text in texts if "\n " in text or "`carpool." in text]


def test_answers_are_as_described(shared: Daemon) -> None:
    """Every field that is answered is in the description, and the other way round."""
    schemas = shared.get("/openapi.json")["components"]["schemas"]
    job = shared.submit("true")
    for name, answer in {
        "VersionInfo": shared.get("/v1/version"),
        "JobInfo": shared.wait(job),
        "JobList": shared.get("/v1/jobs"),
        "PolicyInfo": shared.get("/v1/policy"),
        "DeviceList": shared.get("/v1/devices"),
        "DeviceInfo": shared.get("/v1/devices")["devices"][0],
        "StoreInfo": shared.get("/v1/devices")["store"],
        "EventInfo": shared.events()[0],
    }.items():
        assert set(answer) == set(schemas[name]["properties"]), name


def test_events_in_pages_from_the_newest_on(shared: Daemon) -> None:
    shared.wait(shared.submit("true"))

    def page(query: str) -> list[int]:
        return [json.loads(line)["seq"] for line in shared.get(f"/v1/events?{query}").splitlines()]

    until = page("limit=3")[-1] + 1  # measurements go on
    all_of_them = page(f"before={until}&limit=10000")
    assert all_of_them == [event["seq"] for event in shared.events() if event["seq"] < until]
    assert page(f"before={until}&limit=4") == all_of_them[-4:]
    assert page(f"before={all_of_them[-4]}&limit=2") == all_of_them[-6:-4]
    assert page("before=1&limit=5") == [] == page("limit=0")


def test_following_from_a_number_that_is_yet_to_come(daemon: Daemon) -> None:
    """A daemon that is killed may have shown numbers that it had not written: who goes on from there hears the next."""
    last = daemon.events()[-1]["seq"]
    assert daemon.events(1 << 60) == []
    heard: list[int] = []
    listener = threading.Thread(
        target=lambda: heard.append(daemon.until_event(lambda event: event["kind"] == "EndJob", 1 << 60)["seq"])
    )
    listener.start()
    while listener.is_alive():
        daemon.wait(daemon.python("pass"))
    assert heard and heard[0] > last


# Requests that fail: the line in the daemon's log counts as one that the caller has caused


async def test_a_failure_is_logged_as_caused_by_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    request = make_mocked_request("GET", "/v1/limits", app=web.Application())
    request[context._CALLER] = Caller(1234, 1234)

    async def handler(request: web.Request) -> web.StreamResponse:
        raise AssertionError

    with caplog.at_level(logging.ERROR):
        assert (await middleware.guard(request, handler)).status == 500
    assert [getattr(record, "uid", None) for record in caplog.records] == [1234]


# Ids of requests in answers and jobs, and levels of the log for administrators only


def answered(daemon: Daemon, path: str, given: str | None) -> tuple[int, str | None, bytes]:
    """Status, the id of the answer, and the body."""
    connection = Connection(daemon.socket)
    connection.request("GET", path, headers={} if given is None else {REQUEST_HEADER: given})
    answer = connection.getresponse()
    found = answer.status, answer.getheader(REQUEST_HEADER), answer.read()
    connection.close()
    return found


def test_answers_repeat_the_id_also_those_of_errors_and_unknown_paths(daemon: Daemon) -> None:
    for path, status in (("/v1/jobs", 200), ("/v1/jobs/77", 404), ("/nothing", 404)):
        assert answered(daemon, path, "a.b-C_9")[:2] == (status, "a.b-C_9")
    made = answered(daemon, "/v1/jobs/77", None)
    assert (
        made[1] is not None and re.fullmatch("[0-9a-f]{16}", made[1]) and f'"request":"{made[1]}"'.encode() in made[2]
    )
    status, own, body = answered(daemon, "/v1/jobs", "two words")
    assert status == 400 and own != "two words" and b"bad_request_id" in body


def test_a_submission_says_no_id_itself_and_a_retry_has_its_own(daemon: Daemon) -> None:
    with pytest.raises(Refused, match="leave request out"):
        daemon.submit("true", request="mine")
    job = daemon.submit("false")
    first = daemon.wait(job)["request"]
    (again,) = daemon.post("/v1/retries", {"jobs": [job], "env": {}})["ids"]
    second = daemon.wait(again)["request"]
    assert first != second and all(re.fullmatch("[0-9a-f]{16}", each) for each in (first, second))


def test_levels_are_for_administrators(daemon: Daemon) -> None:
    calls = ("daemon.get('/v1/log-level')", "daemon.put('/v1/log-level', {'level': 'debug'})")
    assert [as_nobody(daemon, f"attempt(lambda: {call})") for call in calls] == ["not_operator"] * 2
    assert daemon.put("/v1/log-level", {"level": "warning"})["level"] == "warning"
