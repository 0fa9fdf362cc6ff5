"""The content of a notice: nothing of the job's command, directory, environment or output."""

from __future__ import annotations

import os
import time
from urllib.parse import urlsplit

import msgspec

from carpool.core.model import Outcome
from carpool.daemon.jobs.notice import Notice, NoticeBody
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.row_types import NoticeRow
from carpool.daemon.system.clock import wall_us
from carpool.protocol.job_names import program_name
from carpool.protocol.notices import END, FAILURE, START, TIMEOUT, NoticeInfo, NotifyTarget, shown_target
from carpool.protocol.user_names import user_name

LONGEST_FILE_NAME = 255  # characters; a command may be any text
_FAILURES = (Outcome.FAILED, Outcome.LOST, Outcome.REFUSED)


def event_of(job: JobRecord) -> str:
    """Return the latest event of a job that runs or has ended."""
    if job.outcome is None:
        return START
    if job.outcome is Outcome.TIMED_OUT:
        return TIMEOUT
    return FAILURE if job.outcome in _FAILURES else END


def wants(target: NotifyTarget, event: str) -> bool:
    """Return whether a target wants an event; failures and reached time limits count as ends, too."""
    return event in target.on or (event != START and END in target.on)


def notice_of(job: JobRecord, target: NotifyTarget) -> Notice:
    """Return the notice of the job's latest event."""
    return Notice(job.owner, job.gid, job.spec.cwd, target, body_of(job, os.uname().nodename))


def body_of(job: JobRecord, host: str) -> NoticeBody:
    """Return the message about the job's latest event.  ``host``: this machine's name."""
    return NoticeBody(
        event=event_of(job),
        job=job.id,
        name=job.spec.name or program_name(job.spec.argv)[:LONGEST_FILE_NAME],
        attempt=job.attempt,
        user=user_name(job.owner),
        host=host,
        device=job.device,
        outcome=job.outcome and job.outcome.value,
        exit_code=job.exit_code,
        signal=job.signal,
        submitted=_moment(job.submitted_us),
        started=None if job.started_us is None else _moment(job.started_us),
        ended=None if job.outcome is None else _moment(job.ended_us or wall_us()),
        array=job.spec.array,
        index=job.spec.index,
        text=_line(job, host),
    )


def kept_of(notice: Notice) -> str:
    """Return as JSON what the journal keeps of a notice that is settled: of the target only what every user may see."""
    target = notice.target
    parts = urlsplit(target.webhook)
    url = f"{parts.scheme}://{parts.netloc}" if target.webhook else ""
    seen = msgspec.structs.replace(target, webhook=url, command=target.command[:1])
    return msgspec.json.encode(msgspec.structs.replace(notice, cwd="", target=seen)).decode()


def notice_info(row: NoticeRow) -> NoticeInfo:
    """Return a row as users see it.  Raises `msgspec.MsgspecError` for a corrupted row."""
    target = shown_target(msgspec.json.decode(row.notice, type=Notice).target)
    return NoticeInfo(row.event, row.attempt, target, row.state, row.tries, row.text)


def _line(job: JobRecord, host: str) -> str:
    named = f" ({job.spec.name})" if job.spec.name else ""
    said = "runs" if job.outcome is None else f"has ended: {job.outcome.value.replace('_', ' ')}"
    how = f", signal {job.signal}" if job.signal is not None else ""
    how = f", exit code {job.exit_code}" if job.exit_code else how
    return f"job {job.id}{named} on {host} {said}{how}"


def _moment(us: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(us / 1e6))
