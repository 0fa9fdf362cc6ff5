"""How well the simulator has predicted this server's jobs: checks that the daemon's home keeps, one line for each day.

The file has figures of all jobs together, and nothing of single ones: every user of a server may read it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from carpool.core.model import Micros
from carpool.protocol.paths import read_regular

#: Checks that are kept.
MOST = 60
#: From so many jobs on a check says something, and is kept.
FEWEST_JOBS = 5
SECOND_US = 1_000_000
NONE_YET = "none yet; `carpool simulate --check` compares the last day with its simulation"

_Share = Annotated[float, msgspec.Meta(ge=0)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class PredictionCheck(msgspec.Struct, frozen=True):
    """One check.  Times since the epoch are microseconds of the wall clock; errors are shares of the real times.

    ``jobs``: compared jobs, submitted from ``since_us`` to ``until_us``; ``left_out``: others that were submitted then.
    """

    since_us: Annotated[Micros, msgspec.Meta(ge=0, le=1 << 62)]
    until_us: Annotated[Micros, msgspec.Meta(ge=0, le=1 << 62)]
    carpool: str
    policy: str
    placement: str
    devices: int
    jobs: Annotated[int, msgspec.Meta(ge=1)]
    left_out: int
    predicted_mean_s: _Seconds
    real_mean_s: _Seconds
    mean_error: _Share
    median_error: _Share
    p95_error: _Share


class DamagedChecks(ValueError):
    """The file cannot be read: the text says what is wrong and, behind the last semicolon, what to do."""


def read_checks(path: Path) -> list[PredictionCheck]:
    """Read the checks, the oldest first; none if there is no file.  Raises DamagedChecks."""
    try:
        lines = read_regular(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DamagedChecks(f"{path} cannot be read: {error.strerror}; let its owner remove it") from None
    return [_check(path, number, line) for number, line in enumerate(lines, 1)]


def _check(path: Path, number: int, line: bytes) -> PredictionCheck:
    try:
        return msgspec.json.decode(line, type=PredictionCheck)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"{path}: line {number} is no check of predictions ({error}); remove that line, or the file"
        raise DamagedChecks(text) from None


def with_check(checks: Sequence[PredictionCheck], new: PredictionCheck) -> list[PredictionCheck]:
    """Return the checks with a new one, which takes the place of an earlier one of its day; no more than `MOST`."""
    others = [check for check in checks if _day(check.until_us) != _day(new.until_us)]
    return [*others, new][-MOST:]


def checks_text(checks: Sequence[PredictionCheck]) -> bytes:
    """Return the file's contents."""
    return b"".join(msgspec.json.encode(check) + b"\n" for check in checks)


def check_words(check: PredictionCheck) -> str:
    """Say how good a prediction was, in one sentence."""
    first, last = _day(check.since_us), _day(check.until_us)
    jobs = "1 job" if check.jobs == 1 else f"{check.jobs:,} jobs"
    days = f"on {first}" if first == last else f"from {first} to {last}"
    mean, median, p95 = map(percent, (check.mean_error, check.median_error, check.p95_error))
    return f"the mean completion time of {jobs} {days} was predicted to {mean} (median per job {median}, p95 {p95})"


def percent(share: float) -> str:
    """Format a share: whole percents from 10 on.

    >>> percent(0.041), percent(0.126), percent(0)
    ('4.1 %', '13 %', '0.0 %')
    """
    return f"{100 * share:.{0 if share >= 0.0995 else 1}f} %"


def _day(us: Micros) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(us // SECOND_US))
