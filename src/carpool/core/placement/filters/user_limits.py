"""Limits set by administrators: how many jobs of a user, and of a group, are on devices at once, and on how many.

A job that is over a limit is passed by: it keeps no other job from its place in the queue, no device is kept for it,
and the time does not count as waiting (`reservations`).  It is placed as soon as the limit allows that.  Services, and
jobs that are on a device when a limit is lowered, are left alone.

A job that has waited too long, or has run out of memory, claims a place: later jobs of its user, or group, leave it one
(`State.claims`, kept by `reservations`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from carpool.core.memory.lanes import Refusal
from carpool.core.model import DeviceId, Reason, Settings
from carpool.core.placement.filters.base import Filter
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.settings_check import NAMED_LIMITS
from carpool.core.state.state import State

#: First parts of the names in `Settings.named_limits`.
GROUP, RUNNING, DEVICES = NAMED_LIMITS


def most_of_user(settings: Settings, limit: str, account: int) -> int | None:
    """Return the user's limit ``limit``, which is `RUNNING` or `DEVICES`; None: any number."""
    usual: int | None = getattr(settings, limit)
    return settings.named_limits.get(f"{limit}.{account}", usual)


def most_of_group(settings: Settings, group: str) -> int | None:
    """Return the most jobs of the group that run at once; None: any number."""
    return settings.named_limits.get(f"{GROUP}.{group}") if group else None


def has_limits(settings: Settings) -> bool:
    """Whether any limit of this kind is set."""
    return settings.user_running is not None or settings.user_devices is not None or bool(settings.named_limits)


def over_limit(state: State, job: Job) -> Refusal | None:
    """Why the job may be placed on no device now, however much room there is; None: it may."""
    if job.serves or not has_limits(state.settings):
        return None
    return _over_group(state, job) or _over_running(state, job) or _over_devices(state, job)


def _bound_to(state: State, job: Job) -> Collection[DeviceId] | None:
    """Return the only devices that the job may be placed on, as its user is on as many as possible; None: any."""
    most = most_of_user(state.settings, DEVICES, job.spec.account)
    if most is None or job.serves:
        return None
    present = state.in_use.devices.get(job.spec.account, ())
    return present if len(present) >= most else None


def out_of_bounds(state: State, device: Device, job: Job) -> bool:
    """Whether the job's user is on as many devices as possible, and not on this one."""
    bounds = _bound_to(state, job) if has_limits(state.settings) else None
    return bounds is not None and device.spec.id not in bounds


def _too_many_devices(state: State, device: Device, job: Job) -> Refusal | None:
    return partial(_explain_devices, state, job) if out_of_bounds(state, device, job) else None


def _explain_devices(state: State, job: Job) -> Reason:
    """Return why the job may not be placed on a device, though it may on others."""
    most = most_of_user(state.settings, DEVICES, job.spec.account) or 0
    present = sorted(state.in_use.devices.get(job.spec.account, ()))
    wants = f", and the job needs {job.spec.gang}" if job.spec.needs_several else ""
    names = f" ({', '.join(present)})" if present else ""
    text = f"{_who(job)} is on {_plural(len(present), 'device')}{names} of at most {most}{wants} (user_devices)"
    return Reason(DEVICES, text)


def _over_group(state: State, job: Job) -> Refusal | None:
    group = job.spec.group
    most = most_of_group(state.settings, group)
    if most is None:
        return None
    ahead = [
        other for other in _claims_before(state, job) if other.spec.group == group and not _user_full(state, other)
    ]
    count, limit = state.in_use.of_group[group], f"{most} (group.{group})"
    return _full(GROUP, f"group {group}", count, ahead, most, limit)


def _over_running(state: State, job: Job) -> Refusal | None:
    account = job.spec.account
    most = most_of_user(state.settings, RUNNING, account)
    if most is None:
        return None
    ahead = [
        other for other in _claims_before(state, job) if other.spec.account == account and not _group_full(state, other)
    ]
    return _full(RUNNING, _who(job), state.in_use.running[account], ahead, most, f"{most} (user_running)")


def _full(code: str, who: str, count: int, ahead: list[Job], most: int, limit: str) -> Refusal | None:
    """Return why there is no place; ``count`` jobs run, and those ``ahead`` claim one each.  None: there is one."""
    return partial(_explain_over, code, who, count, limit, ahead) if count + len(ahead) >= most else None


def _claims_before(state: State, job: Job) -> list[Job]:
    """Return the jobs that claim places and come before this one."""
    others = (state.jobs[number] for number in sorted(state.claims))
    return [other for other in others if other is not job and precedence(other) < precedence(job)]


def precedence(job: Job) -> tuple[bool, int]:
    """Return the key by which jobs under one limit have a claim on its places, smallest first."""
    return (not job.recovering, job.arrival)


def _user_full(state: State, job: Job) -> bool:
    """Whether the job could use no place in its group, because its user has no further one."""
    most = most_of_user(state.settings, RUNNING, job.spec.account)
    return most is not None and state.in_use.running[job.spec.account] >= most


def _group_full(state: State, job: Job) -> bool:
    most = most_of_group(state.settings, job.spec.group)
    return most is not None and state.in_use.of_group[job.spec.group] >= most


def _explain_over(code: str, who: str, count: int, most: str, ahead: list[Job]) -> Reason:
    numbers = ", ".join(other.number for other in ahead)
    first = f", and job {numbers} comes first" if len(ahead) == 1 else f", and jobs {numbers} come first"
    return Reason(code, f"{who} runs {_plural(count, 'job')} of at most {most}{first if ahead else ''}")


def _over_devices(state: State, job: Job) -> Refusal | None:
    """Return why the job may be placed on no device by its user's limit on devices; None: it may.

    A multi-device job begins on other devices than its user's jobs: it has them to itself.
    """
    most = most_of_user(state.settings, DEVICES, job.spec.account)
    if most is None:
        return None
    present = state.in_use.devices.get(job.spec.account, ())
    over = len(present) + job.spec.gang > most if job.spec.needs_several else most < 1
    return partial(_explain_devices, state, job) if over else None


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _who(job: Job) -> str:
    return f"user {job.spec.user}" if job.spec.user else f"uid {job.spec.owner}"


FILTER = Filter(
    (GROUP, RUNNING, DEVICES),
    "the end of other jobs of its user or group, which has reached a limit",
    ("user_running", "user_devices"),
    _too_many_devices,
    over_limit,
)
