"""GET /v1/limits: which limits hold for a user, and what counts against each."""

from __future__ import annotations

import asyncio
import pwd

from aiohttp import web

from carpool.core.placement.filters.user_limits import DEVICES, GROUP, RUNNING, most_of_user
from carpool.daemon.api.context import CONTEXT, Caller, Context, administers, caller
from carpool.daemon.api.middleware import json_response
from carpool.daemon.config.named_limits import groups
from carpool.daemon.system.errors import RequestError
from carpool.daemon.system.persons import person_of
from carpool.protocol.api import LimitInfo, UserLimitsInfo
from carpool.protocol.display import user_name

UID_DIGITS = 10


async def show_limits(request: web.Request) -> web.Response:
    """Return the caller's limits, or, for administrators, another user's (``user``: name or uid)."""
    context = request.app[CONTEXT]
    uid = await _asked(context, caller(request), request.query.get("user"))
    used_us = {use.owner: use.used_us for use in context.machine.uses()}.get(person_of(uid), 0)
    half_life_us = context.settings.current.use_half_life_us
    return json_response(UserLimitsInfo(uid, user_name(uid), _limits(context, uid), used_us, half_life_us))


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
        LimitInfo("submissions_size", size, int(limits.submissions_size), "what these take: commands, environments"),
        LimitInfo("max_time_us", None, settings.max_time_us, "longest time limit of a job"),
        LimitInfo("retries", None, limits.retries, "of a job"),
        LimitInfo("processes", None, limits.processes, "and threads, of a job"),
        LimitInfo("memory", None, memory, "of the host, of all jobs together"),
    ]
