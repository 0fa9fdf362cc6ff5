"""The journal's one writer: a thread that groups what waits into one transaction and one fsync.

Two kinds of writes.  *Durable* writes (submissions, cancellations) have a caller that waits: the future is resolved
after the commit, or fails and nothing has happened.  *Owed* writes (ends of jobs, events) have already happened in the
world: when the disk is full they stay in memory, in order, and are tried again.  A write that can never succeed fails,
or is dropped, alone.

What is deleted is erased from the files, too: environments of jobs hold tokens and passwords.  SQLite overwrites
deleted rows with zeros (``PRAGMA secure_delete``), but older copies stay in the write-ahead log until that is emptied.
Emptying costs two fsyncs, so it follows all deletions of a few seconds at once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from carpool.daemon.system.errors import JournalFull

log = logging.getLogger(__name__)
LARGEST_BATCH = 512
RETRY_S = 1.0
PAUSE_S = 5.0  # from the first deletion on; a reader that is in the way is waited for as long again
MOST_OWED = 100_000  # statements kept while the disk is full; the oldest events go first
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
_OWN_FAULT = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)


#: Executed once per row.
Statement = tuple[str, Sequence[Sequence[object]]]


class Write(msgspec.Struct, frozen=True):
    """One statement, executed once per row.  ``done`` is None for owed writes.  ``erases``: it deletes secrets.

    ``also``: statements that count in the same transaction, or not at all.  ``told``: the largest number of a job that
    its user is told after the commit; 0: none.
    """

    sql: str
    rows: Sequence[Sequence[object]]
    done: asyncio.Future[None] | None = None
    droppable: bool = False
    erases: bool = False
    also: Sequence[Statement] = ()
    told: int = 0
    posted_s: float = msgspec.field(default_factory=time.monotonic)


class Journal:
    """Posts writes to the writer thread; all methods are called on the event loop.

    ``erase_after_s``: how long after secrets were deleted their copies leave the write-ahead log.  ``acknowledge`` is
    called, in the journal's thread, with the newest job that is on the disk, before its user is told.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        loop: asyncio.AbstractEventLoop,
        erase_after_s: float = PAUSE_S,
        acknowledge: Callable[[int], None] = lambda job: None,
    ) -> None:
        self._connection = connection
        self._acknowledge = acknowledge
        self._emptying = LogEmptying(connection, erase_after_s)
        self._loop = loop
        self._oldest_s: float | None = None  # when the oldest write that is being committed was posted
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def durable(
        self, sql: str, *rows: Sequence[object], erases: bool = False, also: Sequence[Statement] = (), told: int = 0
    ) -> asyncio.Future[None]:
        """Write durably; the future is done after the commit.

        Raises JournalFull from the future if the write cannot be recorded.  ``told``: as in `Write`.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put(Write(sql, rows, done, erases=erases, also=also, told=told))
        return done

    def owe(
        self,
        sql: str,
        rows: Sequence[Sequence[object]],
        *,
        droppable: bool = False,
        erases: bool = False,
        also: Sequence[Statement] = (),
    ) -> None:
        """Record what has happened, as soon as possible, after everything that was posted before."""
        self._queue.put(Write(sql, rows, droppable=droppable, erases=erases, also=also))

    def flushed(self) -> asyncio.Future[None]:
        """Return a future that is done when everything posted so far is on the disk."""
        return self.durable("DELETE FROM meta WHERE key = ?", ("",))

    def behind_s(self) -> float:
        """Return how long the oldest write has waited for the disk."""
        oldest = self._oldest_s
        return 0.0 if oldest is None else time.monotonic() - oldest

    def close(self) -> None:
        """Write what is left and stop the thread; blocks for one commit."""
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        owed: deque[Write] = deque()
        stopping = False
        while not stopping:
            batch, stopping = self._next_batch(bool(owed))
            writes = [*owed, *batch]
            self._oldest_s = writes[0].posted_s if writes else None
            error = self._commit(writes)
            if error is not None and _never(error):
                owed = self._one_by_one(writes)
            else:
                owed = deque(write for write in writes if error is not None and write.done is None)
                self._report(batch, error)
            _shorten(owed)
            self._oldest_s = owed[0].posted_s if owed else None
            self._emptying.look(last=stopping)

    def _one_by_one(self, writes: Sequence[Write]) -> deque[Write]:
        """Write one by one, because one write can never succeed; return the writes that are still owed."""
        owed: deque[Write] = deque()
        full: Exception | None = None  # later writes wait, too, to keep the order
        for write in writes:
            error = full or self._commit([write])
            if write.done is not None:
                self._report([write], error)
            elif error is not None and _never(error):
                log.error("this cannot be recorded, and is dropped: %s (%s)", ascii(error), write.sql)
                continue
            elif error is not None:
                owed.append(write)
            full = error if error is not None and not _never(error) else None
        return owed

    def _next_batch(self, retry: bool) -> tuple[list[Write], bool]:
        """Wait for something to write; when owed writes wait, no longer than until the next attempt."""
        batch: list[Write] = []
        waits = [wait for wait in (RETRY_S if retry else None, self._emptying.wait_s) if wait is not None]
        try:
            item = self._queue.get(timeout=min(waits, default=None))
            while item is not None:
                batch.append(item)
                if len(batch) >= LARGEST_BATCH:
                    return batch, False
                item = self._queue.get_nowait()
            return batch, True
        except queue.Empty:
            return batch, False

    def _commit(self, writes: Sequence[Write]) -> Exception | None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for write in writes:
                for sql, rows in ((write.sql, write.rows), *write.also):
                    self._connection.executemany(sql, rows)
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - such as a text that is not UTF-8: the thread goes on
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            return _explain(error)
        if newest := max((write.told for write in writes), default=0):
            self._acknowledge(newest)
        if any(write.erases for write in writes):
            self._emptying.deleted()
        return None

    def _report(self, batch: Sequence[Write], error: Exception | None) -> None:
        waiting = [write.done for write in batch if write.done is not None]
        if waiting:
            try:
                self._loop.call_soon_threadsafe(_resolve, waiting, error)
            except RuntimeError:  # the loop is closed: no caller waits any more
                return


def _resolve(waiting: Sequence[asyncio.Future[None]], error: Exception | None) -> None:
    for future in waiting:
        if future.done():  # the client went away
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _shorten(owed: deque[Write]) -> None:
    while len(owed) > MOST_OWED:
        victim = next((write for write in owed if write.droppable), None)
        if victim is None:
            return
        owed.remove(victim)


def _never(error: Exception) -> bool:
    """Whether an error is the write's own fault, so that trying again is in vain."""
    return isinstance(error, _OWN_FAULT) or not isinstance(error, sqlite3.Error | JournalFull | MemoryError)


def _explain(error: Exception) -> Exception:
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF in _FULL:
        text = "the disk is full" if code == sqlite3.SQLITE_FULL else str(error)
        return JournalFull(
            "disk_full", f"cannot write the journal: {text}", "free disk space and try again; nothing is lost"
        )
    return error


def disk_full(error: OSError) -> bool:
    """Whether an error of the file system means that there is no room (as opposed to a mistake of ours)."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def empty_log_at_start(connection: sqlite3.Connection) -> None:
    """Empty the write-ahead log of a daemon that was killed.  A full disk only delays it."""
    try:
        empty_log(connection)
    except sqlite3.Error as error:
        log.warning("environments of ended jobs may still be in the journal: %s; the next start tries again", error)


def empty_log(connection: sqlite3.Connection) -> bool:
    """Empty the write-ahead log; False: a reader is in the way, and nothing is lost.  Raises sqlite3.Error."""
    (patience_ms,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience_ms}")
    return not busy


class LogEmptying:
    """Decides when the write-ahead log is emptied next.  Used by the journal's thread."""

    def __init__(self, connection: sqlite3.Connection, pause_s: float = PAUSE_S) -> None:
        self._connection = connection
        self._pause_s = pause_s
        self._due: float | None = None

    @property
    def wait_s(self) -> float | None:
        """The time until the log is to be emptied; None: it is not."""
        return None if self._due is None else max(0.0, self._due - time.monotonic())

    def deleted(self) -> None:
        """Note that something secret has been deleted."""
        if self._due is None:
            self._due = time.monotonic() + self._pause_s

    def look(self, *, last: bool = False) -> None:
        """Empty the log if it is time; ``last``: there will be no later call."""
        if self._due is None or (self._due > time.monotonic() and not last):
            return
        self._due = time.monotonic() + self._pause_s
        with suppress(sqlite3.Error):  # the disk is full, say
            self._due = None if empty_log(self._connection) else self._due
