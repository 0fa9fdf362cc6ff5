"""Quotas of a user's submissions (`carpool.daemon.config.limits`): an excess is refused before any of it is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from carpool.core.spelling import did_you_mean
from carpool.daemon.api.context import Caller, Context, administers
from carpool.daemon.config.named_limits import groups
from carpool.daemon.jobs.submissions import size_of
from carpool.daemon.journal.model_registry import RegisteredModel
from carpool.daemon.system.errors import RequestError
from carpool.daemon.system.persons import person_of
from carpool.options.requests import dependencies
from carpool.protocol.api import SubmitManyRequest, SubmitRequest
from carpool.protocol.display import user_name
from carpool.protocol.units import format_duration, format_size

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
