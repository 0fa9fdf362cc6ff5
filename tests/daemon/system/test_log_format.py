"""The daemon's log as JSON: one object a line, whatever a text of a user has in it."""

from __future__ import annotations

import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.log_setup import JsonFormatter
from tests.daemon.daemon_harness import Make


def record(text: str, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("carpool.daemon.x", logging.WARNING, "x.py", 1, "refused %s", (text,), None)
    made.__dict__.update(more)
    return made


@given(st.text())
def test_a_record_is_one_line_and_says_everything(text: str) -> None:
    line = JsonFormatter().format(record(text, **caused_by(1000)))
    assert "\n" not in line and line.isascii()
    found = json.loads(line)
    assert (found["level"], found["logger"], found["uid"]) == ("WARNING", "carpool.daemon.x", 1000)
    assert found["message"] == f"refused {text}" and found["time"].endswith("+00:00")


def test_a_traceback_is_a_part_of_the_object() -> None:
    try:
        raise ValueError("wrong\nin two lines")
    except ValueError:
        made = record("it", exc_info=sys.exc_info())
    found = json.loads(JsonFormatter().format(made))
    assert "ValueError: wrong" in found["traceback"] and "uid" not in found


def test_a_daemon_writes_json_where_it_is_asked_to(make_daemon: Make) -> None:
    daemon = make_daemon("--device", "host:64MiB", "--log-format", "json").started()
    daemon.stop()
    for line in daemon.log().splitlines():
        assert {"time", "level", "logger", "message"} <= set(json.loads(line))


def test_an_unknown_format_is_refused(make_daemon: Make) -> None:
    error = make_daemon("--log-format", "xml").failed()
    assert error["code"] == "bad_option" and "choose from" in error["message"]


@pytest.mark.parametrize("uid", [None, 5])
def test_whose_mistake_it_was_is_there_if_it_is_known(uid: int | None) -> None:
    found = json.loads(JsonFormatter().format(record("it", **caused_by(uid))))
    assert found.get("uid") == uid
