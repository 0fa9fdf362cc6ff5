"""``python -m carpool.daemon.journal.listing HOME``: the jobs of a journal whose daemon does not run, as JSON.

What is read is a copy in memory: the journal stays as it is, also where a daemon would set rows aside or change tables.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import msgspec

from carpool.daemon.jobs.info import job_info
from carpool.daemon.journal.backup import NOT_THEIRS, copy_rows
from carpool.daemon.journal.schema import upgrade
from carpool.daemon.journal.stored_jobs import read_jobs
from carpool.daemon.system.errors import CarpoolError
from carpool.protocol.api import ErrorBody, JobInfo, JournalListing
from carpool.protocol.paths import Home, may_not_be_read

#: Large tables that say nothing of a job's row.
_NOT_NEEDED = frozenset({"events", "history", "notices", "runs"})
_LATEST = "SELECT wall_us FROM source.events ORDER BY seq DESC LIMIT 1"


class JournalNotListed(CarpoolError):
    """The journal cannot be read."""


def listing(journal: Path) -> JournalListing:
    """Return all jobs in the order of their ids, and the moment of the newest event.  Raises CarpoolError."""
    if refusal := may_not_be_read(journal):
        raise JournalNotListed("may_not_read", refusal, NOT_THEIRS)
    try:
        with closing(sqlite3.connect(":memory:", isolation_level=None, uri=True)) as copy:
            copy_rows(copy, journal, without=_NOT_NEEDED)
            latest = copy.execute(_LATEST).fetchone()
            copy.execute("DETACH DATABASE source")
            upgrade(copy, journal)
            return JournalListing(None if latest is None else latest[0], _jobs(copy))
    except sqlite3.Error as error:
        text = f"the journal {journal} cannot be read: {error}"
        raise JournalNotListed("journal_unreadable", text, "carpool doctor --journal says more") from None


def _jobs(copy: sqlite3.Connection) -> list[JobInfo]:
    return [job_info(job, None) for job in read_jobs(copy)]


def main(home: str) -> int:
    """Write the jobs, or the error, as JSON."""
    answer: object
    try:
        answer, status = listing(Home(Path(home)).journal), 0
    except CarpoolError as error:
        answer, status = ErrorBody(error.info), 1
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
