"""Ends of jobs: reported by their shims or launchers, recorded in files, or concluded from the lack of both."""

from __future__ import annotations

import dataclasses
import logging
import signal

from carpool.core.events import ProcessExited, StartFailed
from carpool.core.model import JobId, JobPhase, Micros, Outcome
from carpool.daemon.hooks.base import Ending
from carpool.daemon.hooks.control_groups import KILLED
from carpool.daemon.jobs.files import ExitRecord
from carpool.daemon.jobs.oom_detection import ran_out
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.privileges.base import Privileges
from carpool.daemon.seats.record import usage_at_end, words_at_end
from carpool.daemon.system.log_limit import caused_by
from carpool.protocol.paths import JobFiles

log = logging.getLogger(__name__)
LONGEST_TEXT = 1000  # characters of a text from a shim, which is its user's process: the journal keeps them
#: The signals by which terminals, Jupyter, shells and users end a process that they started.
CLOSING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
#: Signals by which a launcher ends a process, gently, then at once.  SIGKILL alone may also be the kernel's OOM killer.
GENTLY, AT_ONCE = signal.SIGTERM, signal.SIGKILL


def not_started(job: JobId, text: str) -> StartFailed:
    """Return a failed start.  ``text``: the shim's reason, cut to `LONGEST_TEXT`."""
    return StartFailed(job, text[:LONGEST_TEXT])


def exited(job: JobId, code: int | None, number: int | None, host_memory: bool) -> ProcessExited:
    """Return the end of a job.  ``host_memory``: the kernel has killed a process of its control group for host memory.

    That process may be the job's main process or another one.
    """
    return ProcessExited(job, code, number, note=KILLED if host_memory else "")


def recorded(job: JobRecord, record: ExitRecord) -> Ending:
    """Return the end that ``exit.json`` records; its counters count if the daemon has not read the seat itself."""
    words = None if job.seated is not None else words_at_end(record.seat)
    if words is not None:
        job.usage, job.out_of = usage_at_end(words), words.out_of_memory
    if record.text:
        return not_started(job.id, record.text)
    return exited(job.id, record.code, record.signal, record.host_memory)


def unrecorded(job: JobRecord, *, started: bool, traces: bool, orphans: int) -> Ending:
    """Return the end of a job whose shim is gone without having recorded an end.

    ``started``: the core has been told that the job runs; ``traces``: a file says that the job was started;
    ``orphans``: how many of its processes were left.
    """
    if job.spec.foreground and not started:
        return StartFailed(job.id, "its terminal went away before it started")
    if started or traces:
        text = "the shim of job %d is gone and has left no record of the job's end"
        log.error(text, job.id, extra=caused_by(job.owner))
        return ProcessExited(job.id, note=f"{orphans} of its processes were left, and killed" if orphans else "")
    return StartFailed(job.id, "its supervisor ended before it could start the job")


def ended_by_driver(event: Ending, job: JobRecord) -> bool:
    """Return whether being suspended made the job fail: it is then started again, and not suspended again."""
    failed = isinstance(event, ProcessExited) and event.code != 0
    return failed and job.suspending and job.startable and job.phase is JobPhase.RUNNING


def explained(privileges: Privileges, event: Ending, job: JobRecord, files: JobFiles) -> Ending:
    """Add what the job's runtime or log says about a failure; the seat has been given back by now.

    A job in the foreground that ends by a signal of `CLOSING` was closed by its user, which is not a failure.
    """
    if isinstance(event, StartFailed):
        return event
    if job.spec.foreground and not job.spec.joined and event.signal in CLOSING:
        note = f"closed by its terminal or notebook, or by its user ({signal.Signals(event.signal).name})"
        return dataclasses.replace(event, stopped=Outcome.CANCELLED, note=note)
    if not event.code:
        return event
    return dataclasses.replace(event, out_of_memory=ran_out(privileges, job.out_of, files, job.owner))


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
