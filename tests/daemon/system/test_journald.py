"""Records as entries of systemd's journal, sent to a stand-in: a datagram socket that takes the entries apart."""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.daemon.system.log_setup import (
    LONGEST_BYTES,
    REQUEST,
    Correlated,
    JournalHandler,
    LogHandler,
    entry,
    goes_to_journal,
    log_handler,
)

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
