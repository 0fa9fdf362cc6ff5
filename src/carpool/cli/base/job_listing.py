"""The jobs among which a command line selects, read when needed, and the messages for words that select no job."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property

from carpool.cli.base.job_filters import Filters
from carpool.cli.base.job_words import Elements, Last, mine
from carpool.cli.base.journal_jobs import JobReader
from carpool.cli.base.options_common import plural
from carpool.cli.render import formatting
from carpool.cli.render.arrays import element_id
from carpool.core.spelling import did_you_mean
from carpool.protocol.api import JobInfo
from carpool.protocol.client import ApiError

#: How many of the newest jobs are searched for a user's last job before all jobs are read.
NEWEST = 100
SHOWN = 8


class Listing:
    """Jobs as the daemon lists them, each list asked for once.

    ``phases``, ``able``: words other than ids mean only jobs in these phases that pass ``able``.
    """

    def __init__(
        self, client: JobReader, phases: Sequence[str] = (), able: Callable[[JobInfo], bool] = lambda job: True
    ) -> None:
        self._client = client
        self.phases = tuple(phases)
        self._able = able

    @cached_property
    def every(self) -> list[JobInfo]:
        """Jobs in all phases, in the order of their ids."""
        return self._client.jobs()

    @cached_property
    def _active(self) -> list[JobInfo]:
        return self._client.jobs(formatting.ACTIVE)

    def active(self) -> list[JobInfo]:
        """Jobs that have not ended, and that the command can act on."""
        return [job for job in self._active if self._takes(job)]

    def covers(self, job: JobInfo) -> bool:
        """Whether the job is in one of the phases."""
        return not self.phases or job.phase in self.phases

    def _takes(self, job: JobInfo) -> bool:
        return self.covers(job) and self._able(job)

    def jobs(self) -> list[JobInfo]:
        """Jobs that the command can act on."""
        if self.phases and "ended" not in self.phases:
            return self.active()
        return [job for job in self.every if self._takes(job)]

    def last(self, word: Last) -> list[JobInfo]:
        """Return the caller's own job that ``@`` names, in any phase; of an array the elements that can be acted on.

        A word with indices names elements, so a job in no array is left out.
        """
        newest = self._client.jobs(limit=NEWEST)
        found = mine(newest, os.getuid(), word)
        if not found and len(newest) >= NEWEST:
            found = mine(self.every, os.getuid(), word)
        array = found[0].array if found else None
        if array is not None and word.ranges:
            return self.elements(Elements(word.text, array, word.ranges))
        if array is None:
            return [] if word.ranges else found
        return [job for job in self._client.array(array) if self._takes(job)]

    def elements(self, word: Elements) -> list[JobInfo]:
        """Return the named elements of an array that are still known; of several, those that the command can act on."""
        found = [job for job in self._client.array(word.array) if word.matches(job)]
        return found if word.single else [job for job in found if self._takes(job)]

    def expanded(self, number: int) -> list[int]:
        """Return the id itself; for an array, the ids of the elements that the command can act on.

        An id that is unknown, or of no array, stays as it is: the daemon says what is wrong with it.
        """
        elements = self._of_array(number)
        return [job.id for job in elements if self._takes(job)] if elements else [number]

    def _of_array(self, number: int) -> list[JobInfo]:
        try:
            if self._client.job(number).array != number:
                return []
        except ApiError:
            pass  # the first element may have been removed
        try:
            return self._client.array(number)
        except ApiError:
            return []


def what_there_is(listing: Listing, filters: Filters, text: str) -> tuple[str, str]:
    """A message and a hint for a word, or options, that select no job."""
    whose = " of yours" if filters.users == () else ""
    what = " ".join(filter(None, (text, filters.words())))
    message = f"no job{whose} is selected by {what!r}" if what else f"there is no job{whose} that has not ended"
    present = [job for job in listing.every if filters.owned(job) and listing.covers(job)]
    if present:
        return message, _near(present, {text, *filters.names} - {""})
    ended = " that has not ended" if listing.phases and "ended" not in listing.phases else ""
    return message, f"there is no job{whose}{ended}; `carpool ls --all` lists all jobs"


def _near(present: Sequence[JobInfo], names: set[str]) -> str:
    near = "".join(did_you_mean(name, map(formatting.title, present)) for name in names)
    return f"{near}there {'is' if len(present) == 1 else 'are'}: {_some(present)}"


def several(client: JobReader, text: str, ids: Sequence[int]) -> tuple[str, str]:
    """A message and a hint for a word that names several jobs where one is wanted."""
    infos = [job for job in client.jobs() if job.id in set(ids)]
    return f"{text!r} names {plural(len(ids), 'job')}; this command takes one", f"write the id of one: {_some(infos)}"


def _some(jobs: Sequence[JobInfo]) -> str:
    """List the newest jobs in words, newest first."""
    shown = [f"{element_id(job)} {formatting.title(job)} ({formatting.state(job)})" for job in jobs[: -SHOWN - 1 : -1]]
    more = f", and {len(jobs) - SHOWN} more (carpool ls --all)" if len(jobs) > SHOWN else ""
    return ", ".join(shown) + more
