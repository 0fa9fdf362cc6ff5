"""Running ended jobs once more: new jobs that take their places, also in their arrays."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from aiohttp import web

from carpool.core.model import JobId
from carpool.daemon.api.context import CONTEXT, Caller, Context, caller, viewer
from carpool.daemon.api.middleware import json_response, read_body
from carpool.daemon.api.quotas import check_common_environment
from carpool.daemon.api.submit import MOST_JOBS, accept, check, check_present, new_record
from carpool.daemon.jobs.table import EngineChoice, JobRecord
from carpool.daemon.journal.past_submissions import PastSubmission, read_submissions
from carpool.daemon.system.errors import RequestError
from carpool.protocol.api import RetryRequest, SubmitManyRequest, SubmitManyResponse, SubmitRequest


async def retry_jobs(request: web.Request) -> web.Response:
    """Only the owner's, whose rights they have; one transaction for all of them.

    A job is what was submitted, with the environment of this request: the directory, the options, the array with the
    index and the parameters stay.  A hold and a time to begin are over.
    """
    context = request.app[CONTEXT]
    asked = await read_body(request, RetryRequest)
    who, numbers = caller(request), sorted(set(asked.jobs))
    check_common_environment(context, SubmitManyRequest([_NOTHING] * len(numbers), asked.env), MOST_JOBS)
    _check_ended(context, numbers, who)
    past = await _submissions(context, numbers)
    chosen = [await _chosen(context, number, past, asked.env, who) for number in numbers]
    _check_ended(context, numbers, who)  # programs were looked at meanwhile
    check_present(context, [spec for spec, _ in chosen], who)
    jobs: dict[JobId, JobRecord] = {}
    for number, (spec, choice) in zip(numbers, chosen, strict=True):
        again = _in_place_of(number, past[number].request, spec, jobs)
        jobs[number] = new_record(context, context.jobs.new_id(), again, choice, who)
    await asyncio.shield(accept(context, list(jobs.values())))
    return json_response(SubmitManyResponse([jobs[number].id for number in dict.fromkeys(asked.jobs)]), 201)


#: The fields of a submission that name the jobs it starts after.
_KINDS = ("after", "after_any", "after_notok")
#: Stands for each of the jobs while only their environment is looked at.
_NOTHING = SubmitRequest([], "", {})


def _check_ended(context: Context, numbers: Sequence[JobId], who: Caller) -> None:
    retried = context.jobs.retries()
    for number in numbers:
        _check_one(context, number, who, retried.get(number))


def _check_one(context: Context, number: JobId, who: Caller, retry: JobId | None) -> None:
    """Raises RequestError 404, 403 and 409."""
    job = context.jobs.live.get(number) or context.jobs.ended.get(number)
    if job is None or not viewer(context, who).knows(job.owner):
        raise RequestError(404, "unknown_job", f"there is no job {number}", "carpool ls --all lists them")
    if job.owner != who.uid:
        text = f"job {number} belongs to uid {job.owner}, and uid {who.uid} cannot run it"
        raise RequestError(403, "not_owner", text, "its owner can: carpool retry")
    if number in context.jobs.live:
        hint = f"carpool requeue {number} starts a running job again; carpool cancel {number} ends it"
        raise RequestError(409, "not_ended", f"job {number} has not ended", hint)
    if retry is not None:
        text = f"job {number} has been tried again already, as job {retry}"
        raise RequestError(409, "retried", text, f"carpool show {retry}")


async def _submissions(context: Context, numbers: Sequence[JobId]) -> dict[JobId, PastSubmission]:
    await context.store.flushed()
    found = await asyncio.to_thread(read_submissions, context.home.journal, numbers)
    for number in numbers:
        if number not in found:
            raise RequestError(404, "unknown_job", f"job {number} has been removed meanwhile", "submit it again")
    return found


async def _chosen(
    context: Context, number: JobId, past: Mapping[JobId, PastSubmission], env: Mapping[str, str], who: Caller
) -> tuple[SubmitRequest, EngineChoice]:
    """The submission by itself, with its engine; what it waits for are jobs that are there.  Raises RequestError."""
    spec, started = past[number].request, past[number].started
    _check_startable(number, spec)
    _check_variables(number, spec, env)
    newest = context.jobs.retries()
    after = {
        kind: [] if started else [_last(newest, job) for job in getattr(spec, kind) if job not in past]
        for kind in _KINDS
    }
    first = msgspec.structs.replace(spec, env=dict(env), hold=False, begin_us=None, foreground=False, **after)
    alone = msgspec.structs.replace(first, array=None, array_limit=0, retry_of=None)
    check(context, alone, who)
    return await context.engines.choose(alone, who.uid, who.gid)


def _last(newest: Mapping[JobId, JobId], job: JobId) -> JobId:
    """The job itself, or the last one that was to run in its place."""
    while job in newest:
        job = newest[job]
    return job


def _in_place_of(
    number: JobId, first: SubmitRequest, spec: SubmitRequest, jobs: Mapping[JobId, JobRecord]
) -> SubmitRequest:
    """In its array; it waits for those before it that are tried again, too (``jobs``, by the ended ones)."""
    after = {
        kind: [*getattr(spec, kind), *(jobs[job].id for job in getattr(first, kind) if job in jobs)] for kind in _KINDS
    }
    return msgspec.structs.replace(spec, array=first.array, array_limit=first.array_limit, retry_of=number, **after)


def _check_startable(number: JobId, spec: SubmitRequest) -> None:
    """Raises RequestError for a job whose process was there before the job: its environment is not known."""
    if spec.joined:
        text = f"job {number} has joined: Carpool has not started its process, and cannot start it again"
        raise RequestError(409, "not_startable", text, "start it again as you did, or submit it: carpool submit")


def _check_variables(number: JobId, spec: SubmitRequest, env: Mapping[str, str]) -> None:
    """Values that were given for the job are erased, and the shell's are not the same.  Raises RequestError."""
    missing = [name for name in spec.own_variables if name not in env]
    if missing:
        text = f"job {number} was given the variables {', '.join(missing)}, whose values were erased when it ended"
        hint = f"give them again: carpool retry {number} --env {missing[0]}=VALUE, or --env-file FILE"
        raise RequestError(400, "missing_variables", text, hint)
