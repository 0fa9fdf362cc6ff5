"""The row of a job that is over, as it stays in memory: short, whatever its user and its shim have said."""

from __future__ import annotations

import msgspec

from carpool.daemon.jobs.info import job_info
from carpool.daemon.jobs.table import JobRecord
from carpool.protocol.api import AttemptInfo, JobInfo, ReasonInfo

LONGEST_COMMAND = 4096  # characters
LONGEST_TEXT = 1024  # characters, of a directory or a reason
REST = "... (the rest is in the journal)"
#: Of a job that was started more often the first attempts are only in the journal.
MOST_ATTEMPTS = 20


def last_info(job: JobRecord) -> msgspec.Raw:
    """Encoded once: it does not change any more.  Of long texts the beginning, of many attempts the last."""
    return msgspec.Raw(msgspec.json.encode(_short(job_info(job, None))))


def _short(info: JobInfo) -> JobInfo:
    return msgspec.structs.replace(
        info,
        command=shortened(info.command),
        cwd=short_text(info.cwd),
        reason=None if info.reason is None else ReasonInfo(info.reason.code, short_text(info.reason.text)),
        engine_why=short_text(info.engine_why),
        output=short_text(info.output),
        error=short_text(info.error),
        attempts=[_short_attempt(attempt) for attempt in info.attempts[-MOST_ATTEMPTS:]],
    )


def _short_attempt(attempt: AttemptInfo) -> AttemptInfo:
    return msgspec.structs.replace(attempt, text=short_text(attempt.text))


def short_text(text: str) -> str:
    """At most `LONGEST_TEXT` characters, and what says so."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + REST


def shortened(argv: list[str]) -> list[str]:
    """At most `LONGEST_COMMAND` characters of a command, and what says so."""
    left = LONGEST_COMMAND
    kept: list[str] = []
    for text in argv:
        if len(text) + 1 > left:
            return [*kept, f"{text[:left]}{REST}"]
        kept.append(text)
        left -= len(text) + 1
    return kept
