"""``carpool show``: everything about one job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from carpool.cli.base.job_output import kept_log
from carpool.cli.base.job_selection import the_job, with_one_job
from carpool.cli.base.job_words import JobWord
from carpool.cli.base.journal_jobs import JobReader, JournalJobs, answered, job_reader
from carpool.cli.base.options_common import answer, with_common_options
from carpool.cli.render import formatting
from carpool.cli.render.arrays import element_id
from carpool.cli.render.output import stdout_output
from carpool.cli.render.placement_table import explain_placement
from carpool.protocol.api import AttemptInfo, JobInfo
from carpool.protocol.notices import NoticeInfo
from carpool.protocol.units import format_duration, format_size


@click.command("show", short_help="Show everything about a job.")
@with_one_job
@click.option("--why", is_flag=True, help="Show instead how the placement was decided, with the figures of devices.")
@with_common_options
def command(home: Path, as_json: bool, job: JobWord, why: bool) -> int:
    """Show everything about a job, including why it waits.

    While no daemon runs, the user who runs it sees what its journal says, and the exit code is 3.
    """
    with job_reader(home) as client:
        number = the_job(client, job)
        if why:
            return _show_placement(client, number, as_json)
        info = client.job(number)
        answer(as_json, info, lambda: _lines(info, kept_log(client, info), _notices(client, info)))
        return answered(client)


def _show_placement(client: JobReader, number: int, as_json: bool) -> int:
    if isinstance(client, JournalJobs):
        raise client.away
    placement = client.placement(number)
    job = client.job(number)
    return answer(as_json, placement, lambda: explain_placement(placement, stdout_output(), element_id(job)))


def _notices(client: JobReader, info: JobInfo) -> Sequence[NoticeInfo]:
    """Return the notices of a job; none from a journal, which does not say what has been sent since."""
    return () if isinstance(client, JournalJobs) or not info.notify else client.notices(info.id)


def _lines(info: JobInfo, log: str, notices: Sequence[NoticeInfo]) -> list[str]:
    facts = describe(info, formatting.now_us(), log)
    facts += [("notified", _notice(notice)) for notice in notices]
    verbatim = ("command", "directory", "output", "error")
    return stdout_output().facts(f"job {element_id(info)}", facts, verbatim)


def describe(job: JobInfo, now: int, log: str = "") -> list[tuple[str, str]]:
    """Return pairs of label and text, without unknown facts.  ``log``: the path of the log that Carpool keeps."""
    facts = [*_identity(job), *_state(job), *_memory(job), *_progress(job), *_times(job, now), *_attempts(job)]
    facts += [("output", job.output or log), ("error", job.error)]
    return [(label, text) for label, text in facts if text]


def _identity(job: JobInfo) -> list[tuple[str, str]]:
    return [
        ("name", job.name),
        ("array", "" if job.array is None else f"element {job.index} of array {job.array}, by itself job {job.id}"),
        ("retry of", "" if job.retry_of is None else f"job {job.retry_of}"),
        ("command", formatting.command_line(job)),
        ("directory", job.cwd),
        ("owner", f"{formatting.owner(job.owner)} (uid {job.owner})"),
        ("weight", str(job.weight)),
        ("group", job.group),
        ("started by", job.launcher),
        ("checkpoint", "suspended by the driver between its turns" if job.checkpoint else ""),
        ("after", _after(job)),
        ("notifies", ", ".join(job.notify)),
        ("begin", "" if job.begin_us is None else f"not before {formatting.dated(job.begin_us)}"),
    ]


def _notice(notice: NoticeInfo) -> str:
    wrong = f": {notice.text}" if notice.text else ""
    return f"{notice.target} of {notice.event}: {notice.state}{wrong}"


def _after(job: JobInfo) -> str:
    kinds = (("", job.after), ("any:", job.after_any), ("notok:", job.after_notok))
    return ", ".join(f"{how}{number}" for how, numbers in kinds for number in numbers)


def _state(job: JobInfo) -> list[tuple[str, str]]:
    where = f"{job.device or ''}{'' if job.lane is None else f', lane {job.lane}'}"
    return [
        ("state", formatting.state(job)),
        ("why" if job.outcome else "waits because", _reason(job)),
        ("device", where),
        ("devices", ", ".join(job.devices)),
        ("turn", "computes now" if job.holds_turn else ""),
        *(() if job.outcome else _needs(job)),  # an ended job needs nothing any more
    ]


def _reason(job: JobInfo) -> str:
    if job.reason is None:
        return ""
    return f"{formatting.reason(job)} [{job.reason.code}]" if job.reason.text else f"[{job.reason.code}]"


def _needs(job: JobInfo) -> list[tuple[str, str]]:
    return [
        ("alone", "" if job.alone is None else f"needs exclusive use of its device: {job.alone}"),
        ("not moved", "" if job.immovable is None else f"its memory stays on the device: {job.immovable}"),
        ("process", "" if job.pid is None else str(job.pid)),
    ]


def _memory(job: JobInfo) -> list[tuple[str, str]]:
    return [
        ("persistent", _amount(job, job.persistent_bytes, job.persistent_limit)),
        ("ephemeral", _amount(job, job.ephemeral_bytes, job.ephemeral_limit)),
        ("unmanaged", _unmanaged(job)),
        ("not managed", job.unmanaged or ""),
        ("scratch", format_size(job.scratch_bytes) + " (outside the device, not limited)" if job.scratch_bytes else ""),
        ("stored", _stored(job)),
        ("moved", formatting.moved(job.moved)),
        ("residue", format_size(job.residue_bytes) + " saved at the last switch" if job.switches else ""),
        ("estimate from", job.estimate_source or ""),
    ]


def _unmanaged(job: JobInfo) -> str:
    size = format_size(job.fixed_bytes)
    return f"{size} of device memory allocated past Carpool (not limited, not moved)" if job.fixed_bytes else ""


def _stored(job: JobInfo) -> str:
    """Return how much of a job is stored; empty for an ended job, whose memory is gone."""
    where = " in the host store"
    if job.outcome:
        return ""
    if job.offloaded and job.checkpoint:
        return f"{format_size(job.persistent_bytes)} saved by the driver in the job's own host memory: suspended"
    if job.offloaded:
        return f"{format_size(job.stored_bytes)}{where}: offloaded"
    return f"{format_size(job.stored_bytes)}{where}, restored when used" if job.stored_bytes else ""


def _amount(job: JobInfo, used: int, limit: int) -> str:
    """Return the memory that a job uses and may use; of an ended job, the most that the job has used."""
    if job.outcome:
        return f"{format_size(used)} at most" if used else ""
    if not used and not limit:
        return ""
    return f"{format_size(used)} (granted {format_size(limit)})" if limit else format_size(used)


def _progress(job: JobInfo) -> list[tuple[str, str]]:
    per_iteration = "" if job.iteration_us is None else f", {job.iteration_us / 1000:.1f} ms of turn time each"
    return [
        ("iterations", formatting.iterations(job) + per_iteration if job.iterations or job.iterations_total else ""),
        ("turn time", format_duration(job.device_us) if job.device_us else ""),
        ("device busy", _busy(job)),
        ("switches", str(job.switches) if job.switches else ""),
    ]


def _busy(job: JobInfo) -> str:
    if job.busy_us is None or not job.busy_of_us:
        return ""
    share = min(100, 100 * job.busy_us // job.busy_of_us)
    return f"{format_duration(job.busy_us)}, {share} % of {format_duration(job.busy_of_us)} of turn time, by telemetry"


def _times(job: JobInfo, now: int) -> list[tuple[str, str]]:
    waited = (job.started_us or job.ended_us or now) - job.submitted_us
    return [
        ("submitted", formatting.dated(job.submitted_us)),
        (
            "started",
            "" if job.started_us is None else f"{formatting.dated(job.started_us)}, after {format_duration(waited)}",
        ),
        ("time limit", _limits(job, now)),
        ("ended", "" if job.ended_us is None else formatting.dated(job.ended_us)),
        ("retries", str(job.retries) if job.retries else ""),
        (
            "completion time",
            format_duration(formatting.completion_us(job, now)) + ("" if job.outcome else " so far"),
        ),
    ]


def _limits(job: JobInfo, now: int) -> str:
    limits = []
    if job.time_us is not None:
        runs = job.started_us is not None and job.outcome is None
        left = (
            f" ({format_duration(max(0, (job.started_us or 0) + job.paused_us + job.time_us - now))} left)"
            if runs
            else ""
        )
        limits.append(format_duration(job.time_us) + left)
    if job.device_time_us is not None:
        limits.append(f"{format_duration(job.device_time_us)} of device time")
    if job.limit_signal and limits:
        limits.append(f"{formatting.signal_name(job.limit_signal)} {format_duration(job.limit_signal_us)} before")
    return ", ".join(limits)


def _attempts(job: JobInfo) -> list[tuple[str, str]]:
    """Return one line for each attempt; all other facts are about the current one."""
    found = [(f"attempt {each.number}", _attempt(each)) for each in job.attempts]
    if job.attempts and not job.outcome:
        found.append((f"attempt {job.attempt}", "waits" if job.started_us is None else "the current one"))
    return found


def _attempt(attempt: AttemptInfo) -> str:
    where = f"on {attempt.device}, " if attempt.device else ""
    lasted = attempt.ended_us - attempt.started_us if attempt.ended_us and attempt.started_us else None
    after = "" if lasted is None else f" after {format_duration(lasted)}"
    peak = attempt.persistent_bytes + attempt.ephemeral_bytes
    memory = f", used {format_size(peak)}" if peak else ""
    return f"{where}{attempt.text}{after}{memory}"
