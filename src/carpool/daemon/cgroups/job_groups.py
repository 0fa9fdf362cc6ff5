"""The control groups of jobs, which have a job's processes from the first instruction on, and are killed as a whole.

The shim is outside: it has to write down how the job has ended.  The shim enters the group before it starts the job, so
that the main process is born there, and leaves the group when the job runs.  To hand the open file of the group to the
shim instead would let users move processes of others: the kernel checks the rights of the process that opened the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from carpool.core.model import JobId
from carpool.daemon.cgroups.group import (
    SUBTREE,
    Group,
    GroupRemains,
    attempt_of,
    end_group,
    group_name,
    is_notifiers,
    move,
    notifier_name,
)
from carpool.daemon.cgroups.hierarchies import MEMORY, PIDS, UNIFIED, Hierarchies, hierarchies_here
from carpool.daemon.cgroups.places import Places, Tree, find_places
from carpool.daemon.jobs.table import JobRecord
from carpool.daemon.system.errors import problems
from carpool.protocol.api import ControlGroups
from carpool.protocol.paths import Home
from carpool.protocol.units import format_size

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """``memory``: bytes of host memory for all jobs of one user; ``processes``: processes and threads of one job."""

    memory: int | None = None
    processes: int | None = None

    @property
    def controllers(self) -> set[str]:
        """Return the controllers that the limits need."""
        given = {MEMORY: self.memory, PIDS: self.processes}
        return {name for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Member:
    """The owner and the group name of a process; ``text``: what the process belongs to, for people."""

    text: str
    owner: int
    name: str


def _of_job(job: JobRecord) -> _Member:
    return _Member(f"job {job.id}", job.owner, group_name(job.id, job.attempt))


def _of_notifier(owner: int, pid: int) -> _Member:
    return _Member(f"a notice of uid {owner}", owner, notifier_name(pid))


class JobGroups:
    """The daemon's operations on control groups.  Failures are returned as lines of text, for the log."""

    def __init__(self, places: Places, limits: GroupLimits) -> None:
        self._trees = places.trees
        self._earlier = places.earlier
        self._limits = limits

    @property
    def active(self) -> bool:
        """Whether jobs have groups at all."""
        return bool(self._trees)

    @property
    def limited(self) -> bool:
        """Whether a limit of memory or processes holds for jobs."""
        return self.memory is not None or self.processes is not None

    @property
    def memory(self) -> int | None:
        """The limit of memory that holds for the jobs of each user, in bytes."""
        return self._limits.memory if any(MEMORY in tree.controllers for tree in self._trees) else None

    @property
    def processes(self) -> int | None:
        """The limit of processes and threads that holds for each job."""
        return self._limits.processes if any(PIDS in tree.controllers for tree in self._trees) else None

    def enter(self, job: JobRecord, shim: int) -> list[str]:
        """Put the shim, which is about to start the job, into the job's group.  Takes time: moves wait for RCU."""
        return self._all_entered(_of_job(job), shim)

    def enter_notifier(self, owner: int, pid: int) -> list[str]:
        """Put a process that is to run a command as ``owner`` into its own group, limited as a job is.  Takes time."""
        return self._all_entered(_of_notifier(owner, pid), pid)

    def end_notifier(self, owner: int, pid: int) -> list[str]:
        """Kill what such a process, which has ended, has left, and remove its group.  Takes time."""
        member, found = _of_notifier(owner, pid), list[str]()
        for tree in sorted(self._per_job, key=lambda tree: not tree.unified):  # processes are killed there
            group = tree.job(owner, member.name)
            end = partial(end_group, group) if tree.unified else group.remove
            found += problems(f"the control group of {member.text} cannot be ended", end)
        return found

    def leave(self, job: JobRecord, shim: int) -> list[str]:
        """Take the shim of a job that runs out of the job's group.  Takes time."""
        text = f"the shim of job {job.id} stays in the job's control group below"
        pairs = [(f"{text} {tree.root.path}", partial(_leave, tree, job, shim)) for tree in self._per_job]
        return [problem for text, work in pairs for problem in problems(text, work)]

    def remains(self, job: JobRecord, shim: int | None) -> GroupRemains:
        """Return what is left of the present attempt, which is over.  ``shim``: the shim's process, if it lives."""
        name, owner = group_name(job.id, job.attempt), job.owner
        further = tuple(tree.job(owner, name) for tree in self._per_job if not tree.unified)
        for tree in self._trees:
            if tree.unified:
                return GroupRemains(job, tree.job(owner, name), tree.shims(owner), further, shim)
        return GroupRemains(job, further=further)

    def refusals(self, job: JobRecord) -> int:
        """Return how often the present attempt was refused a process by its limit; 0 also where that is not known."""
        for tree in self._trees:
            if PIDS in tree.controllers:
                with suppress(OSError, ValueError, IndexError):
                    words = tree.job(job.owner, group_name(job.id, job.attempt)).words("pids.events")
                    return int(words[words.index("max") + 1])
        return 0

    def adopt(self, over: Callable[[JobId, int], bool]) -> list[Group]:
        """Set the present memory limit for users whose jobs run, and remove empty groups, at the daemon's start.

        Returns the groups in which processes are left of attempts that are ``over``, and of notices.
        """
        left: list[Group] = []
        self._set_limits()
        for tree in self._trees:
            _report(partial(_look_through, tree, over, left))
        return left

    def close(self, patience_s: float) -> None:
        """Remove empty groups at the daemon's end.  ``patience_s``: for shims of jobs that have just ended."""
        for tree in self._trees:
            with suppress(OSError):
                if tree.unified:
                    tree.root.wait_empty(patience_s)
        for root in (*self._earlier, *(tree.root for tree in self._trees)):
            with suppress(OSError):  # jobs run there, for the next daemon
                root.remove()

    @property
    def _per_job(self) -> list[Tree]:
        return [tree for tree in self._trees if tree.per_job]

    def _set_limits(self) -> None:
        """Set the present memory limit for all users; one who has more memory already does not hinder the others."""
        for root in self._earlier:
            _for_each_user(root, partial(_set_memory, limit=None))
        for tree in self._trees:
            limit = self._limits.memory if MEMORY in tree.controllers else None
            _for_each_user(tree.root, partial(_set_memory, limit=limit))

    def _all_entered(self, member: _Member, pid: int) -> list[str]:
        return [problem for tree in self._trees for problem in self._entered(tree, member, pid)]

    def _entered(self, tree: Tree, member: _Member, pid: int) -> list[str]:
        found: list[str] = []
        text = f"{member.text} is without its control group below {tree.root.path}"
        return problems(text, partial(self._enter, tree, member, pid, found)) + found

    def _enter(self, tree: Tree, member: _Member, pid: int, found: list[str]) -> None:
        """Put a process into its group and set the limits; failures to set limits are appended to ``found``."""
        user, text = tree.user(member.owner), f"{member.text} is without a limit of control group"
        group, spare = user, user
        user.make()
        found += problems(f"{text} {user.path}", partial(self._limit_user, tree, user))
        if tree.per_job:
            group, spare = tree.job(member.owner, member.name), tree.shims(member.owner)
            spare.make()
            group.make()
            found += problems(f"{text} {group.path}", partial(self._limit_job, tree, group))
        with suppress(ProcessLookupError):  # it has ended, and starts nothing
            move(pid, member.owner, group, spare)

    def _limit_user(self, tree: Tree, user: Group) -> None:
        if tree.unified and PIDS in tree.controllers:
            user.write(SUBTREE, f"+{PIDS}")
        if MEMORY in tree.controllers:
            _set_memory(user, self._limits.memory)

    def _limit_job(self, tree: Tree, group: Group) -> None:
        if PIDS in tree.controllers:
            group.write("pids.max", str(self._limits.processes))


def _leave(tree: Tree, job: JobRecord, shim: int) -> None:
    with suppress(ProcessLookupError, FileNotFoundError):  # it has ended, or has not been there
        shims = tree.shims(job.owner)
        move(shim, job.owner, shims, shims)


def _report(work: Callable[[], None]) -> None:
    for problem in problems("the control groups of an earlier daemon", work):
        log.warning("%s", problem)


def _for_each_user(root: Group, work: Callable[[Group], None]) -> None:
    """Do ``work`` for the group of each user below ``root``; what fails is logged."""

    def for_each() -> None:
        for user in root.children():
            _report(partial(work, user))

    _report(for_each)


def _look_through(tree: Tree, over: Callable[[JobId, int], bool], left: list[Group]) -> None:
    """Remove empty groups; append those to ``left`` in which processes are left."""
    for user in tree.root.children():
        for group in user.children():
            with suppress(OSError):
                group.remove()
            attempt = attempt_of(group.path.name)
            ended = is_notifiers(group.path.name) if attempt is None else over(*attempt)
            if tree.unified and ended and group.path.exists():
                left.append(group)


def _set_memory(user: Group, limit: int | None) -> None:
    """Limit the memory of all jobs of a user together, in bytes; None: no limit.  Raises OSError."""
    for name, unlimited in (("memory.max", "max"), ("memory.limit_in_bytes", "-1")):
        if (user.path / name).exists():
            user.write(name, unlimited if limit is None else str(limit))


def open_groups(home: Home, limits: GroupLimits, here: Hierarchies | None = None) -> tuple[JobGroups, ControlGroups]:
    """Find and report the groups before the daemon, which may have to leave its own group, starts any process.

    ``here``: the hierarchies, if not those of this process.
    """
    places = find_places(home, here or hierarchies_here(), limits.controllers)
    found = report(places, limits)
    log.info("control groups: %s", found.found)
    for problem in found.problems:
        log.warning("%s", problem)
    return JobGroups(places, limits), found


def report(places: Places, limits: GroupLimits) -> ControlGroups:
    """Say for people which groups and limits are in force."""
    roots = [str(tree.root.path) for tree in places.trees if tree.unified]
    parts = [f"each job has its own in {root}" for root in roots]
    if not parts:
        parts = [f"jobs have none of their own, and are ended process by process ({places.missing[UNIFIED]})"]
    wanted = _wanted(limits)
    parts += [text for controller, (_, text) in wanted.items() if controller not in places.missing]
    problems = [
        f"{name} in limits.toml does not hold: {places.missing[controller]}"
        for controller, (name, _) in wanted.items()
        if controller in places.missing
    ]
    return ControlGroups("; ".join(parts), problems)


def _wanted(limits: GroupLimits) -> dict[str, tuple[str, str]]:
    """Return by controller the name of the limit that is set, and its text for people."""
    found = {}
    if limits.memory is not None:
        found[MEMORY] = "memory", f"at most {format_size(limits.memory)} of memory for the jobs of a user"
    if limits.processes is not None:
        found[PIDS] = "processes", f"at most {limits.processes} processes and threads of a job"
    return found
