"""Control groups of jobs, entered before the start and ended with what is left of an attempt; core dumps of jobs."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from carpool.core.events import StartFailed
from carpool.core.model import JobId
from carpool.daemon.cgroups.group import GroupRemains, end_group
from carpool.daemon.cgroups.job_groups import JobGroups
from carpool.daemon.hooks.base import Ending, JobHook, JobStart
from carpool.daemon.jobs.table import JobRecord, JobTable
from carpool.daemon.system.background import in_background
from carpool.daemon.system.log_limit import log_problems
from carpool.protocol.units import format_size

log = logging.getLogger(__name__)
RETRY_S = 1.0
MOST_VAIN_ENTRIES = 3  # further attempts to enter a control group
SHIMS_END_S = 1.0
KILLED = "the kernel has ended a process of its control group for want of host memory"


class ControlGroupHook(JobHook):
    """Has each job run in a control group, where the machine allows that."""

    def __init__(self, groups: JobGroups) -> None:
        self._groups = groups
        self._jobs: JobTable | None = None

    def starting(self, start: JobStart, then: Callable[[str], None]) -> None:
        """Put the shim into the job's group, which takes some milliseconds."""
        if self._groups.active:
            self._enter(start, then, MOST_VAIN_ENTRIES)
        else:
            then("")

    def _enter(self, start: JobStart, then: Callable[[str], None], more: int) -> None:
        """Enter the group; while there is a limit, a job that cannot enter does not start."""

        def entered(result: list[str] | Exception) -> None:
            over = start.is_over()  # the group has been removed meanwhile
            if not over:
                log_problems(start.job.owner, result)
            if over or not (result and self._groups.limited):
                then("")
            elif more:
                asyncio.get_running_loop().call_later(RETRY_S, self._enter_again, start, then, more - 1)
            else:
                then(_not_entered(result))

        in_background(f"enter-{start.job.id}", partial(self._groups.enter, start.job, start.shim), entered)

    def _enter_again(self, start: JobStart, then: Callable[[str], None], more: int) -> None:
        """Enter the group unless the start is over: the shim's pid may belong to another process by now."""
        if start.is_over():
            then("")
        else:
            self._enter(start, then, more)

    def started(self, job: JobRecord, shim: int | None) -> None:
        """Move the shim out of the job's group, so that killing the group spares the shim."""
        if self._groups.active and shim is not None and not job.spec.joined:
            in_background(f"leave-{job.id}", partial(self._groups.leave, job, shim), partial(log_problems, job.owner))

    def exited(self, job: JobRecord, ending: Ending) -> Ending:
        """Add the limit of memory for which a process was killed, and how often the limit of processes was met."""
        if isinstance(ending, StartFailed):
            return ending
        notes = [ending.note] if ending.note else []
        if ending.note == KILLED and self._groups.memory is not None:
            size = format_size(self._groups.memory)
            notes = [f"{KILLED}: all jobs of a user may have {size} together (memory in limits.toml)"]
        if ending.code != 0 and (times := self._groups.refusals(job)):
            most = self._groups.processes
            notes.append(f"refused a process or thread {times} times: it may have {most} (processes in limits.toml)")
        return dataclasses.replace(ending, note="; ".join(notes))

    def remains(self, job: JobRecord, shim: int | None) -> GroupRemains:
        """Return the groups of the attempt."""
        return self._groups.remains(job, shim)

    def restored(self, jobs: JobTable) -> None:
        """Take over control groups, and end those in which an earlier daemon could not end what was left."""
        self._jobs = jobs
        for group in self._groups.adopt(partial(_is_over, jobs)):
            in_background(f"end-{group.path.name}", partial(end_group, group), _log_left)

    def close(self) -> None:
        """Close the control groups; shims of jobs that have just ended get a moment to end, too."""
        self._groups.close(0.0 if self._jobs is not None and self._jobs.live else SHIMS_END_S)


def _is_over(jobs: JobTable, job: JobId, attempt: int) -> bool:
    live = jobs.live.get(job)
    return job in jobs.ended if live is None else attempt < live.attempt


def _not_entered(result: list[str] | Exception) -> str:
    text = str(result) if isinstance(result, Exception) else result[0]
    return f"it cannot enter its control group, and the limits in limits.toml would not hold: {text}"


def _log_left(result: Exception | None) -> None:
    if result is not None:
        log.warning("a control group of a job that is over stays: %s", result)


class CoreDumps(JobHook):
    """Tells shims whether their jobs may leave core dumps; `carpool.runtime.shim` carries that out."""

    def __init__(self, allowed: bool) -> None:
        self._allowed = allowed

    def starting(self, start: JobStart, then: Callable[[str], None]) -> None:
        """Say whether the job may leave any."""
        start.spec = msgspec.structs.replace(start.spec, core_dumps=self._allowed)
        then("")
