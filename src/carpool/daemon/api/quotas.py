"""Limits of a user: quotas of submissions, and GET /v1/limits.

An excess over a quota (`carpool.daemon.config.limits`) is refused before any of the submission is kept.
"""

from __future__ import annotations

import asyncio
import math
import pwd
from collections.abc import Sequence

import msgspec

from carpool.core.placement.filters.user_limits import DEVICES, GROUP, RUNNING, most_of_user
from carpool.core.spelling import did_you_mean
from carpool.daemon.api.call import ApiCall
from carpool.daemon.api.context import Caller, Context, administers
from carpool.daemon.config.limits import groups
from carpool.daemon.jobs.submissions import size_of
from carpool.daemon.journal.models import RegisteredModel
from carpool.daemon.system.errors import RequestError
from carpool.daemon.system.peer import person_of
from carpool.options.requests import dependencies
from carpool.protocol.api import LimitInfo, SubmitManyRequest, SubmitRequest, UserLimitsInfo
from carpool.protocol.display import user_name
from carpool.protocol.units import format_duration, format_size

UID_DIGITS = 10
LONGEST_NAME = 256  # characters
MOST_DEPENDENCIES = 1000


def check_spec_size(context: Context, spec: SubmitRequest) -> None:
    """Refuse a submission that is too large by itself.  Raises RequestError."""
    _check_size(context, spec)
    if len(spec.name) > LONGEST_NAME:
        text = f"the name has {len(spec.name)} characters; {LONGEST_NAME} are allowed"
        raise RequestError(400, "bad_name", text, "choose a shorter one")
    count = sum(len(numbers) for _, numbers in dependencies(spec))
    if count > MOST_DEPENDENCIES:
        text = f"the job waits for {count} others; {MOST_DEPENDENCIES} are allowed"
        raise RequestError(400, "bad_after", text, "let a job in between wait for a part of them")


def check_common_environment(context: Context, many: SubmitManyRequest, most_jobs: int) -> None:
    """Refuse too many jobs or too large a common environment, before each job gets a copy.  Raises RequestError."""
    count, most = len(many.jobs), context.limits.submissions_size
    if not 1 <= count <= most_jobs:
        raise RequestError(400, "bad_count", f"a submission has 1 to {most_jobs} jobs, not {count}")
    size = count * len(msgspec.json.encode(many.env))
    if size > most:
        text = f"the environment of {count} jobs takes {format_size(size)}; {format_size(most)} are allowed"
        raise RequestError(429, "submissions_too_large", text, f"submit fewer jobs at once{_raise_it(context)}")


def check_retries(context: Context, spec: SubmitRequest) -> None:
    """Refuse more retries than an administrator allows.  Raises RequestError."""
    most = context.limits.retries
    if spec.retries > most:
        text = f"retries is {spec.retries}; a job is started again {most} times at most"
        raise RequestError(400, "bad_retries", text, f"ask for fewer: --retries {most}{_raise_it(context)}")


def with_time_limit(context: Context, spec: SubmitRequest) -> SubmitRequest:
    """Return the submission with a time limit: if none is given, the default or the longest one; a service has none."""
    settings = context.settings.current
    usual = settings.max_time_us if settings.default_time_us is None else settings.default_time_us
    if spec.time_us is not None or spec.service is not None or usual is None:
        return spec
    return msgspec.structs.replace(spec, time_us=usual)


def check_time_limit(context: Context, spec: SubmitRequest, who: Caller) -> None:
    """Refuse a time limit longer than users may ask for.  Raises RequestError."""
    most = context.settings.current.max_time_us
    if most is None or spec.service is not None or administers(context, who):
        return
    if spec.time_us is None or spec.time_us > most:
        asked = "no time limit" if spec.time_us is None else f"a time limit of {format_duration(spec.time_us)}"
        text = f"the job asks for {asked}; at most {format_duration(most)} is allowed (max_time_us)"
        raise RequestError(403, "time_limit", text, f"ask for less: --time {format_duration(most)}")


def check_group(context: Context, spec: SubmitRequest) -> None:
    """Refuse an unknown group: a typing error would otherwise be a group without a limit.  Raises RequestError."""
    known = groups(context.settings.current.named_limits)
    if not spec.group or spec.group in known:
        return
    listed = f"{did_you_mean(spec.group, known)}groups: {', '.join(known) or 'none'}"
    hint = f"{listed}; an administrator makes one: carpool set group.NAME=2"
    raise RequestError(400, "unknown_group", f"there is no group {spec.group!r}", hint)


def check_room(context: Context, uid: int, sizes: Sequence[int]) -> None:
    """Refuse jobs of these sizes, in bytes, if with the user's other jobs they are too many.  Raises RequestError."""
    limits, number, more = context.limits, len(sizes), sum(sizes)
    count, size = context.jobs.submitted.of(uid)
    if count + number > limits.jobs:
        text = f"user {user_name(uid)} has {count} jobs that have not ended, and submits {number} more"
        text += f"; {limits.jobs} are allowed"
        raise RequestError(429, "too_many_jobs", text, _wait(context))
    if size + more > limits.submissions_size:
        text = f"submissions of user {user_name(uid)} take {format_size(size)}, and these take {format_size(more)} more"
        text += f"; {format_size(limits.submissions_size)} are allowed"
        raise RequestError(429, "submissions_too_large", text, _wait(context))


def spend_rate(context: Context, uid: int, jobs: int) -> None:
    """Count the jobs against the user's submission rate, or refuse them if they come too fast.  Raises RequestError."""
    rate = context.submission_rate
    left = rate.left(uid)
    if jobs > left:
        text = f"user {user_name(uid)} submits {jobs} jobs and may submit {left} at this moment"
        text += f": {rate.at_once} jobs at once are allowed, and {rate.per_s} per second after these"
        wait = f"submit again in {math.ceil((jobs - left) / rate.per_s)} s"
        hint = wait if jobs <= rate.at_once else "submit fewer jobs at once"
        raise RequestError(429, "submitted_too_fast", text, f"{hint}{_raise_it(context)}")
    rate.spend(uid, jobs)


def check_model_room(context: Context, model: RegisteredModel) -> None:
    """Refuse a model that is too large, by itself or with the owner's other models.  Raises RequestError.

    Nothing may be awaited between this check and the moment at which the model is listed, or is written.
    """
    size, most = _check_size(context, model.spec), context.limits.submissions_size
    person, this = person_of(model.owner), (model.owner, model.name)
    listed = [other for other in context.models.listed() if person_of(other.owner) == person]
    others = [other for other in listed if (other.owner, other.name) != this]
    held = sum(size_of(other.spec) for other in others)
    if held + size > most:
        text = f"models of user {user_name(model.owner)} take {format_size(held)}"
        text += f", and {model.name!r} takes {format_size(size)} more"
        text += f"; {format_size(most)} are allowed"
        raise RequestError(429, "models_too_large", text, f"remove models: carpool model rm{_raise_it(context)}")


def _check_size(context: Context, spec: msgspec.Struct) -> int:
    size, most = size_of(spec), context.limits.submission_size
    if size > most:
        text = f"the command, the environment and the rest take {format_size(size)}; {format_size(most)} are allowed"
        raise RequestError(413, "submission_too_large", text, f"pass large values in files{_raise_it(context)}")
    return size


def _wait(context: Context) -> str:
    return f"submit again when some of the jobs have ended, or cancel some{_raise_it(context)}"


def _raise_it(context: Context) -> str:
    return f"; an administrator can change the limit in {context.home.limits}"


async def show_limits(call: ApiCall) -> object:
    """Return the caller's limits, or, for administrators, another user's (``user``: name or uid)."""
    context = call.context
    uid = await _asked(context, call.who, call.request.query.get("user"))
    used_us = {use.owner: use.used_us for use in context.machine.uses()}.get(person_of(uid), 0)
    half_life_us = context.settings.current.use_half_life_us
    return UserLimitsInfo(uid, user_name(uid), _limits(context, uid), used_us, half_life_us)


async def _asked(context: Context, who: Caller, user: str | None) -> int:
    """Return the uid that is asked for.  Raises RequestError 403, before a name is looked up, and 404."""
    if user is None or user in (str(who.uid), user_name(who.uid)):
        return who.uid
    if not administers(context, who):
        text = (
            f"user {user_name(who.uid)} may not see the limits of {user[:40]!r}; only that user and administrators may"
        )
        raise RequestError(403, "not_operator", text, "carpool limits shows your own")
    return await asyncio.to_thread(_uid, user)


def _uid(user: str) -> int:
    """Return the uid of a name or a number in digits.  Raises RequestError 404."""
    if user.isascii() and user.isdecimal() and len(user) <= UID_DIGITS:
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):  # no name can have such characters
        raise RequestError(404, "unknown_user", f"there is no user {user[:40]!r} on this machine") from None


def _limits(context: Context, uid: int) -> list[LimitInfo]:
    return [*_of_user(context, uid), *_of_groups(context), *_of_submissions(context, uid)]


def _of_user(context: Context, uid: int) -> list[LimitInfo]:
    settings, present, account = context.settings.current, context.machine.in_use(), person_of(uid)
    running, devices = present.running[account], len(present.devices.get(account, ()))
    return [
        LimitInfo(RUNNING, running, most_of_user(settings, RUNNING, account), "jobs that run at once"),
        LimitInfo(DEVICES, devices, most_of_user(settings, DEVICES, account), "devices that these jobs are on"),
    ]


def _of_groups(context: Context) -> list[LimitInfo]:
    limits, present = context.settings.current.named_limits, context.machine.in_use()
    return [
        LimitInfo(key, present.of_group[name], limits[key], f"jobs of group {name} that run at once, of all users")
        for name in groups(limits)
        for key in (f"{GROUP}.{name}",)
    ]


def _of_submissions(context: Context, uid: int) -> list[LimitInfo]:
    limits, settings = context.limits, context.settings.current
    memory = None if limits.memory is None else int(limits.memory)
    jobs, size = context.jobs.submitted.of(uid)
    return [
        LimitInfo("jobs", jobs, limits.jobs, "jobs that wait or run"),
        LimitInfo("submissions_size", size, int(limits.submissions_size), "size of these jobs: commands, environments"),
        LimitInfo("max_time_us", None, settings.max_time_us, "longest time limit of a job"),
        LimitInfo("retries", None, limits.retries, "retries of a job"),
        LimitInfo("processes", None, limits.processes, "processes and threads of a job"),
        LimitInfo("memory", None, memory, "memory of the host for all jobs"),
    ]
