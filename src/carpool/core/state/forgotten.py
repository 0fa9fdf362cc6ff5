"""The outcomes of jobs that ended long ago: a byte for each, so that jobs without end take hardly any memory."""

from __future__ import annotations

from carpool.core.model import JobId, Outcome

_PAGE = 1024  # numbers follow each other, mostly
_OUTCOMES = tuple(Outcome)


class ForgottenJobs:
    """The outcomes of forgotten jobs."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}  # 0: no such job; else the place of its outcome, from 1

    def add(self, job: JobId, outcome: Outcome) -> None:
        page, place = divmod(job, _PAGE)
        self._pages.setdefault(page, bytearray(_PAGE))[place] = _OUTCOMES.index(outcome) + 1

    def outcome(self, job: JobId) -> Outcome | None:
        """Return the outcome of a forgotten job; None: there has been no such job, or it is not forgotten."""
        page, place = divmod(job, _PAGE)
        known = self._pages[page][place] if page in self._pages else 0
        return _OUTCOMES[known - 1] if known else None

    def __contains__(self, job: JobId) -> bool:
        return self.outcome(job) is not None
