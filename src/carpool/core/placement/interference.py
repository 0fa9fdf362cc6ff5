"""Which jobs slow each other, and what that means for placing a job beside others (future work of the CARMA paper).

`core.metering.co_runners` measures; this module answers two questions about a device: is there a job that the new one
would slow too much, or that would slow the new one; and is the job that is there a good neighbour?
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from carpool.core.memory.lanes import Refusal, may_open
from carpool.core.model import JobId, Reason
from carpool.core.state.device import Device
from carpool.core.state.job import Job
from carpool.core.state.slowdown_table import WHOLE_PPM, exceeds
from carpool.core.state.state import State

GOOD_PPM = 1_100_000  # pairs that slow each other by no more are sought


def _figures(state: State, device: Device, job: Job) -> Iterator[tuple[JobId, int | None, int | None]]:
    """Yield each job there, how much the job slows it, and how much it slows the job; None: unknown.

    Jobs that never compute beside the job are left out.
    """
    mine = [lane for number in device.lanes if (lane := state.lanes[number]).owner == job.spec.owner]
    own = sum(not lane.serves for lane in mine)
    if not (len(device.lanes) > 1 or may_open(state, device, own, len(mine))):
        return
    model, kind = device.model, job.spec.kind
    for number in sorted(device.jobs - {job.id}):
        other = state.jobs[number]
        if other.spec.kind and not other.excludes:
            slows = state.slowdowns.slowdown_ppm((model, other.spec.kind, kind), state.now)
            yield number, slows, state.slowdowns.slowdown_ppm((model, kind, other.spec.kind), state.now)


def _followed(state: State, job: Job) -> bool:
    """Whether anything can be known of the job's neighbours."""
    limit, spec = state.settings.interference_limit_ppm, job.spec
    return bool(limit and state.slowdowns and spec.kind) and spec.gang == 1 and not job.excludes


def worst_ppm(state: State, device: Device, job: Job) -> int | None:
    """Return the largest slowdown known between the job and any job there, either way; None: none is known."""
    if not _followed(state, job):
        return None
    return max((ppm for _, *both in _figures(state, device, job) for ppm in both if ppm is not None), default=None)


def good_pair(state: State, device: Device, job: Job) -> bool:
    """Whether one job is there, and the two are known to slow each other hardly.

    Only one job: pairs were measured, which says little about three.
    """
    if len(device.jobs) != 1 or not _followed(state, job):
        return False
    return any(all(ppm is not None and ppm <= GOOD_PPM for ppm in both) for _, *both in _figures(state, device, job))


def unbearable(state: State, device: Device, job: Job) -> Refusal | None:
    """Why the job had better not compute beside a job that is there; None: nothing is known against it."""
    if not _followed(state, job):
        return None
    limit = state.settings.interference_limit_ppm
    for number, slows, slowed in _figures(state, device, job):
        if exceeds(slows, limit):
            return partial(_reason, f"slows job {state.called(number)} to {_times(slows)} times its time")
        if exceeds(slowed, limit):
            return partial(_reason, f"job {state.called(number)} slows it to {_times(slowed)} times its time")
    return None


def _reason(text: str) -> Reason:
    return Reason("interference", text)


def _times(ppm: int | None) -> str:
    """Format parts per million as a factor, rounded to one decimal, in whole numbers."""
    tenths = ((ppm or 0) * 10 + WHOLE_PPM // 2) // WHOLE_PPM
    return f"{tenths // 10}.{tenths % 10}"
