"""Beside which co-runners jobs compute, and how long their iterations take there (future work of the CARMA paper).

The measure is device time per iteration, where device time is the time for which the job has held its turn.  Waiting
for a turn is the business of its own lane, and would count in wall time, too; kernels that take longer because
another lane computes at the same time lengthen the turn.  So only jobs of *other* lanes are co-runners.

A measurement window of a job's counters counts for the co-runner that it had throughout: none attached in any other
lane, or one such lane, whose turn is held by a job of a known kind.  Otherwise it does not count: neither while a job
of another lane uses the CPU between its turns, nor if memory was moved meanwhile, nor in the first iterations of a
process, nor where a turn did not end at an iteration boundary: an early release cuts the host's part of an iteration
off, which a job that keeps its turn would have counted.  A job for several devices does not compare with the same
command on one.

A window may span several turns: between them no device time passes.  It is entered in the table when it is long
enough, or when it ends; so that most turns cost a comparison.  It may begin and end within iterations, which counts too
much as often as too little.
"""

from __future__ import annotations

from carpool.core.model import Usage
from carpool.core.state.device import Device, Lane
from carpool.core.state.job import Job, MeasurementWindow
from carpool.core.state.slowdown_table import ALONE
from carpool.core.state.state import State

WINDOW_US = 1_000_000  # device time after which what was seen is entered in the table
SHORTEST_US = 10_000  # a window of less device time tells more of the co-runner before


def observe(state: State, job: Job, window: MeasurementWindow, usage: Usage) -> None:
    """Use new counters of a job for its window, before they replace the old ones."""
    window.told_us = state.now
    if window.co_runner is None:
        return
    since = window.since
    if since is None:
        window.since = _start(state, usage)
    elif not 0 <= usage.device_us - since.device_us < WINDOW_US and usage.iterations != since.iterations:
        _enter(state, job, window, usage)
        window.since = _start(state, usage)


def _start(state: State, usage: Usage) -> Usage | None:
    """Return the counters with which a window may begin; None: the first iterations are not over."""
    return usage if usage.iterations >= state.settings.measured_after else None


def _broken(since: Usage, usage: Usage) -> bool:
    """Whether the counters cannot be compared: another process counts, or memory was moved in between."""
    again = usage.iterations < since.iterations or usage.device_us < since.device_us
    return again or usage.in_bytes != since.in_bytes or usage.out_bytes != since.out_bytes


def _enter(state: State, job: Job, window: MeasurementWindow, until: Usage) -> None:
    """Enter the window up to the counters ``until`` in the table, if it is long enough and not broken."""
    since, beside = window.since, window.co_runner
    if since is None or until.device_us - since.device_us < SHORTEST_US:
        return
    device = state.device_of(job)
    if beside is None or device is None:
        return
    device_us, iterations = until.device_us - since.device_us, until.iterations - since.iterations
    if not _broken(since, until):
        state.slowdowns.add((device.model, job.spec.kind, beside), device_us, iterations, state.now)


# Who comes and goes


def comes(state: State, job: Job) -> None:
    """Begin a measurement of a job of which a process may compute from now on."""
    ends(state, job)
    if job.spec.kind and not job.spec.needs_several and not job.excludes:
        job.window = MeasurementWindow()
    changed(state, state.lane_of(job))


def goes(state: State, job: Job) -> None:
    """End the measurement of a job that does not compute any more, or not in that lane."""
    ends(state, job)
    job.window = None
    changed(state, state.lane_of(job))


def changed(state: State, lane: Lane | None) -> None:
    """Have the device's co-runners found anew: a job has come to the lane, or left it."""
    if lane is not None:
        state.devices[lane.device].co_runner_count = 0
        state.co_runners_changed[lane.device] = None


def ends(state: State, job: Job) -> None:
    """End the job's window with its present counters."""
    window = job.window
    if window is not None and window.co_runner is not None:
        _enter(state, job, window, job.usage)
        window.co_runner = window.since = None


def cut_off(state: State, job: Job) -> None:
    """End the job's window before the last counters of a turn that ended within an iteration."""
    ends(state, job)
    if job.window is not None:
        job.window.cut = True


def begins(state: State, device: Device, window: MeasurementWindow) -> None:
    """Note that a turn begins.  The counters still hold if the last turn ended at a boundary: no device time passed."""
    window.told_us, window.cut = -1 if window.cut else state.now, False
    if window.co_runner != (ALONE if device.co_runner_count == 1 else None):
        state.co_runners_changed[device.spec.id] = None


def begin_anew(state: State) -> None:
    """Begin all measurements anew, after a restart."""
    for device in state.devices.values():
        device.co_runner_count = 0
    for job in state.jobs.values():
        if job.attached:
            goes(state, job)
            comes(state, job)


def refresh(state: State) -> None:
    """Update the co-runners of jobs that compute where others came or went, after an event."""
    for name in state.co_runners_changed:
        device = state.devices[name]
        if not device.co_runner_count:
            device.co_runners = _inhabited(state, device)
            device.co_runner_count = len(device.co_runners)
        for lane in device.co_runners:
            if lane.holder is not None:
                _meet(state, state.jobs[lane.holder], _co_runner(state, device.co_runners, lane))
    state.co_runners_changed = {}


def _meet(state: State, job: Job, beside: str | None) -> None:
    """Note that the job computes beside a job of the kind ``beside`` from now on."""
    window = job.window
    if window is not None and window.co_runner != beside:
        ends(state, job)
        window.co_runner = beside
        window.since = _start(state, job.usage) if window.told_us == state.now else None


def _co_runner(state: State, lanes: tuple[Lane, ...], lane: Lane) -> str | None:
    """Return the kind beside which the lane's holder computes; `ALONE`; or None: unknown, or there are several."""
    if len(lanes) != 2:
        return ALONE if len(lanes) == 1 else None
    holder = lanes[0 if lanes[1] is lane else 1].holder
    return None if holder is None else state.jobs[holder].spec.kind or None


def _inhabited(state: State, device: Device) -> tuple[Lane, ...]:
    """Return the lanes of which a job may compute while others do.  Jobs with exclusive turns do not count."""
    lanes = [state.lanes[number] for number in sorted(device.lanes)]
    here = state.jobs
    return tuple(each for each in lanes if any(here[n].attached and n not in device.excluding for n in each.jobs))
