"""Time limits of an attempt: how long it may run, and how much device time it may have.

The clock of the time limit begins when the job's process runs.  Device time is checked on every event about the job
and, while the job has a turn, when the limit would be reached: then the seat tells how much it really was.
"""

from __future__ import annotations

from carpool.core.commands import WarnJob, WarnOfDeviceTime
from carpool.core.metering.usage import attained
from carpool.core.model import JobPhase, JobSpec, Micros
from carpool.core.state.job import Job
from carpool.core.state.state import State
from carpool.core.units import format_duration

#: Kinds of timers: the time limit is reached; the signal before it is due; device time may have been used up.
LIMIT, WARN, DEVICE_TIME = "time limit", "limit signal", "device time"
KINDS = (LIMIT, WARN, DEVICE_TIME)


def begin(state: State, job: Job, since_us: Micros) -> None:
    """Start the clocks of an attempt that has run since ``since_us``."""
    job.timed_from_us, job.clock_stopped_us = since_us, state.now if job.paused else None
    arm(state, job)


def arm(state: State, job: Job) -> None:
    """Set the timers anew, after the job has begun to run or its limits have changed."""
    state.timers.cancel_each(KINDS, job.id)
    due_us = _due_us(job)
    if due_us is None:
        return
    state.timers.set((LIMIT, job.id), max(due_us, state.now))
    if job.spec.limit_signal and not job.warned:
        state.timers.set((WARN, job.id), max(due_us - job.spec.limit_signal_us, state.now))


def changed(state: State, job: Job, before: JobSpec) -> None:
    """Apply limits that may differ from ``before``; of a new limit, or with a new signal, the job is warned again."""
    if before.warning != job.spec.warning:
        job.warned = False
    if before.device_time_warning != job.spec.device_time_warning:
        job.warned_of_device_time = False
    arm(state, job)


def look_after_restart(state: State, job: Job) -> None:
    """Set the job's timers after a restart; a limit that has passed is checked when all that happened is known."""
    if job.timed_from_us is not None:
        arm(state, job)
        if job.spec.device_time_us is not None:
            state.timers.set((DEVICE_TIME, job.id), state.now)


def stop_clock(state: State, job: Job) -> None:
    """Stop the clock of a paused job's time limit."""
    job.clock_stopped_us = state.now
    arm(state, job)


def go_on(state: State, job: Job) -> None:
    """Let the clock of a resumed job's time limit go on."""
    if job.timed_from_us is not None and job.clock_stopped_us is not None:
        job.timed_from_us += state.now - job.clock_stopped_us
    job.clock_stopped_us = None
    arm(state, job)


def forget(state: State, job: Job) -> None:
    """Cancel the timers of an attempt that is over, or is being stopped."""
    job.timed_from_us = None
    state.timers.cancel_each(KINDS, job.id)


def warn(state: State, job: Job) -> None:
    """Send the signal that the user wants before the time limit."""
    job.warned = True
    state.emit(WarnJob(job.id, job.spec.limit_signal))


def reached(state: State, job: Job) -> str | None:
    """Say which limit the job has reached, for users; None: none.  Warn the job if device time is nearly used up."""
    due_us = _due_us(job)
    if job.phase is not JobPhase.RUNNING or job.timed_from_us is None or state.restarting:
        return None
    if due_us is not None and job.spec.time_us is not None and due_us <= state.now:
        return f"reached its time limit of {format_duration(job.spec.time_us)}"
    return None if job.spec.device_time_us is None else _reached_device_time(state, job, job.spec.device_time_us)


def _reached_device_time(state: State, job: Job, most_us: Micros) -> str | None:
    left_us = most_us - attained(state, job)
    if left_us <= 0:
        return f"reached its limit of {format_duration(most_us)} device time"
    look_again_us = _warned_of_device_time(state, job, left_us)
    if job.holds or job.devices_us is not None:
        state.timers.set((DEVICE_TIME, job.id), state.now + look_again_us)
    return None


def _warned_of_device_time(state: State, job: Job, left_us: Micros) -> Micros:
    """Send the signal if it is due; return after how much more device time to check again."""
    if not job.spec.limit_signal or job.warned_of_device_time:
        return left_us
    if left_us > job.spec.limit_signal_us:
        return left_us - job.spec.limit_signal_us
    job.warned_of_device_time = True
    state.emit(WarnOfDeviceTime(job.id, job.spec.limit_signal))
    return left_us


def _due_us(job: Job) -> Micros | None:
    """Return when a running clock reaches the time limit; None: the clock stands still, or there is no limit."""
    return None if job.clock_stopped_us is not None else _end_us(job)


def _end_us(job: Job) -> Micros | None:
    since_us, time_us = job.timed_from_us, job.spec.time_us
    return None if since_us is None or time_us is None else since_us + time_us
