"""Launchers, such as batch systems, of joined processes: what it means when a signal ends such a process."""

from __future__ import annotations

import signal

from carpool.core.events import ProcessExited
from carpool.core.model import Micros, Outcome
from carpool.daemon.jobs.table import JobRecord

#: Signals by which a launcher ends a process, gently, then at once.  SIGKILL alone may also be the kernel's OOM killer.
GENTLY, AT_ONCE = signal.SIGTERM, signal.SIGKILL


def by_signal(job: JobRecord, number: int, now_us: Micros) -> ProcessExited:
    """Return the end of a job whose process a signal has ended, at about ``now_us`` (wall clock).

    A launcher cancels by SIGTERM, or by SIGKILL a process that it has suspended.  After the launcher's time limit both
    signals mean that limit; otherwise SIGKILL alone proves nothing.
    """
    spec = job.spec
    late = spec.launcher_ends_us is not None and now_us >= spec.launcher_ends_us
    if not spec.launcher or job.fault is not None or number not in (GENTLY, AT_ONCE):
        return ProcessExited(job.id, None, number)
    if late:
        text = f"{spec.launcher} has reached its time limit"
        return ProcessExited(job.id, None, number, note=text, stopped=Outcome.TIMED_OUT)
    if number == AT_ONCE and not job.stopped:
        return ProcessExited(job.id, None, number)
    name = "SIGKILL has ended its stopped" if number == AT_ONCE else "SIGTERM has ended its"
    text = f"cancelled: {name} process, which {spec.launcher} had started"
    return ProcessExited(job.id, None, number, note=text, stopped=Outcome.CANCELLED)
