"""In whose company jobs compute, and how long their iterations take there (future work of the CARMA paper).

The measure is device time per iteration, where device time is the time for which the job has held its turn.  Waiting
for a turn is the business of its own lane, and would count in wall time, too; kernels that take longer because
another lane computes at the same time lengthen the turn.  So only jobs of *other* lanes are company.

A stretch of a job's counters counts for the company that it had throughout: nobody attached in any other lane, or one
such lane, whose turn is held by a job of a known kind.  Otherwise it counts for nobody: neither while a job of another
lane uses the CPU between its turns, nor if memory was moved meanwhile, nor in the first iterations of a process, nor
where a turn did not end at an iteration boundary: an early release cuts the host's part of an iteration off, which a
job that keeps its turn would have counted.  A job for several devices is another thing than the same command on one.

A stretch may go on over several turns: between them no device time passes.  It is entered in the table when it is long
enough, or when it ends; so that most turns cost a comparison.  It may begin and end within iterations, which counts too
much as often as too little.  Nothing is measured while `Settings.interference_limit_ppm` is 0.
"""

from __future__ import annotations

from carpool.core.model import Micros, Usage
from carpool.core.state.device import Device
from carpool.core.state.job import Job, Stretch
from carpool.core.state.lane import Lane
from carpool.core.state.slowdown_table import ALONE, Pair, exceeds
from carpool.core.state.state import State

STRETCH_US = 1_000_000  # device time after which what was seen is entered in the table
SHORTEST_US = 10_000  # a meeting of less device time tells more of the one before


def observe(state: State, job: Job, stretch: Stretch, usage: Usage) -> None:
    """New counters of a job, before they replace the old ones."""
    stretch.told_us = state.now
    if stretch.company is None:
        return
    since = stretch.since
    if since is None:
        stretch.since = _start(state, usage)
    elif not 0 <= usage.device_us - since.device_us < STRETCH_US and usage.iterations != since.iterations:
        _enter(state, job, stretch, usage)
        stretch.since = _start(state, usage)


def _start(state: State, usage: Usage) -> Usage | None:
    """A stretch may begin with these counters; None: the first iterations are not over."""
    return usage if usage.iterations >= state.settings.measured_after else None


def _broken(since: Usage, usage: Usage) -> bool:
    """Another process counts, or memory was moved in between."""
    again = usage.iterations < since.iterations or usage.device_us < since.device_us
    return again or usage.in_bytes != since.in_bytes or usage.out_bytes != since.out_bytes


def _enter(state: State, job: Job, stretch: Stretch, until: Usage) -> None:
    """The stretch ends there, or goes on with another one."""
    since, company = stretch.since, stretch.company
    if since is None or until.device_us - since.device_us < SHORTEST_US:
        return
    device = state.device_of(job)
    if company is None or device is None:
        return
    device_us, iterations = until.device_us - since.device_us, until.iterations - since.iterations
    if not _broken(since, until):
        _learn(state, (device.model, job.spec.kind, company), device_us, iterations)


def _learn(state: State, pair: Pair, device_us: Micros, iterations: int) -> None:
    waits = bool(state.settings.placement_strict and state.queue)
    before = _apart(state, pair) if waits else None
    state.paces.add(pair, device_us, iterations, state.now)
    if waits and _apart(state, pair) != before:
        state.admit_all = True  # a device that was closed to somebody may be open now


def _apart(state: State, pair: Pair) -> set[str]:
    """The kinds in the queue that are kept away from jobs of the pair's kind, because these are slowed by them."""
    model, kind, _ = pair
    limit, paces = state.settings.interference_limit_ppm, state.paces
    queued = {who[-1] for who, *_ in state.kinds}
    return {each for each in queued if exceeds(paces.slowdown_ppm((model, kind, each), state.now), limit)}


# Who comes and goes


def comes(state: State, job: Job) -> None:
    """A process of the job may compute from now on."""
    ends(state, job)
    if state.settings.interference_limit_ppm and job.spec.kind and job.spec.gang == 1 and not job.excludes:
        job.stretch = Stretch()
    changed(state, state.lane_of(job))


def goes(state: State, job: Job) -> None:
    """It does not any more, or not in that lane."""
    ends(state, job)
    job.stretch = None
    changed(state, state.lane_of(job))


def changed(state: State, lane: Lane | None) -> None:
    """Somebody has come to the lane, or left it."""
    if lane is not None and state.settings.interference_limit_ppm:
        state.devices[lane.device].crowd = 0
        state.company_changed[lane.device] = None


def ends(state: State, job: Job) -> None:
    """What the job has computed in its company up to its present counters is all."""
    stretch = job.stretch
    if stretch is not None and stretch.company is not None:
        _enter(state, job, stretch, job.usage)
        stretch.company = stretch.since = None


def cut_off(state: State, job: Job) -> None:
    """The job's turn ends within an iteration; its last counters are about to be told."""
    ends(state, job)
    if job.stretch is not None:
        job.stretch.cut = True


def begins(state: State, device: Device, stretch: Stretch) -> None:
    """A turn begins.  Between turns no device time passes: its counters are those of now, if it left at a boundary."""
    stretch.told_us, stretch.cut = -1 if stretch.cut else state.now, False
    if stretch.company != (ALONE if device.crowd == 1 else None):
        state.company_changed[device.spec.id] = None


def reset(state: State) -> None:
    """Settings are others: what is measured begins anew, or ends."""
    for device in state.devices.values():
        device.crowd = 0
    for job in state.jobs.values():
        if job.attached:
            goes(state, job)
            comes(state, job)


def refresh(state: State) -> None:
    """After an event: whoever computes on a device where somebody came or went may have other company."""
    for name in state.company_changed:
        device = state.devices[name]
        if not device.crowd:
            device.peers = _inhabited(state, device)
            device.crowd = len(device.peers)
        for lane in device.peers:
            if lane.holder is not None:
                _meet(state, state.jobs[lane.holder], _company(state, device.peers, lane))
    state.company_changed = {}


def _meet(state: State, job: Job, company: str | None) -> None:
    stretch = job.stretch
    if stretch is not None and stretch.company != company:
        ends(state, job)
        stretch.company = company
        stretch.since = _start(state, job.usage) if stretch.told_us == state.now else None


def _company(state: State, peers: tuple[Lane, ...], lane: Lane) -> str | None:
    """The kind beside which the lane's holder computes; `ALONE`; or None: nobody can say, or there are several."""
    if len(peers) != 2:
        return ALONE if len(peers) == 1 else None
    holder = peers[0 if peers[1] is lane else 1].holder
    return None if holder is None else state.jobs[holder].spec.kind or None


def _inhabited(state: State, device: Device) -> tuple[Lane, ...]:
    """The lanes of which somebody may compute while others do.  Whose turns have the whole device is not there."""
    lanes = [state.lanes[number] for number in sorted(device.lanes)]
    here = state.jobs
    return tuple(each for each in lanes if any(here[n].attached and n not in device.guests for n in each.jobs))
