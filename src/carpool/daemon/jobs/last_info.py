"""The row of an ended job as it stays in memory: short, however much its user and its shim have said."""

from __future__ import annotations

import msgspec

from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.api import AttemptInfo, JobInfo, ReasonInfo

LONGEST_COMMAND = 4096  # characters
LONGEST_TEXT = 1024  # characters, of a directory or a reason
REST = "... (the rest is in the journal)"
#: If a job has more attempts than that, the earliest ones are only in the journal.
MOST_ATTEMPTS = 20


def last_info(job: JobRecord) -> msgspec.Raw:
    """Encode the final row of a job once, because it no longer changes; long texts and lists of attempts are shortened.

    Texts keep their beginning, the list of attempts its last `MOST_ATTEMPTS`.
    """
    return msgspec.Raw(msgspec.json.encode(_short(job_info(job, None))))


def _short(info: JobInfo) -> JobInfo:
    return msgspec.structs.replace(
        info,
        command=shortened(info.command),
        cwd=short_text(info.cwd),
        reason=None if info.reason is None else ReasonInfo(info.reason.code, short_text(info.reason.text)),
        output=short_text(info.output),
        error=short_text(info.error),
        attempts=[_short_attempt(attempt) for attempt in info.attempts[-MOST_ATTEMPTS:]],
    )


def _short_attempt(attempt: AttemptInfo) -> AttemptInfo:
    return msgspec.structs.replace(attempt, text=short_text(attempt.text))


def short_text(text: str) -> str:
    """Shorten a text to `LONGEST_TEXT` characters and a note that the rest is in the journal."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + REST


def shortened(argv: list[str]) -> list[str]:
    """Shorten a command to `LONGEST_COMMAND` characters and a note that the rest is in the journal."""
    left = LONGEST_COMMAND
    kept: list[str] = []
    for text in argv:
        if len(text) + 1 > left:
            return [*kept, f"{text[:left]}{REST}"]
        kept.append(text)
        left -= len(text) + 1
    return kept
