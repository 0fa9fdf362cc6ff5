"""Words for jobs, as people write them: ``7``, ``3-7``, ``3,5-7``, ``7_3``, ``7[0-3]``, ``@``, ``@~1``, ``@_3``, names,
``train-*``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from carpool.cli.render import formatting
from carpool.protocol.api import JobInfo

_NUMBERS = re.compile(r"\d{1,19}(-\d{1,19})?(,\d{1,19}(-\d{1,19})?)*")
_INDICES = r"(?:_(\d{1,9})|\[(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)\])"
_ELEMENTS = re.compile(rf"(\d{{1,19}}){_INDICES}")
_LAST = re.compile(rf"@(?:~(\d{{1,9}}))?{_INDICES}?")


@dataclass(frozen=True, slots=True)
class Numbers:
    """Ids, and ranges of ids, of jobs of any user; an id by itself is the range from itself to itself."""

    text: str
    ranges: tuple[tuple[int, int], ...]

    @property
    def ids(self) -> list[int] | None:
        """The ids, where nothing but ids was written: these are used as they are, known or not."""
        return [first for first, _ in self.ranges] if all(first == last for first, last in self.ranges) else None

    def matches(self, job: JobInfo) -> bool:
        """Whether the job is meant; the id of an array by itself means all its elements."""
        return any(first <= job.id <= last or first == last == job.array for first, last in self.ranges)


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of an array or grid, by their indices."""

    text: str
    array: int
    ranges: tuple[tuple[int, int], ...]

    @property
    def single(self) -> bool:
        """Whether a single element was written, which is meant in any state."""
        return len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1]

    def matches(self, job: JobInfo) -> bool:
        """Whether the job has one of the indices."""
        index = -1 if job.index is None else job.index
        return any(first <= index <= last for first, last in self.ranges)


@dataclass(frozen=True, slots=True)
class Last:
    """The job that the user has submitted last (``back`` 0), or one submitted before it.

    ``ranges``: indices of the elements, if the job is an array; empty: all.
    """

    text: str
    back: int
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Called:
    """Jobs of this name, or whose names match the pattern.  A job without a name is called as `carpool ls` shows it."""

    text: str

    def matches(self, job: JobInfo) -> bool:
        """Whether the job has the name, or matches the pattern."""
        return is_called(job, self.text)


JobWord = Numbers | Elements | Last | Called


def job_word(text: str) -> JobWord:
    """Parse a word for jobs.  Raises ValueError, for people."""
    if last := _LAST.fullmatch(text):
        return Last(text, int(last[1] or 0), _indices(last[2] or last[3]))
    if _NUMBERS.fullmatch(text):
        return Numbers(text, tuple(_range(part) for part in text.split(",")))
    if elements := _ELEMENTS.fullmatch(text):
        return Elements(text, int(elements[1]), _indices(elements[2] or elements[3]))
    if not text.strip():
        raise ValueError("an empty word names no job: write an id, a range, a name, or @ for the last job")
    if text.startswith("@"):
        raise ValueError(f"{text!r} is not a job: @ is the job that you submitted last, @~1 the one before it")
    return Called(text)


def names_elements(word: JobWord) -> bool:
    """Whether a word names elements by their indices, and not an array as a whole."""
    return isinstance(word, Elements) or (isinstance(word, Last) and bool(word.ranges))


def _indices(text: str | None) -> tuple[tuple[int, int], ...]:
    return tuple(_range(part, least=0) for part in text.split(",")) if text else ()


def _range(part: str, least: int = 1) -> tuple[int, int]:
    first, _, last = part.partition("-")
    begin, end = int(first), int(last or first)
    if begin < least:
        raise ValueError(f"{part!r} is not a job id: ids begin with 1")
    if end < begin:
        raise ValueError(f"{part!r} is an empty range: write the smaller id first")
    return begin, end


def is_called(job: JobInfo, pattern: str) -> bool:
    """Whether a job has this name, or one that matches the pattern; without a name its whole command counts, too."""
    names = [formatting.title(job), *([] if job.name else [" ".join(job.command)])]
    return any(name == pattern or fnmatchcase(name, pattern) for name in names)


def mine(jobs: Sequence[JobInfo], uid: int, word: Last) -> list[JobInfo]:
    """Return the job, or the elements of the array, that ``@~N`` names among jobs in order of their ids; or none."""
    own: dict[int, list[JobInfo]] = {}
    for job in jobs:
        if job.owner == uid:
            own.setdefault(job.id if job.array is None else job.array, []).append(job)
    return list(own.values())[-1 - word.back] if word.back < len(own) else []
