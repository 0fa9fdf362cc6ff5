"""The daemon's file of checks of predictions: read, bounded, one check a day, and damaged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from carpool.protocol.predictions import (
    MOST,
    DamagedChecks,
    PredictionCheck,
    check_words,
    checks_text,
    read_checks,
    with_check,
)
from tests.daemon.journal_file import local

DAY_US = 86_400_000_000
CHECK = PredictionCheck(
    since_us=0,
    until_us=DAY_US - 1,
    carpool="1",
    policy="fair",
    placement="magm",
    devices=1,
    jobs=34,
    left_out=0,
    predicted_mean_s=104.0,
    real_mean_s=100.0,
    mean_error=0.04,
    median_error=0.031,
    p95_error=0.126,
)


def on_day(day: int) -> PredictionCheck:
    return msgspec.structs.replace(CHECK, since_us=day * DAY_US, until_us=(day + 1) * DAY_US - 1)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "predictions.jsonl"
    assert read_checks(path) == []
    path.write_bytes(checks_text([on_day(1), on_day(2)]))
    assert read_checks(path) == [on_day(1), on_day(2)]


def test_a_day_has_one_check_and_old_ones_go() -> None:
    with local("UTC"):
        checks: list[PredictionCheck] = []
        for day in range(MOST + 3):
            checks = with_check(checks, on_day(day))
        assert checks == [on_day(day) for day in range(3, MOST + 3)]
        later = msgspec.structs.replace(checks[-1], jobs=35, until_us=checks[-1].until_us - 1)
        assert with_check(checks, later) == [*checks[:-1], later]


def test_words() -> None:
    with local("UTC"):
        found = (
            "the mean completion time of 34 jobs on 1970-01-01 was predicted to 4.0 % (median per job 3.1 %, p95 13 %)"
        )
        assert check_words(CHECK) == found
        longer = msgspec.structs.replace(CHECK, until_us=2 * DAY_US, jobs=1)
        assert "of 1 job from 1970-01-01 to 1970-01-03 was" in check_words(longer)


@pytest.mark.parametrize("line", [b"{}", b"nothing", b"\xff", b"", b'{"since_us": 1'])
def test_a_line_that_is_no_check_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(checks_text([CHECK]) + line + b"\n")
    with pytest.raises(DamagedChecks, match=r"line 2 is no check .*; remove that line, or the file"):
        read_checks(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedChecks, match="cannot be read"):
        read_checks(tmp_path)
