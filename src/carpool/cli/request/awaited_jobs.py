"""The jobs that ``--after`` names, by ids, ranges, names, ``@`` and all other words for jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from carpool.cli.base.daemon_start import connected
from carpool.cli.base.job_listing import Listing
from carpool.cli.base.job_selection import ANY, ids_of
from carpool.cli.base.job_words import Called, JobWord
from carpool.cli.request.start_conditions import Dependencies, Words


def awaited_jobs(home: Path, given: Sequence[Words]) -> list[Dependencies]:
    """Return the ids that words mean now; of an array, those of all elements.  Raises Problem if a word names none.

    Starts the daemon, which the submission that follows needs, too.
    """
    if not given:
        return []
    with connected(home) as client:
        listing = Listing(client)
        return [(kind, tuple(_meant(listing, words))) for kind, words in given]


def _meant(listing: Listing, words: Sequence[JobWord]) -> list[int]:
    return [number for word in words for number in _ids(listing, word)]


def _ids(listing: Listing, word: JobWord) -> list[int]:
    """Return the ids that a word means; a name means the caller's jobs that have not ended, or else the last job."""
    if not isinstance(word, Called):
        return ids_of(listing, word, ANY)
    going_on = [job.id for job in listing.active() if ANY.owned(job) and word.matches(job)]
    return going_on or ids_of(listing, word, ANY)[-1:]
