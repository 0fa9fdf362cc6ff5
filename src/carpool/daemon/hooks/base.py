"""The interface of a feature that takes part in the life of jobs, and the list of all of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from carpool.core.events import Adopted, ProcessExited, StartFailed
from carpool.core.model import JobId
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.protocol.api import SubmitRequest
from carpool.protocol.session import StartSpec

log = logging.getLogger(__name__)
Ending = ProcessExited | StartFailed
Commands = Mapping[type, Callable[[Any], None]]  # the method for each kind of command
Work = Callable[[], Awaitable[None]]
Kind = TypeVar("Kind", bound="JobHook")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job is not accepted, as an error of the API."""

    code: str
    text: str
    hint: str


@dataclass(slots=True)
class JobStart:
    """A start of a job.  ``shim``: the process that is told ``spec`` next; ``is_over``: nothing is started any more."""

    job: JobRecord
    shim: int
    spec: StartSpec
    is_over: Callable[[], bool]


class Signals(Protocol):
    """Signals for jobs, which follow from a decision that is recorded first."""

    def record(self, job: JobRecord) -> None:
        """Record `JobRecord.control` before any signal that follows."""
        ...

    def send(self, job: JobRecord, number: int) -> None:
        """Send a signal after the records, if the attempt is not over by then."""
        ...


class Remains(Protocol):
    """Processes and groups that an attempt has left, which is over."""

    def pids(self) -> set[int]:
        """Return the processes that are left, without the shim."""
        ...

    def removed(self) -> bool:
        """Remove what is left.  False: processes are left, or that cannot be known at present."""
        ...

    def end(self) -> list[str]:
        """End and remove what is left.  Takes time.  Returns what has failed."""
        ...


class JobHook:
    """A feature.  Every method may be called without the ones before: a daemon may start in the middle of a job."""

    def submit(self, spec: SubmitRequest) -> Refusal | None:
        """Return why no job is made of a submission, or of a changed one; None: no objection."""
        return None

    def starting(self, start: JobStart, then: Callable[[str], None]) -> None:
        """Prepare a start, then call ``then``, with the reason if the job must not start, or an empty text."""
        then("")

    def started(self, job: JobRecord, shim: int | None) -> None:
        """Handle that an attempt runs, before that is recorded; repeated after a restart."""

    def exited(self, job: JobRecord, ending: Ending) -> Ending:
        """Return how an attempt has ended with what the feature knows of that, before anything is removed."""
        return ending

    def remains(self, job: JobRecord, shim: int | None) -> Remains | None:
        """Return what is left of the present attempt, which is over.  ``shim``: the shim's process, if it lives."""
        return None

    def ended(self, job: JobRecord) -> None:
        """Handle that a job has ended, before that is recorded; repeated after a restart."""

    def forgotten(self, jobs: Sequence[JobId]) -> None:
        """Forget jobs that have been removed."""

    def restored(self, jobs: JobTable) -> None:
        """Handle that the jobs of an earlier daemon are known, before anything else happens to them."""

    def adopted(self, job: JobRecord, event: Adopted) -> Adopted:
        """Return what the core is told of a job that an earlier daemon has started."""
        return event

    def commands(self, signals: Signals) -> Commands:
        """Return the commands of the core that the feature carries out."""
        return {}

    def work(self) -> Mapping[str, Work]:
        """Return permanent work by name, which begins when all jobs are known."""
        return {}

    def stop(self) -> None:
        """Stop the feature's work, as the daemon begins to end."""

    def close(self) -> None:
        """Release what the feature has, as the daemon ends, after everything else."""


@contextmanager
def _contained(hook: JobHook, call: str) -> Iterator[None]:
    """Log an unexpected error of a feature: the job goes on, and the other features are called."""
    try:
        yield
    except Exception:
        log.exception("%s.%s has failed: this was not expected", type(hook).__name__, call)


class JobHooks:
    """All features.  They are called in the order of their registration; one that fails does not hinder the others."""

    def __init__(self) -> None:
        self._hooks: list[JobHook] = []

    def register(self, hooks: Iterable[JobHook]) -> None:
        """Add features, to be called after those that are there."""
        self._hooks += hooks

    def of(self, kind: type[Kind]) -> Kind:
        """Return the feature of a class."""
        return next(hook for hook in self._hooks if isinstance(hook, kind))

    def submit(self, spec: SubmitRequest) -> Refusal | None:
        """Return the first objection to a submission."""
        return next((refusal for hook in self._hooks if (refusal := hook.submit(spec)) is not None), None)

    def starting(self, start: JobStart, then: Callable[[str], None]) -> None:
        """Let each feature prepare a start, one after the other, until one refuses it; then call ``then``."""
        self._prepare(start, then, tuple(self._hooks), "")

    def _prepare(self, start: JobStart, then: Callable[[str], None], left: Sequence[JobHook], why: str) -> None:
        if why or not left:
            then(why)
        else:
            self._let_prepare(left[0], start, then, partial(self._prepare, start, then, left[1:]))

    def _let_prepare(
        self, hook: JobHook, start: JobStart, then: Callable[[str], None], go_on: Callable[[str], None]
    ) -> None:
        """Let one feature prepare a start; if it fails, the job does not start without what the feature is for."""
        prepared = False

        def prepare_others(why: str) -> None:
            nonlocal prepared
            prepared = True
            go_on(why)

        try:
            hook.starting(start, prepare_others)
        except Exception as error:
            if prepared:
                raise
            log.exception("%s.starting has failed: this was not expected", type(hook).__name__)
            then(f"{type(hook).__name__} could not prepare it: {error}")

    def started(self, job: JobRecord, shim: int | None) -> None:
        """Tell each feature that an attempt runs."""
        for hook in self._hooks:
            with _contained(hook, "started"):
                hook.started(job, shim)

    def exited(self, job: JobRecord, ending: Ending) -> Ending:
        """Return how an attempt has ended, with what each feature adds."""
        for hook in self._hooks:
            with _contained(hook, "exited"):
                ending = hook.exited(job, ending)
        return ending

    def remains(self, job: JobRecord, shim: int | None) -> AllRemains:
        """Return what each feature knows to be left of an attempt."""
        parts: list[Remains] = []
        for hook in self._hooks:
            with _contained(hook, "remains"):
                if (part := hook.remains(job, shim)) is not None:
                    parts.append(part)
        return AllRemains(parts)

    def ended(self, job: JobRecord) -> None:
        """Tell each feature that a job has ended."""
        for hook in self._hooks:
            with _contained(hook, "ended"):
                hook.ended(job)

    def forgotten(self, jobs: Sequence[JobId]) -> None:
        """Let each feature forget jobs that have been removed."""
        for hook in self._hooks:
            with _contained(hook, "forgotten"):
                hook.forgotten(jobs)

    def restored(self, jobs: JobTable) -> None:
        """Tell each feature that the jobs of an earlier daemon are known."""
        for hook in self._hooks:
            with _contained(hook, "restored"):
                hook.restored(jobs)

    def adopted(self, job: JobRecord, event: Adopted) -> Adopted:
        """Return what the core is told of an adopted job, with what each feature adds."""
        for hook in self._hooks:
            with _contained(hook, "adopted"):
                event = hook.adopted(job, event)
        return event

    def commands(self, signals: Signals) -> Commands:
        """Return all features' commands of the core."""
        return {kind: method for hook in self._hooks for kind, method in hook.commands(signals).items()}

    def work(self) -> Mapping[str, Work]:
        """Return all features' permanent work."""
        return {name: work for hook in self._hooks for name, work in hook.work().items()}

    def stop(self) -> None:
        """Stop the work of all features."""
        for hook in self._hooks:
            with _contained(hook, "stop"):
                hook.stop()

    def close(self) -> None:
        """Release what the features have."""
        for hook in self._hooks:
            with _contained(hook, "close"):
                hook.close()


@dataclass(frozen=True, slots=True)
class AllRemains:
    """Everything that features know to be left of an attempt."""

    parts: Sequence[Remains]

    def pids(self) -> set[int]:
        """Return the processes that are left, without the shim."""
        return {pid for part in self.parts for pid in part.pids()}

    def removed(self) -> bool:
        """Remove what is left; False if any of it stays."""
        removed = [part.removed() for part in self.parts]
        return all(removed)

    def end(self) -> list[str]:
        """End and remove everything.  Takes time.  Returns what has failed."""
        return [problem for part in self.parts for problem in part.end()]
