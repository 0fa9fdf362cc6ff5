"""Notices: a web server or a command is told of a job's start and end, at most once (`carpool submit --notify`).

An owed notice is in the journal before the event that it reports, and a try is recorded before it begins.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from carpool.core.model import JobId, Outcome
from carpool.daemon.hooks.base import JobHook, Refusal, Work
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.journal.notices import Notice, NoticeKey, NoticeTable
from carpool.daemon.journal.rows import NoticeRow
from carpool.daemon.system.clock import wall_us
from carpool.daemon.system.errors import JournalFull
from carpool.daemon.system.log_limit import caused_by
from carpool.protocol.api import SubmitRequest
from carpool.protocol.display import user_name
from carpool.protocol.job_names import program_name
from carpool.protocol.notices import END, FAILURE, START, TIMEOUT, NotifyTarget, check_target, shown_target

log = logging.getLogger(__name__)
AT_ONCE, AT_ONCE_OF_ONE_USER = 16, 2
#: For one user: jobs may end faster than a slow target takes notices, and owed notices take memory.
MOST_OWED = 1000
MOST_TARGETS, LARGEST_TARGET = 8, 4096
TOO_MANY = f"{MOST_OWED} notices of this user wait already"
LOST_TRY = "the daemon ended while it was sent; whether it arrived is not known"
LONGEST_FILE_NAME = 255  # characters; a command may be any text
_FAILURES = (Outcome.FAILED, Outcome.LOST, Outcome.REFUSED)


class Notices(JobHook):
    """Sends the notices of jobs' events.  ``deliver`` returns what went wrong, or raises OSError.

    Nothing is sent before the daemon's permanent work begins.  A target hears of one job's events one after the other.
    """

    def __init__(
        self, table: NoticeTable, rows: Iterable[NoticeRow], deliver: Callable[[Notice], Awaitable[str]]
    ) -> None:
        self._table = table
        self._deliver = deliver
        self._known: dict[JobId, set[NoticeKey]] = defaultdict(set)  # while the job lives
        self._owed: dict[asyncio.Task[None], NoticeKey] = {}
        self._counts: Counter[int] = Counter()  # owed notices by user
        self._turns: dict[tuple[int, int], asyncio.Lock] = defaultdict(asyncio.Lock)  # by user and remainder of the job
        self._room = asyncio.Semaphore(AT_ONCE)
        self._opened = asyncio.Event()
        for row in rows:
            self._found(row)

    def restored(self, jobs: JobTable) -> None:
        """Forget the events of jobs that have ended, whose notices may still be owed."""
        for job in self._known.keys() - jobs.live.keys():
            del self._known[job]

    def started(self, job: JobRecord, shim: int | None) -> None:
        """Owe the notices of a job that runs, before that is recorded."""
        self._happened(job)

    def ended(self, job: JobRecord) -> None:
        """Owe the notices of a job that has ended, before that is recorded."""
        self._happened(job)
        self._known.pop(job.id, None)

    def forgotten(self, jobs: Sequence[JobId]) -> None:
        """Drop the owed notices of removed jobs."""
        for task in [task for task, key in self._owed.items() if key.job in jobs]:
            task.cancel()

    def submit(self, spec: SubmitRequest) -> Refusal | None:
        """Refuse targets that no notice can reach, too many, and too long ones."""
        if len(spec.notify) > MOST_TARGETS:
            text = f"{len(spec.notify)} targets for notices of a job; {MOST_TARGETS} are allowed"
            return Refusal("bad_notify", text, "let one of them notify the others")
        return next((refusal for target in spec.notify if (refusal := _refusal(target)) is not None), None)

    def work(self) -> Mapping[str, Work]:
        """Begin to send."""
        return {"sending notices": self._begin}

    async def _begin(self) -> None:
        self._opened.set()

    def stop(self) -> None:
        """Stop sending; notices that have not been tried are left to the next daemon."""
        for task in self._owed:
            task.cancel()

    def _happened(self, job: JobRecord) -> None:
        event = event_of(job)
        for place, target in enumerate(job.spec.notify):
            key = NoticeKey(job.id, job.attempt, event, place)
            if wants(target, event) and key not in self._known[job.id]:  # known: it is said again after a restart
                self._known[job.id].add(key)
                notice = Notice(job.owner, job.gid, job.spec.cwd, target, body_of(job, os.uname().nodename))
                self._table.owe(key, notice)
                self._add(key, notice)

    def _found(self, row: NoticeRow) -> None:
        key = NoticeKey(row.job, row.attempt, row.event, row.place)
        self._known[row.job].add(key)
        if row.state == "owed" and row.tries:
            self._settle(key, msgspec.json.decode(row.notice, type=Notice), LOST_TRY)
        elif row.state == "owed":
            self._add(key, msgspec.json.decode(row.notice, type=Notice))

    def _add(self, key: NoticeKey, notice: Notice) -> None:
        if self._counts[notice.owner] >= MOST_OWED:
            self._settle(key, notice, TOO_MANY)
            return
        self._counts[notice.owner] += 1
        task = asyncio.get_running_loop().create_task(self._send(key, notice))
        self._owed[task] = key
        task.add_done_callback(lambda task: self._done(task, notice.owner))

    def _done(self, task: asyncio.Task[None], owner: int) -> None:
        del self._owed[task]
        self._counts[owner] -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a notice is dropped: unexpected error", exc_info=error)

    async def _send(self, key: NoticeKey, notice: Notice) -> None:
        await self._opened.wait()
        async with self._turns[notice.owner, key.job % AT_ONCE_OF_ONE_USER], self._room:
            try:
                await self._table.trying(key)
                problem = await self._deliver(notice)
            except (OSError, JournalFull) as error:
                problem = f"it cannot be sent: {error}"
        self._settle(key, notice, problem)

    def _settle(self, key: NoticeKey, notice: Notice, problem: str) -> None:
        if problem:
            text = "job %d: notice to %s of its %s was not delivered: %s"
            values = key.job, ascii(shown_target(notice.target)), key.event, ascii(problem)
            log.warning(text, *values, extra=caused_by(notice.owner))
        self._table.settle(key, "failed" if problem else "sent", problem, without_secrets(notice))


def _refusal(target: NotifyTarget) -> Refusal | None:
    try:
        check_target(target)
    except ValueError as error:
        return Refusal("bad_notify", f"notify: {error}", "")
    if len(target.webhook) + sum(map(len, target.command)) > LARGEST_TARGET:
        text = f"the URL or command of a notice has more than {LARGEST_TARGET} characters"
        return Refusal("bad_notify", text, "put it into a script")
    return None


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


def body_of(job: JobRecord, host: str) -> dict[str, str | int | None]:
    """Return the message about the job's latest event: nothing of its command, directory, environment or output.

    Times are UTC (ISO 8601); ``text`` is a readable line.  ``host``: this machine's name.
    """
    return {
        "event": event_of(job),
        "job": job.id,
        "name": job.spec.name or program_name(job.spec.argv)[:LONGEST_FILE_NAME],
        "attempt": job.attempt,
        "user": user_name(job.owner),
        "host": host,
        "device": job.device,
        "outcome": job.outcome and job.outcome.value,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "submitted": _moment(job.submitted_us),
        "started": None if job.started_us is None else _moment(job.started_us),
        "ended": None if job.outcome is None else _moment(job.ended_us or wall_us()),
        "array": job.spec.array,
        "index": job.spec.index,
        "text": _line(job, host),
    }


def without_secrets(notice: Notice) -> Notice:
    """Return what the journal keeps of a settled notice: of the target only what every user may see."""
    target = notice.target
    parts = urlsplit(target.webhook)
    url = f"{parts.scheme}://{parts.netloc}" if target.webhook else ""
    seen = msgspec.structs.replace(target, webhook=url, command=target.command[:1])
    return msgspec.structs.replace(notice, cwd="", target=seen)


def _line(job: JobRecord, host: str) -> str:
    named = f" ({job.spec.name})" if job.spec.name else ""
    said = "runs" if job.outcome is None else f"has ended: {job.outcome.value.replace('_', ' ')}"
    how = f", signal {job.signal}" if job.signal is not None else ""
    how = f", exit code {job.exit_code}" if job.exit_code else how
    return f"job {job.id}{named} on {host} {said}{how}"


def _moment(us: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(us / 1e6))
