"""A job as the API shows it: its row in lists, the short one of its end, its attempts, its figures."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from carpool.core.model import PINNED_ENGINE, JobPhase, Micros, Reason, Usage
from carpool.daemon.jobs.constraints import EXCLUSIVE, why_exclusive, why_pinned, why_unmanaged
from carpool.daemon.jobs.control import used_us
from carpool.daemon.jobs.table import Ended, JobRecord
from carpool.daemon.system.clock import wall_us
from carpool.protocol.api import AttemptInfo, JobInfo, MovedInfo, ReasonInfo, terms
from carpool.protocol.notices import shown_target

LONGEST_COMMAND = 4096  # characters
LONGEST_TEXT = 1024  # characters, of a directory or a reason
REST = "... (the rest is in the journal)"
#: If a job has more attempts than that, the earliest ones are only in the journal.
MOST_ATTEMPTS = 20


def job_info(job: JobRecord, waits: Reason | None) -> JobInfo:
    """Return the API's view of a job.  ``waits``: the core's reason for the present wait."""
    usage, spec = job.usage, job.spec
    output, error = job.own_files
    return JobInfo(
        id=job.id,
        name=spec.name,
        owner=job.owner,
        command=spec.argv,
        phase=job.phase.value,
        outcome=job.outcome.value if job.outcome else None,
        exit_code=job.exit_code,
        signal=job.signal,
        reason=_reason(job.reason or job.grant_waits or waits),
        device=job.device,
        lane=job.lane,
        holds_turn=job.on_device or _seat_says(job, "turn"),
        weight=spec.weight,
        persistent_bytes=usage.persistent_peak,
        ephemeral_bytes=usage.ephemeral_peak,
        persistent_limit=job.granted.persistent,
        ephemeral_limit=job.granted.ephemeral,
        scratch_bytes=job.scratch_bytes,
        iterations=usage.iterations,
        iterations_total=iterations_total(job),
        iteration_us=iteration_us(job),
        device_us=usage.device_us,
        switches=job.switches,
        residue_bytes=usage.residue,
        submitted_us=job.submitted_us,
        started_us=job.started_us,
        ended_us=job.ended_us,
        offloaded=_is_away(job),
        stored_bytes=usage.stored,
        moved=MovedInfo(usage.out_bytes, usage.out_us, usage.in_bytes, usage.in_us),
        cwd=spec.cwd,
        estimate_source=job.estimate.source if job.estimate else None,
        pid=job.pid,
        alone=_alone(job),
        immovable=None if job.outcome else _immovable(job),
        fixed_bytes=usage.fixed,
        attempt=job.attempt,
        attempts=attempts(job),
        devices=_devices(job),
        busy_us=job.busy_us,
        busy_of_us=_busy_of_us(job),
        output=output or "",
        error=error or "",
        held_by=job.control.held_by,
        paused_by=job.control.paused_by,
        paused_us=_paused_us(job),
        unmanaged=why_unmanaged(job, wall_us()),
        notify=[shown_target(target) for target in spec.notify],
        used_us=used_us(job, wall_us()),
        engine=job.is_engine,
        **terms(spec),
    )


def _reason(reason: Reason | None) -> ReasonInfo | None:
    return None if reason is None else ReasonInfo(reason.code, reason.text)


def _seat_says(job: JobRecord, word: str) -> bool:
    return job.seated is not None and job.seated.seat.get(word) == 1


def _devices(job: JobRecord) -> list[str]:
    """Return the devices of a job that has several; for other jobs, `JobInfo.device` says everything."""
    return [job.device, *job.other_devices] if job.device is not None and job.spec.gpus > 1 else []


def _alone(job: JobRecord) -> str | None:
    if job.outcome:
        return None
    found = why_exclusive(job.traits, job.ungated_pid, job.passing)
    return found or job.pinned_why or _submitted_alone(job)


def _submitted_alone(job: JobRecord) -> str | None:
    if job.spec.gpus > 1:
        return f"it was submitted for {job.spec.gpus} devices"
    if job.spec.exclusive:
        return EXCLUSIVE
    return "it has run out of memory" if job.recovering else None


def _immovable(job: JobRecord) -> str | None:
    """Return why the job's memory stays on its device; None: it may be moved out."""
    return why_pinned(job.traits) or (PINNED_ENGINE if job.spec.pin and job.pauser is None else None)


def _is_away(job: JobRecord) -> bool:
    """Return whether the job's memory is not on its device."""
    suspended = job.by_checkpoint and job.pid is not None and not job.on_device and not job.outcome
    return suspended or _seat_says(job, "offloaded")


def _busy_of_us(job: JobRecord) -> Micros:
    """Return the turn time of which the job's busy time is a part; 0: no busy time is known."""
    return 0 if job.busy_us is None else max(0, job.usage.device_us - job.busy_since_us)


def _paused_us(job: JobRecord) -> Micros:
    return 0 if job.phase is JobPhase.QUEUED else job.control.paused_in_all_us(wall_us())


def moved_info(usages: Sequence[Usage]) -> MovedInfo:
    """Sum up what these jobs have moved to the host store and back."""
    return MovedInfo(
        sum(usage.out_bytes for usage in usages),
        sum(usage.out_us for usage in usages),
        sum(usage.in_bytes for usage in usages),
        sum(usage.in_us for usage in usages),
    )


def iterations_total(job: JobRecord) -> int | None:
    """Return the job's number of iterations: reported by the script, else declared, else taken from earlier runs."""
    if job.usage.progress_total:
        return job.usage.progress_total
    if job.spec.iterations is not None:
        return job.spec.iterations
    return job.estimate.iterations if job.estimate else None


def iteration_us(job: JobRecord) -> int | None:
    """Return the measured turn time per iteration; before the first iteration, that of earlier runs."""
    if job.usage.iterations:
        return job.usage.device_us // job.usage.iterations
    return job.estimate.iteration_us if job.estimate else None


def attempts(job: JobRecord) -> list[AttemptInfo]:
    """List the attempts that are over; empty for the usual job, which is started once."""
    if not job.past:
        return []
    found = [_attempt_info(number, ended) for number, ended in enumerate(job.past, 1)]
    if job.outcome is not None and job.started_us is not None:
        found.append(_last_attempt(job))
    return found


def _last_attempt(job: JobRecord) -> AttemptInfo:
    whole = job.reason.text if job.reason else str(job.outcome)
    text = whole.removeprefix(f"attempt {job.attempt}: ").partition("; attempt 1")[0]  # the part about this attempt
    return AttemptInfo(
        job.attempt,
        job.device,
        job.started_us,
        job.ended_us,
        job.exit_code,
        job.signal,
        text,
        job.usage.persistent_peak,
        job.usage.ephemeral_peak,
        f"log.{job.attempt}",
    )


def _attempt_info(number: int, ended: Ended) -> AttemptInfo:
    return AttemptInfo(
        number,
        ended.core.device,
        ended.started_us,
        ended.ended_us,
        ended.exit_code,
        ended.signal,
        ended.core.text,
        ended.persistent_bytes,
        ended.ephemeral_bytes,
        "log" if number == 1 else f"log.{number}",
    )


def last_info(job: JobRecord) -> msgspec.Raw:
    """Encode the final row of a job once, because it no longer changes; long texts and lists of attempts are shortened.

    Texts keep their beginning, the list of attempts its last `MOST_ATTEMPTS`.
    """
    return msgspec.Raw(msgspec.json.encode(_short(job_info(job, None))))


def _short(info: JobInfo) -> JobInfo:
    return msgspec.structs.replace(
        info,
        command=shortened(info.command),
        cwd=short_text(info.cwd),
        reason=None if info.reason is None else ReasonInfo(info.reason.code, short_text(info.reason.text)),
        output=short_text(info.output),
        error=short_text(info.error),
        attempts=[_short_attempt(attempt) for attempt in info.attempts[-MOST_ATTEMPTS:]],
    )


def _short_attempt(attempt: AttemptInfo) -> AttemptInfo:
    return msgspec.structs.replace(attempt, text=short_text(attempt.text))


def short_text(text: str) -> str:
    """Shorten a text to `LONGEST_TEXT` characters and a note that the rest is in the journal."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + REST


def shortened(argv: list[str]) -> list[str]:
    """Shorten a command to `LONGEST_COMMAND` characters and a note that the rest is in the journal."""
    left = LONGEST_COMMAND
    kept: list[str] = []
    for text in argv:
        if len(text) + 1 > left:
            return [*kept, f"{text[:left]}{REST}"]
        kept.append(text)
        left -= len(text) + 1
    return kept
