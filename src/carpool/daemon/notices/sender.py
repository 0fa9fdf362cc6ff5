"""Sends what is owed: a few at a time of each user, again after a failure, so often and no more."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from carpool.daemon.jobs.notice import Notice
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.journal.notices import NoticeKey, NoticeTable
from carpool.daemon.journal.row_types import NoticeRow
from carpool.daemon.notices.content import event_of, notice_of, wants
from carpool.daemon.system.errors import JournalFull
from carpool.daemon.system.log_limit import caused_by
from carpool.protocol.notices import shown_target

log = logging.getLogger(__name__)
AT_ONCE, AT_ONCE_OF_ONE_USER = 16, 2
#: Before the second try and each later one; the disk may be full for longer, which counts as no try.
PAUSES_S = (1.0, 5.0, 25.0, 125.0)
FULL_S = 5.0
LOST_TRY = "the daemon ended during the last try; whether it arrived is not known"


@dataclass(slots=True)
class Owed:
    """A notice on its way.  ``tries``: those that have begun."""

    key: NoticeKey
    notice: Notice
    tries: int = 0


class NoticeSender:
    """Hears of what happens to jobs.  ``deliver`` returns what went wrong, or raises OSError.

    Nothing is sent before `start`, and nobody waits for anything that is sent.
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
        self._queues: dict[int, deque[Owed]] = {}  # by user; whoever was served last is the last
        self._sending: dict[asyncio.Task[None], int] = {}
        self._pauses: set[asyncio.TimerHandle] = set()
        self._open = False
        for row in rows:
            self._found(row)

    def happened(self, job: JobRecord) -> None:
        """It runs, or has ended, which is not recorded yet.  After a restart the same may be said again."""
        event = event_of(job)
        for place, target in enumerate(job.spec.notify):
            key = NoticeKey(job.id, job.attempt, event, place)
            if wants(target, event) and key not in self._known[job.id]:
                self._known[job.id].add(key)
                notice = notice_of(job, target)
                self._table.owe(key, msgspec.json.encode(notice).decode())
                self._add(Owed(key, notice))
        if job.outcome is not None:
            self._known.pop(job.id, None)

    def start(self) -> None:
        """From now on."""
        self._open = True
        self._begin()

    def close(self) -> None:
        """What is owed is for the next daemon."""
        self._open = False
        for pause in self._pauses:
            pause.cancel()
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
        else:
            self._add(owed)

    def _add(self, owed: Owed) -> None:
        self._queues.setdefault(owed.notice.owner, deque()).append(owed)
        self._begin()

    def _begin(self) -> None:
        """As many as may be sent now."""
        while self._open and len(self._sending) < AT_ONCE and (owed := self._next()) is not None:
            task = asyncio.get_running_loop().create_task(self._send(owed))
            self._sending[task] = owed.notice.owner
            task.add_done_callback(self._sent)

    def _next(self) -> Owed | None:
        """Of the user who has waited longest, and has room."""
        busy = list(self._sending.values())
        for user, queue in self._queues.items():
            if busy.count(user) < AT_ONCE_OF_ONE_USER:
                del self._queues[user]
                owed = queue.popleft()
                if queue:
                    self._queues[user] = queue
                return owed
        return None

    def _sent(self, task: asyncio.Task[None]) -> None:
        del self._sending[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a notice is given up: this was not expected", exc_info=error)
        self._begin()

    async def _send(self, owed: Owed) -> None:
        try:
            await self._table.trying(owed.key, owed.tries + 1)
        except JournalFull:
            self._later(FULL_S, owed)
            return
        owed.tries += 1
        try:
            problem = await self._deliver(owed.notice)
        except OSError as error:
            problem = f"the process that sends it cannot be started: {error}"
        if not problem:
            self._table.settle(owed.key, "sent", "")
        elif owed.tries > len(self._pauses_s):
            self._give_up(owed, problem)
        else:
            self._table.settle(owed.key, "owed", problem)
            self._later(self._pauses_s[owed.tries - 1], owed)

    def _give_up(self, owed: Owed, problem: str) -> None:
        target = shown_target(owed.notice.target)
        text = "job %d: %s has not been told of its %s after %d tries: %s"
        values = owed.key.job, ascii(target), owed.key.event, owed.tries, ascii(problem)
        log.warning(text, *values, extra=caused_by(owed.notice.owner))
        self._table.settle(owed.key, "failed", problem)

    def _later(self, pause_s: float, owed: Owed) -> None:
        def again() -> None:
            self._pauses.discard(timer)
            self._add(owed)

        timer = asyncio.get_running_loop().call_later(pause_s, again)
        self._pauses.add(timer)
