"""Jobs of a home whose daemon does not run, read from its journal: for commands that only look at jobs.

Only the user who runs the daemon of a home can read its journal; other users are told that no daemon runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from carpool.cli.base.cli_error import Exit
from carpool.cli.render import formatting
from carpool.protocol.api import ErrorInfo, JobInfo, JobList, JournalListing
from carpool.protocol.client import ApiError, DaemonClient, DaemonNotRunning
from carpool.protocol.paths import Home


class JournalJobs:
    """Answers as `DaemonClient` does, from the journal.  ``away`` says that no daemon runs.

    Methods raise `Problem` for a journal that cannot be read.
    """

    def __init__(self, home: Path, away: DaemonNotRunning) -> None:
        self.home = Home(home)
        self.away = away

    @cached_property
    def _listing(self) -> JournalListing:
        from carpool.cli.base.journal_tools import stored_jobs  # only wanted where no daemon runs

        return stored_jobs(self.home.root)

    @property
    def notice(self) -> str:
        """The notice that is printed before anything that was read from the journal."""
        moment = self._listing.as_of_us
        when = "" if moment is None else f" as of {formatting.clock(moment)}"
        return (
            f"the daemon of {self.home.root} is not running; this is its journal{when} (carpool up starts the daemon)"
        )

    def jobs(self, phases: Sequence[str] = (), limit: int | None = None) -> list[JobInfo]:
        """Jobs in these phases (none given: in all), ordered by id; with ``limit`` the newest only."""
        found = [job for job in self._listing.jobs if not phases or job.phase in phases]
        return found if limit is None else found[max(0, len(found) - limit) :]

    def job_list(self, phases: Sequence[str] = (), limit: int | None = None) -> JobList:
        """Return the jobs of `jobs`, with the notice."""
        return JobList(self.jobs(phases, limit), self.notice)

    def array(self, array: int) -> list[JobInfo]:
        """Return the elements of an array; a retry stands for the element that it repeats."""
        found = {job.index: job for job in self._listing.jobs if job.array == array}
        return sorted(found.values(), key=lambda job: job.id)

    def job(self, job: int) -> JobInfo:
        """Return the job with this id.  Raises ApiError `unknown_job`."""
        for each in self._listing.jobs:
            if each.id == job:
                return each
        text = f"the journal has no job {job}, and no daemon is running"
        raise ApiError(404, ErrorInfo("unknown_job", text, "carpool ls --all lists the jobs of the journal"))


JobReader = DaemonClient | JournalJobs


@contextmanager
def job_reader(home: Path) -> Iterator[JobReader]:
    """Yield the daemon or, if none runs, its journal.  Raises DaemonNotRunning if the journal is not the caller's."""
    with DaemonClient(home) as client:
        try:
            client.connect()
        except DaemonNotRunning as away:
            if not _is_callers(Home(home).journal):
                raise
            yield JournalJobs(home, away)
        else:
            yield client


def _is_callers(journal: Path) -> bool:
    try:
        return journal.stat().st_uid == os.geteuid()
    except OSError:
        return False


def answered(reader: JobReader, *, said: bool = False) -> int:
    """Return the exit code of a command that has printed an answer; print the journal's notice unless ``said``.

    As with `systemctl status`, the answer is printed, and the exit code says that no daemon runs.
    """
    if isinstance(reader, DaemonClient):
        return Exit.OK
    if not said:
        print(f"carpool: {reader.notice}", file=sys.stderr)
    return Exit.NO_DAEMON
