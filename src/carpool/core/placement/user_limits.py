"""Limits set by administrators: how many jobs of a user, and of a group, are on devices at once, and on how many.

A job that is over a limit is passed by: it keeps no place in the queue from others, no device is kept for it, and the
time does not count as waiting (`reservations`).  It is placed as soon as the limit allows that.  Services, and jobs
that are on a device when a limit is lowered, are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from carpool.core.metering.placing_order import in_use
from carpool.core.model import DeviceId, Reason, Settings
from carpool.core.state.job import Job
from carpool.core.state.settings_check import NAMED_LIMITS
from carpool.core.state.state import State

#: First parts of the names in `Settings.named_limits`.
GROUP, RUNNING, DEVICES = NAMED_LIMITS


def most_of_user(settings: Settings, limit: str, owner: int) -> int | None:
    """What `RUNNING` or `DEVICES` is for a user; None: any number."""
    usual: int | None = getattr(settings, limit)
    return settings.named_limits.get(f"{limit}.{owner}", usual)


def most_of_group(settings: Settings, group: str) -> int | None:
    """How many jobs of the group run at once; None: any number."""
    return settings.named_limits.get(f"{GROUP}.{group}") if group else None


def over_limit(state: State, job: Job) -> Callable[[], Reason] | None:
    """Why the job may be placed on no device now, however much room there is; None: it may."""
    if job.serves:
        return None
    return _over_group(state, job) or _over_running(state, job) or _over_devices(state, job)


def bound_to(state: State, job: Job) -> set[DeviceId] | None:
    """The only devices that the job may be placed on, because its user is on as many as possible; None: any."""
    most = most_of_user(state.settings, DEVICES, job.spec.owner)
    if most is None or job.serves:
        return None
    present = in_use(state).devices.get(job.spec.owner, set())
    return present if len(present) >= most else None


def explain_devices(state: State, job: Job) -> Reason:
    """Why the job may not be placed on a device, though it may on others."""
    most = most_of_user(state.settings, DEVICES, job.spec.owner) or 0
    present = sorted(in_use(state).devices.get(job.spec.owner, ()))
    wants = f", and the job needs {job.spec.gang}" if job.spec.gang > 1 else ""
    names = f" ({', '.join(present)})" if present else ""
    text = f"{_who(job)} is on {_plural(len(present), 'device')}{names} of at most {most}{wants} (user_devices)"
    return Reason(DEVICES, text)


def _over_group(state: State, job: Job) -> Callable[[], Reason] | None:
    group = job.spec.group
    most = most_of_group(state.settings, group)
    count = in_use(state).of_group[group] if most is not None else 0
    if most is None or count < most:
        return None
    return partial(Reason, GROUP, f"group {group} runs {_plural(count, 'job')} of at most {most} (group.{group})")


def _over_running(state: State, job: Job) -> Callable[[], Reason] | None:
    most = most_of_user(state.settings, RUNNING, job.spec.owner)
    count = in_use(state).running[job.spec.owner] if most is not None else 0
    if most is None or count < most:
        return None
    return partial(Reason, RUNNING, f"{_who(job)} runs {_plural(count, 'job')} of at most {most} (user_running)")


def _over_devices(state: State, job: Job) -> Callable[[], Reason] | None:
    """A job for several devices begins on others than those where its user has jobs: it has them to itself."""
    most = most_of_user(state.settings, DEVICES, job.spec.owner)
    if most is None:
        return None
    present = in_use(state).devices.get(job.spec.owner, set())
    over = most < 1 if job.spec.gang == 1 else len(present) + job.spec.gang > most
    return partial(explain_devices, state, job) if over else None


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _who(job: Job) -> str:
    return f"user {job.spec.user}" if job.spec.user else f"uid {job.spec.owner}"
