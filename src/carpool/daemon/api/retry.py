"""Ended jobs: retried by new jobs in their places, also in their arrays, or removed before limits remove them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from graphlib import TopologicalSorter
from typing import TypeVar

import msgspec

from carpool.core.model import Dependency, JobId
from carpool.daemon.api.call import ApiCall, unknown_job
from carpool.daemon.api.context import Context
from carpool.daemon.api.quotas import check_common_environment, with_time_limit
from carpool.daemon.api.submit import accept, check, check_present, new_record
from carpool.daemon.hooks.retention import Retention
from carpool.daemon.jobs.table import EndedJob, JobRecord
from carpool.daemon.journal.contents import PastSubmission, read_submissions
from carpool.daemon.system.errors import JournalFull, RequestError
from carpool.options.arrays import MOST_JOBS
from carpool.options.requests import dependencies, with_dependencies
from carpool.protocol.api import (
    CleanRequest,
    CleanResponse,
    LeftOut,
    RetryRequest,
    RetryResponse,
    SubmitManyRequest,
    SubmitRequest,
)
from carpool.protocol.display import user_name
from carpool.protocol.environment import TASK
from carpool.protocol.job_names import job_number

T = TypeVar("T")
MOST = 1000  # jobs of one request
#: Stands for each of the jobs while only their common environment is checked.
_NOTHING = SubmitRequest([], "", {})


async def retry_jobs(call: ApiCall) -> object:
    """Submit ended jobs of the caller again; jobs that cannot be retried are left out, an error if that is all of them.

    Only the owner can retry a job, because the new job has the owner's rights.  A new job has what was submitted, with
    the environment of this request: the directory, the options, the array with the index, the parameters and an
    activated environment stay.  A hold and a time to begin are over.
    """
    context = call.context
    asked = await call.body(RetryRequest)
    numbers = list(dict.fromkeys(asked.jobs))
    check_common_environment(context, SubmitManyRequest([_NOTHING] * len(numbers), asked.env), MOST_JOBS)
    retries = _Retries(call, asked)
    jobs = await retries.accepted(numbers)
    if not jobs:
        raise next(iter(retries.left.values()))
    retried = [number for number in numbers if number in jobs]
    left = [LeftOut(number, error.info) for number, error in retries.left.items()]
    return RetryResponse([jobs[number].id for number in retried], retried, left)


class _Retries:
    """One request to retry jobs.  ``left``: why jobs are left out."""

    def __init__(self, call: ApiCall, asked: RetryRequest) -> None:
        self._ask, self._asked = call, asked
        self._context, self._who = call.context, call.who
        self.left: dict[JobId, RequestError] = {}

    async def accepted(self, numbers: list[JobId]) -> dict[JobId, JobRecord]:
        """Submit the new jobs durably, and return them by the jobs whose places they take."""
        newest = self._context.jobs.retries()
        ended = await self._sift(numbers, lambda number: self._check_ended(number, newest.get(number)))
        with self._context.jobs.being_retried(ended):  # no other request tries the same jobs meanwhile
            past = await self._submissions(list(ended))
            chosen: dict[JobId, SubmitRequest] = {}
            for number in _ordered(past, newest):  # what a job waits for comes before it
                look = partial(self._chosen, past=past, newest=newest, inside=set(chosen))
                chosen |= await self._sift([number], look)
            jobs = self._records(past, newest, chosen)
            if jobs:
                await accept(self._context, list(jobs.values()))
        return jobs

    async def _sift(self, numbers: Iterable[JobId], look: Callable[[JobId], Awaitable[T]]) -> dict[JobId, T]:
        found: dict[JobId, T] = {}
        for number in numbers:
            try:
                found[number] = await look(number)
            except RequestError as error:
                self.left[number] = error
        return found

    async def _check_ended(self, number: JobId, retry: JobId | None) -> None:
        """Check that the job is the caller's, has ended and was not retried.  Raises RequestError 404, 403 and 409."""
        jobs, job = self._context.jobs, self._ask.known_job(number)
        if job is None:
            raise unknown_job(number)
        if job.owner != self._who.uid:
            owner, us = user_name(job.owner), user_name(self._who.uid)
            text = f"job {job.number} belongs to user {owner}, and user {us} cannot run it"
            raise RequestError(403, "not_owner", text, "its owner can: carpool retry")
        if number in jobs.live:
            hint = f"carpool requeue {job.number} starts a running job again; carpool cancel {job.number} ends it"
            raise RequestError(409, "not_ended", f"job {job.number} has not ended", hint)
        if retry is not None:
            # By its id: the retry of an element has the element's name.
            text = f"job {job.number} has been tried again already, as job {retry}"
            raise RequestError(409, "retried", text, f"carpool show {retry}")
        if jobs.is_being_retried(number):
            raise RequestError(409, "retried", f"job {job.number} is being tried again already", "carpool ls")

    async def _submissions(self, numbers: list[JobId]) -> dict[JobId, PastSubmission]:
        await self._context.store.flushed()
        found = await asyncio.to_thread(read_submissions, self._context.home.journal, numbers)
        for number in numbers:
            if number not in found:
                text = f"job {self._context.jobs.called(number)} has been removed meanwhile"
                self.left[number] = RequestError(404, "unknown_job", text, "submit the job again")
        return found

    async def _chosen(
        self, number: JobId, past: Mapping[JobId, PastSubmission], newest: Mapping[JobId, JobId], inside: set[JobId]
    ) -> SubmitRequest:
        """Return the new submission without its array; it waits only for jobs that exist already.  Raises RequestError.

        ``inside``: jobs of this request, which the job may wait for.
        """
        spec, started = past[number].request, past[number].started
        called = job_number(number, spec.array, spec.index)
        _check_kind(called, spec)
        self._check_variables(called, spec)
        after = {
            kind: [job for job in jobs if job not in inside and not started]
            for kind, jobs in _newest(spec, newest).items()
        }
        first = msgspec.structs.replace(spec, env=self._environment(spec), hold=False, begin_us=None)
        alone = msgspec.structs.replace(first, array=None, array_limit=0, retry_of=None, request="")
        alone = with_dependencies(alone, after)
        try:
            alone = with_time_limit(self._context, alone)
            check(self._context, alone, self._who)
            check_present(self._context, [alone], self._who)
            return alone
        except RequestError as error:
            text, hint = f"job {called} cannot be tried again: {error.info.message}", "or submit the job anew"
            hint = f"{error.info.hint}; {hint}" if error.info.hint else hint
            raise RequestError(error.status, error.info.code, text, hint) from None

    def _environment(self, spec: SubmitRequest) -> dict[str, str]:
        given = {name: self._asked.env[name] for name in self._asked.given if name in self._asked.env}
        return self._asked.env | spec.activated | given

    def _check_variables(self, number: str, spec: SubmitRequest) -> None:
        """Check that variables given for the job are given again.  Raises RequestError.

        The values given before were erased when the job ended, and the shell's values are others.
        """
        missing = [name for name in spec.own_variables if name not in self._asked.given]
        if missing:
            text = f"job {number} was given the variables {', '.join(missing)}, whose values were erased when it ended"
            hint = f"give them again: carpool retry {number} --env {missing[0]}=VALUE, or --env-file FILE"
            raise RequestError(400, "missing_variables", text, hint)

    def _records(
        self,
        past: Mapping[JobId, PastSubmission],
        newest: Mapping[JobId, JobId],
        chosen: Mapping[JobId, SubmitRequest],
    ) -> dict[JobId, JobRecord]:
        """Make the new jobs, in their arrays; they wait for each other as did the jobs whose places they take."""
        jobs: dict[JobId, JobRecord] = {}
        for number, spec in chosen.items():
            first = past[number].request
            newer = _newest(first, newest)
            after = {
                kind: [*present, *(jobs[job].id for job in newer[kind] if job in jobs)]
                for kind, present in dependencies(spec)
            }
            whole = msgspec.structs.replace(
                with_dependencies(spec, after), array=first.array, array_limit=first.array_limit, retry_of=number
            )
            jobs[number] = new_record(self._context, self._context.jobs.new_id(), whole, self._who)
        return jobs


def _check_kind(number: str, spec: SubmitRequest) -> None:
    """Refuse jobs that another program has started, and would start again.  Raises RequestError."""
    if spec.service is not None:
        text, hint = f"job {number} was a worker of models", "carpool serve starts its workers itself"
    elif spec.joined:
        text = f"job {number} has joined: Carpool has not started its process, and cannot start it again"
        hint = "start it again as you did, or submit it: carpool submit"
    elif spec.foreground:
        text, hint = f"job {number} ran in a terminal, or in a notebook", "start it there again: carpool run"
    elif TASK in spec.own_variables:
        text, hint = f"job {number} ran a Python function, whose arguments are gone", "call carpool.submit again"
    else:
        return
    raise RequestError(409, "not_startable", text, hint)


def _newest(spec: SubmitRequest, newest: Mapping[JobId, JobId]) -> dict[Dependency, list[JobId]]:
    """Return the jobs that the submission waits for; in the place of a retried job, its latest retry."""
    return {kind: [_last(newest, job) for job in jobs] for kind, jobs in dependencies(spec)}


def _last(newest: Mapping[JobId, JobId], job: JobId) -> JobId:
    while job in newest:
        job = newest[job]
    return job


def _ordered(past: Mapping[JobId, PastSubmission], newest: Mapping[JobId, JobId]) -> list[JobId]:
    """Return the jobs so that each comes after the jobs that it waits for."""
    graph = {
        number: [job for jobs in _newest(past[number].request, newest).values() for job in jobs if job in past]
        for number in sorted(past)
    }
    return list(TopologicalSorter(graph).static_order())


async def clean(call: ApiCall) -> object:
    """Remove ended jobs with rows, attempts, directories and logs: the caller's own; for administrators, any user's.

    All of the jobs must have ended; otherwise none is removed.  ``kept`` lists jobs of other users and unknown jobs (an
    error if the request names no other jobs), jobs that other jobs wait for, the newest job, and jobs that have just
    ended.  The removal is durable before the answer.
    """
    context = call.context
    wanted = (await call.body(CleanRequest)).jobs
    if len(wanted) > MOST:
        raise RequestError(400, "too_many_jobs", f"{len(wanted)} jobs at once", f"remove {MOST} at a time")
    removed = set(await _removed(context, _selected(call, wanted)))
    numbers = dict.fromkeys(wanted)
    return CleanResponse(sorted(removed), [number for number in numbers if number not in removed])


async def _removed(context: Context, jobs: list[EndedJob]) -> list[int]:
    """Remove jobs for good, and return the numbers of the removed ones.  Raises RequestError 507."""
    try:
        return await asyncio.shield(context.hooks.of(Retention).remove(jobs))
    except JournalFull as error:
        text = f"{error.info.message}; logs of some of these jobs are deleted already, and the jobs are still listed"
        raise RequestError(507, error.info.code, text, "make room, then repeat the request") from None


def _selected(call: ApiCall, wanted: list[int]) -> list[EndedJob]:
    """Return the jobs that the caller may remove.  Raises RequestError 409 for a job that has not ended.

    Raises RequestError 404 or 403 if none of the jobs can be removed.
    """
    found, refused = list[EndedJob](), list[RequestError]()
    for number in dict.fromkeys(wanted):
        try:
            found.append(_ended(call, number))
        except RequestError as error:
            if error.status == 409:
                raise
            refused.append(error)
    if refused and not found:
        raise refused[0]
    return found


def _ended(call: ApiCall, number: int) -> EndedJob:
    """Return the ended job with this number, if the caller may remove it.  Raises RequestError 404, 403 and 409."""
    job = call.known_job(number)
    if job is None:
        raise unknown_job(number)
    call.require_owner(job, "remove it")
    if not isinstance(job, EndedJob):
        raise RequestError(
            409, "not_ended", f"job {job.number} has not ended", f"end the job first: carpool cancel {job.number}"
        )
    return job
