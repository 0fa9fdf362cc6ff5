"""Sends owed notices: a few at a time for each user, and again after a failure, up to a fixed number of tries."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from carpool.core.model import JobId
from carpool.daemon.jobs.notice import Notice
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.notices import NoticeKey, NoticeTable
from carpool.daemon.journal.row_types import NoticeRow
from carpool.daemon.notices.content import event_of, kept_of, notice_of, wants
from carpool.daemon.system.errors import JournalFull
from carpool.daemon.system.log_limit import caused_by
from carpool.protocol.notices import shown_target

log = logging.getLogger(__name__)
AT_ONCE, AT_ONCE_OF_ONE_USER = 16, 2
#: For one user: jobs may end faster than a slow target takes notices, and owed notices take memory.
MOST_OWED = 1000
TOO_MANY = f"too many are owed: {MOST_OWED} notices of this user's wait already"
#: Pauses before the second and each later try.  Waiting for a full disk may take longer and counts as no try.
PAUSES_S = (1.0, 5.0, 25.0, 125.0)
FULL_S = 5.0
LOST_TRY = "the daemon ended during the last try; whether it arrived is not known"


@dataclass(slots=True)
class Owed:
    """A notice that is owed.  ``tries``: tries that have begun; ``pause``: the timer of the next try."""

    key: NoticeKey
    notice: Notice
    tries: int = 0
    pause: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Count a try that begins."""
        self.tries += 1

    def wait(self, pause_s: float, again: Callable[[Owed], None]) -> None:
        """Call ``again`` after a pause."""
        self.pause = asyncio.get_running_loop().call_later(pause_s, again, self)

    def stop(self) -> None:
        """Cancel the try that a pause would lead to."""
        if self.pause is not None:
            self.pause.cancel()


class NoticeSender:
    """Sends notices of the events of jobs.  ``deliver`` returns what went wrong, or raises OSError.

    Nothing is sent before `start`, and no caller waits for a notice to be sent.
    """

    def __init__(
        self,
        table: NoticeTable,
        rows: Iterable[NoticeRow],
        deliver: Callable[[Notice], Awaitable[str]],
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self._table = table
        self._deliver = deliver
        self._pauses_s = pauses_s
        self._known: dict[int, set[NoticeKey]] = defaultdict(set)  # by job, while it lives
        self._owed: dict[int, dict[NoticeKey, Owed]] = defaultdict(dict)  # by user
        self._queues: dict[int, deque[Owed]] = {}  # by user; the user served last comes last
        self._sending: dict[asyncio.Task[None], Owed] = {}
        self._open = False
        for row in rows:
            self._found(row)

    def happened(self, job: JobRecord) -> None:
        """Owe the notices of a job that runs or has ended, before that is recorded; may repeat after a restart."""
        event = event_of(job)
        for place, target in enumerate(job.spec.notify):
            key = NoticeKey(job.id, job.attempt, event, place)
            if wants(target, event) and key not in self._known[job.id]:
                self._known[job.id].add(key)
                self._owe(Owed(key, notice_of(job, target)))
        if job.outcome is not None:
            self._known.pop(job.id, None)

    def forget(self, jobs: Collection[JobId]) -> None:
        """Drop the owed notices of jobs that have been removed together with their rows."""
        for user, owed in list(self._owed.items()):
            for each in [each for each in owed.values() if each.key.job in jobs]:
                each.stop()
                self._settled(each)
            left = deque(each for each in self._queues.pop(user, ()) if each.key in owed)
            self._queues |= {user: left} if left else {}

    def start(self) -> None:
        """Begin to send."""
        self._open = True
        self._begin()

    def close(self) -> None:
        """Stop sending; notices that are still owed are left to the next daemon."""
        self._open = False
        for each in (each for owed in self._owed.values() for each in owed.values()):
            each.stop()
        for task in self._sending:
            task.cancel()

    def _found(self, row: NoticeRow) -> None:
        key = NoticeKey(row.job, row.attempt, row.event, row.place)
        self._known[row.job].add(key)
        if row.state != "owed":
            return
        owed = Owed(key, msgspec.json.decode(row.notice, type=Notice), row.tries)
        if owed.tries > len(self._pauses_s):
            self._give_up(owed, LOST_TRY)
        elif self._has_room(owed):
            self._add(owed)
        else:
            self._give_up(owed, TOO_MANY)

    def _owe(self, owed: Owed) -> None:
        if self._has_room(owed):
            self._table.owe(owed.key, msgspec.json.encode(owed.notice).decode())
            self._add(owed)
        else:
            self._table.owe(owed.key, kept_of(owed.notice), "failed", TOO_MANY)
            self._say_given_up(owed, TOO_MANY)

    def _has_room(self, owed: Owed) -> bool:
        return len(self._owed.get(owed.notice.owner, ())) < MOST_OWED

    def _add(self, owed: Owed) -> None:
        self._owed[owed.notice.owner][owed.key] = owed
        self._queues.setdefault(owed.notice.owner, deque()).append(owed)
        self._begin()

    def _begin(self) -> None:
        """Begin to send as many notices as are allowed at once."""
        while self._open and len(self._sending) < AT_ONCE and (owed := self._next()) is not None:
            task = asyncio.get_running_loop().create_task(self._send(owed))
            self._sending[task] = owed
            task.add_done_callback(self._sent)

    def _next(self) -> Owed | None:
        """Take the next notice, of the user who has waited longest and has room; None: none.

        A target hears of one job's events one after the other.
        """
        busy = [owed.notice.owner for owed in self._sending.values()]
        told = {(owed.key.job, owed.key.place) for owed in self._sending.values()}
        for user, queue in self._queues.items():
            able = (owed for owed in queue if (owed.key.job, owed.key.place) not in told)
            if busy.count(user) < AT_ONCE_OF_ONE_USER and (owed := next(able, None)) is not None:
                del self._queues[user]
                queue.remove(owed)
                if queue:
                    self._queues[user] = queue
                return owed
        return None

    def _sent(self, task: asyncio.Task[None]) -> None:
        owed = self._sending.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._settled(owed)
            log.error("a notice is given up: this was not expected", exc_info=error)
        self._begin()

    async def _send(self, owed: Owed) -> None:
        try:
            await self._table.trying(owed.key, owed.tries + 1)
        except JournalFull:
            self._later(FULL_S, owed)
            return
        owed.begin()
        try:
            problem = await self._deliver(owed.notice)
        except OSError as error:
            problem = f"the process that sends it cannot be started: {error}"
        if not problem:
            self._settle(owed, "sent", "")
        elif owed.tries > len(self._pauses_s):
            self._give_up(owed, problem)
        else:
            self._table.failed_try(owed.key, problem)
            self._later(self._pauses_s[owed.tries - 1], owed)

    def _give_up(self, owed: Owed, problem: str) -> None:
        self._say_given_up(owed, problem)
        self._settle(owed, "failed", problem)

    def _say_given_up(self, owed: Owed, problem: str) -> None:
        target = shown_target(owed.notice.target)
        text = "job %d: %s has not been told of its %s after %d tries: %s"
        values = owed.key.job, ascii(target), owed.key.event, owed.tries, ascii(problem)
        log.warning(text, *values, extra=caused_by(owed.notice.owner))

    def _settle(self, owed: Owed, state: str, text: str) -> None:
        self._table.settle(owed.key, state, text, kept_of(owed.notice))
        self._settled(owed)

    def _settled(self, owed: Owed) -> None:
        user = owed.notice.owner
        self._owed[user].pop(owed.key, None)
        if not self._owed[user]:
            del self._owed[user]

    def _later(self, pause_s: float, owed: Owed) -> None:
        """Try again after a pause, unless the job has been removed meanwhile."""
        if owed.key in self._owed.get(owed.notice.owner, ()):
            owed.wait(pause_s, self._add)
