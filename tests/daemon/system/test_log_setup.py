"""Records of the log, for people, as JSON, as entries of systemd's journal; and of which request and job they are."""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.daemon.system.log_limit import caused_by
from carpool.daemon.system.log_setup import (
    LINE,
    LONGEST_BYTES,
    REQUEST,
    Correlated,
    JournalHandler,
    JsonFormatter,
    LogHandler,
    OneLineFormatter,
    entry,
    goes_to_journal,
    job_of,
    log_handler,
)
from tests.daemon.daemon_harness import Make

KEYS = st.from_regex(r"[A-Z][A-Z_]{0,20}", fullmatch=True)


def taken_apart(data: bytes) -> dict[str, str]:
    """As journald reads an entry."""
    fields: dict[str, str] = {}
    while data:
        line, data = data.split(b"\n", 1)
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack_from("<Q", data)
            value, data = data[8 : 8 + size], data[8 + size :]
            assert data[:1] == b"\n"
            data = data[1:]
        fields[name.decode()] = value.decode()
    return fields


class StandInForJournald:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(5.0)

    def entry(self) -> dict[str, str]:
        return taken_apart(self._socket.recv(1 << 20))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[StandInForJournald]:
    standin = StandInForJournald(tmp_path / "socket")
    yield standin
    standin.close()


@pytest.fixture
def log(journald: StandInForJournald) -> Iterator[logging.Logger]:
    """A logger whose records go to the stand-in."""
    handler = JournalHandler(journald.path)
    handler.addFilter(Correlated())
    logger = logging.Logger("carpool.daemon.trial")
    logger.addHandler(handler)
    yield logger
    handler.close()


@given(st.dictionaries(KEYS, st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=5))
def test_any_values_arrive_as_they_are(fields: dict[str, str]) -> None:
    assert taken_apart(entry(fields)) == fields


def test_an_entry_has_fields(journald: StandInForJournald, log: logging.Logger) -> None:
    mark = REQUEST.set("build-17")
    log.warning("attempt %d of job %d waits: %s", 2, 71, "it\nis full", extra={"uid": 1000})
    REQUEST.reset(mark)
    found = journald.entry()
    assert found["MESSAGE"] == r"attempt 2 of job 71 waits: it\nis full"
    assert (found["PRIORITY"], found["SYSLOG_IDENTIFIER"]) == ("4", "carpool")
    assert (found["CARPOOL_JOB"], found["CARPOOL_REQUEST"], found["CARPOOL_UID"]) == ("71", "build-17", "1000")
    assert found["CODE_FILE"] == __file__ and found["CODE_FUNC"] == "test_an_entry_has_fields"
    log.error("nothing in particular")
    assert not {"CARPOOL_JOB", "CARPOOL_REQUEST"} & journald.entry().keys()


def test_a_traceback_keeps_its_lines_and_no_text_of_a_user_is_a_field(
    journald: StandInForJournald, log: logging.Logger
) -> None:
    try:
        raise ValueError("wrong\nPRIORITY=0\nMESSAGE=all is well")
    except ValueError:
        log.exception("job %s", "9\nPRIORITY=0")
    found = journald.entry()
    assert found["PRIORITY"] == "3" and "CARPOOL_JOB" not in found
    assert found["MESSAGE"].startswith("job 9\\nPRIORITY=0\n  Traceback (most recent call last):\n")


def test_long_messages_are_cut_and_a_journal_that_is_gone_stops_nothing(
    journald: StandInForJournald, log: logging.Logger
) -> None:
    log.info("ä" * LONGEST_BYTES)
    message = journald.entry()["MESSAGE"]
    assert len(message.encode()) < LONGEST_BYTES + 10 and message.endswith("ä [cut]")
    journald.path.unlink()
    log.info("nobody hears that")


def test_only_standard_error_that_systemd_has_connected_goes_to_the_journal(
    journald: StandInForJournald, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = os.fstat(2)
    assert not goes_to_journal(2, {}) and not goes_to_journal(2, {"JOURNAL_STREAM": "junk"})
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino + 1}")
    assert isinstance(log_handler(None, "text", journald.path), LogHandler)
    monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    handler = log_handler(None, "text", journald.path)
    assert isinstance(handler, JournalHandler)
    handler.close()
    assert isinstance(log_handler(None, "json", journald.path), LogHandler)


# Of which request and job a record is


def record(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "x.py", 1, text, values, None)


@pytest.mark.parametrize(
    ("text", "values", "job"),
    [
        ("job %d waits: %s", (7, "job 9"), 7),
        ("100 %% of %s (%.0f s): job %d, process %d", ("a", 1.0, 8, 99), 8),
        ("cannot send %s to the shim of job %s: %s", ("start", 6, "gone"), 6),
        ("%s", ("job 5",), None),
        ("job %s", ("5",), None),
        ("job %d", (), None),
        ("nothing", (), None),
    ],
)
def test_the_job_is_the_number_that_the_code_names(text: str, values: tuple[object, ...], job: int | None) -> None:
    assert job_of(record(text, *values)) == job


def test_lines_for_people_end_with_the_request() -> None:
    formatter = OneLineFormatter(LINE, defaults={"of_request": ""})
    made = record("it waits")
    assert formatter.format(made).endswith("x: it waits")
    mark = REQUEST.set("abc")
    assert Correlated().filter(made)
    REQUEST.reset(mark)
    assert formatter.format(made).endswith("x: it waits (request abc)")
    assert '"request": "abc"' in JsonFormatter().format(made)


# JSON: one object a line, whatever a text of a user has in it


def json_record(text: str, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("carpool.daemon.x", logging.WARNING, "x.py", 1, "refused %s", (text,), None)
    made.__dict__.update(more)
    return made


@given(st.text())
def test_a_record_is_one_line_and_says_everything(text: str) -> None:
    line = JsonFormatter().format(json_record(text, **caused_by(1000)))
    assert "\n" not in line and line.isascii()
    found = json.loads(line)
    assert (found["level"], found["logger"], found["uid"]) == ("WARNING", "carpool.daemon.x", 1000)
    assert found["message"] == f"refused {text}" and found["time"].endswith("+00:00")


def test_a_traceback_is_a_part_of_the_object() -> None:
    try:
        raise ValueError("wrong\nin two lines")
    except ValueError:
        made = json_record("it", exc_info=sys.exc_info())
    found = json.loads(JsonFormatter().format(made))
    assert "ValueError: wrong" in found["traceback"] and "uid" not in found


def test_a_daemon_writes_json_where_it_is_asked_to(make_daemon: Make) -> None:
    daemon = make_daemon("--device", "host:64MiB", "--log-format", "json").started()
    daemon.stop()
    for line in daemon.log().splitlines():
        assert {"time", "level", "logger", "message"} <= set(json.loads(line))


@pytest.mark.parametrize("uid", [None, 5])
def test_whose_mistake_it_was_is_there_if_it_is_known(uid: int | None) -> None:
    found = json.loads(JsonFormatter().format(json_record("it", **caused_by(uid))))
    assert found.get("uid") == uid
