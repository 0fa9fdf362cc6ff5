"""The jobs that ``--after`` names, by ids, ranges, names, ``@`` and all other words for jobs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from carpool.cli.base.daemon_start import connected
from carpool.cli.base.job_listing import Listing
from carpool.cli.base.job_selection import ANY, ids_of
from carpool.cli.base.job_words import Called, JobWord, job_word
from carpool.core.model import Dependency
from carpool.options.codecs import Dependencies, dependency

#: Dependencies by words, before the jobs that the words mean are known.
Words = tuple[Dependency, tuple[JobWord, ...]]
_COMMA = re.compile(r",(?![^\[]*\])")  # not one between the indices of an array
#: Separates conditions, as in ``ok:3 any:4`` and ``ok:3,any:4``.
_NEXT = re.compile(rf"[\s,]+(?=(?:{'|'.join(Dependency)}):)")


def after(text: str) -> tuple[Words, ...]:
    """Parse ``3,4``, ``notok:3-5``, ``any:train,@``, ``ok:3 any:4``, ``ok:3,any:4``.  Raises ValueError, for people."""
    return tuple(map(_condition, _NEXT.split(text.strip())))


def _condition(text: str) -> Words:
    kind, rest = dependency(text)
    return kind, tuple(map(job_word, _COMMA.split(rest)))


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
