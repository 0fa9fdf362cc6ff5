"""Facts about jobs and memory as text: times, sizes, states, reasons."""

from __future__ import annotations

import functools
import pwd
import shlex
import signal
import time
from collections.abc import Iterable

from carpool.protocol.api import JobInfo, MovedInfo, StoreInfo
from carpool.protocol.job_names import command_name
from carpool.protocol.units import format_size

ACTIVE = ("queued", "starting", "running", "stopping")


def now_us() -> int:
    """The time of the wall clock in microseconds, as in the API."""
    return time.time_ns() // 1000


def clock(us: int) -> str:
    """Local time, as in 2026-01-31 12:00:05."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(us / 1e6))


def dated(us: int) -> str:
    """Local time with its zone, as in 2026-01-31 12:00:05 CET."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(us / 1e6))


def reason(job: JobInfo) -> str:
    """Return why a job waits, or how the job ended; of another user's job, perhaps the code alone."""
    if job.reason is None:
        return ""
    when = f", at {dated(job.begin_us)}" if job.reason.code == "begin" and job.begin_us and job.reason.text else ""
    return f"{job.reason.text}{when}" or job.reason.code


def memory_pair(job: JobInfo) -> str:
    """Return persistent / ephemeral memory; - for a job that has used none."""
    if not job.persistent_bytes and not job.ephemeral_bytes:
        return "-"
    return f"{format_size(job.persistent_bytes)} / {format_size(job.ephemeral_bytes)}"


def iterations(job: JobInfo) -> str:
    """Return the iterations done, with the declared total if there is one; - if nothing is known."""
    if not job.iterations and job.iterations_total is None:
        return "-"
    return str(job.iterations) if job.iterations_total is None else f"{job.iterations}/{job.iterations_total}"


def completion_us(job: JobInfo, now: int) -> int:
    """Job completion time (JCT): from submission to the end, or to now."""
    return (now if job.ended_us is None else job.ended_us) - job.submitted_us


def moved(info: MovedInfo) -> str:
    """Return how much was moved to the host store and back, with rates; empty if nothing was moved."""
    ways = (("out", info.out_bytes, info.out_us), ("back", info.in_bytes, info.in_us))
    return ", ".join(f"{format_size(size)} {way}{_rate(size, us)}" for way, size, us in ways if size)


def _rate(size: int, us: int) -> str:
    return f" ({format_size(size * 1_000_000 // us)}/s)" if us else ""


def state(job: JobInfo) -> str:
    """Return a job's phase, or how the job ended; a running job with its memory in the host store is offloaded."""
    if job.outcome is None:
        phase = _phase(job)
        return phase if job.attempt == 1 else f"{phase}, attempt {job.attempt}"
    if job.outcome != "failed":
        return job.outcome.replace("_", " ")
    how = job.exit_code if job.signal is None else signal_name(job.signal)
    return "failed" if how is None else f"failed ({how})"  # a job that could not be started has neither


def _phase(job: JobInfo) -> str:
    if job.paused_by is not None and job.phase != "stopping":
        return "paused"
    return "offloaded" if job.offloaded and job.phase == "running" else job.phase


def signal_name(number: int) -> str:
    """Return the name of a signal, as in SIGTERM; ``signal 99`` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def why(job: JobInfo) -> str:
    """Return the reason of the wait or of the outcome; of a running job, why it is unmanaged, alone or not moved."""
    if job.reason is not None:
        return reason(job)
    unmanaged = "" if job.unmanaged is None else f"unmanaged: {job.unmanaged}"
    alone = "" if job.alone in (None, job.unmanaged) else f"needs exclusive use of its device: {job.alone}"
    immovable = "" if job.immovable is None else f"is not moved: {job.immovable}"
    return "; ".join(text for text in (unmanaged, alone, immovable) if text and job.outcome is None)


def store_line(store: StoreInfo) -> str:
    """Return one line with the budget of the host store, and how much is allocated and in use."""
    budget = f"{format_size(store.budget_bytes)}{' (default)' if store.default else ''}"
    return (
        f"host store: {budget}, {format_size(store.kept_bytes)} allocated, {format_size(store.used_bytes)} of it in use"
    )


def command_line(job: JobInfo) -> str:
    """The command as one could type it into a shell."""
    return shlex.join(job.command)


def title(job: JobInfo) -> str:
    """The name, or for a job without one its script and arguments; of another user's job these may be hidden."""
    return job.name or command_name(job.command) or "-"


def style(job: JobInfo) -> str:
    """Return the style of `Output` for a job's row."""
    if job.holds_turn:
        return "green"
    if job.outcome in ("failed", "lost", "refused"):
        return "red"
    return "dim" if job.outcome else ""


@functools.cache
def owner(uid: int) -> str:
    """Return a user's name; the uid of a user whom this machine does not know."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def several_owners(jobs: Iterable[JobInfo]) -> bool:
    """Whether the jobs have more than one owner."""
    return len({job.owner for job in jobs}) > 1


def exit_code(job: JobInfo) -> int:
    """Return the exit code as from a shell: the job's own, 128 + n for signal n, 1 for an end without either."""
    if job.outcome == "succeeded":
        return 0
    if job.signal is not None:
        return 128 + job.signal
    return job.exit_code or 1
