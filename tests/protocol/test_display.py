"""Characters that do something in terminals and logs are shown, not obeyed."""

from __future__ import annotations

import logging

import msgspec
import pytest

from carpool.cli.base.options_common import for_terminal, json_escaped
from carpool.daemon.system.log_setup import OneLineFormatter
from carpool.protocol.display import escaped

ODD = "red \x1b[31m \r\nline \x7f \x9b2J \u202eright \u2028 \U000e0041"
SHOWN = r"red \x1b[31m \r\nline \x7f \x9b2J \u202eright \u2028 \U000e0041"


def test_what_cannot_be_seen_is_escaped() -> None:
    assert escaped(ODD) == SHOWN and escaped(SHOWN) == SHOWN
    assert escaped("träin ü€😀") == "träin ü€😀"


def test_json_for_a_terminal_is_the_same_document() -> None:
    document = {"name": ODD, "list": [ODD, "ü€😀"]}
    text = for_terminal(msgspec.json.encode(document))
    assert msgspec.json.decode(text) == document
    assert all(line.isprintable() for line in text.decode().split("\n")) and "ü€😀" in text.decode()
    assert json_escaped('"\x7f"') == '"\\u007f"'


@pytest.fixture
def record() -> logging.LogRecord:
    return logging.LogRecord("carpool", logging.WARNING, __file__, 1, "refused %s", (ODD,), None)


def test_a_message_of_the_log_is_one_line(record: logging.LogRecord) -> None:
    assert OneLineFormatter("%(levelname)s: %(message)s").format(record) == f"WARNING: refused {SHOWN}"


def test_no_line_of_a_traceback_looks_like_a_message(record: logging.LogRecord) -> None:
    try:
        raise ValueError("x\n2026-01-01 INFO carpool: all is well \x1b[2J")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    first, *rest = OneLineFormatter("%(message)s").format(record).split("\n")
    assert first == f"refused {SHOWN}" and rest[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") and line.isprintable() for line in rest)
