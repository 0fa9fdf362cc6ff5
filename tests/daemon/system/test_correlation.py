"""Of which request and job a record is."""

from __future__ import annotations

import logging

import pytest

from carpool.daemon.system.log_setup import LINE, REQUEST, Correlated, JsonFormatter, OneLineFormatter, job_of


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
