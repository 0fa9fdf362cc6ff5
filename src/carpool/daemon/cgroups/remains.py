"""What is left of an attempt in its control groups, when its main process has ended."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from carpool.core.model import JobId
from carpool.daemon.cgroups.group import Group, move
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.system.errors import problems

PATIENCE_S = 5.0  # for processes that are stuck in the kernel


@dataclass(frozen=True, slots=True)
class GroupRemains:
    """The groups of one attempt that is over.

    ``group``: the one of version 2, which can be killed; ``shims``: where the shim belongs; ``further``: of version 1;
    ``shim``: its process, if that may be there still.
    """

    job: JobRecord
    group: Group | None = None
    shims: Group | None = None
    further: tuple[Group, ...] = ()
    shim: int | None = None

    def pids(self) -> set[int]:
        """Return the processes that are left, without the shim."""
        try:
            return set() if self.group is None else self.group.pids() - {self.shim}
        except OSError:
            return set()

    def removed(self) -> bool:
        """Remove the groups.  False: processes are left, or that cannot be known at present."""
        try:
            if self.group is not None and self.group.populated():
                return False
            for group in (*self.further, *([] if self.group is None else [self.group])):
                group.remove()
        except OSError:
            return False
        return True

    def end(self) -> list[str]:
        """Kill what is left, wait until it is gone, and remove the groups.  Takes time.  Returns what has failed."""
        return problems(f"the control group of job {self.job.id} cannot be ended", self._end)

    def _end(self) -> None:
        if self.group is not None and self._shim_is_out(self.group):
            end_group(self.group)
        self.removed()

    def _shim_is_out(self, group: Group) -> bool:
        """Take the shim of a short job out, if it has not left yet, and return whether it is out.

        A shim that cannot leave has ended the job by its own means.
        """
        if self.shim is None or self.shims is None or self.shim not in group.pids():
            return True
        try:
            move(self.shim, self.job.owner, self.shims, self.shims)
        except ProcessLookupError:
            return True
        return self.shim not in group.pids()


def end_group(group: Group) -> None:
    """Kill what is in a group of version 2, wait until it is gone, and remove it.  Takes time.  Raises OSError."""
    if group.populated():
        group.kill()
    if not group.wait_empty(PATIENCE_S):
        raise OSError(errno.EBUSY, f"processes {sorted(group.pids())} do not end")
    group.remove()


def group_name(job: JobId, attempt: int) -> str:
    """Return the name of one attempt's group; as with files, the first attempt is not numbered."""
    return f"job-{job}" if attempt == 1 else f"job-{job}.{attempt}"


def notifier_name(pid: int) -> str:
    """Return the name of the group of a process that sends a notice."""
    return f"notice-{pid}"


def is_notifiers(name: str) -> bool:
    """Whether a group has a name from `notifier_name`."""
    return name.startswith("notice-")


def attempt_of(name: str) -> tuple[JobId, int] | None:
    """Return job and attempt from a group's name; None: it is not the group of a job."""
    found = re.fullmatch(r"job-(\d+)(?:\.(\d+))?", name)
    return None if found is None else (int(found[1]), int(found[2] or 1))
